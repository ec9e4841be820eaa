"""What limited a run: each kind where its evidence is there, and on the other side of each threshold no name."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace

import pytest
from judge.sides import known
from measure.recordings import MS, SECOND, STATES, Core, Made, in_ms, use

from pytest_fileperf.host.sample import Sample
from pytest_fileperf.measure.limiting import LimitKind, limit_of
from pytest_fileperf.measure.loss import Loss, Served, Stalls, held_by, latency_of, loss_of, stalls_of
from pytest_fileperf.measure.recording import Failure, LeadTimes, Phase, Recording
from pytest_fileperf.measure.usage import Usage

GENERATOR, CPU, LOOP = LimitKind.GENERATOR, LimitKind.SERVER_CPU, LimitKind.EVENT_LOOP
POOL, CONCURRENCY, DISK = LimitKind.THREAD_POOL, LimitKind.CONCURRENCY, LimitKind.DISK
JOURNEY = LimitKind.JOURNEY
NETWORK, RATE, UNCLEAR = LimitKind.NETWORK, LimitKind.RATE, LimitKind.UNCLEAR

CORES = {
    "one worker": (Made(workers=(Core(ran=0.97),), main="r"), CPU),
    "a journey that blocks": (Made(code_held=0.9, generator=Core(ran=0.3)), JOURNEY),
    "a journey that blocks less than half of the time": (Made(code_held=0.75, generator=Core(ran=0.3)), CONCURRENCY),
    "a journey that computes": (Made(code_held=0.85, generator=Core(ran=0.8)), UNCLEAR),
    "a journey that waits for cores": (Made(code_held=0.9, generator=Core(ran=0.2, waited=0.5)), CONCURRENCY),
    "one worker, some room": (Made(workers=(Core(ran=0.89),), main="ri"), UNCLEAR),
    "one worker, never idle": (Made(workers=(Core(ran=0.86),), main="r", looks=5), CPU),
    "one worker, never idle in the few looks there are": (Made(workers=(Core(ran=0.86),), main="r", looks=4), UNCLEAR),
    "one worker, never idle, some room": (Made(workers=(Core(ran=0.84),), main="r", looks=9), UNCLEAR),
    "two workers": (Made(workers=(Core(ran=0.96), Core(ran=0.94)), main="r"), CPU),
    "one of two workers": (Made(workers=(Core(ran=0.12), Core(ran=0.97)), main="ri"), CPU),
    "two workers that are half busy": (Made(workers=(Core(ran=0.5), Core(ran=0.47))), CONCURRENCY),
    "the generator": (Made(generator=Core(ran=0.95), workers=(Core(ran=0.4),)), GENERATOR),
    "the generator, and the server too": (Made(generator=Core(ran=0.95), workers=(Core(ran=0.97),)), GENERATOR),
    "a generator that is busy": (Made(generator=Core(ran=0.89), workers=(Core(ran=0.4),)), UNCLEAR),
    "a worker that waits for cores": (Made(workers=(Core(ran=0.62, waited=0.36),), main="r"), CPU),
    "a worker that waits for cores now and then": (Made(workers=(Core(ran=0.62, waited=0.3),), main="ri"), UNCLEAR),
    "a main thread that waits for its own threads": (
        Made(workers=(Core(ran=0.7, main_ran=0.05, waited=0.6),), busy=(3,), pool=40),
        CONCURRENCY,
    ),
    "a generator that waits for cores": (
        Made(generator=Core(ran=0.5, waited=0.48), workers=(Core(ran=0.4),)),
        GENERATOR,
    ),
    "too few cores for both": (
        Made(generator=Core(ran=0.55, waited=0.44), workers=(Core(ran=0.5, waited=0.48),), main="r"),
        UNCLEAR,
    ),
    "too few cores for both, the server wants more": (
        Made(generator=Core(ran=0.4, waited=0.58), workers=(Core(ran=0.62, waited=0.36),) * 2, main="r"),
        CPU,
    ),
    "always something to run": (Made(workers=(Core(ran=0.5, main_ran=0.1, waited=0.2),), main="r"), CPU),
    "something to run in the few looks there are": (
        Made(workers=(Core(ran=0.5, main_ran=0.1, waited=0.2),), main="r", looks=9, busy=(5,), pool=40),
        UNCLEAR,
    ),
    "threads that compute": (Made(workers=(Core(ran=0.97),), main="b", busy=(40,), pool=40, in_flight=64), CPU),
    "workers of which nothing is known": (Made(workers=(Core(ran=0.97),), workers_known=False), UNCLEAR),
    "nothing known but the whole": (Made(workers=(Core(ran=0.95), Core(ran=0.95)), looks=0), CPU),
    "nothing known but that there is room": (Made(looks=0), UNCLEAR),
    "no CPU times at all": (Made(looks=0, server_cpu_known=False), UNCLEAR),
}

WAITING = {
    "asyncio.sleep": (Made(), CONCURRENCY),
    "one connection": (Made(connections=1, in_flight=0.9, workers=(Core(ran=0.5),), main="ri"), CONCURRENCY),
    "one connection that the generator holds": (Made(connections=1, in_flight=0.7), UNCLEAR),
    "a request in a thread each": (Made(busy=(32,), pool=32), CONCURRENCY),
    "a request in a thread each, all at one lock": (Made(busy=(32,), pool=32, lock=31), UNCLEAR),
    "a pool that is used now and then": (Made(busy=(0, 2, 6, 1), pool=6), CONCURRENCY),
    "a pool that is used a lot": (Made(busy=(4, 6, 5, 5), pool=6), UNCLEAR),
    "a pool with idle threads from the warm-up": (Made(busy=(0,), pool=0), CONCURRENCY),
    "an event loop that is blocked": (Made(main="b"), LOOP),
    "an event loop that is blocked and computes": (Made(main="br", workers=(Core(ran=0.45),)), LOOP),
    "an event loop that waits for a thread that runs": (Made(main="b", running=1, looks=9), UNCLEAR),
    "an event loop that is blocked less than it waits": (Made(main="rrb", looks=9), UNCLEAR),
    "an event loop that computes more than it is blocked": (Made(main="rrb", workers=(Core(ran=0.6),)), UNCLEAR),
    "an event loop that is idle at times": (Made(main="bbbbi"), UNCLEAR),
    "an event loop that is idle less than its CPU time says": (Made(main="rrrrrri", looks=14), UNCLEAR),
    "an event loop that is hardly blocked": (Made(main="biiii"), CONCURRENCY),
    "too few looks": (Made(looks=4), UNCLEAR),
    "looks enough": (Made(looks=5), CONCURRENCY),
    "no looks at threads": (Made(threads_known=False), UNCLEAR),
    "a server that streams with pauses": (Made(under_way=0), CONCURRENCY),
    "sockets that were not looked at": (Made(under_way=-1), CONCURRENCY),
    "no success": (Made(requests=0), UNCLEAR),
    "most requests failed": (Made(in_flight=3.0, failures=(Failure(kind="timeout", count=500, example=""),)), UNCLEAR),
    "in-process": (Made(engine="in-process", generator=Core(ran=0.3), workers_known=False), CONCURRENCY),
    "in-process, computing": (Made(engine="in-process", generator=Core(ran=0.95), workers_known=False), CPU),
    "in-process, blocked": (
        Made(engine="in-process", generator=Core(ran=0.1), workers_known=False, busy=(1,), pool=1),
        UNCLEAR,
    ),
}

POOLS = {
    "full": (Made(busy=(40,), pool=40, in_flight=200, connections=200), POOL),
    "full, with dips": (Made(busy=(40, 39, 40, 28), pool=40, in_flight=200, connections=200), POOL),
    "full half of the time": (Made(busy=(40, 20), pool=40, in_flight=200, connections=200), UNCLEAR),
    "nearly full all the time": (Made(busy=(37, 36), pool=40, in_flight=200, connections=200), UNCLEAR),
    "asyncio's own": (Made(busy=(6,), pool=6), POOL),
    "full, but hardly anybody waits": (Made(busy=(40,), pool=40, in_flight=44, connections=44), CONCURRENCY),
    "full, and some wait": (Made(busy=(40,), pool=40, in_flight=46, connections=46), POOL),
    "threads of a kind that never rest": (Made(busy=(3,), pool=0), UNCLEAR),
    "a single thread": (Made(busy=(1,), pool=1), UNCLEAR),
    "full, all at one lock": (Made(busy=(40,), pool=40, in_flight=200, connections=200, lock=39), UNCLEAR),
    "full, and the server computes": (
        Made(busy=(40,), pool=40, in_flight=200, connections=200, workers=(Core(ran=0.8),)),
        UNCLEAR,
    ),
    "too few looks": (Made(busy=(40,), pool=40, in_flight=200, connections=200, looks=4), UNCLEAR),
}

DISKS = {
    "in the pool": (Made(busy=(40,), pool=40, storage=30, written=1, in_flight=64, connections=64), DISK),
    "in the pool, with threads to spare": (Made(busy=(30,), pool=40, storage=25, written=1), DISK),
    "in the pool, now and then": (Made(busy=(40,), pool=40, storage=15, written=1, in_flight=64, connections=64), POOL),
    "in the pool, without a byte": (Made(busy=(40,), pool=40, storage=30, in_flight=64, connections=64), POOL),
    "a few requests of many": (Made(busy=(4,), pool=40, storage=4, written=1), CONCURRENCY),
    "on the event loop": (Made(main="s", written=1), DISK),
    "on the event loop, among other waits": (Made(main="sb", written=1), DISK),
    "on the event loop, with more of other waits": (Made(main="sbb", written=1), UNCLEAR),
    "on the event loop, with many other waits": (Made(main="sbbbb", written=1), LOOP),
    "on the event loop, without a byte": (Made(main="s"), UNCLEAR),
    "on the event loop, in waits that are too short to be seen": (Made(main="rrrrs", written=1, stalled=0.6), DISK),
    "on the event loop, in waits that were never seen": (Made(main="r", looks=9, written=1, stalled=0.6), UNCLEAR),
    "of others, while the event loop is blocked": (Made(main="b", stalled=0.9), LOOP),
    "of others or not, while the event loop is blocked": (Made(main="b", stalled=0.9, written=1), UNCLEAR),
    "in the pool, told by the machine alone": (
        Made(busy=(30,), pool=40, storage=25, bytes_known=False, stalled=0.11),
        DISK,
    ),
    "in the pool, not even told by the machine": (
        Made(busy=(30,), pool=40, storage=25, bytes_known=False, stalled=0.09),
        CONCURRENCY,
    ),
}

NETWORKS = {
    "paced": (Made(under_way=30), NETWORK),
    "paced, half of the time": (Made(under_way=15), UNCLEAR),
    "hardly paced": (Made(under_way=8), CONCURRENCY),
    "paced, and the server computes": (Made(under_way=30, workers=(Core(ran=0.97),)), CPU),
}


def leads(*mean_ms: float) -> LeadTimes:
    """Latencies of requests due one after the other in two seconds."""
    step_ns = 2 * SECOND // len(mean_ms)
    means_ns = tuple(round(mean * 1e6) for mean in mean_ms)
    return LeadTimes(
        due_ns=tuple(number * step_ns for number in range(len(mean_ms))),
        counts=(20,) * len(mean_ms),
        mean_ns=means_ns,
        max_ns=means_ns,
    )


STEADY = leads(*[50] * 10)
DROPPED = Failure(kind="dropped", count=3, example="")
TIMED_OUT = Failure(kind="timeout", count=3, example="")
REFUSED = Failure(kind="status 503", count=3, example="")

RATES = {
    "reached": (Made(leads=STEADY, due=201, in_flight=5), RATE),
    "reached, with a core that is busy": (Made(leads=STEADY, due=200, workers=(Core(ran=0.95),)), RATE),
    "reached, slower in the middle": (Made(leads=leads(50, 50, 50, 400, 600, 300, 50, 50, 50), due=200), RATE),
    "behind by 2 %": (Made(leads=leads(*[50 + 4 * number for number in range(10)]), due=200), RATE),
    "behind by 5 %, the server computes": (
        Made(leads=leads(*[50 + 10 * number for number in range(10)]), due=200, workers=(Core(ran=0.97),), main="r"),
        CPU,
    ),
    "behind, with connections to spare": (
        Made(leads=leads(*[50 + 50 * number for number in range(10)]), due=200, connections=1000),
        UNCLEAR,
    ),
    "behind, with every connection in use": (
        Made(leads=leads(*[50 + 50 * number for number in range(10)]), due=200),
        CONCURRENCY,
    ),
    "behind, the thread pool is full": (
        Made(
            leads=leads(*[50 + 50 * number for number in range(10)]),
            due=200,
            connections=1000,
            in_flight=200,
            busy=(40,),
            pool=40,
        ),
        POOL,
    ),
    "requests given up": (Made(leads=STEADY, due=200, failures=(DROPPED,)), CONCURRENCY),
    "requests given up after they were sent": (Made(leads=STEADY, due=200, failures=(TIMED_OUT,)), CONCURRENCY),
    "requests that failed for other reasons": (Made(leads=STEADY, due=200, failures=(REFUSED,)), RATE),
    "all at once": (Made(leads=leads(50), due=200), CONCURRENCY),
}


@pytest.mark.parametrize(
    "made, kind",
    [
        pytest.param(*case, id=f"{table}: {name}")
        for table, cases in {
            "cores": CORES,
            "waiting": WAITING,
            "pool": POOLS,
            "disk": DISKS,
            "network": NETWORKS,
            "rate": RATES,
        }.items()
        for name, case in cases.items()
    ],
)
def test_names_what_limited_a_run_only_where_the_evidence_is_there(made: Made, kind: LimitKind) -> None:
    limit = limit_of(Usage(made.recording()))

    assert limit.kind is kind, str(limit)


TEXTS = [
    (CORES["one worker"], "server CPU, at 97 % of 1 core"),
    ((Made(workers=(Core(ran=1.82),), main="r"), CPU), "server CPU, at 1.8 cores"),
    (
        CORES["one of two workers"],
        "server CPU, at 97 % of 1 core in the busiest of 2 workers, the least busy one at 12 %",
    ),
    (
        CORES["too few cores for both, the server wants more"],
        "server CPU: its 2 workers ran 62 % and waited 36 % of the time for a core",
    ),
    (CORES["always something to run"], "server CPU: it ran 50 % of the time, and always had work"),
    (
        CORES["one worker, never idle"],
        "server CPU: its worker ran 86 % and waited 0 % of the time for a core, and was never idle",
    ),
    (CORES["the generator"], "load generator, at 95 % of its core"),
    (CORES["a generator that waits for cores"], "load generator: it ran 50 % and waited 48 % of the time for a core"),
    (
        CORES["too few cores for both"],
        "unclear: every core is in use, 32 requests in flight on 32 connections, server CPU 50 %",
    ),
    (
        WAITING["a request in a thread each"],
        "concurrency: 32 requests in flight on 32 connections, each in a thread of its own, server CPU 5 %",
    ),
    (
        WAITING["an event loop that is blocked"],
        "event loop: blocked 95 % of the time by calls that are not awaited, 9.50 ms per request, server CPU 5 %",
    ),
    (WAITING["one connection"], "concurrency: 1 request in flight on 1 connection, server CPU 50 %"),
    (WAITING["no success"], "unclear: no request succeeded"),
    (POOLS["full"], "thread pool: 40 threads busy, 200 requests in flight, server CPU 5 %"),
    (
        POOLS["full, all at one lock"],
        "unclear: 39 of 40 busy threads wait for a lock or another thread, "
        "200 requests in flight on 200 connections, server CPU 5 %",
    ),
    (DISKS["in the pool"], "disk: 30 of 40 busy threads wait for it, server CPU 5 %"),
    (DISKS["on the event loop"], "disk: the event loop waits for it 95 % of the time, server CPU 5 %"),
    (NETWORKS["paced"], "network: bytes wait to be sent on 30 connections, 32 requests in flight, server CPU 5 %"),
    (RATES["reached"], "rate: 100/s requested, server CPU 5 %"),
    (CORES["no CPU times at all"], "unclear: 32 requests in flight on 32 connections, server CPU unknown"),
]


@pytest.mark.parametrize("case, text", TEXTS, ids=[text.split(",")[0] for _, text in TEXTS])
def test_says_with_which_figures(case: tuple[Made, LimitKind], text: str) -> None:
    assert str(limit_of(Usage(case[0].recording()))) == text


def overtaken(served: float) -> Recording:
    """Returns an open loop of 100/s over 10 rounds, of which so many are answered in time, the newest first."""
    made = replace(
        RATES["reached"][0],
        leads=LeadTimes(
            due_ns=tuple(at * SECOND // 100 for at in range(1000)),
            counts=(1,) * 1000,
            mean_ns=(1_000_000,) * 1000,
            max_ns=(1_000_000,) * 1000,
        ),
        due=1000,
    ).recording()
    (whole,) = made.rounds
    answered = round(served * 100)
    rounds = [
        replace(whole, index=at, started_ns=at * SECOND, ended_ns=(at + 1) * SECOND, requests=answered)
        for at in range(10)
    ]
    drain = replace(
        whole, index=10, phase=Phase.DRAIN, started_ns=10 * SECOND, ended_ns=15 * SECOND, requests=1000 - 10 * answered
    )
    return replace(made, rounds=(*rounds, drain), attack_ns=10 * SECOND)


@pytest.mark.parametrize("served,reached", [(1.0, True), (0.98, True), (0.9, False), (0.6, False)])
def test_a_growing_backlog_is_seen_where_latencies_hide_it(served: float, reached: bool) -> None:
    assert (limit_of(Usage(overtaken(served))).kind is RATE) == reached


@pytest.mark.parametrize(
    "alone_ms,said",
    [
        ([160] * 8, "concurrency: 32 requests in flight"),
        ([140] * 8, "concurrency: 32 requests in flight"),
        (
            [20] * 8,
            "unclear: requests wait for each other, and the server handles about 4 at a time, 32 requests",
        ),
        (
            [80] * 8,
            "unclear: requests wait for each other, and the server handles about 16 at a time, 32 requests",
        ),
        ([], "unclear: 32 requests in flight"),  # not seen alone
        ([10] * 4 + [160] * 5, "unclear: 32 requests in flight"),  # they differ
    ],
)
def test_requests_that_take_less_when_they_are_alone_wait_for_each_other(alone_ms: Sequence[int], said: str) -> None:
    limit = limit_of(Usage(with_alone(Made(requests=400), alone_ms)))
    assert str(limit).startswith(said)
    assert limit.queues == ("wait for each other" in said)


def with_alone(made: Made, alone_ms: Sequence[int]) -> Recording:
    """Returns a server that waits: how long its requests take alone; on average it is 160 ms."""
    recording = made.recording()
    return replace(recording, boots=tuple(replace(boot, alone=in_ms(*alone_ms)) for boot in recording.boots))


# --- When an event loop was blocked, by looks at it and the ends of answers; and which functions held it


ROOT = "thread (7): MainThread;<module> (/p/m.py:1);run (/v/lib/python3.11/asyncio/runners.py:86)"


def found(looks: str, ends_ms: Sequence[int], connections: int | None = 4) -> Stalls | None:
    """Returns the stalls by looks every 4 ms from 0 on, one letter each."""
    samples = tuple(Sample(at_ns=at * 4 * MS, server=(use(main=STATES[letter]),)) for at, letter in enumerate(looks))
    ends_ns = [at * MS for at in ends_ms]
    return stalls_of(samples, ends_ns, worker=1, connections=connections, span_ns=(0, 4 * len(looks) * MS))


@pytest.mark.parametrize(
    "looks,ends_ms",
    [
        ("i" * 50, range(0, 200, 20)),
        ("r" * 50, range(0, 200, 2)),
        ("b" * 50, range(0, 200, 4)),
        ("irib" * 12, (0, 190)),
        ("r" * 50, ()),
    ],
    ids=["a wait together", "much to do", "short waits", "now and then", "no answers"],
)
def test_a_loop_that_is_not_blocked(looks: str, ends_ms: Sequence[int]) -> None:
    assert found(looks, ends_ms) is None


def test_every_request_blocks_it() -> None:
    stalls = known(found("b" * 50, range(20, 201, 20)))
    assert stalls.typical_s == pytest.approx(0.02)
    assert stalls.lost_s == pytest.approx(4 * 0.02)
    assert stalls.waits


def test_one_request_of_many_blocks_it_by_computing() -> None:
    stalls = known(found("i" * 10 + "r" * 50 + "i" * 190, (*range(2, 40, 4), *range(244, 1000, 4)), connections=None))
    assert stalls.typical_s == pytest.approx(0.2, abs=0.006)
    assert stalls.lost_s == pytest.approx(0.02, abs=0.002)  # 0.2 s in each second, of which half is left on average
    assert not stalls.waits


def test_the_functions_that_hold_it() -> None:
    text = f"""
{ROOT} 600
{ROOT};call (/p/app.py:3);export (/p/app.py:9) 70
{ROOT};call (/p/app.py:3);small (/p/app.py:20) 30
thread (8): worker;work (/p/app.py:1) 999
"""
    held = known(held_by([text.strip()]))
    assert [frame.function for frame in held][-2:] == ["call", "export"]
    assert held_by([f"{ROOT} 600"]) is None
    assert held_by([]) is None
    at_work = f"{ROOT} 590\n{ROOT};call (/p/app.py:3);export (/p/app.py:9) 69\n{ROOT};call (/p/app.py:3) 2"
    assert known(held_by([text.strip()], [at_work]))[-1].function == "small"
    noise = at_work.replace("(/p/app.py:3) 2", "(/p/app.py:3);small (/p/app.py:20) 27")
    assert held_by([text.strip()], [noise]) is None
    assert held_by([f"{ROOT};a (/p/app.py:1) 30\n{ROOT};b (/p/app.py:2) 30\n{ROOT};c (/p/app.py:3) 30"]) is None


# --- How much of a loss is CPU time and how much is waiting, against closed loops worked out request by request


MS_S = 1e-3
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
        latency = latency_s(connections, cpu_ms * MS_S, wait_ms * MS_S) * UNSEEN
        sides.append(Served(latency_s=latency, cpu_s=cpu_ms * MS_S, connections=connections))
    return loss_of(sides[0], sides[1])


@pytest.mark.parametrize("before", [(0.06, 0.05), (0.3, 2.0), (1.0, 4.0)], ids=str)
@pytest.mark.parametrize("connections", [1, 8, 128])
@pytest.mark.parametrize("more_ms", [0.1, 1.0, 5.0])
def test_cpu_time_is_named(connections: int, before: tuple[float, float], more_ms: float) -> None:
    loss = lost(connections, before, (more_ms, 0.0))

    assert loss is None or loss.cpu_share > 0.9
    assert loss is not None or more_ms == 0.1


@pytest.mark.parametrize("before", [(0.06, 0.05), (0.3, 2.0), (1.0, 4.0)], ids=str)
@pytest.mark.parametrize("connections", [1, 8, 32])
@pytest.mark.parametrize("more_ms", [1.0, 20.0, 200.0])
def test_a_wait_is_named_unless_the_core_hides_it(
    connections: int, before: tuple[float, float], more_ms: float
) -> None:
    loss = lost(connections, before, (0.0, more_ms))

    hidden = sum(before) + more_ms < connections * before[0]
    assert (loss is None) if hidden else (loss is None or loss.cpu_share < 0.02)


@pytest.mark.parametrize("connections", [1, 2, 8])
def test_a_long_wait_and_a_little_cpu_time_is_a_wait(connections: int) -> None:
    loss = known(lost(connections, (0.06, 0.05), (0.1, 5.0)))
    assert loss.cpu_share < 0.15
    assert loss.wait_s == pytest.approx(loss.total_s - loss.cpu_s)


def test_what_others_on_the_machine_may_have_done_is_neither_cpu_time_nor_a_wait() -> None:
    base = Served(latency_s=6 * MS_S, cpu_s=0.08 * MS_S, connections=16, core_delay=2.0)

    loss = known(loss_of(base, Served(latency_s=58 * MS_S, cpu_s=0.31 * MS_S, connections=16, core_delay=11.0)))
    assert loss.cpu_share < 0.1
    assert loss.others_s > 0.5 * loss.total_s
    assert loss.cpu_s + loss.others_s + loss.wait_s == pytest.approx(loss.total_s)


def test_others_who_had_as_much_of_the_core_before_are_no_cause() -> None:
    """They only make what CPU time grew by longer: here it is 3.3 times as much, and so is the latency."""
    base = Served(latency_s=8.9 * MS_S, cpu_s=0.062 * MS_S, connections=32, core_delay=4.0)

    loss = known(loss_of(base, Served(latency_s=29.4 * MS_S, cpu_s=0.205 * MS_S, connections=32, core_delay=4.2)))
    assert loss.cpu_share > 0.8
    assert loss.others_s < 0.1 * loss.total_s


def test_nothing_is_lost_where_requests_take_no_longer() -> None:
    served = Served(latency_s=0.01, cpu_s=0.001, connections=4)

    assert loss_of(served, Served(latency_s=0.009, cpu_s=0.002, connections=4)) is None
    assert loss_of(served, Served(latency_s=0.01005, cpu_s=0.001, connections=4)) is None


@pytest.mark.parametrize("more_cpu_ms,more_ms,cpu_share", [(0.0, 5.0, 0.0), (5.0, 5.5, 1.0), (1.0, 11.0, 0.1)])
def test_an_open_loop(more_cpu_ms: float, more_ms: float, cpu_share: float) -> None:
    base = Served(latency_s=2 * MS_S, cpu_s=1 * MS_S, connections=64, rate=50)
    now = Served(latency_s=(2 + more_ms) * MS_S, cpu_s=(1 + more_cpu_ms) * MS_S, connections=64, rate=50)

    loss = known(loss_of(base, now))
    assert loss.cpu_share == pytest.approx(cpu_share, abs=0.06)


def test_an_open_loop_that_a_core_cannot_serve_lost_its_time_to_cpu() -> None:
    base = Served(latency_s=2 * MS_S, cpu_s=1 * MS_S, connections=64, rate=100)

    loss = known(loss_of(base, Served(latency_s=3.0, cpu_s=12 * MS_S, connections=64, rate=83)))
    assert loss.cpu_share == 1


def test_several_cores_serve_several_requests_at_once() -> None:
    one, two = (Served(latency_s=8 * MS_S, cpu_s=2 * MS_S, connections=4, cores=cores) for cores in (1, 2))

    assert latency_of(one, wait_s=0) == pytest.approx(8 * MS_S)
    assert 4 * MS_S <= latency_of(two, wait_s=0) < 5.5 * MS_S
