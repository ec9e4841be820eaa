"""A load generator beside a worker of Dask, for a test process elsewhere: an actor that lives in that worker.

    test process                     Dask's scheduler      worker                 generator's process
    order, begin ────────────────────────────────────────▶ RemoteGenerator ─────▶ the same as on one machine
    messages?    ────────────────────────────────────────▶ … waits for one … ───▶ whoever has ordered is there
                 ◀──────────────────────────────────────── ready, progress, result

Dask carries what is said and says who is gone. The generator is a process of its own, as the worker's has other work.
It ends with the worker, and in a run also where nobody asks for messages any more.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
import sys
import threading
import uuid
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future as Started
from contextlib import suppress
from dataclasses import replace
from functools import cache
from hashlib import blake2b
from pathlib import Path
from time import monotonic, monotonic_ns
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from pytest_fileperf.drive.generator import ALIVE, LoadOrder
from pytest_fileperf.drive.group import Generator, Reading, offset_of, on_this_clock
from pytest_fileperf.errors import FilePerfError, GeneratorError, PlanError
from pytest_fileperf.units import is_loopback

if TYPE_CHECKING:
    from distributed import Future

    from pytest_fileperf.drive.cluster import Cluster

# --- Where a process runs, so that another one can tell what the two share: machine, network, processes, clock, code

_PACKAGE = Path(__file__).parents[1]


def whereabouts() -> dict[str, str]:
    """Returns where this process runs. Two of them compare; alone they mean nothing, but for the name of the `host`.

    On Linux containers may share a `machine` and nothing else: `net`work, processes (`pid`) and clock (`time`) are
    those of the namespace. `code` is a digest of this package's source files.
    """
    host = socket.gethostname()
    try:
        machine = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:  # other systems
        machine = f"{host} {uuid.getnode():x}"
    found = {"host": host, "machine": machine, "code": _code()}
    for kind in ("net", "pid", "time"):
        found[kind] = machine
        with suppress(OSError):  # other systems, and Linux before it had this kind
            found[kind] += f" {Path('/proc/self/ns', kind).readlink()}"
    return found


@cache
def _code() -> str:
    """Returns a digest of the names and contents of this package's source files, read once: some milliseconds."""
    digest = blake2b(digest_size=16)
    for name, path in sorted((path.relative_to(_PACKAGE).as_posix(), path) for path in _PACKAGE.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


# --- remote


class RemoteGenerator:
    """One generator, for one test process. Every method but `__init__` is called on the worker's event loop."""

    def __init__(self, path: tuple[str, ...]) -> None:
        """`path` is `sys.path` of the test process: what it names may be here too, behind what is here."""
        own = tuple(entry for entry in sys.path if entry)
        self._generator = Generator(path=(*own, *(entry for entry in path if entry and entry not in own)))
        self._changing = asyncio.Lock()
        """Held by what starts or ends the process, in a thread of its own."""
        self._is_over = False
        self._orders = 0
        self._messages: list[object] = []
        self._ending = "", ""
        """How the generator's process ended, to stand behind its name, and the last lines of its log."""
        self._news = asyncio.Event()
        # Dask forgets it if the test process is gone; the worker is not kept waiting.
        weakref.finalize(self, threading.Thread(target=self._generator.close, daemon=True).start)

    async def now_ns(self) -> int:
        return monotonic_ns()

    async def order(self, packed: bytes) -> None:
        """Starts a run, and the generator if it does not run. Raises GeneratorError."""
        async with self._changing:
            if self._is_over:
                raise GeneratorError("it has been ended")
            self._orders += 1
            self._messages.clear()
            self._ending = "", ""
            self._news = asyncio.Event()
            await asyncio.to_thread(self._start, packed, self._orders, asyncio.get_running_loop())

    async def send(self, packed: bytes) -> None:
        """Sends the generator a message; one that has ended says so by itself."""
        self._pass_on(pickle.loads(packed))  # noqa: S301 - from the test process that ordered it

    async def messages(self, wait_s: float) -> bytes:
        """Returns a pickle: the generator's process id, what it has said or says within that time, and how it ended."""
        self._generator.shorten_log()
        self._pass_on(ALIVE)
        if not self._messages:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._news.wait()
        said = pickle.dumps((self._generator.pid, self._messages, self._ending))
        self._messages.clear()
        self._news.clear()
        return said

    async def end(self) -> None:
        """Ends the generator's process and removes its files; no order is taken after that."""
        self._is_over = True
        async with self._changing:
            await asyncio.to_thread(self._generator.close)

    def _pass_on(self, message: object) -> None:
        if self._generator.pid is not None:
            with suppress(BrokenPipeError, ValueError):  # it ends, or its pipe is closed just now
                self._generator.send(message)

    def _start(self, packed: bytes, order: int, loop: asyncio.AbstractEventLoop) -> None:
        job = pickle.loads(packed)  # noqa: S301 - as above
        assert isinstance(job, LoadOrder)
        own, generator = weakref.ref(self), self._generator

        def put(message: object) -> None:
            """Takes a message; what the generator holds must not hold this, which would never be forgotten."""
            ending = (generator.ended(), generator.log_tail()) if message is None else ("", "")
            if (actor := own()) is not None:
                with suppress(RuntimeError):  # the worker ends, and its event loop is closed
                    loop.call_soon_threadsafe(actor._take, order, message, ending)

        generator.order(job, put)

    def _take(self, order: int, message: object, ending: tuple[str, str]) -> None:
        if order == self._orders:
            self._messages.append(message)
            self._ending = ending
            self._news.set()


# --- The test process's side of a generator on a Dask worker: takes orders as `Generator` does
#
# What goes on is on the event loop of Dask's client. The test's thread only starts it, and reads what it has left.

_WAIT_S = 1.0
"""How long a question for messages waits for one."""
_SILENT_S = 4.0
"""A worker that does not answer for so much longer is taken for lost: its machine hangs, or the network is cut."""
_START_S = 15.0
_END_S = 1.0
_READINGS, _LEAST_READINGS, _READING_S = 16, 4, 0.5
"""How often the clock is read before a load: until it took so long, or often enough. Some milliseconds go by on one
network, half a second where questions take 40 ms."""
_SPARE_NS = 100_000_000
"""Time for a worker that is busy to pass a message on."""
_Answer = TypeVar("_Answer")


class RemoteHandle:
    """A generator on a worker of its own."""

    tracer = ""
    is_elsewhere = True

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.worker = ""
        """The Dask worker's address, or that of the last one it had; empty before its first load."""
        self.ahead_ns = self.clock_error_ns = self.distance_ns = 0
        """How far the clock there is ahead, by how much that may be off, and the shortest round trip of a question."""
        self._there: Mapping[str, str] = {}
        """Its whereabouts."""
        self._pid: int | None = None
        self._actor: Any = None
        self._future: Future[Any] | None = None
        self._readings: deque[Reading] = deque(maxlen=64)
        self._carrying: asyncio.Task[None] | None = None
        self._endings: list[Started[None]] = []
        self._ending = "", ""
        """How it ended, and the last lines of its log."""

    @property
    def pid(self) -> int | None:
        """Its process id, where it runs among the processes that are seen here; else None."""
        return self._pid if self._there.get("pid") == whereabouts()["pid"] else None

    @property
    def head_start_ns(self) -> int:
        """How long a message may take to it."""
        return _SPARE_NS + 2 * self.distance_ns

    def order(self, job: LoadOrder, put: Callable[[object], None]) -> None:
        """Starts a run; another thread calls `put` with each of its messages. The last one is None if it is lost."""
        self._cluster.spawn(self._carry_out(job, put))

    def send(self, message: object) -> None:
        """Sends it a message; when to begin is told on the clock there."""
        if isinstance(message, int):
            message += self.ahead_ns
        self._cluster.spawn(self._sent(message))

    def hang_up(self) -> None:
        going = [ending for ending in self._endings if not ending.done()]
        self._endings = [*going, self._cluster.spawn(self.ended_there())]

    kill = hang_up

    def close(self) -> None:
        """Ends its process there; gives that up after a moment."""
        self.hang_up()
        endings, self._endings = self._endings, []
        patience = monotonic() + 2 * _END_S
        for ending in endings:
            with suppress(TimeoutError):
                ending.result(max(0.0, patience - monotonic()))

    def ended(self) -> str:
        return self._ending[0] or " is gone"

    def log_tail(self) -> str:
        return self._ending[1]

    def shorten_log(self) -> None:
        """Does nothing: the worker does."""

    # --- on the client's event loop

    async def ended_there(self) -> None:
        """Ends the run and the generator's process, and gives the worker back."""
        carrying, self._carrying = self._carrying, None
        if carrying is not None:
            carrying.cancel()
        await self._let_go()

    async def _let_go(self) -> None:
        actor, worker, self._actor, self._pid = self._actor, self.worker, None, None
        future, self._future = self._future, None
        if actor is not None:
            with suppress(Exception):  # the worker may be gone, with its generator
                await _within(_END_S, actor.end())
        if future is not None:
            with suppress(Exception):
                future.release()
        self._cluster.release(worker, self)

    async def _carry_out(self, job: LoadOrder, put: Callable[[object], None]) -> None:
        self._carrying = asyncio.current_task()
        self._ending = "", ""
        try:
            await self._begin(job)
            await self._listen(put)
        except FilePerfError as error:
            put(error)
        except Exception as error:  # Dask has many ways to say that a worker is gone
            first = (str(error).splitlines() or [""])[0].strip()  # what follows is what Dask adds for developers
            self._ending, lost = (f" is gone ({first or type(error).__name__})", ""), self._cluster.lost()
            await self._let_go()
            if lost is not None:
                self.worker = ""  # it is not to blame
            put(lost)

    async def _begin(self, job: LoadOrder) -> None:
        """Has the run begin, on another worker if the one before has gone meanwhile."""
        if self._actor is not None:
            try:
                await self._order(job)
            except FilePerfError:
                raise
            except Exception:
                await self._let_go()
            else:
                return
        await self._bind()
        await self._order(job)

    async def _order(self, job: LoadOrder) -> None:
        there, here = self._there, whereabouts()
        is_near = there["net"] == here["net"]
        here_only = [target.url for target in job.targets if is_loopback(urlsplit(target.url).hostname or "")]
        if here_only and not is_near:
            if job.targets[0].reach.uds:
                raise PlanError(f"worker {self.worker} is on another machine, and has no Unix socket of this one")
            raise PlanError(
                f"worker {self.worker} is on another machine ({there['host']}), and the server is at {here_only[0]}: "
                "say at which address it is reached from there, with --fileperf-host=ADDRESS and "
                "--fileperf-allow-host=ADDRESS"
            )
        # The worker's own addresses are those of its network, and nobody has named them.
        targets = tuple(
            replace(target, pids=(), network=replace(target.network, loopback=is_near and target.network.loopback))
            for target in job.targets
        )
        await self._read_clock(same=there["time"] == here["time"])
        own = replace(
            job,
            targets=targets,
            cores=job.cores if there["machine"] == here["machine"] else None,
            is_from_elsewhere=True,
        )
        await _within(_START_S, self._actor.order(pickle.dumps(own)))

    async def _listen(self, put: Callable[[object], None]) -> None:
        """Passes on what the generator says, until its last word."""
        while True:
            packed = await _within(_WAIT_S + _SILENT_S, self._actor.messages(_WAIT_S))
            self._pid, messages, self._ending = pickle.loads(packed)  # noqa: S301 - from our own generator
            for message in messages:
                is_result = isinstance(message, tuple)
                put(tuple(on_this_clock(each, self.ahead_ns) for each in message) if is_result else message)
                if is_result or message is None or isinstance(message, Exception):
                    return

    async def _bind(self) -> None:
        self.worker = ""
        client = await self._cluster.client()
        self.worker, self._there = await self._cluster.worker_for(self)
        self._readings.clear()
        self._future = client.submit(
            RemoteGenerator,
            tuple(sys.path),
            key=self._cluster.key(),
            workers=[self.worker],
            allow_other_workers=False,
            actor=True,
            retries=0,
        )
        with client.as_current():
            why = "; is it busy with other tasks? Give the load workers of its own"
            self._actor = await _within(_START_S, self._future, why)

    async def _read_clock(self, *, same: bool) -> None:
        """Reads the clock there, some times; where it is the one here, once is enough to know how far away it is."""
        if same and self._readings:
            return
        begun_s = monotonic()
        for number in range(_READINGS):
            if number >= _LEAST_READINGS and (same or monotonic() - begun_s > _READING_S):
                break
            asked_ns = monotonic_ns()
            told_ns = await _within(_SILENT_S, self._actor.now_ns())
            self._readings.append((asked_ns, told_ns, monotonic_ns()))
        ahead_ns, error_ns, self.distance_ns = offset_of(self._readings, now_ns=monotonic_ns())
        self.ahead_ns, self.clock_error_ns = (0, 0) if same else (ahead_ns, error_ns)

    async def _sent(self, message: object) -> None:
        if self._actor is not None:
            with suppress(Exception):  # that it is gone shows where it is asked for messages
                await _within(_SILENT_S, self._actor.send(pickle.dumps(message)))


async def _within(seconds: float, answer: Awaitable[_Answer], why: str = "") -> _Answer:
    try:
        async with asyncio.timeout(seconds):
            return await answer
    except TimeoutError:
        raise TimeoutError(f"it did not answer within {seconds:g} s{why}") from None
