"""How long a burst of requests takes when the handler is `def`, and when it is `async def`.

Run it with `pytest --fileperf`, and with `--full-size` as it was published.
"""

from __future__ import annotations

import math

import pytest

from pytest_fileperf import Uvicorn

CONNECTIONS = 200
POOL_THREADS = 40
"""How many `def` handlers run at once: the default of anyio, whose pool FastAPI uses."""
AT_ONCE = {"sync_endpoint": POOL_THREADS, "async_endpoint": CONNECTIONS}
"""How many requests of an endpoint are asleep at the same time."""
LIMITED_BY = {"sync_endpoint": "thread pool", "async_endpoint": "concurrency"}
"""What sets the pace, where the machine is quiet enough to tell."""
DEFAULT_SIZE = (0.3, 1000)


@pytest.mark.fileperf(app="sync_vs_async.app:app", gate="none", group="sync vs async")
@pytest.mark.parametrize("delay_s, requests", [DEFAULT_SIZE, (0.3, 1500), (1, 1000), (1, 1500)])
@pytest.mark.parametrize("endpoint", AT_ONCE)
def test_burst(fileperf, full_size, endpoint, delay_s, requests):
    if not full_size and (delay_s, requests) != DEFAULT_SIZE:
        pytest.skip("only with --full-size")
    result = fileperf.get(
        f"/{endpoint}",
        params={"delay": delay_s},
        burst=requests,
        connections=CONNECTIONS,
        timeout="2m",  # the last answer of the longest burst comes after 38 seconds
        # A process for each endpoint: threads of the pool live on for a while, and would count as the other's memory.
        server=Uvicorn(env=(("SYNC_VS_ASYNC", endpoint),)),
        label=f"{endpoint}, {delay_s:g} s × {requests}",
    )
    assert result.success_ratio == 1
    if result.requests == requests:  # a smoke run makes fewer, and says nothing about time
        theory_s = math.ceil(requests / AT_ONCE[endpoint]) * delay_s
        assert 0.97 * theory_s <= result.duration <= 1.25 * theory_s + 0.2  # room for a busy machine
        assert result.limit.kind in (LIMITED_BY[endpoint], "unclear")
