"""Takes samples of a server under load, in a thread of this process."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic_ns, sleep, thread_time_ns
from typing import Self, TypeVar

from pytest_fileperf.host.cpu import io_stalled_ns, peak_rss_bytes, process_use
from pytest_fileperf.host.sample import ProcessUse, Sample, ThreadUse, core_times
from pytest_fileperf.host.sockets import read_queues
from pytest_fileperf.host.threads import Observation, ThreadWatch

MOST_SAMPLES = 2_000
"""With more samples, every second sample is dropped, and later samples are half as frequent.

A `Footprint` keeps twice as many.
"""


class Footprint:
    """Reads processes' open files, threads and memory in its `with` block, twenty times a second.

    A `Footprint` reads less than a `Watch`, and so costs a thousandth of a core.
    """

    def __init__(self, pids: Callable[[], Sequence[int]]) -> None:
        self.samples: list[Sample] = []
        """Samples with `server` and `cores` only."""
        self.peaks: list[tuple[int, int]] = []
        """Each is (a monotonic instant, the sum of the processes' peak memory until then in bytes)."""
        self._pids = pids
        self._interval_s = 0.05
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._main, name="fileperf footprint", daemon=True)

    def __enter__(self) -> Self:
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._look()

    def _main(self) -> None:
        while not self._over.wait(self._interval_s):
            self._look()
            if len(self.samples) >= 2 * MOST_SAMPLES:
                del self.samples[1::2]
                del self.peaks[1::2]
                self._interval_s *= 2

    def _look(self) -> None:
        pids = self._pids()
        if (size := peak_rss_bytes(pids)) is not None:
            self.peaks.append((monotonic_ns(), size))
        at_ns = monotonic_ns()
        if uses := tuple(filter(None, map(process_use, pids))):
            self.samples.append(Sample(at_ns=at_ns, server=uses, cores=core_times()))


PIDS_SHARE = 0.0005
"""The share of a core that may go into searching for new processes."""
_Found = TypeVar("_Found")


class _Ration:
    """Limits a costly action to a share of a core, by a pause after each call of `do`."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._next_ns = 0

    def do(self, work: Callable[[], _Found]) -> _Found | None:
        """Returns the result of `work`, or None during a pause."""
        if monotonic_ns() < self._next_ns:
            return None
        began_ns = thread_time_ns()
        try:
            return work()
        finally:
            self._next_ns = monotonic_ns() + round((thread_time_ns() - began_ns) / self._share)


class Watch:
    """Samples a server's processes, threads and connections in its `with` block, a few times a second.

    `pids` returns the server's process ids, `generators` the load generators'. `port` is None if the server has no
    socket. An error ends only the watch, and earlier samples stay.
    """

    def __init__(
        self,
        *,
        pids: Callable[[], Sequence[int]],
        port: int | None,
        generators: Callable[[], Sequence[int]] = tuple,
        interval_s: float = 0.25,
    ) -> None:
        self.samples: tuple[Sample, ...] = ()
        self.thread_pools: tuple[ThreadUse, ...] = ()
        """One result for each process in the last sample. Set when the block ends."""
        self._find_pids = pids
        self._port = port
        self._find_generators = generators
        self._interval_s = interval_s
        self._pids: tuple[int, ...] = ()
        self._threads: dict[int, ThreadWatch] = {}
        self._moments: list[tuple[partial[Sample], list[tuple[ProcessUse, Observation]]]] = []
        """Each is (a sample that still lacks `server`, the server's processes with their threads' places)."""
        self._pids_ration = _Ration(PIDS_SHARE)
        self._queues_ration = _Ration(0.002)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._main, name="fileperf watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _main(self) -> None:
        with suppress(Exception):  # even from `pids`: a run is worth more than its samples
            self._watch()
            for _ in range(3):  # threads may still return results, write logs, close connections
                sleep(0.02)
                resting = [threads.rest() for threads in self._threads.values()]  # every one must be asked
                if all(resting):
                    break
        self._conclude()

    def _watch(self) -> None:
        while True:
            over = self._over.is_set()
            self._moments.append(self._moment())
            if over:
                return
            if len(self._moments) >= MOST_SAMPLES:
                del self._moments[1::2]
                self._interval_s *= 2
            # Varies, so that samples do not follow a server's own rhythm.
            self._over.wait(self._interval_s * random.uniform(0.8, 1.2))  # noqa: S311 # no secret

    def _moment(self) -> tuple[partial[Sample], list[tuple[ProcessUse, Observation]]]:
        if (found := self._pids_ration.do(self._find_pids)) is not None:
            self._pids = tuple(found)
        now_ns = monotonic_ns()
        server = tuple(filter(None, map(process_use, self._pids)))
        generators = tuple(filter(None, map(process_use, self._find_generators())))
        port = self._port
        queues = None if port is None else self._queues_ration.do(lambda: read_queues(port))
        sample = partial(
            Sample,
            at_ns=now_ns,
            generators=generators,
            queues=queues,
            io_stalled_ns=io_stalled_ns(),
            cores=core_times(),
        )
        return sample, [(use, self._threads.setdefault(use.pid, ThreadWatch(use.pid)).observe()) for use in server]

    def _conclude(self) -> None:
        """Makes `samples`. Call it after each thread's `rest`."""
        self.samples = tuple(
            sample(server=tuple(self._threads[use.pid].judged(use, seen) for use, seen in server))
            for sample, server in self._moments
        )
        self._moments.clear()
        last = [(use, self._threads[use.pid]) for use in self.samples[-1].server] if self.samples else []
        self.thread_pools = tuple(
            ThreadUse(pid=use.pid, threads=use.threads, active=threads.active(), pool=threads.pool())
            for use, threads in last
        )
        for threads in self._threads.values():
            threads.close()
