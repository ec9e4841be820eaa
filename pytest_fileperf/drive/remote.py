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
import sys
import threading
import weakref
from contextlib import suppress
from dataclasses import dataclass, replace
from time import monotonic_ns

from pytest_fileperf.drive.messages import Alive, LoadOrder
from pytest_fileperf.drive.process import Generator
from pytest_fileperf.drive.whereabouts import Whereabouts
from pytest_fileperf.errors import GeneratorError

__all__ = ("FORSAKEN_S", "Ended", "RemoteGenerator", "Said")

FORSAKEN_S = 5.0
"""A run ends where its test process has asked for nothing for so long: it, or this worker, hangs or is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a generator has said since it was asked last."""

    pid: int | None
    """Its process; None while that is not known."""
    messages: tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The generator's process has ended, and will say nothing more."""

    how: str
    """`'s process ended with exit code 7`, to stand behind its name."""
    log: str
    """The last lines of its log, as the end of a message."""


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
        self._news: asyncio.Event | None = None
        # Dask forgets it where the test process is gone.
        weakref.finalize(self, _close_apart, self._generator)

    async def whereabouts(self) -> Whereabouts:
        """Returns where this is."""
        return Whereabouts.here()

    async def now_ns(self) -> int:
        """Returns the time on the monotonic clock here."""
        return monotonic_ns()

    async def order(self, packed: bytes) -> None:
        """Starts a run, and the generator where it does not run. Raises GeneratorError."""
        async with self._changing:
            if self._is_over:
                raise GeneratorError("it has been ended")
            self._orders += 1
            self._messages.clear()
            self._news = asyncio.Event()
            await asyncio.to_thread(self._start, packed, self._orders, asyncio.get_running_loop())

    async def send(self, packed: bytes) -> None:
        """Sends the generator a message; one that has ended says so by itself."""
        self._pass_on(pickle.loads(packed))  # noqa: S301 - from the test process that ordered it

    async def messages(self, wait_s: float) -> bytes:
        """Returns what the generator has said since the last call, as a pickled `Said`; waits so long for something."""
        self._generator.shorten_log()
        self._pass_on(Alive())
        if not self._messages and self._news is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._news.wait()
        said = Said(pid=self._generator.pid, messages=tuple(self._messages))
        self._messages.clear()
        if self._news is not None:
            self._news.clear()
        return pickle.dumps(said)

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
            if message is None:
                message = Ended(how=generator.ended(), log=generator.log_tail())
            if (actor := own()) is not None:
                with suppress(RuntimeError):  # the worker ends, and its event loop is closed
                    loop.call_soon_threadsafe(actor._take, order, message)

        try:
            self._generator.order(replace(job, lease_s=FORSAKEN_S), put)
        except BrokenPipeError as error:
            raise GeneratorError(self._generator.death()) from error

    def _take(self, order: int, message: object) -> None:
        if order == self._orders and self._news is not None:
            self._messages.append(message)
            self._news.set()


def _close_apart(generator: Generator) -> None:
    """Ends a generator without keeping the worker waiting."""
    threading.Thread(target=generator.close, daemon=True).start()
