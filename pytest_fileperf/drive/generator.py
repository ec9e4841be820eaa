"""The load generator's process, `python -m pytest_fileperf.drive`. It makes one load after the other.

As a separate process, it is not delayed by the test process, and its CPU time can be measured.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import queue
import re
import shutil
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic, monotonic_ns, sleep
from typing import IO, BinaryIO, NoReturn

import httpx

from pytest_fileperf.drive.preparation import Target
from pytest_fileperf.drive.run import Run, at_once, run_load
from pytest_fileperf.errors import FileLimitError, FilePerfError, GeneratorError, LoadError, PlanError
from pytest_fileperf.host.cpu import TreeCpu
from pytest_fileperf.host.pickles import by_value
from pytest_fileperf.plan.feed import Requests
from pytest_fileperf.plan.load import Alternation, LoadPlan
from pytest_fileperf.plan.request import Journey
from pytest_fileperf.plan.work import Mix, Work
from pytest_fileperf.wire.eventloop import new_event_loop
from pytest_fileperf.wire.payload_files import PayloadFiles

# --- Messages between test process and generator process: pickles over two pipes


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOrder:
    """A message that orders a load. The generator answers with `RunProgress` messages, then with `Run`s or an error.

    If there are several generators, or the generator is remote, each generator first sends `READY`. Then it waits for a
    number: the instant at which all begin, on its own machine's monotonic clock.
    """

    works: tuple[bytes, ...]
    """The pickled `Work` for each of `targets`. The generator unpacks it late, to report failing imports."""
    plan: LoadPlan | Alternation
    targets: tuple[Target, ...]
    """In a comparison, the old version's server, then the new version's. For other loads, one server."""
    cores: frozenset[int] | None
    is_from_elsewhere: bool = False
    """Whether the order came through Dask. Then the generator refuses a late start, and ends if the test process is
    silent."""


READY, ALIVE = "ready", "alive"
"""A generator sends `READY` when it can begin. Its test process sends `ALIVE` to show that it is still there."""


class LateError(Exception):
    """The start message came `by_ns` too late, so the generator has not begun."""

    def __init__(self, by_ns: int) -> None:
        super().__init__(by_ns)
        self.by_ns = by_ns


def write_message(stream: IO[bytes], message: object) -> None:
    """Writes a message and flushes. Raises OSError if nobody reads the stream any more."""
    pickle.dump(message, stream, protocol=pickle.HIGHEST_PROTOCOL)
    stream.flush()


def read_message(stream: IO[bytes]) -> object | None:
    """Returns the next message; None if the stream ends, even in the middle of a message."""
    try:
        message: object = pickle.load(stream)  # noqa: S301 - from our own process
    except (EOFError, pickle.UnpicklingError):
        return None
    return message


# --- generator

FORSAKEN_S = 5.0
"""A remote load ends if its test process is silent for this long. The test process then hangs, or is gone."""


def main(scratch: str) -> None:
    """Reads `sys.path` and then load orders from standard input, and writes answers to standard output.

    `scratch` is a directory for large payloads. The test process removes it.
    """
    commands, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # Journeys must not read from these pipes, and print to the log instead.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    jobs: queue.SimpleQueue[object] = queue.SimpleQueue()
    write_message(answers, os.getpid())
    path = read_message(commands)
    assert isinstance(path, list)
    lease = _Lease(scratch)
    threading.Thread(target=_read_all, args=(commands, jobs, lease), daemon=True).start()
    sys.path[:] = path
    anywhere = frozenset(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ())
    with closing(PayloadFiles(Path(scratch))) as files:
        while True:
            job = jobs.get()
            assert isinstance(job, LoadOrder)
            is_alone = job.plan.share.of == 1 and not job.is_from_elsewhere
            begin = at_once if is_alone else partial(_together, jobs, answers, job.is_from_elsewhere)
            with lease.watched() if job.is_from_elsewhere else nullcontext():
                answer = _answer(job, files, answers, anywhere, begin)
            write_message(answers, answer)


class _Lease:
    """Ends this generator's process if the test process is silent for too long during a load."""

    def __init__(self, scratch: str) -> None:
        self._scratch = scratch
        self.heard_s = 0.0

    @contextmanager
    def watched(self) -> Iterator[None]:
        over = threading.Event()

        def watch() -> None:
            while not over.wait(max(0.05, self.heard_s + FORSAKEN_S - monotonic())):
                if monotonic() > self.heard_s + FORSAKEN_S:
                    self.end()

        self.heard_s = monotonic()
        threading.Thread(target=watch, daemon=True).start()
        try:
            yield
        finally:
            over.set()

    def end(self) -> NoReturn:
        shutil.rmtree(self._scratch, ignore_errors=True)
        os._exit(0)


def _read_all(commands: BinaryIO, jobs: queue.SimpleQueue[object], lease: _Lease) -> None:
    """Puts messages into `jobs`. Ends this process once the test process has closed the pipe, or is gone."""
    while (message := read_message(commands)) is not None:
        lease.heard_s = monotonic()
        if message != ALIVE:
            jobs.put(message)
    if os.name == "posix":
        sleep(2)  # until the supervisor ends this process: it removes no files if this process is gone before
    lease.end()


async def _together(jobs: queue.SimpleQueue[object], answers: BinaryIO, is_from_elsewhere: bool) -> int:
    """Waits until all generators begin, and returns that instant. Raises LateError if the start message is late."""
    write_message(answers, READY)
    origin_ns = await asyncio.get_running_loop().run_in_executor(None, jobs.get)
    assert isinstance(origin_ns, int)
    late_ns = monotonic_ns() - origin_ns
    if is_from_elsewhere and late_ns > 50_000_000:  # half of the time that a message to a worker may take at least
        raise LateError(late_ns)
    # Timers of event loops are accurate to a millisecond, a thread's sleep to some hundredths of a millisecond.
    await asyncio.sleep((origin_ns - monotonic_ns()) / 1e9 - 0.002)
    sleep(max(0, origin_ns - monotonic_ns()) / 1e9)  # noqa: ASYNC251 - nothing else is to be done yet
    return origin_ns


def _answer(
    job: LoadOrder,
    files: PayloadFiles,
    answers: BinaryIO,
    anywhere: frozenset[int],
    begin: Callable[[], Awaitable[int]],
) -> tuple[Run, ...] | Exception:
    """Makes the load. Returns its results, or an error for the test process to raise.

    `anywhere` contains all CPU cores that this process may use.
    """
    try:
        _allow_files(job.plan.connections * len(job.targets))
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, job.cores or anywhere)
        load = run_load(
            _unpacked(job.works),
            job.plan,
            job.targets,
            files=files,
            server_cpu=[TreeCpu(target.pids).spent_ns for target in job.targets],
            progress=partial(write_message, answers),
            begin=begin,
        )
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(load)
    except (LateError, FileLimitError, PlanError) as error:
        return error
    except FilePerfError as error:  # a subclass may not survive pickling
        return LoadError(str(error))
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        return httpx.ConnectError(str(error))
    except Exception:  # the rim of the process: the test process shows it
        return GeneratorError(f"the load generator failed:\n{traceback.format_exc()}")


def _unpacked(works: tuple[bytes, ...]) -> tuple[Work, ...]:
    """Unpickles the works. Raises LoadError if modules that they import are missing or fail."""
    try:
        each: list[Work] = []
        for work in works:
            # Only auth objects remember a server. Without them, the versions share the rows, which may be large.
            shares = bool(each) and work == works[0] and isinstance(each[0], Requests) and not _has_auth(each[0])
            each.append(each[0] if shares else pickle.loads(work))  # noqa: S301 - from our own process
    except Exception as error:  # imported modules may raise anything
        what = f"{type(error).__name__}: {error}"
        if isinstance(error, ImportError):
            what = f"{error}. Install it where the load generator runs, or put the needed code into the test module"
        raise LoadError(f"the load generator cannot use the journey: {what}") from error
    return tuple(each)


def _has_auth(requests: Requests) -> bool:
    return any(recipe.arguments.get("auth") is not None for recipe in requests.recipes)


def _allow_files(connections: int) -> None:
    """Allows this process enough open files for `connections`. Raises FileLimitError if the system refuses."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + 128  # other open files of a generator
    if soft != resource.RLIM_INFINITY and soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            raise FileLimitError(connections=connections, limit=hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


# --- Pickles a load

_TEST_MODULE = re.compile(r"__main__|(?:.*\.)?(?:conftest|test_[^.]*|[^.]*_test)")


def packed(works: tuple[Work, ...]) -> tuple[bytes, ...]:
    """Pickles each work. Users' functions are pickled with their code, so a test module may define them."""
    with _test_modules_by_value(works):
        for journey in _journeys(works):
            try:
                by_value(journey.arguments)
            except Exception as error:  # an object's own `__reduce__` may raise anything
                raise PlanError(
                    f"the value that setup returned for {journey.name} cannot be sent to the load generator "
                    f"({type(error).__name__}: {error}). Return plain data from the setup, such as ids, texts "
                    "and numbers"
                ) from error
        try:
            # Each version gets its own objects. The old server does not know a token from the new one.
            each = {id(work): by_value(work) for work in works}
            return tuple(each[id(work)] for work in works)
        except Exception as error:  # as above
            raise PlanError(
                f"{works[0].name} cannot be sent to the load generator ({type(error).__name__}: {error}). A "
                "journey and a request's arguments must not contain open files, sockets or locks, nor "
                "fixtures that contain them"
            ) from error


def _journeys(works: tuple[Work, ...]) -> list[Journey]:
    each = [part.work for work in works if isinstance(work, Mix) for part in work.parts]
    return [work for work in (*works, *each) if isinstance(work, Journey)]


@contextmanager
def _test_modules_by_value(works: tuple[Work, ...]) -> Iterator[None]:
    """In the block, pickles include the code of test modules, because another process may be unable to import it."""
    import cloudpickle

    owners = [own for journey in _journeys(works) for own in (journey.function, *map(type, journey.arguments))]
    names = {getattr(owner, "__module__", None) or "" for owner in owners}
    modules = [sys.modules[name] for name in sorted(names) if _TEST_MODULE.fullmatch(name) and name in sys.modules]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)
