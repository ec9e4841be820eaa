"""Prepares a load: makes its requests' bytes or its HTTP clients, and opens connections."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import repeat
from typing import Any, TypeAlias, TypeVar, cast

import httpx

from pytest_fileperf.drive.journey import Client, ClientSlot, built, problem_of_answer, send
from pytest_fileperf.drive.loop import LoadLoop, Slot, Turns
from pytest_fileperf.drive.slots import Aim, Draw, Idle, Openings, ReplaySlot, VaryingSlot, open_all
from pytest_fileperf.drive.streams import StreamSlot, stream_call, watch_answers
from pytest_fileperf.errors import PlanError
from pytest_fileperf.measure.recorder import Recorder
from pytest_fileperf.measure.tally import Tally
from pytest_fileperf.plan.feed import Requests
from pytest_fileperf.plan.load import Alternation, LoadPlan
from pytest_fileperf.plan.network import LOCAL, Network, Reach
from pytest_fileperf.plan.pacing import Pacing
from pytest_fileperf.plan.payload import unique_bytes
from pytest_fileperf.plan.request import FAMILIES, Journey, Operation
from pytest_fileperf.plan.work import Mix, PartWork, Stream, Work, parts_of, turns
from pytest_fileperf.wire.connect import Origin, open_socket, tls_context
from pytest_fileperf.wire.connection import Connection
from pytest_fileperf.wire.exchange import KnownAnswers, Scratch
from pytest_fileperf.wire.family import family_named
from pytest_fileperf.wire.payload_files import PayloadFiles
from pytest_fileperf.wire.request import BytesOfRequest, WireRequest, bytes_of, head_of, ready, whole_body
from pytest_fileperf.wire.templates import Fill, compiled
from pytest_fileperf.wire.transport import Http2Transport, LoadTransport

_MOST_ALONE_S = 0.25
"""How long the first connection may log in alone. It is shorter than the usual warm-up."""
Replaying = TypeVar("Replaying", bound=ReplaySlot)
Call: TypeAlias = Callable[[Client, ClientSlot], Awaitable[object]]
Way: TypeAlias = list[Draw] | Callable[[int, Turns], Slot]
"""How a part of a load is sent. If requests are replayed: for each connection, a function that writes the next request.
Otherwise: a function that makes a slot from a connection's number and the load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    boot: int
    url: str
    """Base URL, without a slash at the end."""
    reach: Reach = field(default_factory=Reach)
    pids: tuple[int, ...] = ()
    """The server's topmost processes, if visible here. Their CPU time, with all child processes, is measured."""
    network: Network = LOCAL
    """The addresses to which the load may go, even by redirects."""
    family: str = "httpx"
    """`httpx` or `httpx2`: the package for the clients of journeys that name no package."""
    transport: Callable[[], httpx.AsyncBaseTransport] | None = None
    """Makes each client's transport, for an app in this process. None if clients use sockets."""


class PreparedLoad:
    """A load on one server. The load can begin once `open` has returned."""

    def __init__(
        self,
        work: Work,
        plan: LoadPlan | Alternation,
        target: Target,
        recorder: Recorder,
        pacing: Pacing,
        files: PayloadFiles,
        stack: AsyncExitStack,
    ) -> None:
        """Raises PlanError if a request cannot be built."""
        self.recorder = recorder
        self._plan = plan
        self.target = target
        self._files = files
        self._stack = stack
        self._replays = target.transport is None
        self._scratch = Scratch()
        recorder.sockets = self._scratch.sockets
        pauses = None if plan.pause is None else plan.pause.of_users(plan.share)
        operations = [one for one in (work, *(part.work for part in parts_of(work))) if isinstance(one, Operation)]
        # Connections may share a token. If all began at once, each of them would log in.
        logs_in = any(_is_flow(one.arguments.get("auth")) for one in operations)
        begins_alone = logs_in and plan.measured_from_ns > 0 and not pacing.open_loop and pauses is None
        self.loop = LoadLoop(
            pacing=pacing,
            recorder=recorder,
            timeout_ns=plan.timeout_ns,
            pauses=pauses,
            alone_s=min(_MOST_ALONE_S, plan.duration_ns / 2e9) if begins_alone else 0.0,
        )
        url = httpx.URL(target.url)
        self._origin = Origin(url.scheme, url.host, url.port or (443 if url.scheme == "https" else 80))
        self._tls = cache(partial(tls_context, target.reach))  # one for all connections: it takes a while
        self._http2_tls = cache(partial(tls_context, target.reach))  # httpx adds its protocols to it
        self._openings = Openings(0 if target.reach.uds else self._origin.port, openers=plan.share.of)
        # Connections share known answers. Answers to different requests are seldom the same, so they share none.
        alike = isinstance(work, Operation | Stream) or (isinstance(work, Requests) and work.count == 1)
        self._known = KnownAnswers() if alike else None
        self._idle = Idle(recorder.tallies[0].breach) if pacing.slots_rest or pauses is not None else None
        self._replaying: list[ReplaySlot] = []
        self._whys: list[str] = []
        self._speaks_http2 = False
        ways, turn = self._ways_of(work)
        self.slots = [self._slot(ways, number, turn) for number in range(plan.connections)]
        through = "http2" if self._speaks_http2 else "client"
        self.engine = through if self._whys else "replay" if self._replays else "in-process"
        """`replay` sends prepared bytes. If a client is needed (`client`, `http2`), `why_engine` says why."""
        self.why_engine = "; ".join(self._whys)
        if self._idle is not None:
            stack.callback(self._idle.close)
        for slot in self._replaying:
            stack.callback(slot.close)

    async def open(self) -> None:
        """Opens the first connections if requests are replayed. Raises httpx.ConnectError or ConnectTimeout."""
        await open_all([slot.open for slot in self._replaying[: self._plan.opened_first]])

    async def _connect(self) -> Connection:
        if await self._openings.may_open() and self._idle is not None and (free := self._idle.take()) is not None:
            return free
        limit_s = min(10, self._plan.timeout_ns / 1e9)
        target = self.target
        sock = await open_socket(
            self._origin, uds=target.reach.uds, tls=self._tls, timeout_s=limit_s, only_to=target.network
        )
        return Connection(asyncio.get_running_loop(), sock, self._scratch, self._known)

    def _client(self, number: int = 0, journey: Journey | None = None) -> Client:
        target, is_tls = self.target, self._origin.scheme == "https"
        family = "httpx" if journey is None else journey.family or target.family
        way: dict[str, Any] = {"uds": target.reach.uds, "only_to": target.network}
        if target.transport is not None:
            transport = target.transport()
        elif journey is not None and journey.http2:
            transport = Http2Transport(family_named(family), tls=self._http2_tls() if is_tls else None, **way)
        else:
            transport = LoadTransport(scratch=self._scratch, verify=not is_tls or self._tls(), **way)
        return Client(
            number=self._plan.share.number(number),
            family=family,
            transport=transport,
            base_url=target.url,
            timeout=self._plan.timeout_ns / 1e9,
            trust_env=False,
            payload_files=self._files,
        )

    def _ways_of(self, work: Work) -> tuple[list[Way], Callable[[], int]]:
        tallies = self.recorder.tallies
        if isinstance(work, Mix):
            turn = turns([part.weight for part in work.parts], self._plan.share).__next__
            self.recorder.next_tally = lambda: tallies[turn()]
            parts = zip(work.parts, tallies, strict=True)
            return [self._way(part.work, tally, {}, f"{part.name}: ") for part, tally in parts], turn
        if isinstance(work, Operation | Stream):
            return [self._repeating(work, tallies[0])], lambda: 0
        named = {part.name: tally for part, tally in zip(parts_of(work), tallies, strict=False)}
        return [self._way(work, tallies[0], named)], lambda: 0

    def _repeating(self, work: Operation | Stream, tally: Tally) -> Way:
        call: Call
        replay: Callable[..., ReplaySlot]
        if isinstance(work, Stream):
            operation, call = work.operation, stream_call(work, tally)
            replay = partial(StreamSlot, stream=work)
        else:
            operation, call = work, _call(Requests(recipes=(work,)), [tally], repeat(0))
            replay = partial(ReplaySlot, expect=work.expect)
        if self._replays:
            try:
                request = ready(_bytes_of(self._client(), operation))
            except _NotReplayableError as error:
                self._whys.append(str(error))
            else:
                return lambda _, load: self._connecting(partial(replay, load=load, tally=tally, request=request))
        return self._calling([call] * self._plan.connections, tally)

    def _way(self, work: PartWork, tally: Tally, named: Mapping[str, Tally], title: str = "") -> Way:
        """If requests have names, `named` maps each name to the tally that counts its requests."""
        if isinstance(work, Journey):
            journey = work
            if journey.http2 and not self._replays:
                raise PlanError("http2 needs a network connection, but an inprocess server has none. Use another one")
            if self._replays:
                by = f"HTTP/2, by {journey.family or self.target.family}"
                self._whys.append(f"{title}{by if journey.http2 else 'a journey is code, which needs a client'}")
                self._speaks_http2 |= journey.http2
            calls: list[Call] = [lambda client, _: journey.function(client, *journey.arguments)]
            return self._calling(calls * self._plan.connections, tally, journey)
        requests = work if isinstance(work, Requests) else Requests(recipes=(work,))
        tallies = [named[name] for name in requests.names] if named else [tally] * len(requests.recipes)
        places, client = self._places(requests), self._client()
        if named:
            self.recorder.next_tally = lambda: tallies[requests.recipe_of(next(places[0]))]
        if self._replays:
            try:
                fills = compiled(requests, partial(_bytes_of, client))
            except _NotReplayableError as error:
                self._whys.append(f"{title}{error}")
            else:
                aims = [(recipe.expect, own) for recipe, own in zip(requests.recipes, tallies, strict=True)]
                return [_draw(requests.uses, fills, aims, own) for own in places]
        if isinstance(work, Requests):
            compiled(work, partial(_bytes_of_any, client))  # raises now, not during the load
        return self._calling([_call(requests, tallies, own) for own in places], tallies[0])

    def _places(self, requests: Requests) -> list[Iterator[int]]:
        """Returns an iterator for each connection, which yields the indexes of the requests to send."""
        count, order = requests.count, requests.order
        connections, share = self._plan.connections, self._plan.share
        if not order.each:
            return [order.places(count, own=share.place, first=share.first(count))] * connections
        # Connections begin at equal distances, so that they do not all send the same request at once.
        numbers, of_all = map(share.number, range(connections)), share.connections or connections
        return [order.places(count, own=number, first=number * count // of_all) for number in numbers]

    def _calling(self, calls: Sequence[Call], tally: Tally, journey: Journey | None = None) -> Way:

        def slot(number: int, load: Turns) -> Slot:
            client = self._client(number, journey)
            if journey is not None:
                watch_answers(client, tally)
            unchecked = journey is not None
            made = ClientSlot(load=load, tally=tally, client=client, call=calls[number], unchecked=unchecked)
            self._stack.push_async_callback(made.aclose)
            return made

        return slot

    def _connecting(self, make: Callable[..., Replaying]) -> Replaying:
        slot = make(connect=self._connect, idle=self._idle)
        self._replaying.append(slot)
        return slot

    def _slot(self, ways: Sequence[Way], number: int, turn: Callable[[], int]) -> Slot:
        """Makes a connection's slot. If the load mixes several parts, all replayed parts share one inner slot."""
        mixed = MixSlot(self.loop, turn) if len(ways) > 1 else None
        load: Turns = mixed or self.loop
        replay: VaryingSlot | None = None
        own: list[tuple[Slot, Draw | None]] = []
        for way in ways:
            if not isinstance(way, list):
                own.append((way(number, load), None))
                continue
            draw, tally = way[number], self.recorder.tallies[0]
            replay = replay or self._connecting(partial(VaryingSlot, load=load, tally=tally, draw=draw))
            own.append((replay, draw))
        if mixed is None:
            return own[0][0]
        mixed.own = own
        return mixed


class MixSlot:
    """A slot for a load that mixes several parts. An inner slot does each part's work."""

    __slots__ = ("_load", "_now", "_turn", "at_once", "own", "timeout_ns", "too_late")

    def __init__(self, load: Turns, turn: Callable[[], int]) -> None:
        """`turn` returns the index of the part whose work is next. All slots share this function."""
        self._load = load
        self._turn = turn
        self.own: Sequence[tuple[Slot, Draw | None]] = ()
        """Each part's slot. If the part is replayed, also the function that writes its requests."""
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
        self._load.next(self)


def _draw(uses: Sequence[int], fills: Sequence[Fill], aims: Sequence[Aim], places: Iterator[int]) -> Draw:
    next_place = places.__next__
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


def _call(requests: Requests, tallies: Sequence[Tally], places: Iterator[int]) -> Call:
    async def call(client: Client, slot: ClientSlot) -> None:
        place = next(places)
        slot.tally = tallies[requests.recipe_of(place)]
        operation = requests.operation(place, unique_bytes().decode())
        response = await send(client, operation)
        try:
            slot.problem = await problem_of_answer(operation.expect, response)
        finally:
            await response.aclose()

    return call


# --- A request as bytes


class _NotReplayableError(Exception):
    """A request cannot be sent as prepared bytes, so httpx's client must send it. The text says why."""


def _bytes_of(client: Client, operation: Operation) -> BytesOfRequest:
    """Returns the request's bytes. Raises PlanError or _NotReplayableError."""
    with _building(operation):
        request = built(client, operation)
        signed = _signed(request, operation.arguments.get("auth"))
        found = bytes_of(signed or request)
    if operation.arguments.get("follow_redirects"):
        raise _NotReplayableError("redirects are followed")
    if signed is None:
        raise _NotReplayableError("the authentication may need several requests")
    if found is None:
        raise _NotReplayableError("the body is a stream")
    return found


def _bytes_of_any(client: Client, operation: Operation) -> BytesOfRequest:
    """Returns a request's bytes without authentication, to check a request that httpx's client will send."""
    with _building(operation):
        request = built(client, operation)
        body = whole_body(request)
        size = sum(len(part) if isinstance(part, bytes) else part.size_bytes for part in body)
        return BytesOfRequest(is_head=False, is_last=False, head=head_of(request), body=body, body_bytes=size)


@contextmanager
def _building(operation: Operation) -> Iterator[None]:
    """Turns errors of httpx in the block into PlanError."""
    try:
        yield
    except (TypeError, ValueError, httpx.InvalidURL, httpx.LocalProtocolError) as error:
        raise PlanError(f"httpx cannot build {operation.name}: {error}") from error


def _is_flow(auth: object) -> bool:
    """Returns whether `auth` may make requests of its own, such as a login."""
    is_basic = type(auth).__module__ in FAMILIES and type(auth).__name__ == "BasicAuth"
    return not (auth is None or is_basic or (isinstance(auth, tuple) and len(auth) == 2))


def _signed(request: httpx.Request, auth: object) -> httpx.Request | None:
    """Adds the header for basic authentication. Returns None for any other kind of authentication."""
    if auth is None:
        return request
    if isinstance(auth, tuple) and len(auth) == 2:
        auth = httpx.BasicAuth(*auth)
    if _is_flow(auth):
        return None
    return next(cast(httpx.BasicAuth, auth).sync_auth_flow(request))
