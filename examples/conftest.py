"""What the studies share: whether to run them as small as they are by default, or as they were published."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full-size", action="store_true", help="run the studies as they were published: see the README of each"
    )


@pytest.fixture(scope="session")
def full_size(pytestconfig: pytest.Config) -> bool:
    """Whether the studies run as they were published; not so where pytest started without knowing the option."""
    return bool(pytestconfig.getoption("--full-size", default=False))
