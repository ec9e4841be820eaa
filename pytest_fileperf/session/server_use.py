"""What a server's processes used in a run: read beside it, and left out where nobody knows it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_fileperf.drive.alternating import edges_of
from pytest_fileperf.drive.run import RunResult
from pytest_fileperf.plan.alternation import Alternation, Side
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.serve.inprocess import RunningInProcess
from pytest_fileperf.serve.running import RunningServer
from pytest_fileperf.units import format_duration
from pytest_fileperf.watch.cpu import cpu_times_ns, ended_children_ns
from pytest_fileperf.watch.cpu_series import CpuSeries

__all__ = ("Processes", "reading", "with_cpu", "without_cpu")

_NEGLIGIBLE = 0.01
"""Share of a server's CPU time that may be missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Processes:
    """A server's processes at one instant."""

    pids: tuple[int, ...]
    spent_ns: Mapping[int, int]
    """Their CPU time so far."""
    ended_ns: Mapping[int, int]
    """The CPU time of those that they have started, and that have ended."""

    @classmethod
    def of(cls, server: RunningServer) -> Processes:
        """Returns what is so now."""
        pids = server.pids
        # The test process is no server of its own: what it has started, as generators, is not the app's.
        known = () if isinstance(server, RunningInProcess) else pids
        return cls(pids=pids, spent_ns=cpu_times_ns(known), ended_ns=ended_children_ns(known))

    def change_since(self, before: Processes, seen: Iterable[int] = ()) -> str:
        """Returns how they changed, as `1 ended, 1 began`; empty where they did not.

        `seen` are the processes that were there at some time between: one may have been restarted more than once.
        """
        between = {*seen} if {*before.pids} != {*self.pids} else set()
        ended, began = (between | {*before.pids}) - {*self.pids}, (between | {*self.pids}) - {*before.pids}
        counts = ((len(ended), "ended"), (len(began), "began"))
        told = [f"{count} {what}" for count, what in counts if count]
        between_ns = _grown_ns(before.ended_ns, self.ended_ns)
        if not told and between_ns > _NEGLIGIBLE * _grown_ns(before.spent_ns, self.spent_ns):
            told.append(f"some began and ended, with {format_duration(between_ns)} of CPU time")
        return ", ".join(told)


def _grown_ns(before: Mapping[int, int], after: Mapping[int, int]) -> int:
    return sum(after[pid] - before_ns for pid, before_ns in before.items() if pid in after)


def reading(plan: LoadPlan | Alternation, series: Sequence[CpuSeries | None]) -> Callable[[int], None]:
    """Returns what has the CPU time read where rounds begin and end, once it is known when the load begins."""

    def begins(origin_ns: int) -> None:
        for side, own in zip(Side, series, strict=False):
            if own is not None:
                own.read_at(origin_ns + edge_ns for edge_ns in edges_of(plan, side))

    return begins


def with_cpu(result: RunResult, cpu: CpuSeries | None) -> RunResult:
    """Returns what a run found, with the server's CPU time that was read here meanwhile."""
    if cpu is None:
        return result
    rounds = (replace(own, server_cpu_ns=cpu.spent_ns(own.started_ns, own.ended_ns)) for own in result.rounds)
    return replace(result, rounds=tuple(rounds))


def without_cpu(result: RunResult) -> RunResult:
    """Returns what a run found, without the server's CPU time: processes that ended took theirs with them."""
    return replace(result, rounds=tuple(replace(round_, server_cpu_ns=None) for round_ in result.rounds))
