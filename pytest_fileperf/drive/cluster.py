"""A connection to a Dask cluster, which starts one load generator beside each worker.

In the test process, Dask's client has its own event loop, in its own thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import chain
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from urllib.parse import urlsplit
from uuid import uuid4

from pytest_fileperf.drive.remote import RemoteHandle, whereabouts
from pytest_fileperf.drive.scheduler import scheduler_address
from pytest_fileperf.errors import GeneratorError

if TYPE_CHECKING:
    from distributed import Client

# --- Finds the workers that can make a load: they answer, and have the test process's code and package versions

_PACKAGE, _MODULE = "pytest-fileperf", "pytest_fileperf"
_ANSWER_S = 5.0
"""A worker that does not answer a question within this time is not used."""
_ASKED_AGAIN_S = 60.0
"""A silent worker is asked again after this time."""
_SAME = "Install the same version there"


Workers: TypeAlias = tuple[int, tuple[str, ...], bool]
"""(number of workers, addresses of workers that do not answer, whether another test run uses the cluster). The last
value is True only once, because one warning is enough."""


def _problem_of(versions: Mapping[str, str | None], there: object, here: Mapping[str, str | None]) -> str:
    """Returns how a worker's versions or code differ from ours; `""` if they are the same.

    `there` is the worker's `whereabouts()`, or an error.
    """
    package, own_package = versions[_MODULE], here[_MODULE]
    python, own_python = (str(each["python"]).split(".") for each in (versions, here))
    if package is None:
        return f'lacks this package. Run pip install "{_PACKAGE}[cluster]=={own_package}" there and restart it'
    if python[:2] != own_python[:2]:  # code is pickled, which needs the same minor version of Python
        return f"has Python {'.'.join(python[:3])}, but this machine has {'.'.join(own_python[:3])}. {_SAME}"
    if package != own_package:
        return f"has {_PACKAGE} {package}, but this machine has {own_package}. {_SAME}"
    if not isinstance(there, dict) or there.get("code") != whereabouts()["code"]:
        return f"has other code of {_PACKAGE} {own_package} than this machine. Install this machine's code there"
    return ""


def _in_turn(workers: Sequence[str]) -> Sequence[str]:
    """Returns the workers, sorted so that the first ones are on as many different machines as possible."""
    places: dict[str, int] = {}
    ranked = []
    for worker in sorted(workers):
        host = urlsplit(worker).hostname or worker
        places[host] = places.get(host, 0) + 1
        ranked.append((places[host], worker))
    return [worker for _, worker in sorted(ranked)]


# --- cluster

_CONNECT_S = 10.0
_ASKED_S = 15.0
"""Time limit for asking all workers at once, and then perhaps each worker alone."""
_REPLACED_S = 3.0
"""How long a load waits for another worker if its worker is gone: some deployments start a replacement."""
_CLOSE_S = 1.0
_KEY = "fileperf-generator-"
_Result = TypeVar("_Result")


class Cluster:
    """A connection to a Dask scheduler, opened when it is first needed. Call `close` at the end."""

    def __init__(self, scheduler: str) -> None:
        self.title = scheduler
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._client: Client | None = None
        self._connecting = asyncio.Lock()
        self._failure: GeneratorError | None = None
        """Why there is no connection. Connecting is tried once, and every test gets the same error."""
        self._fit: dict[str, Mapping[str, str]] = {}
        """Each usable worker's `whereabouts()`, by its address. A worker stays usable until its release."""
        self._silent_since_s: dict[str, float] = {}
        self._used: dict[str, RemoteHandle] = {}
        self._run = uuid4().hex
        self._told_shared = False

    def workers(self) -> Workers:
        """Returns the workers' state. Raises GeneratorError if no worker answers, or if one has other code."""
        return self.call(self._seen(), timeout_s=2 * (_CONNECT_S + _ASKED_S))

    def generator(self) -> RemoteHandle:
        """Returns a new generator, which takes a worker only when it gets its first load."""
        return RemoteHandle(self)

    def close(self) -> None:
        if self._loop is None:
            return
        with suppress(Exception):  # a scheduler that is gone, or hangs, must not keep us
            self.call(self._disconnect(), timeout_s=2 * _CLOSE_S)
        loop, self._loop = self._loop, None
        loop.call_soon_threadsafe(loop.stop)
        if self._thread is not None:
            self._thread.join(_CLOSE_S)

    def call(self, work: Coroutine[Any, Any, _Result], *, timeout_s: float) -> _Result:
        """Runs the coroutine on the event loop of Dask's client and returns its result. Raises TimeoutError."""
        future = self.spawn(work)
        try:
            return future.result(timeout_s)
        except BaseException:
            future.cancel()
            raise

    def spawn(self, work: Coroutine[Any, Any, _Result]) -> Future[_Result]:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=_run, args=(self._loop,), name="fileperf cluster", daemon=True)
            self._thread.start()
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    # --- on the client's event loop

    async def client(self) -> Client:
        """Returns the connected client. Raises GeneratorError if no scheduler answers."""
        async with self._connecting:
            if self._failure is not None:
                raise self._failure
            if self._client is None:
                try:
                    self._client = await self._connected()
                except GeneratorError as error:
                    self._failure = error
                    raise
            if self._client.status == "closed":  # it no longer tries to reconnect
                self._failure = self._gone()
                raise self._failure
            return self._client

    def key(self) -> str:
        return f"{_KEY}{self._run}-{uuid4()}"

    def lost(self) -> GeneratorError | None:
        """Returns an error if Dask's client has lost its connection to the scheduler; else None."""
        if self._client is None or self._client.status == "running":
            return None
        return self._gone()

    async def worker_for(self, handle: RemoteHandle) -> tuple[str, Mapping[str, str]]:
        """Returns an unused worker's address and `whereabouts()`. Raises LookupError if no worker is free after 3 s."""
        loop = asyncio.get_running_loop()
        patience = loop.time() + _REPLACED_S
        while True:
            for worker, there in (await self._workers()).items():
                if worker not in self._used:
                    self._used[worker] = handle
                    return worker, there
            if loop.time() > patience:
                raise LookupError("no worker is left for it")
            await asyncio.sleep(_REPLACED_S / 10)

    def release(self, worker: str, handle: RemoteHandle) -> None:
        """Lets other generators use the worker, which is checked again before that."""
        if self._used.get(worker) is handle:
            del self._used[worker]
            self._fit.pop(worker, None)

    def _gone(self) -> GeneratorError:
        return GeneratorError(f"the Dask scheduler at {self.title} is gone. Start it and its workers again")

    async def _seen(self) -> Workers:
        count, is_shared = len(await self._workers()), False
        if not self._told_shared:
            client = await self.client()
            with suppress(OSError):  # if it is gone, the load shows it
                async with asyncio.timeout(_ASKED_S):
                    held = (await client.has_what()).values()  # Dask forgets the generators of a run that is gone
                own, keys = f"{_KEY}{self._run}-", map(str, chain.from_iterable(held))
                is_shared = any(key.startswith(_KEY) and not key.startswith(own) for key in keys)
        self._told_shared |= is_shared
        return count, tuple(sorted(self._silent_since_s)), is_shared

    async def _workers(self) -> Mapping[str, Mapping[str, str]]:
        """Returns each usable worker's `whereabouts()`, by its address.

        Raises GeneratorError if there are none, or if a worker has other code or versions. If the scheduler does not
        answer, this and every later call raise GeneratorError.
        """
        client = await self.client()
        try:
            async with asyncio.timeout(_ASKED_S):
                return await self._found(client)
        except OSError as error:  # includes TimeoutError, and Dask's error for a closed connection
            why = f"it said nothing for {_ASKED_S:g} s" if isinstance(error, TimeoutError) else str(error)
            silent = GeneratorError(f"the Dask scheduler at {self.title} no longer answers ({why}). Start it again")
            self._failure = self.lost() or silent
            raise self._failure from error

    async def _found(self, client: Client) -> Mapping[str, Mapping[str, str]]:
        """Returns usable workers with their `whereabouts()`.

        Raises GeneratorError if there are none, or if a worker has other code or versions.
        """
        there, now_s = list(await client.nthreads()), monotonic()
        self._silent_since_s = {
            worker: since_s
            for worker, since_s in self._silent_since_s.items()
            if worker in there and now_s <= since_s + _ASKED_AGAIN_S
        }
        unknown = [worker for worker in there if worker not in self._fit and worker not in self._silent_since_s]
        if problems := await self._problems(client, unknown):
            raise GeneratorError(
                f"the Dask cluster at {self.title} cannot make the load: {'; '.join(sorted(problems)[:8])}"
            )
        fit = {worker: self._fit[worker] for worker in _in_turn([one for one in there if one in self._fit])}
        if not fit:
            why = f": {len(self._silent_since_s)} did not answer" if self._silent_since_s else ""
            raise GeneratorError(
                f"the Dask cluster at {self.title} has no workers that answer{why}. Start some, for example "
                f"with `dask worker {client.scheduler.address}`"
            )
        return fit

    async def _problems(self, client: Client, workers: Sequence[str]) -> list[str]:
        """Checks workers. Returns their problems, and notes which workers are usable or silent."""
        from distributed.versions import get_versions

        if not workers:
            return []
        whom = list(workers)
        try:
            async with asyncio.timeout(_ANSWER_S):
                # A function of Dask's own comes first, because it also works on a worker without this package.
                versions = await client.run(get_versions, [_MODULE], workers=whom, on_error="return")
                theres = await client.run(whereabouts, workers=whom, on_error="return")
        except TimeoutError:
            if len(workers) == 1:
                self._silent_since_s[workers[0]] = monotonic()
                return []
            each = await asyncio.gather(*(self._problems(client, [worker]) for worker in workers))
            return [problem for found in each for problem in found]
        found, here = [], get_versions([_MODULE])
        for worker in whom:
            there = theres[worker]
            if isinstance(versions[worker], Exception):
                continue
            if problem := _problem_of(versions[worker]["packages"], there, here["packages"]):
                found.append(f"worker {worker} {problem}")
            else:
                self._fit[worker] = there
        return found

    async def _connected(self) -> Client:
        from distributed import Client

        address = await asyncio.to_thread(scheduler_address, self.title)
        client = None
        try:
            async with asyncio.timeout(_CONNECT_S + 1):
                client = Client(
                    address, asynchronous=True, set_as_default=False, timeout=_CONNECT_S, name="pytest-fileperf"
                )
                await client
        except Exception as error:  # Dask raises anything for a bad address
            with suppress(Exception):
                if client is not None:
                    await client.close(timeout=_CLOSE_S)
            why = f"no answer within {_CONNECT_S:g} s" if isinstance(error, TimeoutError) else str(error)
            raise GeneratorError(
                f"no Dask scheduler answers at {self.title} ({why or type(error).__name__}). Start one with "
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


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()
