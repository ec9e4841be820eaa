"""A request whose cost is known, to see what a gate finds."""

from __future__ import annotations

import pytest


@pytest.mark.fileperf(app="gate_statistics.app:app")
def test_known_cost(fileperf):
    fileperf.get("/work")
