"""A connection to a Dask cluster, whose workers have generators beside them: one each, ordered and ended through Dask.

Dask does what it is there for: it knows the workers, carries messages, encrypts them, and says which worker is gone.
Its client has an event loop and a thread of its own here.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from pytest_fileperf.drive.remote_handle import RemoteHandle
from pytest_fileperf.drive.roster import Roster, Workers
from pytest_fileperf.drive.scheduler import scheduler_address
from pytest_fileperf.errors import GeneratorError

if TYPE_CHECKING:
    from distributed import Client

__all__ = ("Cluster",)

_CONNECT_S = 10.0
_ASKED_S = 15.0
"""Asking all workers once takes no longer, nor asking each alone after that."""
_REPLACED_S = 3.0
"""So long a load waits for another worker where one is gone: some deployments start another one."""
_CLOSE_S = 1.0
_KEY = "fileperf-generator-"
_Result = TypeVar("_Result")


class Cluster:
    """A connection to a Dask scheduler, made when it is first needed. Whoever made it closes it."""

    def __init__(self, scheduler: str) -> None:
        """`scheduler` is its address, or the path of its scheduler file."""
        self.title = scheduler
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._client: Client | None = None
        self._connecting = asyncio.Lock()
        self._failure: GeneratorError | None = None
        """Why there is no connection: it is tried once, and every test is told."""
        self._roster = Roster(scheduler)
        self._used: dict[str, RemoteHandle] = {}
        self._run = uuid4().hex
        self._told_shared = False

    def workers(self) -> Workers:
        """Returns how many workers can make a load. Raises GeneratorError where none can, or one is unfit."""
        return self.call(self._seen(), timeout_s=2 * (_CONNECT_S + _ASKED_S))

    def generator(self) -> RemoteHandle:
        """Returns a further generator; it takes a worker of its own with its first load."""
        return RemoteHandle(self)

    def close(self) -> None:
        """Ends the connection, and what is left of generators."""
        if self._loop is None:
            return
        with suppress(Exception):  # a scheduler that is gone, or hangs, keeps nobody here
            self.call(self._disconnect(), timeout_s=2 * _CLOSE_S)
        loop, self._loop = self._loop, None
        loop.call_soon_threadsafe(loop.stop)
        if self._thread is not None:
            self._thread.join(_CLOSE_S)

    def call(self, work: Coroutine[Any, Any, _Result], *, timeout_s: float) -> _Result:
        """Returns what the coroutine does, which runs on the client's event loop. Raises TimeoutError."""
        future = self.spawn(work)
        try:
            return future.result(timeout_s)
        except BaseException:
            future.cancel()
            raise

    def spawn(self, work: Coroutine[Any, Any, _Result]) -> Future[_Result]:
        """Starts the coroutine on the client's event loop, and does not wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._running())

    # --- on the client's event loop

    async def client(self) -> Client:
        """Returns Dask's client. Raises GeneratorError where no scheduler answers."""
        async with self._connecting:
            if self._failure is not None:
                raise self._failure
            if self._client is None:
                try:
                    self._client = await self._connected()
                except GeneratorError as error:
                    self._failure = error
                    raise
            if self._client.status == "closed":  # it gave up connecting again
                self._failure = self._gone()
                raise self._failure
            return self._client

    def key(self) -> str:
        """Returns what Dask knows a further generator of this test run by."""
        return f"{_KEY}{self._run}-{uuid4()}"

    def lost(self) -> GeneratorError | None:
        """Returns that the scheduler is gone, where Dask's client was connected to it and is no longer."""
        if self._client is None or self._client.status == "running":
            return None
        return self._gone()

    async def worker_for(self, handle: RemoteHandle) -> str:
        """Returns a worker that no other generator has, and waits a moment for one.

        Raises LookupError where none is left, and GeneratorError where the cluster makes no load at all.
        """
        loop = asyncio.get_running_loop()
        patience = loop.time() + _REPLACED_S
        while True:
            for worker in await self._workers():
                if worker not in self._used:
                    self._used[worker] = handle
                    return worker
            if loop.time() > patience:
                raise LookupError("no worker is left for it")
            await asyncio.sleep(_REPLACED_S / 10)

    def release(self, worker: str, handle: RemoteHandle) -> None:
        """Lets other generators have the worker of this one, once it has said again that it is fit."""
        if self._used.get(worker) is handle:
            del self._used[worker]
            self._roster.doubt(worker)

    def _gone(self) -> GeneratorError:
        return GeneratorError(f"the Dask scheduler at {self.title} is gone: start it again, with its workers")

    async def _seen(self) -> Workers:
        count = len(await self._workers())
        is_shared = not self._told_shared and await self._is_shared()
        self._told_shared |= is_shared
        return Workers(count=count, silent=self._roster.silent, is_shared=is_shared)

    async def _is_shared(self) -> bool:
        """Returns whether another test run has generators on the cluster: Dask forgets those of one that is gone."""
        client = await self.client()
        with suppress(OSError):  # that it is gone shows in the load
            async with asyncio.timeout(_ASKED_S):
                keys = [key for own in (await client.has_what()).values() for key in own if str(key).startswith(_KEY)]
                return not all(key.startswith(f"{_KEY}{self._run}-") for key in keys)
        return False

    async def _workers(self) -> Sequence[str]:
        """Returns the workers that can make a load. Raises GeneratorError, from then on always where Dask is silent."""
        client = await self.client()
        try:
            async with asyncio.timeout(_ASKED_S):
                return await self._roster.workers(client)
        except OSError as error:  # TimeoutError is one, and so is what Dask raises for a closed connection
            why = f"nothing for {_ASKED_S:g} s" if isinstance(error, TimeoutError) else str(error)
            silent = GeneratorError(f"the Dask scheduler at {self.title} does not answer any more ({why})")
            self._failure = self.lost() or silent
            raise self._failure from error

    async def _connected(self) -> Client:
        """Returns a client that is connected. Raises GeneratorError."""
        from distributed import Client

        address = await asyncio.to_thread(scheduler_address, self.title)
        client = None
        try:
            async with asyncio.timeout(_CONNECT_S + 1):
                client = Client(
                    address, asynchronous=True, set_as_default=False, timeout=_CONNECT_S, name="pytest-fileperf"
                )
                await client
        except Exception as error:  # whatever Dask makes of an address
            with suppress(Exception):
                if client is not None:
                    await client.close(timeout=_CLOSE_S)
            why = f"nothing within {_CONNECT_S:g} s" if isinstance(error, TimeoutError) else str(error)
            raise GeneratorError(
                f"no Dask scheduler answers at {self.title} ({why or type(error).__name__}): start one, as with "
                "`dask scheduler`, or give another address with --fileperf-cluster"
            ) from error
        return client

    async def _disconnect(self) -> None:
        ends = [handle.ended_there() for handle in self._used.values()]
        await asyncio.gather(*ends, return_exceptions=True)
        client, self._client = self._client, None
        if client is not None:
            async with asyncio.timeout(_CLOSE_S):
                await client.close(timeout=_CLOSE_S / 2)

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=_run, args=(self._loop,), name="fileperf cluster", daemon=True)
            self._thread.start()
        return self._loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()
