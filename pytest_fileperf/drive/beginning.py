"""What a load begins with: clients, the compiled request, slots with open connections."""

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
from pytest_fileperf.plan.operation import Expectation, Journey, Operation, Work
from pytest_fileperf.wire.connect import Origin, open_socket
from pytest_fileperf.wire.connection import Connection
from pytest_fileperf.wire.exchange import KnownAnswers, Scratch
from pytest_fileperf.wire.payload_files import PayloadFiles
from pytest_fileperf.wire.request import LoadClient, WireRequest, compile_request
from pytest_fileperf.wire.transport import LoadTransport

__all__ = ("Beginning", "Target")

_CONNECT_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The boot that a run loads."""

    boot: int
    url: str
    """Base URL, without a slash at the end."""
    transport: Callable[[], httpx.AsyncBaseTransport] | None = None
    """Makes the transport of each client where the app is in this process; None for sockets."""


class Beginning:
    """Prepares a run: clients, the compiled request, slots with open connections."""

    def __init__(
        self, work: Work, target: Target, files: PayloadFiles, stack: AsyncExitStack, *, timeout_ns: int
    ) -> None:
        self._work = work
        self._target = target
        self._timeout_ns = timeout_ns
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

    async def slots(
        self, load: LoadLoop, recorder: Recorder, request: WireRequest | None, connections: int, *, opened: int
    ) -> Sequence[Slot]:
        """Returns one slot a connection; of those that replay the first `opened` are connected."""
        if request is None:
            return [self._client_slot(load, recorder) for _ in range(connections)]
        known: KnownAnswers = {}
        expect = self._work.expect if isinstance(self._work, Operation) else Expectation()
        url = httpx.URL(self._target.url)
        origin = Origin(url.scheme, url.host, url.port or 80)
        loop = asyncio.get_running_loop()
        connect_timeout_s = min(_CONNECT_TIMEOUT_S, self._timeout_ns / 1e9)

        async def connect() -> Connection:
            sock = await open_socket(origin, uds=None, tls=_no_tls, timeout_s=connect_timeout_s)
            return Connection(loop, sock, self._scratch, known)

        slots = [
            ReplaySlot(load=load, recorder=recorder, request=request, expect=expect, connect=connect)
            for _ in range(connections)
        ]
        for slot in slots:
            self._stack.callback(slot.close)
        await open_all([slot.open for slot in slots[:opened]], origin.port)
        return slots

    def _client_slot(self, load: LoadLoop, recorder: Recorder) -> Slot:
        work = self._work
        slot = ClientSlot(
            load=load,
            recorder=recorder,
            client=self._client(),
            call=operation_call(work) if isinstance(work, Operation) else _journey_call(work),
            unchecked=isinstance(work, Journey),
        )
        self._stack.push_async_callback(slot.aclose)
        return slot

    def _client(self) -> LoadClient:
        make = self._target.transport
        return LoadClient(
            transport=make() if make is not None else LoadTransport(loopback_only=True, scratch=self._scratch),
            base_url=self._target.url,
            timeout=self._timeout_ns / 1e9,
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
