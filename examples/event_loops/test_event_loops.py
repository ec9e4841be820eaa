"""How many answers of 1 KiB a second come from three HTTP stacks, each on uvloop and on asyncio's own event loop.

Run it with `pytest --fileperf`, and with `--full-size` as it was published. The tests compare servers with each other
and not with a baseline: there is no gate.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pytest_fileperf import Command

SERVER = Path(__file__).with_name("server.py")
STACKS = {"application": "aiohttp, Application", "bare": "aiohttp, bare Server", "protocol": "Protocol + httptools"}
"""By the server's argument: what the table calls it."""


@pytest.fixture
def size(full_size: bool, pytestconfig: pytest.Config) -> dict[str, object]:
    """Keys for a verb, but for what the command line says."""
    keys: dict[str, object] = {"connections": 1_000, "duration": "4s"}
    if full_size:
        # In 3 seconds the slowest server answers on each connection but a few times: the first one is warm-up.
        keys = {"connections": 10_000, "duration": "3s", "warmup": "3s", "timeout": "5s"}
    return {key: value for key, value in keys.items() if pytestconfig.getoption(f"--fileperf-{key}") is None}


@pytest.mark.fileperf(group="event loops", gate="none")
@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
@pytest.mark.parametrize("stack", STACKS)
def test_get(fileperf, size, stack, loop):
    if loop == "uvloop" and sys.platform == "win32":
        pytest.skip("there is no uvloop for Windows")
    command = ["{python}", str(SERVER), "--stack", stack, "--loop", loop, "--port", "{port}"]
    server = Command(command, title=f"{stack} on {loop}")
    fileperf.get("/", expect_bytes="1KiB", server=server, label=f"{STACKS[stack]}, {loop}", **size)
