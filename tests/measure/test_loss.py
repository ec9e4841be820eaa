"""How much of a loss is CPU time and how much is waiting, against closed loops worked out request by request."""

from __future__ import annotations

import heapq

import pytest

from pytest_fileperf.measure.limiting import Loss, Served, latency_of, loss_of

MS = 1e-3
UNSEEN = 1.04
"""Some of what holds a core is in no process's CPU time."""


def latency_s(connections: int, cpu_s: float, wait_s: float) -> float:
    """Returns the mean latency in a closed loop on one core."""
    free_s, requests = 0.0, 4000
    ready = [(0.0, number) for number in range(connections)]
    for _ in range(requests):
        at_s, number = heapq.heappop(ready)
        free_s = max(at_s, free_s) + cpu_s
        heapq.heappush(ready, (free_s + wait_s, number))
    return connections * free_s / requests


def lost(connections: int, before: tuple[float, float], more: tuple[float, float]) -> Loss | None:
    """Returns the loss where CPU time and wait, in ms, grow by so much."""
    sides = []
    for cpu_ms, wait_ms in (before, (before[0] + more[0], before[1] + more[1])):
        latency = latency_s(connections, cpu_ms * MS, wait_ms * MS) * UNSEEN
        sides.append(Served(latency_s=latency, cpu_s=cpu_ms * MS, connections=connections))
    return loss_of(sides[0], sides[1])


@pytest.mark.parametrize("before", [(0.06, 0.05), (0.3, 0.05), (0.3, 2.0), (1.0, 4.0)], ids=str)
@pytest.mark.parametrize("connections", [1, 2, 8, 32, 128])
@pytest.mark.parametrize("more_ms", [0.1, 1.0, 5.0])
def test_cpu_time_is_named(connections: int, before: tuple[float, float], more_ms: float) -> None:
    loss = lost(connections, before, (more_ms, 0.0))

    assert loss is None or loss.cpu_share > 0.9
    assert loss is not None or more_ms == 0.1


@pytest.mark.parametrize("before", [(0.06, 0.05), (0.3, 0.05), (0.3, 2.0), (1.0, 4.0)], ids=str)
@pytest.mark.parametrize("connections", [1, 2, 8, 32])
@pytest.mark.parametrize("more_ms", [1.0, 5.0, 20.0, 200.0])
def test_a_wait_is_named_unless_the_core_hides_it(
    connections: int, before: tuple[float, float], more_ms: float
) -> None:
    loss = lost(connections, before, (0.0, more_ms))

    hidden = sum(before) + more_ms < connections * before[0]
    assert (loss is None) if hidden else (loss is None or loss.cpu_share < 0.02)


@pytest.mark.parametrize("connections", [1, 2, 8])
def test_a_long_wait_and_a_little_cpu_time_is_a_wait(connections: int) -> None:
    loss = lost(connections, (0.06, 0.05), (0.1, 5.0))

    assert loss is not None
    assert loss.cpu_share < 0.15
    assert loss.wait_s == pytest.approx(loss.total_s - loss.cpu_s)


def test_a_core_that_got_busy_is_the_cause_though_a_wait_came_too() -> None:
    loss = lost(8, (0.06, 0.05), (5.0, 5.0))

    assert loss is not None
    assert loss.cpu_share > 0.9


def test_nothing_is_lost_where_requests_take_no_longer() -> None:
    served = Served(latency_s=0.01, cpu_s=0.001, connections=4)

    assert loss_of(served, Served(latency_s=0.009, cpu_s=0.002, connections=4)) is None
    assert loss_of(served, Served(latency_s=0.01005, cpu_s=0.001, connections=4)) is None


@pytest.mark.parametrize("more_cpu_ms,more_ms,cpu_share", [(0.0, 5.0, 0.0), (5.0, 5.5, 1.0), (1.0, 11.0, 0.1)])
def test_an_open_loop(more_cpu_ms: float, more_ms: float, cpu_share: float) -> None:
    base = Served(latency_s=2 * MS, cpu_s=1 * MS, connections=64, rate=50)
    now = Served(latency_s=(2 + more_ms) * MS, cpu_s=(1 + more_cpu_ms) * MS, connections=64, rate=50)

    loss = loss_of(base, now)

    assert loss is not None
    assert loss.cpu_share == pytest.approx(cpu_share, abs=0.06)


def test_an_open_loop_that_a_core_cannot_serve_lost_its_time_to_cpu() -> None:
    base = Served(latency_s=2 * MS, cpu_s=1 * MS, connections=64, rate=100)

    loss = loss_of(base, Served(latency_s=3.0, cpu_s=12 * MS, connections=64, rate=83))

    assert loss is not None
    assert loss.cpu_share == 1


def test_several_cores_serve_several_requests_at_once() -> None:
    one, two = (Served(latency_s=8 * MS, cpu_s=2 * MS, connections=4, cores=cores) for cores in (1, 2))

    assert latency_of(one, wait_s=0) == pytest.approx(8 * MS)
    assert 4 * MS <= latency_of(two, wait_s=0) < 5.5 * MS
