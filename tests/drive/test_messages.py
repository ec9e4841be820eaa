"""Messages between the test process and a generator."""

from __future__ import annotations

import io

from pytest_fileperf.drive.messages import read_message, write_message
from pytest_fileperf.measure.histogram import Histogram


def test_histograms_that_were_sent_own_their_memory() -> None:
    """A session keeps those of every measurement: views of the messages would be kept with them."""
    stream = io.BytesIO()
    write_message(stream, Histogram.of([1_000, 2_000]))
    stream.seek(0)
    received = read_message(stream)
    assert isinstance(received, Histogram)
    assert received == Histogram.of([1_000, 2_000])
    assert (received.steps.base, received.counts.base) == (None, None)
