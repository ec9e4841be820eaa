from __future__ import annotations

import asyncio
import gc
import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import monotonic_ns

import httpx
import pytest
from drive.scripted import Handler, answer, hello, loaded, scripted

from pytest_fileperf.drive.loop import LoadLoop
from pytest_fileperf.drive.run import Run, RunProgress, quiet_memory
from pytest_fileperf.drive.slots import Idle, ReplaySlot
from pytest_fileperf.errors import PlanError
from pytest_fileperf.measure.recorder import Recorder
from pytest_fileperf.measure.recording import Failure, Recording, merge_failures
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.pacing import ConstantRate
from pytest_fileperf.plan.payload import payload
from pytest_fileperf.plan.request import Expectation, Journey, Operation
from pytest_fileperf.plan.work import Work
from pytest_fileperf.wire.connect import Origin, open_socket
from pytest_fileperf.wire.connection import Connection
from pytest_fileperf.wire.eventloop import new_event_loop
from pytest_fileperf.wire.exchange import Scratch
from pytest_fileperf.wire.request import compile_request

MS = 1_000_000
GET = Operation(method="GET", url="/")
HERE = Path(__file__).relative_to(Path.cwd()) if Path(__file__).is_relative_to(Path.cwd()) else Path(__file__)
"""This file, as failures name it."""


def counted(requests: int, connections: int = 1, timeout_ms: int = 5000) -> LoadPlan:
    return LoadPlan(
        connections=connections,
        warmup_ns=0,
        round_ns=20_000 * MS,
        rounds=1,
        timeout_ns=timeout_ms * MS,
        requests=requests,
    )


def run(
    handler: Handler, work: Work = GET, plan: LoadPlan | None = None, tell: Callable[[RunProgress], None] | None = None
) -> Run:
    with scripted(handler) as url:
        (result,) = loaded([url], work, plan or counted(6), tell or (lambda _: None))
    return result


def totals(result: Run) -> tuple[int, dict[str, int]]:
    """Returns how many requests succeeded, and the failures by kind."""
    failures = merge_failures(failure for round_ in result.rounds for failure in round_.failures)
    return sum(r.requests for r in result.rounds), {failure.kind: failure.count for failure in failures}


def first_failure(result: Run) -> Failure:
    return merge_failures(failure for round_ in result.rounds for failure in round_.failures)[0]


def as_journey(operation: Operation) -> Operation:
    """Returns the operation in a form that goes through httpx's client."""
    return Operation(
        method=operation.method,
        url=operation.url,
        arguments={**operation.arguments, "follow_redirects": True},
        expect=operation.expect,
    )


ENGINES = pytest.mark.parametrize("through", [lambda operation: operation, as_journey], ids=["replay", "client"])


@ENGINES
def test_good_answers_are_counted(through: Callable[[Operation], Operation]) -> None:
    result = run(hello, through(GET), counted(20, connections=4))

    assert totals(result) == (20, {})
    assert [(r.bytes_received, r.statuses) for r in result.rounds] == [(100, ((200, 20),))]


@ENGINES
def test_a_status_that_is_not_2xx_fails_and_shows_the_body(through: Callable[[Operation], Operation]) -> None:
    async def broken(number: int, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(b"database is down", "500 Internal Server Error"))

    result = run(broken, through(GET))

    assert totals(result) == (0, {"status 500": 6})
    assert "database is down" in first_failure(result).example


@ENGINES
def test_an_expected_status_is_good(through: Callable[[Operation], Operation]) -> None:
    async def missing(number: int, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(b"", "404 Not Found"))

    work = through(Operation(method="GET", url="/", expect=Expectation(statuses=(404,))))

    assert totals(run(missing, work)) == (6, {})


@ENGINES
def test_a_wrong_size_fails_and_shows_both_sizes_and_the_body(through: Callable[[Operation], Operation]) -> None:
    work = through(Operation(method="GET", url="/", expect=Expectation(size_bytes=1000)))

    result = run(hello, work)

    assert totals(result) == (0, {"size": 6})
    assert "5 bytes instead of 1000" in first_failure(result).example
    assert "hello" in first_failure(result).example


@ENGINES
def test_a_wrong_size_of_a_chunked_body_is_seen(through: Callable[[Operation], Operation]) -> None:
    async def chunked(number: int, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")

    right = Operation(method="GET", url="/", expect=Expectation(size_bytes=5))
    wrong = Operation(method="GET", url="/", expect=Expectation(size_bytes=6))

    assert totals(run(chunked, through(right))) == (6, {})
    assert totals(run(chunked, through(wrong))) == (0, {"size": 6})


@ENGINES
def test_the_digest_is_checked_when_asked_for(through: Callable[[Operation], Operation]) -> None:
    async def every_other(number: int, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(b"hello" if number % 2 else b"jello"))

    work = through(
        Operation(method="GET", url="/", expect=Expectation(sha256=hashlib.sha256(b"hello").hexdigest(), size_bytes=5))
    )

    assert totals(run(every_other, work)) == (3, {"digest": 3})


@ENGINES
def test_a_status_that_changes_between_answers_is_noticed(through: Callable[[Operation], Operation]) -> None:
    async def every_third(number: int, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(b"x", "503 Busy" if number % 3 == 2 else "200 OK"))

    assert totals(run(every_third, through(GET), counted(9))) == (6, {"status 503": 3})


@ENGINES
def test_a_silent_server_is_a_timeout(through: Callable[[Operation], Operation]) -> None:
    async def silent(number: int, writer: asyncio.StreamWriter) -> None:
        if number:
            writer.write(answer(b"x"))

    assert totals(run(silent, through(GET), counted(4, timeout_ms=200))) == (3, {"timeout": 1})


@ENGINES
def test_a_dropped_connection_is_a_failure_and_the_next_request_connects_anew(
    through: Callable[[Operation], Operation],
) -> None:
    async def drops_one(number: int, writer: asyncio.StreamWriter) -> None:
        if number == 1:
            writer.transport.abort()
        else:
            writer.write(answer(b"x"))

    assert totals(run(drops_one, through(GET))) == (5, {"disconnected": 1})


@ENGINES
def test_connection_close_is_honoured_without_a_failure(through: Callable[[Operation], Operation]) -> None:
    async def closes(number: int, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(b"x", extra="Connection: close\r\n"))
        writer.close()

    assert totals(run(closes, through(GET))) == (6, {})


@ENGINES
def test_garbage_is_a_protocol_failure(through: Callable[[Operation], Operation]) -> None:
    async def garbage(number: int, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")

    good, failures = totals(run(garbage, through(GET), counted(2)))

    assert (good, set(failures)) == (0, {"protocol"})


CUT_OFF = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello"


@pytest.mark.parametrize("transport", [None, httpx.AsyncHTTPTransport], ids=["ours", "httpx's own"])
@pytest.mark.parametrize(
    "sent, kind",
    [(b"", "disconnected"), (CUT_OFF, "disconnected"), (b"SSH-2.0 Server disconnected\r\n\r\n", "protocol")],
    ids=["no answer", "part of an answer", "no HTTP"],
)
def test_a_journey_s_answer_that_ends_early_is_told_from_nonsense(
    sent: bytes, kind: str, transport: type[httpx.AsyncHTTPTransport] | None
) -> None:
    async def ends(number: int, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        await writer.drain()
        writer.close()

    async def journey(client: httpx.AsyncClient) -> None:
        if transport is None:
            await client.get("/")
            return
        async with httpx.AsyncClient(transport=transport(), base_url=client.base_url) as own:
            await own.get("/")

    assert totals(run(ends, Journey(name="journey", function=journey), counted(2))) == (0, {kind: 2})


@pytest.mark.parametrize("elsewhere", ["http://192.0.2.1/", "http://[2001:db8::1]/", "https://example.invalid/"])
def test_a_redirect_does_not_lead_the_load_to_another_machine(elsewhere: str) -> None:
    async def redirects(number: int, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(b"", "302 Found", f"Location: {elsewhere}\r\n"))

    result = run(redirects, Operation(method="GET", url="/", arguments={"follow_redirects": True}), counted(2))

    assert totals(result) == (0, {"connect": 2})
    assert "is not this machine" in first_failure(result).example


@ENGINES
@pytest.mark.parametrize(
    "expect,what",
    [
        (Expectation(size_bytes=1000), "5 bytes instead of 1000, with a body packed by gzip: send headers="),
        (Expectation(statuses=(404,)), "answer 200, with a body packed by gzip"),
    ],
)
def test_a_packed_body_is_told_and_not_shown(
    expect: Expectation, what: str, through: Callable[[Operation], Operation]
) -> None:
    async def packed(number: int, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(b"\x1f\x8b\x08\x00\x00", extra="Content-Encoding: gzip\r\n"))

    example = first_failure(run(packed, through(Operation(method="GET", url="/", expect=expect)))).example

    assert example.startswith(what)
    assert "begins" not in example


def test_the_body_of_one_bad_answer_is_not_shown_with_another() -> None:
    async def chunked(number: int, writer: asyncio.StreamWriter) -> None:
        if number == 3:
            writer.write(answer(b"oops", "500 Internal Server Error"))
        else:
            body = b"4\r\nhell\r\n" if number == 4 else b"5\r\nhello\r\n"
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body + b"0\r\n\r\n")

    result = run(chunked, Operation(method="GET", url="/", expect=Expectation(size_bytes=5)), counted(8))

    assert totals(result) == (6, {"size": 1, "status 500": 1})
    examples = {failure.kind: failure.example for round_ in result.rounds for failure in round_.failures}
    assert examples["status 500"] == "answer 500, body begins: oops"
    assert examples["size"] == "4 bytes instead of 5"


def test_requests_for_which_there_was_no_time_are_failures() -> None:
    async def slow(number: int, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.02)
        writer.write(answer(b"x"))

    plan = LoadPlan(connections=2, warmup_ns=0, round_ns=100 * MS, rounds=1, timeout_ns=5000 * MS, requests=1000)
    result = run(slow, GET, plan)
    good, failures = totals(result)

    assert 0 < good < 1000
    assert failures == {"not sent": 1000 - good}
    assert first_failure(result).example.endswith("give them a longer duration")


def test_a_server_that_is_not_there_is_told_at_once() -> None:
    with pytest.raises(httpx.ConnectError):
        loaded(["http://127.0.0.1:9"], GET, counted(5))


def test_uploads_arrive_whole_from_memory_and_from_files(tmp_path: Path) -> None:
    source = tmp_path / "source.bin"
    source.write_bytes(b"z" * 3_000_000)
    for content in (payload("10KiB"), payload("3MiB"), payload(source)):
        result = run(hello, Operation(method="POST", url="/", arguments={"content": content}), counted(4))

        assert totals(result) == (4, {})
        assert sum(r.bytes_sent for r in result.rounds) == 4 * content.size_bytes


def test_no_progress_is_told_while_a_burst_is_sent() -> None:
    """A message would delay requests that are due at once."""
    told: list[RunProgress] = []

    async def slow(number: int, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.5)
        writer.write(answer(b"hello"))

    run(slow, plan=counted(4, connections=4), tell=told.append)
    assert told[0].elapsed_ns > 200 * MS


def test_rounds_follow_the_warm_up_and_a_drain_ends_it() -> None:
    async def slow(number: int, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.01)
        writer.write(answer(b"x"))

    plan = LoadPlan(connections=3, warmup_ns=60 * MS, round_ns=100 * MS, rounds=3, timeout_ns=5000 * MS)
    told: list[RunProgress] = []
    result = run(slow, GET, plan, told.append)

    assert [(r.phase.value, r.index) for r in result.rounds] == [("round", 0), ("round", 1), ("round", 2), ("drain", 3)]
    assert all(r.duration_ns == 100 * MS for r in result.rounds[:3])
    assert all(r.requests > 0 for r in result.rounds[:3])
    assert result.rounds[3].requests <= 3
    assert told
    assert {line.phase for line in told} <= {"warm-up", "round", "drain"}


class TestJourneys:
    def test_one_call_is_one_sample_with_all_its_requests(self) -> None:
        async def two(client: httpx.AsyncClient) -> None:
            first = await client.get("/")
            second = await client.post("/", content=payload("2KiB"))
            assert (first.text, second.text) == ("hello", "hello")

        result = run(hello, Journey(name="two", function=two), counted(5, connections=2))

        assert totals(result) == (5, {})
        assert [(r.bytes_sent, r.bytes_received) for r in result.rounds] == [(5 * 2048, 50)]
        assert result.engine == "client"

    def test_a_failed_assertion_is_a_failure_with_its_message(self) -> None:
        async def wrong(client: httpx.AsyncClient) -> None:
            response = await client.get("/")
            assert response.text == "goodbye", "not what we wanted"

        result = run(hello, Journey(name="wrong", function=wrong))

        assert totals(result) == (0, {"assertion": 6})
        line = wrong.__code__.co_firstlineno + 2
        assert first_failure(result).example.startswith(f"{HERE}:{line}: not what we wanted")

    def test_an_exception_is_a_failure_of_its_class(self) -> None:
        async def raises(client: httpx.AsyncClient) -> None:
            await inner(client)

        async def inner(client: httpx.AsyncClient) -> None:
            raise KeyError("id")

        result = run(hello, Journey(name="raises", function=raises))

        assert totals(result) == (0, {"KeyError": 6})
        line = inner.__code__.co_firstlineno + 1
        assert first_failure(result).example == f"{HERE}:{line}: 'id'", "the innermost line"

    def test_raise_for_status_is_a_failure_with_the_status(self) -> None:
        async def missing(number: int, writer: asyncio.StreamWriter) -> None:
            writer.write(answer(b"", "404 Not Found"))

        async def strict(client: httpx.AsyncClient) -> None:
            (await client.get("/")).raise_for_status()

        result = run(missing, Journey(name="strict", function=strict))

        assert totals(result) == (0, {"status 404": 6})
        line = strict.__code__.co_firstlineno + 1
        assert first_failure(result).example.startswith(f"{HERE}:{line}: "), "not a line of httpx"

    def test_a_server_error_that_the_journey_overlooks_is_a_failure(self) -> None:
        async def broken(number: int, writer: asyncio.StreamWriter) -> None:
            writer.write(answer(b"oops", "500 Internal Server Error"))

        async def careless(client: httpx.AsyncClient) -> None:
            await client.get("/")

        assert totals(run(broken, Journey(name="careless", function=careless))) == (0, {"status 500": 6})

    def test_a_journey_whose_own_task_was_cancelled_is_a_failure_and_goes_on(self) -> None:
        async def cancels(client: httpx.AsyncClient) -> None:
            part = asyncio.ensure_future(client.get("/"))
            part.cancel()
            await part

        assert totals(run(hello, Journey(name="cancels", function=cancels))) == (0, {"cancelled": 6})

    def test_a_journey_that_fails_before_it_can_be_awaited_is_a_failure(self) -> None:
        def visit(client: httpx.AsyncClient) -> Awaitable[None]:  # may be marked as a coroutine function
            raise ValueError("made wrongly")

        assert totals(run(hello, Journey(name="visit", function=visit), counted(3))) == (0, {"ValueError": 3})

    def test_a_refused_connection_is_tried_again_after_a_pause(self) -> None:
        async def refused(client: httpx.AsyncClient) -> None:
            await client.get("http://127.0.0.1:9/")

        plan = LoadPlan(connections=1, warmup_ns=0, round_ns=200 * MS, rounds=1, timeout_ns=5000 * MS)
        good, failures = totals(run(hello, Journey(name="refused", function=refused), plan))

        assert (good, set(failures)) == (0, {"connect"})
        assert failures["connect"] <= 5

    def test_another_machine_is_not_loaded(self) -> None:
        async def away(client: httpx.AsyncClient) -> None:
            await client.get("http://example.invalid/")

        result = run(hello, Journey(name="away", function=away), counted(2))

        assert totals(result) == (0, {"connect": 2})
        assert "example.invalid is not this machine" in first_failure(result).example

    def test_a_journey_that_takes_too_long_is_cancelled_and_counted(self) -> None:
        async def stuck(client: httpx.AsyncClient) -> None:
            await asyncio.sleep(30)

        plan = counted(2, timeout_ms=150)

        assert totals(run(hello, Journey(name="stuck", function=stuck), plan)) == (0, {"timeout": 2})


class TestEngine:
    @pytest.mark.parametrize(
        "arguments, why",
        [
            ({}, ""),
            ({"json": {"a": 1}}, ""),
            ({"data": {"a": "1"}, "files": {"f": payload("1KiB")}}, ""),
            ({"auth": ("user", "password")}, ""),
            ({"follow_redirects": True}, "redirects are followed"),
            ({"auth": httpx.DigestAuth("user", "password")}, "the authentication may need several requests"),
        ],
    )
    def test_replay_is_used_where_it_is_equivalent(self, arguments: dict[str, object], why: str) -> None:
        result = run(hello, Operation(method="POST", url="/", arguments=arguments), counted(2))

        assert (result.engine, result.why_engine) == ("client" if why else "replay", why)
        assert totals(result) == (2, {})

    def test_an_auth_flow_may_read_the_answer(self) -> None:
        class Reading(httpx.Auth):
            requires_response_body = True

        digest = hashlib.sha256(b"hello").hexdigest()
        expect = Expectation(size_bytes=5, sha256=digest)
        result = run(hello, Operation(method="GET", url="/", arguments={"auth": Reading()}, expect=expect), counted(2))

        assert totals(result) == (2, {})
        assert result.rounds[-1].bytes_received > 0

    def test_a_request_that_httpx_cannot_build_is_a_plan_error(self) -> None:
        with pytest.raises(PlanError, match="httpx cannot build POST /"):
            run(hello, Operation(method="POST", url="/", arguments={"json": {1j: object()}}))


@pytest.mark.parametrize("before", [False, True])
def test_what_the_process_has_frozen_stays_frozen_and_nothing_else(before: bool) -> None:
    gc.unfreeze()
    try:
        if before:
            gc.freeze()
        with quiet_memory(collect=True):
            assert gc.get_freeze_count() > 0
        assert (gc.get_freeze_count() > 0) == before
    finally:
        gc.freeze()  # as the tests have it


def test_recordings_are_made_of_runs() -> None:
    result = run(hello, GET, counted(10))
    recording = Recording(rounds=result.rounds, boots=(), connections=1, engine=result.engine)

    assert recording.latency().count == 10
    assert recording.latency().min_ns > 0
    assert recording.merged("ttfb").max_ns <= recording.latency().max_ns


def test_a_header_that_cannot_be_sent_is_a_plan_error() -> None:
    with pytest.raises(PlanError, match="httpx cannot build GET /: Illegal header value"):
        run(hello, Operation(method="GET", url="/", arguments={"headers": {"x": "a\nb"}}))


def test_a_timeout_names_the_limit() -> None:
    async def silent(number: int, writer: asyncio.StreamWriter) -> None:
        pass

    result = run(silent, GET, counted(1, timeout_ms=150))

    assert "time limit of 150 ms" in first_failure(result).example


@ENGINES
def test_an_answer_after_the_time_limit_is_a_timeout_however_late_that_is_looked_at(
    through: Callable[[Operation], Operation],
) -> None:
    async def slow_twice(number: int, writer: asyncio.StreamWriter) -> None:
        # In pieces, so that no single wait for data is too long.
        answered = answer(b"hello")
        for piece in (answered[:20], answered[20:]) if number in (1, 2) else ():
            await asyncio.sleep(0.03)
            writer.write(piece)
        if number not in (1, 2):
            writer.write(answered)

    result = run(slow_twice, through(GET), counted(6, timeout_ms=50))

    assert totals(result) == (4, {"timeout": 2})
    assert first_failure(result).example == "no complete answer within the time limit of 50.0 ms"


def open_loop(**shape: object) -> LoadPlan:
    values: dict[str, object] = {
        "connections": 10,
        "warmup_ns": 0,
        "round_ns": 100 * MS,
        "rounds": 3,
        "timeout_ns": 5000 * MS,
        **shape,
    }
    return LoadPlan(**values)  # type: ignore[arg-type]


@ENGINES
def test_an_open_loop_sends_what_is_due_and_counts_from_then(through: Callable[[Operation], Operation]) -> None:
    """The second of ten requests, 30 ms apart, is answered late; those after it do not wait for it."""

    async def late_once(number: int, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.15 if number == 1 else 0)
        writer.write(answer(b"hello"))

    result = run(late_once, through(GET), open_loop(rate=1000 / 30))

    assert totals(result) == (10, {})
    assert result.due == 10
    assert result.attack_ns == 270 * MS
    assert sum(round_.service.count for round_ in result.rounds) == 10
    assert result.boot.leads is not None
    assert len(result.boot.leads.due_ns) == 10
    assert result.boot.leads.max_ns[1] >= 150 * MS


def test_the_wait_ends_with_the_last_answer_and_not_with_the_load() -> None:
    result = run(hello, plan=open_loop(rate=1))

    assert totals(result) == (1, {})
    assert sum(round_.duration_ns for round_ in result.rounds) >= 300 * MS
    assert result.wait_ns == sum(round_.latency.sum_ns for round_ in result.rounds)


def test_with_too_few_connections_latencies_show_the_wait_for_one() -> None:
    async def slow(number: int, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.05)
        writer.write(answer(b"hello"))

    result = run(slow, plan=open_loop(rate=100, connections=1))

    assert totals(result) == (30, {})
    assert result.wait_ns > 500 * MS
    recorded = [histogram for round_ in result.rounds for histogram in (round_.latency, round_.service)]
    assert max(histogram.max_ns for histogram in recorded[::2]) > 1000 * MS
    # The service time is the server's alone.
    assert min(histogram.min_ns for histogram in recorded[1::2] if histogram.count) >= 50 * MS


@ENGINES
def test_a_burst_is_due_at_once_and_ends_with_its_last_answer(through: Callable[[Operation], Operation]) -> None:
    async def slow(number: int, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.05)
        writer.write(answer(b"hello"))

    result = run(slow, through(GET), open_loop(burst=12, connections=4, rounds=1))

    (round_,) = result.rounds
    assert round_.requests == 12
    assert round_.duration_ns >= 150 * MS
    assert (result.due, result.attack_ns) == (12, 0)
    assert result.wait_ns <= round_.duration_ns


def test_an_open_loop_connects_anew_where_the_server_has_closed() -> None:
    async def once(number: int, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(b"hello", extra="Connection: close\r\n"))
        writer.close()

    result = run(once, plan=open_loop(rate=10, connections=2, round_ns=500 * MS, rounds=1))

    assert totals(result) == (5, {})
    assert result.due == 5


@pytest.mark.parametrize("stale_ms, connections", [(0, 3), (1000, 1)])
def test_an_open_loop_does_not_trust_connections_that_have_rested(stale_ms: int, connections: int) -> None:
    """Servers close idle connections, and may do so in the moment in which the next request comes."""
    callers: list[object] = []

    async def note(number: int, writer: asyncio.StreamWriter) -> None:
        callers.append(writer.get_extra_info("peername"))
        writer.write(answer(b"hello"))

    async def load(url: str) -> int:
        loop, origin = asyncio.get_running_loop(), httpx.URL(url)
        request = compile_request(httpx.Request("GET", url))
        assert request is not None
        scratch = Scratch()

        async def connect() -> Connection:
            address = Origin("http", origin.host, origin.port or 80)
            sock = await open_socket(address, timeout_s=5)
            return Connection(loop, sock, scratch)

        recorder = Recorder(boot=0, stretches=(), server_cpu=lambda: None)
        pacing = ConstantRate(rate=100, duration_ns=30 * MS)
        loads = LoadLoop(pacing=pacing, recorder=recorder, timeout_ns=5000 * MS)
        idle = Idle(recorder.tallies[0].breach, kept_ns=stale_ms * MS)
        slot = ReplaySlot(
            load=loads,
            tally=recorder.tallies[0],
            request=request,
            expect=Expectation(),
            connect=connect,
            idle=idle,
        )
        begun_ns = monotonic_ns()
        recorder.begin(begun_ns)
        await loads.run([slot], origin_ns=begun_ns)
        slot.close()
        idle.close()
        return recorder.requests

    with scripted(note) as url, asyncio.Runner(loop_factory=new_event_loop) as runner:
        assert runner.run(load(url)) == 3
    assert len(set(callers)) == connections
