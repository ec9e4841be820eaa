"""Generators on the workers of a Dask cluster: one on each, found, asked and ended through Dask.

Dask does what it is there for: it knows the workers, carries messages, encrypts them, and says which worker is gone.
Its client has an event loop and a thread of its own here.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import platform
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from pytest_fileperf.drive.remote_handle import RemoteHandle
from pytest_fileperf.errors import GeneratorError

if TYPE_CHECKING:
    from distributed import Client

__all__ = ("Cluster",)

_PACKAGE = "pytest-fileperf"
_CONNECT_S = 10.0
_ANSWER_S = 5.0
"""A worker that says nothing about itself for so long is not used."""
_REPLACED_S = 3.0
"""So long a load waits for another worker where one is gone: some deployments start another one."""
_CLOSE_S = 2.0
_SHOWN = 8
"""Workers whose problems a message names."""
_SAME = "it has to be the same"
_Result = TypeVar("_Result")


class Cluster:
    """A connection to a Dask scheduler, made when it is first needed. Whoever made it closes it."""

    def __init__(self, scheduler: str) -> None:
        """`scheduler` is its address, or the path of its scheduler file."""
        self.title = scheduler
        self._is_file = Path(scheduler).is_file()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._client: Client | None = None
        self._failure: GeneratorError | None = None
        """Why there is no connection: it is tried once, and every test is told."""
        self._fit: set[str] = set()
        """Workers with this version of everything."""
        self._used: dict[str, RemoteHandle] = {}

    def size(self) -> int:
        """Returns how many workers there are. Raises GeneratorError where there are none, or unfit ones."""
        return len(self.call(self._workers(), timeout_s=_CONNECT_S + 2 * _ANSWER_S))

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
        future = asyncio.run_coroutine_threadsafe(work, self._running())
        try:
            return future.result(timeout_s)
        except BaseException:
            future.cancel()
            raise

    def spawn(self, work: Coroutine[Any, Any, None]) -> Future[None]:
        """Starts the coroutine on the client's event loop, and does not wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._running())

    # --- on the client's event loop

    async def client(self) -> Client:
        """Returns Dask's client. Raises GeneratorError where no scheduler answers."""
        if self._failure is not None:
            raise self._failure
        if self._client is None:
            try:
                self._client = await self._connected()
            except GeneratorError as error:
                self._failure = error
                raise
        return self._client

    async def worker_for(self, handle: RemoteHandle) -> str:
        """Returns a worker that no other generator has, and waits a moment for one. Raises GeneratorError."""
        patience = asyncio.get_running_loop().time() + _REPLACED_S
        while True:
            for worker in await self._workers():
                if worker not in self._used:
                    self._used[worker] = handle
                    return worker
            if asyncio.get_running_loop().time() > patience:
                raise GeneratorError(f"no worker of the Dask cluster at {self.title} is left for it")
            await asyncio.sleep(_REPLACED_S / 10)

    def release(self, worker: str) -> None:
        """Lets other generators have the worker, once it has said again that it is fit."""
        self._used.pop(worker, None)
        self._fit.discard(worker)

    async def _connected(self) -> Client:
        from distributed import Client

        where = {"scheduler_file": self.title} if self._is_file else {"address": self.title}
        try:
            client = Client(**where, asynchronous=True, set_as_default=False, timeout=_CONNECT_S, name=_PACKAGE)
            await client
        except (OSError, TimeoutError, ValueError, TypeError) as error:
            raise GeneratorError(
                f"no Dask scheduler answers at {self.title} ({error}): start one, as with `dask scheduler`, or give "
                "another address with --fileperf-cluster"
            ) from error
        return client

    async def _workers(self) -> Sequence[str]:
        """Returns the addresses of the workers, those of different machines in turn. Raises GeneratorError."""
        client = await self.client()
        workers = list(await client.nthreads())
        if not workers:
            raise GeneratorError(
                f"the Dask cluster at {self.title} has no workers: start some, as with `dask worker {self.title}`"
            )
        unknown = [worker for worker in workers if worker not in self._fit and worker not in self._used]
        if problems := await self._problems_of(client, unknown):
            raise GeneratorError(
                f"the Dask cluster at {self.title} cannot make the load: {'; '.join(sorted(problems)[:_SHOWN])}"
            )
        self._fit.update(workers)
        return _in_turn(workers)

    async def _problems_of(self, client: Client, workers: Sequence[str]) -> list[str]:
        """Returns why workers cannot make a part of the load."""
        try:
            return await self._problems(client, workers, _ANSWER_S)
        except TimeoutError:
            # One of them hangs. Asked alone, each says which.
            each = await asyncio.gather(*(self._problems_alone(client, worker) for worker in workers))
            return [problem for problems in each for problem in problems]

    async def _problems_alone(self, client: Client, worker: str) -> list[str]:
        try:
            return await self._problems(client, [worker], _ANSWER_S)
        except TimeoutError:
            return [f"worker {worker} did not answer within {_ANSWER_S:g} s"]

    async def _problems(self, client: Client, workers: Sequence[str], within_s: float) -> list[str]:
        found: list[str] = []
        if not workers:
            return found
        own_python, own_version = platform.python_version(), importlib.metadata.version(_PACKAGE)
        async with asyncio.timeout(within_s):
            # Functions of the standard library: a worker that lacks this package can be asked for them.
            whom = list(workers)
            pythons = await client.run(platform.python_version, workers=whom, on_error="return")
            versions = await client.run(importlib.metadata.version, _PACKAGE, workers=whom, on_error="return")
        for worker in workers:
            python, version = pythons[worker], versions[worker]
            if isinstance(version, importlib.metadata.PackageNotFoundError):
                found.append(
                    f'worker {worker} lacks this package: pip install "{_PACKAGE}[cluster]=={own_version}" there'
                )
            elif isinstance(python, Exception) or isinstance(version, Exception):
                found.append(f"worker {worker} is gone ({python if isinstance(python, Exception) else version})")
            elif _minor(python) != _minor(own_python):
                found.append(f"worker {worker} has Python {python}, and here it is {own_python}: {_SAME}")
            elif version != own_version:
                found.append(f"worker {worker} has {_PACKAGE} {version}, and here it is {own_version}: {_SAME}")
        return found

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


def _minor(python: str) -> str:
    """Returns `3.11` of `3.11.7`: code is carried from one Python to another of the same."""
    return ".".join(python.split(".")[:2])


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()


def _in_turn(workers: Sequence[str]) -> Sequence[str]:
    """Returns the workers so that the first ones are of as many machines as there are."""
    places: dict[str, int] = {}
    ranked = []
    for worker in sorted(workers):
        host = urlsplit(worker).hostname or worker
        places[host] = places.get(host, 0) + 1
        ranked.append((places[host], worker))
    return [worker for _, worker in sorted(ranked)]
