"""Makes a load ready to begin: its client or compiled request, and slots with open connections."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import NoReturn, TypeAlias

import httpx

from pytest_fileperf.drive.calls import operation_call
from pytest_fileperf.drive.loop import LoadLoop, Slot
from pytest_fileperf.drive.opening import open_all
from pytest_fileperf.drive.slots import ClientSlot, Drawing, ReplaySlot, Sent, VaryingSlot
from pytest_fileperf.drive.streams import StreamSlot, stream_call, watch_answers
from pytest_fileperf.drive.user import Client
from pytest_fileperf.errors import PlanError
from pytest_fileperf.measure.recorder import Recorder
from pytest_fileperf.plan.alternation import Alternation
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.operation import Journey, Operation
from pytest_fileperf.plan.pacing import Pacing
from pytest_fileperf.plan.requests import Requests
from pytest_fileperf.plan.stream import Stream
from pytest_fileperf.plan.unique import unique_bytes
from pytest_fileperf.plan.work import Work
from pytest_fileperf.wire.connect import Origin, open_socket
from pytest_fileperf.wire.connection import Connection
from pytest_fileperf.wire.exchange import KnownAnswers, Scratch
from pytest_fileperf.wire.payload_files import PayloadFiles
from pytest_fileperf.wire.request import BytesOfRequest, LoadClient, WireRequest, bytes_of, ready
from pytest_fileperf.wire.templates import compiled
from pytest_fileperf.wire.transport import LoadTransport

__all__ = ("PreparedLoad", "Target", "prepared")

_CONNECT_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The boot that a run loads."""

    boot: int
    url: str
    """Base URL, without a slash at the end."""
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
            number=number,
            transport=own() if own is not None else LoadTransport(loopback_only=True, scratch=scratch),
            base_url=target.url,
            timeout=timeout_s,
            trust_env=False,
            payload_files=files,
        )

    pause = plan.pause if isinstance(plan, LoadPlan) else None
    loop = LoadLoop(pacing=pacing, recorder=recorder, timeout_ns=plan.timeout_ns, pause=pause)
    make, why = (None, "") if target.transport is not None else _replaying(work, new_client, plan.connections)
    slots: Sequence[Slot]
    if make is None:
        calls = _calls(work, recorder, plan.connections)
        slots = [
            _client_slot(work, call, loop, recorder, new_client(number), stack) for number, call in enumerate(calls)
        ]
    else:
        url = httpx.URL(target.url)
        origin = Origin(url.scheme, url.host, url.port or 80)
        # Answers to different requests are seldom the same.
        known: KnownAnswers | None = (
            {} if isinstance(work, Operation) or (isinstance(work, Requests) and work.count == 1) else None
        )
        connect = _connecting(origin, scratch, known, timeout_s=min(_CONNECT_TIMEOUT_S, timeout_s))
        slots = replays = [make(number, loop, recorder, connect) for number in range(plan.connections)]
        for slot in replays:
            stack.callback(slot.close)
        await open_all([slot.open for slot in replays[:opened]], origin.port)
    engine = "replay" if make is not None else "client" if target.transport is None else "in-process"
    return PreparedLoad(loop=loop, recorder=recorder, slots=slots, engine=engine, why_engine=why)


_Connect: TypeAlias = Callable[[], Awaitable[Connection]]
_MakeReplay: TypeAlias = Callable[[int, LoadLoop, Recorder, _Connect], ReplaySlot]
"""Makes the slot of a connection, by its number."""


def _replaying(work: Work, new_client: Callable[[], Client], connections: int) -> tuple[_MakeReplay | None, str]:
    """Returns what makes slots that replay, or None and why it has to go through httpx's client."""
    if isinstance(work, Journey):
        return None, "a journey is code on a client"
    client = new_client()
    if isinstance(work, Operation | Stream):
        found = _bytes_of(work.operation if isinstance(work, Stream) else work, client)
        return (None, found) if isinstance(found, str) else (_repeating(work, ready(found)), "")
    try:
        recipes = compiled(work, partial(_bytes_or_raise, client))
    except _NotReplayableError as error:
        return None, str(error)
    places = _places(work, connections)

    def make(number: int, load: LoadLoop, recorder: Recorder, connect: _Connect) -> ReplaySlot:
        expects = [recipe.expect for recipe in work.recipes]
        drawing = Drawing(recipes=recipes, expects=expects, uses=work.uses, places=places[number])
        return VaryingSlot(load=load, recorder=recorder, drawing=drawing, connect=connect)

    return make, ""


def _repeating(work: Operation | Stream, request: WireRequest) -> _MakeReplay:
    """Returns what makes slots that send one request again and again."""

    def make(_: int, load: LoadLoop, recorder: Recorder, connect: _Connect) -> ReplaySlot:
        if isinstance(work, Stream):
            return StreamSlot(load=load, recorder=recorder, request=request, stream=work, connect=connect)
        return ReplaySlot(load=load, recorder=recorder, request=request, expect=work.expect, connect=connect)

    return make


class _NotReplayableError(Exception):
    """A request has to go through httpx's client; the text says why."""


def _bytes_or_raise(client: LoadClient, operation: Operation) -> BytesOfRequest:
    found = _bytes_of(operation, client)
    if isinstance(found, str):
        raise _NotReplayableError(found)
    return found


def _bytes_of(operation: Operation, client: LoadClient) -> BytesOfRequest | str:
    """Returns the request as bytes, or why it has to go through httpx's client. Raises PlanError."""
    try:
        request = client.build_request(operation.method, operation.url, **_build_arguments(operation))
        signed = _signed(request, operation.arguments.get("auth"))
        found = bytes_of(signed or request)
    except (TypeError, ValueError, httpx.InvalidURL, httpx.LocalProtocolError) as error:
        raise PlanError(f"httpx cannot build {operation.name}: {error}") from error
    if operation.arguments.get("follow_redirects"):
        return "redirects are followed"
    if request.url.scheme != "http":
        return "TLS"
    if signed is None:
        return "the authentication may need several requests"
    return found or "the body is a stream"


def _connecting(origin: Origin, scratch: Scratch, known: KnownAnswers | None, *, timeout_s: float) -> _Connect:
    """Returns what opens a connection; all of them know the answers that one of them has had, if they send the same."""
    loop = asyncio.get_running_loop()

    async def connect() -> Connection:
        sock = await open_socket(origin, uds=None, tls=_no_tls, timeout_s=timeout_s)
        return Connection(loop, sock, scratch, known)

    return connect


def _client_slot(
    work: Work, call: _Call, loop: LoadLoop, recorder: Recorder, client: Client, stack: AsyncExitStack
) -> ClientSlot:
    if isinstance(work, Journey):
        watch_answers(client, recorder)
    slot = ClientSlot(load=loop, recorder=recorder, client=client, call=call, unchecked=isinstance(work, Journey))
    stack.push_async_callback(slot.aclose)
    return slot


_Call: TypeAlias = Callable[[Client, Sent], Awaitable[object]]


def _calls(work: Work, recorder: Recorder, connections: int) -> Iterable[_Call]:
    """Returns what each connection calls again and again."""
    if isinstance(work, Requests):
        return [_varying_call(work, places) for places in _places(work, connections)]
    if isinstance(work, Stream):
        return repeat(stream_call(work, recorder), connections)
    return repeat(operation_call(work) if isinstance(work, Operation) else _journey_call(work), connections)


def _places(work: Requests, connections: int) -> Sequence[Iterator[int]]:
    """Returns what each connection goes through: the same, or all by itself."""
    if not work.order.each:
        return [work.order.places(work.count)] * connections
    return [work.order.places(work.count, own=number, of=connections) for number in range(connections)]


def _varying_call(requests: Requests, places: Iterator[int]) -> _Call:
    async def call(client: LoadClient, sent: Sent) -> None:
        operation = requests.operation(next(places), unique_bytes().decode())
        await operation_call(operation)(client, sent)

    return call


def _journey_call(journey: Journey) -> _Call:
    return lambda client, _: journey.function(client, *journey.arguments)


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
