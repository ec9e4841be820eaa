"""Runs a load generator on a Dask worker, for a test process on another machine.

    test process                     Dask's scheduler      worker                 generator's process
    order, begin ────────────────────────────────────────▶ RemoteGenerator ─────▶ the same as on one machine
    messages?    ────────────────────────────────────────▶ … waits for one … ───▶ the test process is there
                 ◀──────────────────────────────────────── ready, progress, result

`RemoteGenerator` is a Dask actor in the worker. It starts the generator as a process of its own, because the worker has
other tasks. The generator ends with the worker. During a load, it also ends if the test process is silent.
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
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future as Started
from contextlib import suppress
from dataclasses import replace
from functools import cache
from hashlib import blake2b
from pathlib import Path
from time import monotonic, monotonic_ns
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

from pytest_fileperf.drive.generator import ALIVE, LoadOrder
from pytest_fileperf.drive.group import Generator
from pytest_fileperf.drive.run import Run
from pytest_fileperf.errors import FilePerfError, GeneratorError, PlanError
from pytest_fileperf.measure.recording import Round
from pytest_fileperf.units import is_loopback

if TYPE_CHECKING:
    from distributed import Future

    from pytest_fileperf.drive.cluster import Cluster

# --- Compares where two processes run: machine, network, processes, clock, code

_PACKAGE = Path(__file__).parents[1]


def whereabouts() -> dict[str, str]:
    """Returns texts that identify this process's host, machine, network, process ids, clock and code.

    Two processes share each thing for which their texts are equal. Containers on one machine may have different
    networks, process ids and clocks.
    """
    host = socket.gethostname()
    try:
        machine = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:  # other systems
        machine = f"{host} {uuid.getnode():x}"
    found = {"host": host, "machine": machine, "code": _code()}
    for kind in ("net", "pid", "time"):
        found[kind] = machine
        with suppress(OSError):  # other systems, and older versions of Linux
            found[kind] += f" {Path('/proc/self/ns', kind).readlink()}"
    return found


@cache
def _code() -> str:
    """Returns a digest of this package's source files."""
    digest = blake2b(digest_size=16)
    for name, path in sorted((path.relative_to(_PACKAGE).as_posix(), path) for path in _PACKAGE.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


# --- The clock of a generator on another machine, compared with the one here by questions and answers; pure
#
#     here    asked ──────────────────────────── heard
#     there               ╰── told ──╯
#
# Like NTP (RFC 5905, section 8), we assume that the other clock is read half way. So the error is at most half of the
# round trip. Of several answers, the quickest is the most exact.


Reading: TypeAlias = tuple[int, int, int]
"""(question asked, other clock read, answer heard), in ns. The second instant is by the other machine's clock."""


def offset_of(readings: Sequence[Reading], *, now_ns: int) -> tuple[int, int, int]:
    """Returns (how far the other clock is ahead, this figure's greatest error, the shortest round trip), in ns."""

    def error_ns(reading: Reading) -> int:
        asked_ns, _, heard_ns = reading
        # Clocks drift apart after they were read. NTP allows for five times less than this.
        return (heard_ns - asked_ns) // 2 + round((now_ns - heard_ns) * 1e-4)

    asked_ns, told_ns, heard_ns = best = min(readings, key=error_ns)
    distance_ns = min(heard_ns - asked_ns for asked_ns, _, heard_ns in readings)
    return told_ns - (asked_ns + heard_ns) // 2, error_ns(best), distance_ns


def on_this_clock(result: Run, ahead_ns: int) -> Run:
    """Converts the result's instants to this machine's clock. The other clock is `ahead_ns` ahead."""
    if not ahead_ns:
        return result

    def shifted(rounds: tuple[Round, ...]) -> tuple[Round, ...]:
        return tuple(
            replace(round_, started_ns=round_.started_ns - ahead_ns, ended_ns=round_.ended_ns - ahead_ns)
            for round_ in rounds
        )

    return replace(
        result,
        rounds=shifted(result.rounds),
        subjects={name: shifted(rounds) for name, rounds in result.subjects.items()},
        attack=(result.attack[0] - ahead_ns, result.attack[1] - ahead_ns),
        last_end_ns=result.last_end_ns - ahead_ns if result.last_end_ns else 0,
        ends=tuple(
            tuple(type(ended)("q", (at_ns - ahead_ns for at_ns in ended)) for ended in in_round)
            for in_round in result.ends
        ),
    )


# --- remote


class RemoteGenerator:
    """A load generator for one test process. All methods except `__init__` run on the worker's event loop."""

    def __init__(self, path: tuple[str, ...]) -> None:
        """`path` is the test process's `sys.path`. Its entries are added after the worker's own entries."""
        own = tuple(entry for entry in sys.path if entry)
        self._generator = Generator(path=(*own, *(entry for entry in path if entry and entry not in own)))
        self._changing = asyncio.Lock()
        """Locked while a thread starts or ends the generator's process."""
        self._is_over = False
        self._orders = 0
        self._messages: list[object] = []
        self._ending = "", ""
        """How the generator ended, and the end of its log, as texts. Empty while the process runs."""
        self._news = asyncio.Event()
        # Dask forgets this object if the test process is gone. The worker must not wait for the generator then.
        weakref.finalize(self, threading.Thread(target=self._generator.close, daemon=True).start)

    async def now_ns(self) -> int:
        return monotonic_ns()

    async def order(self, packed: bytes) -> None:
        """Orders a load, and starts the generator if it is not running. Raises GeneratorError if it cannot start."""
        async with self._changing:
            if self._is_over:
                raise GeneratorError("the load generator has already been ended")
            self._orders += 1
            self._messages.clear()
            self._ending = "", ""
            self._news = asyncio.Event()
            await asyncio.to_thread(self._start, packed, self._orders, asyncio.get_running_loop())

    async def send(self, packed: bytes) -> None:
        self._pass_on(pickle.loads(packed))  # noqa: S301 - from the test process that ordered it

    async def messages(self, wait_s: float) -> bytes:
        """Waits up to `wait_s` for messages. Returns a pickle of (generator's process id, messages, ending)."""
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
        self._is_over = True
        async with self._changing:
            await asyncio.to_thread(self._generator.close)

    def _pass_on(self, message: object) -> None:
        if self._generator.pid is not None:
            with suppress(BrokenPipeError, ValueError):  # it ends, or its pipe is just being closed
                self._generator.send(message)

    def _start(self, packed: bytes, order: int, loop: asyncio.AbstractEventLoop) -> None:
        job = pickle.loads(packed)  # noqa: S301 - as above
        assert isinstance(job, LoadOrder)
        # Weak, so that Dask can forget this object.
        own, generator = weakref.ref(self), self._generator

        def put(message: object) -> None:
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
# The work is done on the event loop of Dask's client. The test's thread only starts it, and reads the results.

_WAIT_S = 1.0
"""If the generator sends no message for this long, the worker answers without one."""
_SILENT_S = 4.0
"""A worker that answers this late counts as lost: its machine hangs, or the network is cut."""
_START_S = 15.0
_END_S = 1.0
_Answer = TypeVar("_Answer")


class RemoteHandle:
    tracer = ""
    is_elsewhere = True

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.worker = ""
        """The Dask worker's address; empty before the first load."""
        self.ahead_ns = self.clock_error_ns = self.distance_ns = 0
        """In ns: how far the worker's clock is ahead, this figure's greatest error, and the shortest round trip."""
        self._there: Mapping[str, str] = {}
        self._pid: int | None = None
        self._actor: Any = None
        self._future: Future[Any] | None = None
        self._readings: deque[Reading] = deque(maxlen=64)
        self._carrying: asyncio.Task[None] | None = None
        self._endings: list[Started[None]] = []
        self._ending = "", ""

    @property
    def pid(self) -> int | None:
        """The generator's process id; None if the process is not visible here, for example on another machine."""
        return self._pid if self._there.get("pid") == whereabouts()["pid"] else None

    @property
    def head_start_ns(self) -> int:
        """How long a message to the generator may take, in ns."""
        return 100_000_000 + 2 * self.distance_ns  # a busy worker takes time to pass a message on

    def order(self, job: LoadOrder, put: Callable[[object], None]) -> None:
        """Orders a load.

        Another thread calls `put` with each of the generator's messages, and with None if the worker is lost.
        """
        self._cluster.spawn(self._carry_out(job, put))

    def send(self, message: object) -> None:
        """Sends a message to the generator. An instant (a number) is converted to the worker's clock."""
        if isinstance(message, int):
            message += self.ahead_ns
        self._cluster.spawn(self._sent(message))

    def hang_up(self) -> None:
        going = [ending for ending in self._endings if not ending.done()]
        self._endings = [*going, self._cluster.spawn(self.ended_there())]

    kill = hang_up

    def close(self) -> None:
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
        """Does nothing: `RemoteGenerator` shortens the log on the worker."""

    # --- on the client's event loop

    async def ended_there(self) -> None:
        """Ends the load and the generator's process, so that the worker is free again."""
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
        except Exception as error:  # Dask has many ways to report that a worker is gone
            first = (str(error).splitlines() or [""])[0].strip()  # the rest is for Dask's developers
            self._ending, lost = (f" is gone ({first or type(error).__name__})", ""), self._cluster.lost()
            await self._let_go()
            if lost is not None:
                self.worker = ""  # it is not to blame
            put(lost)

    async def _begin(self, job: LoadOrder) -> None:
        """Orders the load. If the previous load's worker is gone, uses another worker."""
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
                raise PlanError(f"worker {self.worker}, on another machine, cannot reach a Unix socket. Use a port")
            raise PlanError(
                f"worker {self.worker} is on another machine ({there['host']}), but the server listens at "
                f"{here_only[0]}. Give an address that the worker can reach, with --fileperf-host=ADDRESS and "
                "--fileperf-allow-host=ADDRESS"
            )
        # The worker's own loopback addresses belong to its network, and nobody has allowed them.
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
            why = ". If other tasks keep it busy, give the load its own workers"
            self._actor = await _within(_START_S, self._future, why)

    async def _read_clock(self, *, same: bool) -> None:
        """Compares the worker's clock with this one. If both are the `same` clock, only measures round trips."""
        if same and self._readings:
            return
        begun_s = monotonic()
        for number in range(16):  # some milliseconds on one network, half a second if a question takes 40 ms
            if number >= 4 and (same or monotonic() - begun_s > 0.5):
                break
            asked_ns = monotonic_ns()
            told_ns = await _within(_SILENT_S, self._actor.now_ns())
            self._readings.append((asked_ns, told_ns, monotonic_ns()))
        ahead_ns, error_ns, self.distance_ns = offset_of(self._readings, now_ns=monotonic_ns())
        self.ahead_ns, self.clock_error_ns = (0, 0) if same else (ahead_ns, error_ns)

    async def _sent(self, message: object) -> None:
        if self._actor is not None:
            with suppress(Exception):  # if it is gone, the next question for messages shows it
                await _within(_SILENT_S, self._actor.send(pickle.dumps(message)))


async def _within(seconds: float, answer: Awaitable[_Answer], why: str = "") -> _Answer:
    try:
        async with asyncio.timeout(seconds):
            return await answer
    except TimeoutError:
        raise TimeoutError(f"it did not answer within {seconds:g} s{why}") from None
