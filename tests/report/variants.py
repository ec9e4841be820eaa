"""Groups of results made by hand: variants of one thing, to be ranked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from report.samples import (
    ALL_STABILISED,
    CONCURRENCY,
    ERRORS,
    FAILURES,
    GENERATOR,
    PASSED,
    REGRESSED,
    SERVER_CPU,
    recording,
    result,
)

from pytest_fileperf.judge.record import Result
from pytest_fileperf.judge.verdict import Verdict
from pytest_fileperf.measure.histogram import EMPTY, Histogram
from pytest_fileperf.measure.limiting import Limit, LimitKind
from pytest_fileperf.measure.recording import Boot, Failure, LeadTimes, Phase, Recording, Round

SECOND_NS = 1_000_000_000
NETWORK = Limit(kind=LimitKind.NETWORK, evidence="bytes wait to be sent on 28 connections, server CPU 31 %")
THREAD_POOL = Limit(kind=LimitKind.THREAD_POOL, evidence="40 threads busy, 200 requests in flight, server CPU 6 %")
RATE = Limit(kind=LimitKind.RATE, evidence="50.1/s were asked for, server CPU 20 %")


def steady(rps: int, *, boots: int = 1, rounds: int = 12, failures: tuple[Failure, ...] = ()) -> Recording:
    """Returns a closed loop of 32 connections with so many requests a second, each round as good as the other."""
    slowest_ms = max(5.1, 64_000 / rps - 5)
    return recording(requests=rps // 2, boots=boots, rounds=rounds, slowest_ms=slowest_ms, failures=failures)


def uploads() -> Iterable[Result]:
    """Returns five endpoints, of which two reach the limit of the network."""
    for number, (label, rps, limit) in enumerate(
        (
            ("binary stream, async write", 4457, NETWORK),
            ("form, whole, async write", 2676, SERVER_CPU),
            ("form, chunks, async write", 2715, SERVER_CPU),
            ("form, whole, def endpoint", 2240, THREAD_POOL),
            ("binary stream, sync write", 4557, NETWORK),
        )
    ):
        yield result(f"test_upload[{number}]", recorded=steady(rps), label=label, limit=limit, group="study A, uploads")


def stacks() -> Iterable[Result]:
    """Returns three HTTP stacks on two event loops."""
    found = {"application": (10265, 6438), "bare": (13269, 7425), "protocol": (25234, 21008)}
    for stack, rates in found.items():
        for loop, rps in zip(("uvloop", "asyncio"), rates, strict=True):
            yield result(
                f"test_get[{stack}-{loop}]",
                recorded=steady(rps),
                params={"stack": stack, "loop": loop},
                limit=GENERATOR if rps == 25234 else SERVER_CPU,
                server=f"{stack} on {loop} ×1",
                group="event loops",
            )


def gated() -> Iterable[Result]:
    """Returns variants with outcomes of their own, one that fails at times and one that always does."""
    down = recording(requests=0, failures=(Failure(kind="connect", count=640, example="connection refused"),))
    failing = steady(2050, boots=3, rounds=4, failures=FAILURES)
    slower = replace(REGRESSED, base=2340.0, now=2190.0)
    verdicts = (
        ("test_json", steady(2190, boots=3, rounds=4), Verdict(comparisons=(slower,)), SERVER_CPU),
        ("test_form", failing, Verdict(limits=(ERRORS,), comparisons=(PASSED,)), CONCURRENCY),
        ("test_down", down, Verdict(limits=(replace(ERRORS, value=1.0),)), None),
    )
    for name, recorded, verdict, limit in verdicts:
        yield result(
            name, recorded=recorded, verdict=verdict, limit=limit, group="bodies, each sent in one of three ways"
        )


def open_loop(
    count: int, *, attack_s: float, wait_s: float, latency_s: tuple[float, float], service_s: tuple[float, float]
) -> Recording:
    """Returns so many requests due evenly over the attack, or at once, whose latencies and service times are even too.

    All end when the rounds are over.
    """
    latency_ns, service_ns = (
        np.linspace(low * 1e9, high * 1e9, count).astype(np.int64) for low, high in (latency_s, service_s)
    )
    latency, service = Histogram.of(latency_ns), Histogram.of(service_ns)
    delay = Histogram.of(np.maximum(latency_ns - service_ns, 0))
    seconds = round(attack_s)
    empty = [
        Round(
            boot=0,
            index=index,
            phase=Phase.ROUND,
            started_ns=index * SECOND_NS,
            ended_ns=(index + 1) * SECOND_NS,
            requests=0,
            latency=EMPTY,
            ttfb=EMPTY,
            bytes_sent=0,
            bytes_received=0,
            server_cpu_ns=SECOND_NS * 9 // 10,
            client_cpu_ns=SECOND_NS // 5,
        )
        for index in range(seconds)
    ]
    last = Round(
        boot=0,
        index=seconds,
        phase=Phase.DRAIN if seconds else Phase.ROUND,
        started_ns=seconds * SECOND_NS,
        ended_ns=round((attack_s + wait_s) * SECOND_NS),
        requests=count,
        latency=latency,
        ttfb=latency,
        service=service,
        send_delay=delay,
        bytes_sent=count * 103_419_638,
        bytes_received=count * 20,
        statuses=((200, count),),
        server_cpu_ns=SECOND_NS,
        client_cpu_ns=SECOND_NS,
    )
    due_ns = np.linspace(0, attack_s * SECOND_NS, min(count, 500)).astype(np.int64)
    leads = LeadTimes(
        due_ns=tuple(due_ns.tolist()),
        counts=(count // len(due_ns),) * len(due_ns),
        mean_ns=tuple(latency_ns[: len(due_ns)].tolist()),
        max_ns=tuple(latency_ns[: len(due_ns)].tolist()),
    )
    return Recording(
        rounds=(*empty, last),
        boots=(Boot(index=0, peak_rss_bytes=120 << 20, stabilised=ALL_STABILISED, leads=leads),),
        connections=200,
        engine="replay",
        pinned=True,
        open_loop=True,
        due=count,
        attack_ns=round(attack_s * SECOND_NS),
        wait_ns=round(wait_s * SECOND_NS),
    )


def form_uploads() -> Iterable[Result]:
    """Returns servers that cannot keep up with 10 large uploads a second, as published."""
    found = (
        ("FastAPI ×1", 40.308, (12.928, 44.049), SERVER_CPU),
        ("aiohttp ×1", 16.398, (1.006, 19.144), SERVER_CPU),
        ("FastAPI ×2", 17.848, (1.535, 20.628), SERVER_CPU),
        ("Go ×2", 2.408, (0.702, 4.147), NETWORK),
    )
    for label, wait_s, latency_s, limit in found:
        recorded = open_loop(100, attack_s=9.9, wait_s=wait_s, latency_s=latency_s, service_s=latency_s)
        yield result(
            f"test_{label.split()[0].lower()}",
            nodeid=f"tests/test_forms.py::test_{label}",
            recorded=recorded,
            label=label,
            limit=limit,
            group="form uploads",
            load="10.0/s, at most 100 connections, 10.0 s",
        )


def bursts() -> Iterable[Result]:
    """Returns a thousand requests at once, to an endpoint with 40 threads and to one without."""
    found = (
        ("sync_endpoint", 7.6, (0.3, 7.6), (0.3, 1.55), THREAD_POOL),
        ("async_endpoint", 1.55, (0.3, 1.55), (0.3, 0.33), CONCURRENCY),
    )
    for endpoint, wait_s, latency_s, service_s, limit in found:
        recorded = open_loop(1000, attack_s=0, wait_s=wait_s, latency_s=latency_s, service_s=service_s)
        yield result(
            f"test_burst[{endpoint}]",
            recorded=recorded,
            params={"endpoint": endpoint},
            limit=limit,
            group="sync vs async",
            load="1000 requests at once, 200 connections",
        )


def kept_up() -> Iterable[Result]:
    """Returns open loops that get their rate."""
    for name, slowest_s in (("slow", 0.040), ("fast", 0.020)):
        latency_s = (slowest_s / 2, slowest_s)
        recorded = open_loop(500, attack_s=9.98, wait_s=slowest_s, latency_s=latency_s, service_s=latency_s)
        yield result(f"test_list[{name}]", recorded=recorded, limit=RATE, group="lists")
