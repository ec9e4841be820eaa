"""Makes a load ready to begin: its client or compiled request, and slots with open connections."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import NoReturn

import httpx

from pytest_fileperf.drive.loop import LoadLoop, Slot
from pytest_fileperf.drive.opening import open_all
from pytest_fileperf.drive.slots import ClientSlot, ReplaySlot, Sent, operation_call
from pytest_fileperf.errors import PlanError
from pytest_fileperf.measure.recorder import Recorder
from pytest_fileperf.plan.alternation import Alternation
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.operation import Expectation, Journey, Operation, Work
from pytest_fileperf.plan.pacing import Pacing
from pytest_fileperf.wire.connect import Origin, open_socket
from pytest_fileperf.wire.connection import Connection
from pytest_fileperf.wire.exchange import KnownAnswers, Scratch
from pytest_fileperf.wire.payload_files import PayloadFiles
from pytest_fileperf.wire.request import LoadClient, WireRequest, compile_request
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

    def new_client() -> LoadClient:
        own = target.transport
        return LoadClient(
            transport=own() if own is not None else LoadTransport(loopback_only=True, scratch=scratch),
            base_url=target.url,
            timeout=timeout_s,
            trust_env=False,
            payload_files=files,
        )

    request, why = (None, "") if target.transport is not None else _replayable(work, new_client)
    loop = LoadLoop(pacing=pacing, recorder=recorder, timeout_ns=plan.timeout_ns)
    slots: Sequence[Slot]
    if request is None:
        slots = [_client_slot(work, loop, recorder, new_client(), stack) for _ in range(plan.connections)]
    else:
        expect = work.expect if isinstance(work, Operation) else Expectation()
        url = httpx.URL(target.url)
        origin = Origin(url.scheme, url.host, url.port or 80)
        connect = _connecting(origin, scratch, timeout_s=min(_CONNECT_TIMEOUT_S, timeout_s))
        slots = replays = [
            ReplaySlot(load=loop, recorder=recorder, request=request, expect=expect, connect=connect)
            for _ in range(plan.connections)
        ]
        for slot in replays:
            stack.callback(slot.close)
        await open_all([slot.open for slot in replays[:opened]], origin.port)
    engine = "replay" if request is not None else "client" if target.transport is None else "in-process"
    return PreparedLoad(loop=loop, recorder=recorder, slots=slots, engine=engine, why_engine=why)


def _replayable(work: Work, new_client: Callable[[], LoadClient]) -> tuple[WireRequest | None, str]:
    """Returns the compiled request, or None and why it has to go through httpx's client."""
    if isinstance(work, Journey):
        return None, "a journey is code on a client"
    try:
        request = new_client().build_request(work.method, work.url, **_build_arguments(work))
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


def _connecting(origin: Origin, scratch: Scratch, *, timeout_s: float) -> Callable[[], Awaitable[Connection]]:
    """Returns what opens a connection; all of them know the answers that one of them has had."""
    known: KnownAnswers = {}
    loop = asyncio.get_running_loop()

    async def connect() -> Connection:
        sock = await open_socket(origin, uds=None, tls=_no_tls, timeout_s=timeout_s)
        return Connection(loop, sock, scratch, known)

    return connect


def _client_slot(
    work: Work, loop: LoadLoop, recorder: Recorder, client: LoadClient, stack: AsyncExitStack
) -> ClientSlot:
    call = operation_call(work) if isinstance(work, Operation) else _journey_call(work)
    slot = ClientSlot(load=loop, recorder=recorder, client=client, call=call, unchecked=isinstance(work, Journey))
    stack.push_async_callback(slot.aclose)
    return slot


def _journey_call(journey: Journey) -> Callable[[LoadClient, Sent], Awaitable[object]]:
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
