"""One stint: connects to one boot of the server, warms up, makes the rounds, drains. Runs on the current event loop."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from time import monotonic_ns
from typing import NoReturn

import httpx

from pytest_fileperf.drive.loop import LoadLoop, Slot
from pytest_fileperf.drive.opening import OPENED_AT_ONCE, open_all
from pytest_fileperf.drive.slots import ClientSlot, ReplaySlot, Sent, operation_call
from pytest_fileperf.errors import PlanError
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.recorder import Recorder
from pytest_fileperf.measure.recording import LeadTimes, Round
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.operation import Expectation, Journey, Operation, Work
from pytest_fileperf.wire.connect import Origin, open_socket
from pytest_fileperf.wire.connection import Connection
from pytest_fileperf.wire.exchange import KnownAnswers, Scratch
from pytest_fileperf.wire.payload_files import PayloadFiles
from pytest_fileperf.wire.request import LoadClient, WireRequest, compile_request
from pytest_fileperf.wire.transport import LoadTransport

__all__ = ("Progress", "StintResult", "Target", "run_stint")

_CONNECT_TIMEOUT_S = 10.0
_PROGRESS_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The boot that a stint loads."""

    boot: int
    url: str
    """Base URL, without a slash at the end."""
    transport: Callable[[], httpx.AsyncBaseTransport] | None = None
    """Makes the transport of each client where the app is in this process; None for sockets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a stint has come; sent while it runs."""

    boot: int
    phase: str
    elapsed_ns: int
    """Since the stint's warm-up began."""
    requests: int
    """Successful ones in the rounds so far."""
    rps: float
    """Of the newest finished round; 0.0 before there is one."""
    p99_ns: int | None
    failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StintResult:
    """What one stint found."""

    boot: int
    rounds: tuple[Round, ...]
    engine: str
    why_engine: str
    attack_ns: int
    """Open loop: from the first to the last request due; a fixed count: to its last start; else the rounds."""
    wait_ns: int
    """From the end of the attack, or of the last round, to the last answer."""
    due: int | None
    """How many requests should have been sent after the warm-up; None in a closed loop for a time."""
    leads: LeadTimes | None
    """Open loop only."""
    first: Histogram
    """See `Boot`."""


async def run_stint(
    work: Work,
    plan: LoadPlan,
    target: Target,
    *,
    files: PayloadFiles,
    server_cpu: Callable[[], Mapping[int, int]],
    progress: Callable[[Progress], None],
) -> StintResult:
    """Runs one stint and returns its rounds.

    Raises PlanError when the request cannot be built, and httpx.ConnectError or httpx.ConnectTimeout when the first
    connections cannot be opened; whatever goes wrong later is a failure in the rounds.
    """
    async with AsyncExitStack() as stack:
        begin = _Beginning(work, plan, target, files, stack)
        request, why = await begin.replayable()
        recorder = Recorder(
            boot=target.boot,
            round_ns=None if plan.counted else plan.round_ns,
            rounds=plan.rounds,
            server_cpu=server_cpu,
        )
        load = LoadLoop(pacing=plan.pacing(), recorder=recorder, timeout_ns=plan.timeout_ns)
        slots = await begin.slots(load, recorder, request)
        with _quiet_memory(collect=request is None):
            origin_ns = monotonic_ns()
            recorder.begin(origin_ns + plan.warmup_ns)
            teller = asyncio.create_task(_tell(target.boot, load, recorder, origin_ns, progress))
            stack.callback(teller.cancel)
            await load.run(slots, origin_ns=origin_ns)
            ended_ns = monotonic_ns()
            missing = plan.requests - load.started if plan.requests is not None else 0
            if missing:
                example = f"the time was over before {missing} of {plan.requests} requests: give them a longer duration"
                recorder.failure("not sent", example, ended_ns, count=missing)
            rounds = recorder.finish(ended_ns)
    attack_from_ns, attack_to_ns = _attack(plan, load, recorder, origin_ns)
    return StintResult(
        boot=target.boot,
        rounds=rounds,
        engine="replay" if request is not None else "client" if target.transport is None else "in-process",
        why_engine=why,
        attack_ns=attack_to_ns - attack_from_ns,
        wait_ns=max(0, recorder.last_end_ns - attack_to_ns),
        due=recorder.due_count if plan.pacing().open_loop else plan.requests,
        leads=recorder.leads(),
        first=recorder.first(),
    )


def _attack(plan: LoadPlan, load: LoadLoop, recorder: Recorder, origin_ns: int) -> tuple[int, int]:
    """Returns from when to when requests were sent, or had to be, after the warm-up."""
    if plan.pacing().open_loop:
        return recorder.first_due_ns or origin_ns, recorder.last_due_ns or origin_ns
    if plan.requests is not None:
        return origin_ns, load.last_start_ns
    return origin_ns + plan.warmup_ns, origin_ns + plan.duration_ns


class _Beginning:
    """Prepares a stint: clients, the compiled request, slots with open connections."""

    def __init__(self, work: Work, plan: LoadPlan, target: Target, files: PayloadFiles, stack: AsyncExitStack) -> None:
        self._work = work
        self._plan = plan
        self._target = target
        self._files = files
        self._stack = stack
        self._scratch = Scratch()

    async def replayable(self) -> tuple[WireRequest | None, str]:
        """Returns the compiled request, or None and why it has to go through httpx's client."""
        work = self._work
        if self._target.transport is not None:
            return None, ""
        if isinstance(work, Journey):
            return None, "a journey is code on a client"
        client = self._client()
        try:
            request = client.build_request(work.method, work.url, **_build_arguments(work))
            signed = _signed(request, work.arguments.get("auth"))
            compiled = compile_request(signed or request)
        except (TypeError, ValueError, httpx.InvalidURL, httpx.LocalProtocolError) as error:
            raise PlanError(f"httpx cannot build {work.name}: {error}") from error
        if work.arguments.get("follow_redirects"):
            return None, "redirects are followed"
        if request.url.scheme != "http":
            return None, "TLS"
        if signed is None:
            return None, "the authentication may need several requests"
        return compiled, "" if compiled is not None else "the body is a stream"

    async def slots(self, load: LoadLoop, recorder: Recorder, request: WireRequest | None) -> Sequence[Slot]:
        """Returns one slot a connection; of those that replay the first ones are connected."""
        if request is None:
            return self._client_slots(load, recorder)
        known: KnownAnswers = {}
        expect = self._work.expect if isinstance(self._work, Operation) else Expectation()
        url = httpx.URL(self._target.url)
        origin = Origin(url.scheme, url.host, url.port or 80)
        loop = asyncio.get_running_loop()
        connect_timeout_s = min(_CONNECT_TIMEOUT_S, self._plan.timeout_ns / 1e9)

        async def connect() -> Connection:
            sock = await open_socket(origin, uds=None, tls=_no_tls, timeout_s=connect_timeout_s)
            return Connection(loop, sock, self._scratch, known)

        slots = [
            ReplaySlot(load=load, recorder=recorder, request=request, expect=expect, connect=connect)
            for _ in range(self._plan.connections)
        ]
        for slot in slots:
            self._stack.callback(slot.close)
        await open_all([slot.open for slot in slots[: self._opened_first()]], origin.port)
        return slots

    def _opened_first(self) -> int:
        """Returns how many connections are open when the load begins; a rate opens more when it needs them."""
        plan = self._plan
        if plan.rate is not None or (plan.ramp is not None and plan.ramp.of_rate):
            return min(plan.connections, OPENED_AT_ONCE)
        return plan.connections

    def _client_slots(self, load: LoadLoop, recorder: Recorder) -> Sequence[Slot]:
        work = self._work
        slots: list[ClientSlot] = []
        for _ in range(self._plan.connections):
            slot = ClientSlot(
                load=load,
                recorder=recorder,
                client=self._client(),
                call=operation_call(work) if isinstance(work, Operation) else _journey_call(work),
                unchecked=isinstance(work, Journey),
            )
            self._stack.push_async_callback(slot.aclose)
            slots.append(slot)
        return slots

    def _client(self) -> LoadClient:
        make = self._target.transport
        return LoadClient(
            transport=make() if make is not None else LoadTransport(loopback_only=True, scratch=self._scratch),
            base_url=self._target.url,
            timeout=self._plan.timeout_ns / 1e9,
            trust_env=False,
            payload_files=self._files,
        )


def _journey_call(journey: Journey) -> Callable[[LoadClient, Sent], Awaitable[object]]:
    async def call(client: LoadClient, _: Sent) -> None:
        await journey.function(client)

    return call


def _build_arguments(operation: Operation) -> dict[str, object]:
    """Returns the arguments that `client.build_request` takes."""
    return {key: value for key, value in operation.arguments.items() if key not in ("auth", "follow_redirects")}


def _signed(request: httpx.Request, auth: object) -> httpx.Request | None:
    """Returns the request with its basic authentication, if any; None for other kinds."""
    if auth is None:
        return request
    if isinstance(auth, tuple) and len(auth) == 2:
        auth = httpx.BasicAuth(*auth)
    if type(auth) is not httpx.BasicAuth:
        return None
    return next(auth.sync_auth_flow(request))


def _no_tls() -> NoReturn:
    raise AssertionError("requests over TLS are not replayed")


@contextmanager
def _quiet_memory(*, collect: bool) -> Iterator[None]:
    """Keeps the garbage collector from stopping the load: what exists is frozen.

    With `collect` new garbage is still collected: httpx's responses are reference cycles.
    """
    was_enabled = gc.isenabled()
    gc.collect()
    gc.freeze()
    if not collect:
        gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
        gc.unfreeze()


async def _tell(
    boot: int, load: LoadLoop, recorder: Recorder, origin_ns: int, progress: Callable[[Progress], None]
) -> None:
    """Reports how far the stint is, a few times a second; whoever listens may end it by raising."""
    while True:
        last = recorder.last_round
        seconds = last.duration_ns / 1e9 if last is not None else 0.0
        moment = Progress(
            boot=boot,
            phase=recorder.phase,
            elapsed_ns=monotonic_ns() - origin_ns,
            requests=recorder.finished_requests + (recorder.requests if recorder.phase != "warm-up" else 0),
            rps=last.requests / seconds if last is not None and seconds else 0.0,
            p99_ns=last.latency.percentile_ns(99) if last is not None and last.latency.count else None,
            failed=recorder.failed,
        )
        try:
            progress(moment)
        except Exception as error:  # the listener's own, handed to whoever runs the stint
            load.abort(error)
            return
        await asyncio.sleep(_PROGRESS_S)
