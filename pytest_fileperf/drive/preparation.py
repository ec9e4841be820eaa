"""Makes a load ready to begin: its client or compiled request, and slots with open connections."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias, cast

import httpx

from pytest_fileperf.drive.journey import Client, ClientSlot, Sent, problem_of_answer, send
from pytest_fileperf.drive.loop import LoadLoop, Slot, Turns
from pytest_fileperf.drive.slots import Aim, Connect, Draw, Idle, Openings, ReplaySlot, VaryingSlot, open_all
from pytest_fileperf.drive.streams import StreamSlot, stream_call, watch_answers
from pytest_fileperf.errors import PlanError
from pytest_fileperf.measure.recorder import Recorder
from pytest_fileperf.measure.tally import Tally
from pytest_fileperf.plan.feed import Requests
from pytest_fileperf.plan.load import Alternation, LoadPlan
from pytest_fileperf.plan.network import LOCAL, Network
from pytest_fileperf.plan.pacing import WHOLE, Pacing, Share
from pytest_fileperf.plan.payload import unique_bytes
from pytest_fileperf.plan.request import FAMILIES, Journey, Operation
from pytest_fileperf.plan.work import Mix, PartWork, Stream, Work, parts_of, turns
from pytest_fileperf.wire.connect import Origin, open_socket
from pytest_fileperf.wire.connection import Connection
from pytest_fileperf.wire.exchange import KnownAnswers, Scratch
from pytest_fileperf.wire.payload_files import PayloadFiles
from pytest_fileperf.wire.request import BytesOfRequest, LoadClient, WireRequest, bytes_of, head_of, ready, whole_body
from pytest_fileperf.wire.templates import Fill, compiled
from pytest_fileperf.wire.transport import LoadTransport

# --- How each part of a load is sent: drawn and replayed on the slot's connection, or called on an httpx client

Call: TypeAlias = Callable[[Client, Sent], Awaitable[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How one part is sent."""

    tally: Tally
    """Of its first request."""
    draws: Sequence[Draw] = ()
    """Of each connection, where it is replayed."""
    calls: Sequence[Call] = ()
    """Of each connection, where it goes through httpx's client."""
    unchecked: bool = False
    """Whether calls do not judge answers themselves."""
    family: str = "httpx"
    """Whose clients the calls get; empty for those of the target."""
    why: str = ""
    """Why it is not replayed."""


class MixSlot:
    """A place for one piece of work at a time, of any part: it has a slot for each way in which parts are sent.

    To these slots it is what asks them to take turns.
    """

    __slots__ = ("_load", "_now", "_turn", "at_once", "own", "timeout_ns", "too_late")

    def __init__(self, load: Turns, turn: Callable[[], int]) -> None:
        """`turn` returns the place of the part whose turn it is; all slots share it."""
        self._load = load
        self._turn = turn
        self.own: Sequence[tuple[Slot, Draw | None]] = ()
        """The slot of each part, with what draws its requests where it is replayed."""
        self._now: Slot | None = None
        self.timeout_ns, self.too_late = load.timeout_ns, load.too_late
        self.at_once = False

    def start(self, due_ns: int | None) -> None:
        slot, draw = self.own[self._turn()]
        if isinstance(slot, VaryingSlot) and draw is not None:
            slot.draw = draw
        self._now = slot
        slot.start(due_ns)

    def expire(self, started_before_ns: int) -> None:
        if self._now is not None:
            self._now.expire(started_before_ns)

    def next(self, slot: Slot, /) -> None:
        """Is free for its next piece of work, when one of its slots is."""
        self._load.next(self)


def ways_of(
    work: Work,
    recorder: Recorder,
    client: Callable[[], LoadClient],
    connections: int,
    *,
    replays: bool,
    share: Share = WHOLE,
) -> tuple[tuple[Way, ...], Callable[[], int]]:
    """Returns the way of each part, and what says whose turn it is; `client` builds requests.

    Raises PlanError for a request that cannot be built, and for a value that cannot be written in one.
    """
    if not isinstance(work, Mix):
        named = {part.name: tally for part, tally in zip(parts_of(work), recorder.tallies, strict=False)}
        return (_way(work, recorder, named, recorder.tallies[0], client, connections, replays, share),), lambda: 0
    turn = turns([part.weight for part in work.parts], share).__next__
    recorder.next_tally = lambda: recorder.tallies[turn()]
    ways = [
        _way(part.work, None, {}, tally, client, connections, replays, share)
        for part, tally in zip(work.parts, recorder.tallies, strict=True)
    ]
    return tuple(ways), turn


def _way(
    work: PartWork | Stream,
    recorder: Recorder | None,
    named: dict[str, Tally],
    tally: Tally,
    client: Callable[[], LoadClient],
    connections: int,
    replays: bool,
    share: Share,
) -> Way:
    """Returns the way of one part. `named` are the tallies by the names of requests; without any it is `tally`.

    `recorder` is told how to choose the tally of a request that is not sent.
    """
    if isinstance(work, Journey):

        def go(client: Client, _: Sent) -> Awaitable[object]:
            return work.function(client, *work.arguments)

        why = "a journey is code on a client"
        return Way(tally=tally, calls=[go] * connections, unchecked=True, why=why, family=work.family)
    if isinstance(work, Stream):
        found = request_bytes(work.operation, client()) if replays else ""
        why = found if isinstance(found, str) else ""
        return Way(tally=tally, calls=[stream_call(work, tally)] * connections, why=why)
    requests = work if isinstance(work, Requests) else Requests(recipes=(work,))
    tallies = [named[name] for name in requests.names] if named else [tally] * len(requests.recipes)
    places = _places(requests, connections, share)
    if recorder is not None and named:
        recorder.next_tally = lambda: tallies[requests.recipe_of(next(places[0]))]
    why = ""
    if replays:
        try:
            fills = compiled(requests, partial(_bytes_or_raise, client()))
            aims = [Aim(expect=recipe.expect, tally=of) for recipe, of in zip(requests.recipes, tallies, strict=True)]
            return Way(tally=tallies[0], draws=[_draw(requests, fills, aims, own) for own in places])
        except _NotReplayableError as error:
            why = str(error)
    if isinstance(work, Requests):
        compiled(work, partial(_bytes_of_any, client()))  # raises now what would be raised within the load
    return Way(tally=tallies[0], calls=[_varying_call(requests, tallies, own) for own in places], why=why)


def _draw(requests: Requests, fills: Sequence[Fill], aims: Sequence[Aim], places: Iterator[int]) -> Draw:
    next_place, uses = places.__next__, requests.uses
    if not uses:
        fill, aim = fills[0], aims[0]

        def draw(row: WireRequest) -> Aim:
            fill(row, next_place())
            return aim

        return draw

    def draw_any(row: WireRequest) -> Aim:
        place = next_place()
        recipe = uses[place]
        fills[recipe](row, place)
        return aims[recipe]

    return draw_any


def _places(requests: Requests, connections: int, share: Share) -> Sequence[Iterator[int]]:
    """Returns what each connection goes through: the same, or all by itself."""
    count, order = requests.count, requests.order
    if not order.each:
        return [order.places(count, own=share.place, first=share.first(count))] * connections
    # Connections begin at equal distances, so that they do not all ask for the same thing at once.
    numbers, of_all = map(share.number, range(connections)), share.connections or connections
    return [order.places(count, own=number, first=number * count // of_all) for number in numbers]


def _varying_call(requests: Requests, tallies: Sequence[Tally], places: Iterator[int]) -> Call:
    async def call(client: Client, sent: Sent) -> None:
        place = next(places)
        sent.tally = tallies[requests.recipe_of(place)]
        operation = requests.operation(place, unique_bytes().decode())
        response = await send(client, operation)
        try:
            sent.problem = await problem_of_answer(operation.expect, response)
        finally:
            await response.aclose()

    return call


class _NotReplayableError(Exception):
    """A request has to go through httpx's client; the text says why."""


def _bytes_or_raise(client: LoadClient, operation: Operation) -> BytesOfRequest:
    found = request_bytes(operation, client)
    if isinstance(found, str):
        raise _NotReplayableError(found)
    return found


def _bytes_of_any(client: LoadClient, operation: Operation) -> BytesOfRequest:
    """Returns the bytes of a request that goes through httpx's client; without its authentication."""
    with _building(operation):
        request = _request(operation, client)
        body = whole_body(request)
        size = sum(len(part) if isinstance(part, bytes) else part.size_bytes for part in body)
        return BytesOfRequest(is_head=False, is_last=False, head=head_of(request), body=body, body_bytes=size)


@contextmanager
def _building(operation: Operation) -> Iterator[None]:
    """Raises PlanError where httpx cannot build the request in the block."""
    try:
        yield
    except (TypeError, ValueError, httpx.InvalidURL, httpx.LocalProtocolError) as error:
        raise PlanError(f"httpx cannot build {operation.name}: {error}") from error


def _request(operation: Operation, client: LoadClient) -> httpx.Request:
    arguments = {key: value for key, value in operation.arguments.items() if key not in ("auth", "follow_redirects")}
    return client.build_request(operation.method, operation.url, **arguments)


def request_bytes(operation: Operation, client: LoadClient) -> BytesOfRequest | str:
    """Returns the request as bytes, or why it has to go through httpx's client. Raises PlanError."""
    with _building(operation):
        request = _request(operation, client)
        signed = _signed(request, operation.arguments.get("auth"))
        found = bytes_of(signed or request)
    if operation.arguments.get("follow_redirects"):
        return "redirects are followed"
    if request.url.scheme != "http":
        return "TLS"
    if signed is None:
        return "the authentication may need several requests"
    return found or "the body is a stream"


def _signed(request: httpx.Request, auth: object) -> httpx.Request | None:
    """Returns the request with its basic authentication, if any; None for other kinds."""
    if auth is None:
        return request
    if isinstance(auth, tuple) and len(auth) == 2:
        auth = httpx.BasicAuth(*auth)
    if type(auth).__module__ not in FAMILIES or type(auth).__name__ != "BasicAuth":
        return None
    return next(cast(httpx.BasicAuth, auth).sync_auth_flow(request))


# --- preparation

_CONNECT_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The boot that a run loads."""

    boot: int
    url: str
    """Base URL, without a slash at the end."""
    network: Network = LOCAL
    """Where its load may go, by redirects too."""
    family: str = "httpx"
    """Whose clients journeys get that ask for none."""
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


async def prepared(
    work: Work,
    plan: LoadPlan | Alternation,
    target: Target,
    recorder: Recorder,
    pacing: Pacing,
    files: PayloadFiles,
    stack: AsyncExitStack,
) -> PreparedLoad:
    """Returns the load of a target; where its request is replayed, the first connections of the plan are open.

    `stack` closes them. Raises PlanError when the request cannot be built, and httpx.ConnectError or
    httpx.ConnectTimeout when a connection cannot be opened.
    """
    scratch, timeout_s = Scratch(), plan.timeout_ns / 1e9

    def new_client(number: int = 0, family: str = "httpx") -> Client:
        own = target.transport
        return Client(
            number=plan.share.number(number),
            family=family or target.family,
            transport=own() if own is not None else LoadTransport(only_to=target.network, scratch=scratch),
            base_url=target.url,
            timeout=timeout_s,
            trust_env=False,
            payload_files=files,
        )

    pauses = None if plan.pause is None else plan.pause.of_users(plan.share)
    loop = LoadLoop(pacing=pacing, recorder=recorder, timeout_ns=plan.timeout_ns, pauses=pauses)
    url = httpx.URL(target.url)
    origin = Origin(url.scheme, url.host, url.port or 80)
    # Connections know the answers that one of them has had; those to different requests are seldom the same.
    alike = isinstance(work, Operation | Stream) or (isinstance(work, Requests) and work.count == 1)
    known = KnownAnswers() if alike else None
    recorder.sockets = scratch.sockets
    idle = Idle(recorder.tallies[0].breach) if pacing.slots_rest or pauses is not None else None
    openings = Openings(origin.port, openers=plan.share.of)
    limit_s = min(_CONNECT_TIMEOUT_S, timeout_s)

    async def connect() -> Connection:
        if await openings.may_open() and idle is not None and (free := idle.take()) is not None:
            return free
        sock = await open_socket(origin, timeout_s=limit_s, only_to=target.network)
        return Connection(asyncio.get_running_loop(), sock, scratch, known)

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
    await open_all([slot.open for slot in replayed[: plan.opened_first]])
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
    new_client: Callable[[int, str], Client],
    stack: AsyncExitStack,
) -> tuple[Slot, ReplaySlot | None]:
    """Returns the slot for the connection of that number, and the one in it that replays, if any does."""
    mixed = MixSlot(loop, turn) if len(ways) > 1 else None
    load: Turns = mixed or loop
    replay: VaryingSlot | None = None
    own: list[tuple[Slot, Draw | None]] = []
    for way in ways:
        if way.draws:
            draw = way.draws[number]
            replay = replay or VaryingSlot(load=load, tally=way.tally, draw=draw, connect=connect, idle=idle)
            own.append((replay, draw))
            continue
        client = new_client(number, way.family)
        if way.unchecked:
            watch_answers(client, way.tally)
        slot = ClientSlot(load=load, tally=way.tally, client=client, call=way.calls[number], unchecked=way.unchecked)
        stack.push_async_callback(slot.aclose)
        own.append((slot, None))
    if mixed is None:
        return own[0][0], replay
    mixed.own = own
    return mixed, replay


def _engine(work: Work, ways: Sequence[Way], *, replays: bool) -> tuple[str, str]:
    """Returns what sends the requests, and why it is not replay, or not for all parts."""
    if not replays:
        return "in-process", ""
    names = [f"{part.name}: " for part in work.parts] if isinstance(work, Mix) else [""]
    called = [name + way.why for name, way in zip(names, ways, strict=True) if way.calls]
    return ("client", "; ".join(called)) if called else ("replay", "")
