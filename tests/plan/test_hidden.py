"""Texts that may hold a URL show neither logins nor the values of queries."""

from __future__ import annotations

import pytest

from pytest_fileperf.plan.request import without_queries


@pytest.mark.parametrize(
    "text,shown",
    [
        pytest.param("no answer of http://bob:pw@localhost/x", "no answer of http://…@localhost/x", id="a login"),
        pytest.param("HTTPS://bob:pw@localhost/x", "HTTPS://…@localhost/x", id="capitals"),
        pytest.param("http://bob:p@w@localhost/x", "http://…@localhost/x", id="an @ in the password"),
        pytest.param("http://localhost/a@b", "http://localhost/a@b", id="an @ in the path"),
    ],
)
def test_logins_are_hidden(text: str, shown: str) -> None:
    assert without_queries(text) == shown
