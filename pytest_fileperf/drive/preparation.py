"""Makes a load ready to begin: its client or compiled request, and slots with open connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import NoReturn

import httpx

from pytest_fileperf.drive.client_slot import ClientSlot
from pytest_fileperf.drive.loop import LoadLoop, Slot, Turns
from pytest_fileperf.drive.opening import Connect, Idle, Openings, open_all
from pytest_fileperf.drive.slots import Draw, ReplaySlot, VaryingSlot
from pytest_fileperf.drive.streams import StreamSlot, watch_answers
from pytest_fileperf.drive.user import Client
from pytest_fileperf.drive.ways import MixSlot, Way, request_bytes, ways_of
from pytest_fileperf.measure.recorder import Recorder
from pytest_fileperf.measure.tally import Tally
from pytest_fileperf.plan.alternation import Alternation
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.mix import Mix
from pytest_fileperf.plan.network import LOCAL, Reach
from pytest_fileperf.plan.operation import Operation
from pytest_fileperf.plan.pacing import Pacing
from pytest_fileperf.plan.requests import Requests
from pytest_fileperf.plan.stream import Stream
from pytest_fileperf.plan.work import Work
from pytest_fileperf.wire.connect import Origin, open_socket
from pytest_fileperf.wire.connection import Connection
from pytest_fileperf.wire.exchange import KnownAnswers, Scratch
from pytest_fileperf.wire.payload_files import PayloadFiles
from pytest_fileperf.wire.request import LoadClient, ready
from pytest_fileperf.wire.transport import LoadTransport

__all__ = ("PreparedLoad", "Target", "prepared")

_CONNECT_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The boot that a run loads."""

    boot: int
    url: str
    """Base URL, without a slash at the end."""
    reach: Reach = LOCAL.reach
    """Where its load may go, by redirects too."""
    transport: Callable[[], httpx.AsyncBaseTransport] | None = None
    """Makes the transport of each client where the app is in this process; None for sockets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedLoad:
    """A load that can begin at once."""

    loop: LoadLoop
    recorder: Recorder
    slots: Sequence[Slot]
    engine: str
    """As in `Recording`, and the next one too."""
    why_engine: str

    async def run(self, origin_ns: int) -> None:
        """Makes the load; `origin_ns` is its zero on the monotonic clock."""
        await self.loop.run(self.slots, origin_ns=origin_ns)


async def prepared(
    work: Work,
    plan: LoadPlan | Alternation,
    target: Target,
    recorder: Recorder,
    pacing: Pacing,
    *,
    opened: int,
    files: PayloadFiles,
    stack: AsyncExitStack,
) -> PreparedLoad:
    """Returns the load of a target; where its request is replayed, the first `opened` connections are open.

    `stack` closes them. Raises PlanError when the request cannot be built, and httpx.ConnectError or
    httpx.ConnectTimeout when a connection cannot be opened.
    """
    scratch, timeout_s = Scratch(), plan.timeout_ns / 1e9

    def new_client(number: int = 0) -> Client:
        own = target.transport
        return Client(
            number=plan.share.number(number),
            transport=own() if own is not None else LoadTransport(only_to=target.reach, scratch=scratch),
            base_url=target.url,
            timeout=timeout_s,
            trust_env=False,
            payload_files=files,
        )

    pause = plan.pause if isinstance(plan, LoadPlan) else None
    pauses = None if pause is None else pause.of_users(plan.share)
    loop = LoadLoop(pacing=pacing, recorder=recorder, timeout_ns=plan.timeout_ns, pauses=pauses)
    url = httpx.URL(target.url)
    origin = Origin(url.scheme, url.host, url.port or 80)
    # Answers to different requests are seldom the same.
    alike = isinstance(work, Operation | Stream) or (isinstance(work, Requests) and work.count == 1)
    known = KnownAnswers() if alike else None
    recorder.sockets = scratch.sockets
    idle = Idle(recorder.tallies[0].breach) if pacing.slots_rest or pauses is not None else None
    openings = Openings(origin.port, openers=plan.share.of)
    limit_s = min(_CONNECT_TIMEOUT_S, timeout_s)
    connect = _connecting(origin, scratch, known, openings, idle, timeout_s=limit_s, only_to=target.reach)
    replays = target.transport is None
    make = _repeating(work, new_client(), loop, recorder.tallies[0], connect, idle) if replays else None
    slots: list[Slot] = []
    if make is not None:
        replayed = [make() for _ in range(plan.connections)]
        slots += replayed
        engine, why = "replay", ""
    else:
        ways, turn = ways_of(work, recorder, new_client, plan.connections, replays=replays, share=plan.share)
        places = [
            _place(ways, number, loop, turn, connect, idle, new_client, stack) for number in range(plan.connections)
        ]
        slots = [slot for slot, _ in places]
        replayed = [replay for _, replay in places if replay is not None]
        engine, why = _engine(work, ways, replays=replays)
    if idle is not None:
        stack.callback(idle.close)
    for slot in replayed:
        stack.callback(slot.close)
    await open_all([slot.open for slot in replayed[:opened]])
    return PreparedLoad(loop=loop, recorder=recorder, slots=slots, engine=engine, why_engine=why)


def _repeating(
    work: Work, client: LoadClient, loop: LoadLoop, tally: Tally, connect: Connect, idle: Idle | None
) -> Callable[[], ReplaySlot] | None:
    """Returns what makes slots that send one request again and again; None where that is not all there is to do."""
    if not isinstance(work, Operation | Stream):
        return None
    found = request_bytes(work.operation if isinstance(work, Stream) else work, client)
    if isinstance(found, str):
        return None
    request = ready(found)
    if isinstance(work, Stream):
        return lambda: StreamSlot(load=loop, tally=tally, request=request, stream=work, connect=connect, idle=idle)
    expect = work.expect
    return lambda: ReplaySlot(load=loop, tally=tally, request=request, expect=expect, connect=connect, idle=idle)


def _place(
    ways: Sequence[Way],
    number: int,
    loop: LoadLoop,
    turn: Callable[[], int],
    connect: Connect,
    idle: Idle | None,
    new_client: Callable[[int], Client],
    stack: AsyncExitStack,
) -> tuple[Slot, ReplaySlot | None]:
    """Returns the slot for the connection of that number, and the one in it that replays, if any does."""
    if len(ways) == 1:
        ((slot, _),), replay = _own_slots(ways, number, loop, connect, idle, new_client, stack)
        return slot, replay
    mixed = MixSlot(loop, turn)
    own, replay = _own_slots(ways, number, mixed, connect, idle, new_client, stack)
    mixed.own(own)
    return mixed, replay


def _own_slots(
    ways: Sequence[Way],
    number: int,
    load: Turns,
    connect: Connect,
    idle: Idle | None,
    new_client: Callable[[int], Client],
    stack: AsyncExitStack,
) -> tuple[list[tuple[Slot, Draw | None]], ReplaySlot | None]:
    """Returns the slot of each part for the connection of that number, and the one that replays, if any does."""
    replay: VaryingSlot | None = None
    own: list[tuple[Slot, Draw | None]] = []
    for way in ways:
        if way.draws:
            draw = way.draws[number]
            replay = replay or VaryingSlot(load=load, aim=way.aim, draw=draw, connect=connect, idle=idle)
            own.append((replay, draw))
            continue
        client, tally = new_client(number), way.aim.tally
        if way.unchecked:
            watch_answers(client, tally)
        slot = ClientSlot(load=load, tally=tally, client=client, call=way.calls[number], unchecked=way.unchecked)
        stack.push_async_callback(slot.aclose)
        own.append((slot, None))
    return own, replay


def _engine(work: Work, ways: Sequence[Way], *, replays: bool) -> tuple[str, str]:
    """Returns what sends the requests, and why it is not replay, or not for all parts."""
    if not replays:
        return "in-process", ""
    names = [f"{part.name}: " for part in work.parts] if isinstance(work, Mix) else [""]
    called = [name + way.why for name, way in zip(names, ways, strict=True) if way.calls]
    return ("client", "; ".join(called)) if called else ("replay", "")


def _connecting(
    origin: Origin,
    scratch: Scratch,
    known: KnownAnswers | None,
    openings: Openings,
    idle: Idle | None,
    *,
    timeout_s: float,
    only_to: Reach,
) -> Connect:
    """Returns what opens a connection; all of them know the answers that one of them has had, if they send the same."""
    loop = asyncio.get_running_loop()

    async def connect() -> Connection:
        if await openings.may_open() and idle is not None and (free := idle.take()) is not None:
            return free
        sock = await open_socket(origin, uds=None, tls=_no_tls, timeout_s=timeout_s, only_to=only_to)
        return Connection(loop, sock, scratch, known)

    return connect


def _no_tls() -> NoReturn:
    raise AssertionError("requests over TLS are not replayed")
