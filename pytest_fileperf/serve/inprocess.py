"""Serves an app in the test process: in a thread with its own event loop, behind a transport without sockets."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import closing, suppress
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, cast

import psutil

from pytest_fileperf.errors import FilePerfError, ServerDiedError, ServerStartError
from pytest_fileperf.serve.app import AppSpec
from pytest_fileperf.serve.databases import Queries, QueryCounter
from pytest_fileperf.serve.running import RunningServer
from pytest_fileperf.serve.stability import tracer_now
from pytest_fileperf.wire.eventloop import new_event_loop

if TYPE_CHECKING:
    import httpx

    from pytest_fileperf.wire.lifespan import ASGIApp

T = TypeVar("T")
START_TIMEOUT_S, _STOP_TIMEOUT_S = 30.0, 10.0
_POLL_S = 0.25
"""Time between checks that the loop still runs. Windows notices a Ctrl-C only then."""


class RunningInProcess(RunningServer):
    url = "http://in-process"
    kind = "in-process"

    def __init__(
        self,
        thread: threading.Thread,
        loop: asyncio.AbstractEventLoop,
        transport: httpx.AsyncBaseTransport,
        told: Sequence[str],
    ) -> None:
        """Call it in the app's thread. `told` gets the lines of a `QueryCounter`."""
        self._thread = thread
        self._event_loop = loop
        self.loop = type(loop).__module__.partition(".")[0]
        self.transport = transport
        """Only for functions that `run` calls, because the app's objects belong to that event loop."""
        self.title = f"in-process ({self.loop})"
        self.tracer = tracer_now()
        self._told = told

    @property
    def processes(self) -> tuple[psutil.Process, ...]:
        return (psutil.Process(os.getpid()),)

    def queries_since(self, at_ns: int) -> Queries | None:
        return Queries.read(tuple(self._told), at_ns)

    def check(self) -> None:
        if not self._thread.is_alive():
            raise ServerDiedError("the event loop of the in-process app has ended")

    def run(self, function: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Runs `function()` on the server's event loop. Raises its errors, or ServerDiedError."""
        self.check()
        future = asyncio.run_coroutine_threadsafe(function(), self._event_loop)
        try:
            while not concurrent.futures.wait((future,), timeout=_POLL_S).done:
                self.check()
            return future.result()
        except BaseException:
            if future.cancel():  # gives it a moment to close its connections

                async def others_done() -> None:
                    for _ in range(10):
                        await asyncio.sleep(0)

                settled = asyncio.run_coroutine_threadsafe(others_done(), self._event_loop)
                concurrent.futures.wait((settled,), timeout=_POLL_S * 4)
            raise

    @property
    def roots(self) -> tuple[int, ...]:
        return ()  # not all children of the test process belong to the app

    def _transport(self) -> httpx.AsyncBaseTransport:
        return self.transport

    def _sync_transport(self, family: ModuleType, *, is_only_here: bool = False) -> httpx.BaseTransport:
        return cast("httpx.BaseTransport", family.MockTransport(partial(self._answer, family)))

    def _answer(self, of: ModuleType, request: httpx.Request) -> httpx.Response:
        async def sent(body: bytes) -> tuple[int, httpx.Headers, bytes]:
            whole = of.Request(request.method, request.url, headers=request.headers, stream=of.ByteStream(body))
            response = await self.transport.handle_async_request(whole)
            try:
                return response.status_code, response.headers, b"".join([part async for part in response.aiter_raw()])
            finally:
                await response.aclose()

        body = request.read()
        status, headers, raw = self.run(lambda: sent(body))
        return cast("httpx.Response", of.Response(status, headers=headers, stream=of.ByteStream(raw)))


class InProcessLaunch:
    def __init__(self, app: AppSpec, *, counts_queries: bool = False) -> None:
        self._app = app
        self._counts_queries = counts_queries
        self._thread = threading.Thread(target=self._main, name="fileperf in-process app", daemon=True)
        self._settled = threading.Event()
        self._failure: BaseException | None = None
        self._running: RunningInProcess | None = None
        self._end: Callable[[], object] | None = None
        """Cancels the app's start, or ends the app. None before the app's start."""
        self._ending = ""

    def start(self) -> None:
        self._thread.start()

    def ready(self) -> RunningInProcess:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._settled.wait(_POLL_S):
            if time.monotonic() > deadline:
                raise ServerStartError(f"{self._app.name} was not ready to serve within {START_TIMEOUT_S:g} s")
        if isinstance(self._failure, FilePerfError):
            raise self._failure
        if self._failure is not None or self._running is None:
            raise ServerStartError(f"{self._app.name} failed to start: {self._failure!r}") from self._failure
        return self._running

    def ask_to_stop(self) -> None:
        if self._end is not None and self._thread.is_alive():
            with suppress(RuntimeError):  # the loop closed in between
                self._end()

    def stop(self) -> str:
        running, self._running = self._running, None
        self.ask_to_stop()
        if self._thread.ident is not None:
            self._thread.join(_STOP_TIMEOUT_S)
        if running is None:
            return ""
        if self._thread.is_alive():  # it is a daemon, and does not keep the test run from ending
            return f"{running.title} did not end within {_STOP_TIMEOUT_S:g} s"
        return self._ending and f"{running.title} failed while it shut down: {self._ending}"

    def _main(self) -> None:
        try:
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(self._serve())
        except BaseException as error:  # raised in the thread that waits in `ready`
            self._failure = error
        finally:
            self._settled.set()

    async def _serve(self) -> None:
        from pytest_fileperf.wire.asgi import StreamingASGITransport
        from pytest_fileperf.wire.lifespan import Lifespan

        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        self._end = partial(loop.call_soon_threadsafe, task.cancel)
        app, told = cast("ASGIApp", self._app.load()), list[str]()  # checked to be one
        with closing(QueryCounter(told.append)) as counter:
            if self._counts_queries:
                app = counter.around(app)
            async with Lifespan(app) as lifespan:
                transport = StreamingASGITransport(app, state=lifespan.state)
                end = asyncio.Event()
                self._running = RunningInProcess(self._thread, loop, transport, told)
                self._running.counts_queries = self._counts_queries
                self._end = partial(loop.call_soon_threadsafe, end.set)
                self._settled.set()
                await end.wait()
        self._ending = lifespan.failure.rpartition("\n")[2]
