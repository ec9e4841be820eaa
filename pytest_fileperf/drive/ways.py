"""How each part of a load is sent: drawn and replayed on the slot's connection, or called on an httpx client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import httpx

from pytest_fileperf.drive.calls import operation_call
from pytest_fileperf.drive.client_slot import Sent
from pytest_fileperf.drive.loop import Slot, Turns
from pytest_fileperf.drive.slots import Aim, Draw, VaryingSlot
from pytest_fileperf.drive.streams import stream_call
from pytest_fileperf.drive.user import Client
from pytest_fileperf.errors import PlanError
from pytest_fileperf.measure.recorder import Recorder
from pytest_fileperf.measure.tally import Tally
from pytest_fileperf.plan.mix import Mix, PartWork
from pytest_fileperf.plan.operation import Expectation, Journey, Operation
from pytest_fileperf.plan.requests import Requests
from pytest_fileperf.plan.share import WHOLE, Share
from pytest_fileperf.plan.stream import Stream
from pytest_fileperf.plan.unique import unique_bytes
from pytest_fileperf.plan.work import Work, parts_of
from pytest_fileperf.wire.request import BytesOfRequest, LoadClient, bytes_of, head_of, whole_body
from pytest_fileperf.wire.templates import Compiled, Row, compiled

__all__ = ("Call", "MixSlot", "Way", "request_bytes", "ways_of")

Call: TypeAlias = Callable[[Client, Sent], Awaitable[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How one part is sent."""

    aim: Aim
    """Of its first request."""
    draws: Sequence[Draw] = ()
    """Of each connection, where it is replayed."""
    calls: Sequence[Call] = ()
    """Of each connection, where it goes through httpx's client."""
    unchecked: bool = False
    """Whether calls do not judge answers themselves."""
    why: str = ""
    """Why it is not replayed."""


class MixSlot:
    """A place for one piece of work at a time, of any part: it has a slot for each way in which parts are sent.

    To these slots it is what asks them to take turns.
    """

    __slots__ = ("_load", "_now", "_own", "_turn", "at_once", "timeout_ns", "too_late")

    def __init__(self, load: Turns, turn: Callable[[], int]) -> None:
        """`turn` returns the place of the part whose turn it is; all slots share it."""
        self._load = load
        self._turn = turn
        self._own: Sequence[tuple[Slot, Draw | None]] = ()
        self._now: Slot | None = None
        self.timeout_ns, self.too_late = load.timeout_ns, load.too_late
        self.at_once = False

    def own(self, slots: Sequence[tuple[Slot, Draw | None]]) -> None:
        """Takes the slot of each part, with what draws its requests where it is replayed."""
        self._own = slots

    def start(self, due_ns: int | None) -> None:
        """Begins the work of the part whose turn it is."""
        slot, draw = self._own[self._turn()]
        if isinstance(slot, VaryingSlot) and draw is not None:
            slot.draw = draw
        self._now = slot
        slot.start(due_ns)

    def expire(self, started_before_ns: int) -> None:
        """Fails the piece of work that is under way if it began before that instant."""
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
    turn = work.turns(share).__next__
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
        aim = Aim(expect=Expectation(), tally=tally)
        return Way(
            aim=aim, calls=[_journey_call(work)] * connections, unchecked=True, why="a journey is code on a client"
        )
    if isinstance(work, Stream):
        aim = Aim(expect=work.operation.expect, tally=tally)
        found = request_bytes(work.operation, client()) if replays else ""
        return Way(aim=aim, calls=[stream_call(work, tally)] * connections, why=found if isinstance(found, str) else "")
    requests = work if isinstance(work, Requests) else Requests(recipes=(work,))
    tallies = [named[name] for name in requests.names] if named else [tally] * len(requests.recipes)
    aims = [Aim(expect=recipe.expect, tally=of) for recipe, of in zip(requests.recipes, tallies, strict=True)]
    places = _places(requests, connections, share)
    if recorder is not None and named:
        recorder.next_tally = lambda: tallies[requests.recipe_of(next(places[0]))]
    why = ""
    if replays:
        try:
            recipes = compiled(requests, partial(_bytes_or_raise, client()))
            return Way(aim=aims[0], draws=[_draw(requests, recipes, aims, own) for own in places])
        except _NotReplayableError as error:
            why = str(error)
    if isinstance(work, Requests):
        compiled(work, partial(_bytes_of_any, client()))  # raises now what would be raised within the load
    return Way(aim=aims[0], calls=[_varying_call(requests, tallies, own) for own in places], why=why)


def _draw(requests: Requests, recipes: Sequence[Compiled], aims: Sequence[Aim], places: Iterator[int]) -> Draw:
    next_place, uses = places.__next__, requests.uses
    if not uses:
        fill, aim = recipes[0].fill, aims[0]

        def draw(row: Row) -> Aim:
            fill(row, next_place())
            return aim

        return draw

    def draw_any(row: Row) -> Aim:
        place = next_place()
        recipe = uses[place]
        recipes[recipe].fill(row, place)
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
        await operation_call(requests.operation(place, unique_bytes().decode()))(client, sent)

    return call


def _journey_call(journey: Journey) -> Call:
    return lambda client, _: journey.function(client, *journey.arguments)


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
    if type(auth) is not httpx.BasicAuth:
        return None
    return next(auth.sync_auth_flow(request))
