"""How much of the time others had the cores that server and generator wanted, and what that may explain.

Two things must agree before time counts as taken: something waited for a core, and others ran on it. Waiting alone is
no evidence, as the threads of a server wait for each other; nor is the work of others, who may have had a core while
the server had nothing to do. What the host of a virtual machine took counts too.

    wanted   ├──────── ran ────────┤├── waited ──┤
    core     ├──────── ran ────────┤├─ others ─┤ idle
    taken                           ├──────────┤

An app in the test process is its own generator, and there only the host can be seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from statistics import fmean

from pytest_fileperf.measure.metrics import Metric, Unit
from pytest_fileperf.measure.recording import Recording
from pytest_fileperf.measure.usage import Span, spans_of
from pytest_fileperf.watch.sample import CoreTime, ProcessUse, Sample

__all__ = ("BUSY", "Busy", "busy_of")

BUSY = 0.03
"""Share of the time from which a machine is called busy. Alone on one, the test run and the kernel take less than 0.01;
and from about here on others make a rate worse by more than its usual tolerance of 5 %."""
_COLD = 2.0
"""Where others come and go on a core, requests cost more CPU: in 28 runs of the same code in which others had 4 to 34 %
of the time, rates lost up to twice that share."""
_OF_TIME = (Unit.PER_SECOND, Unit.BYTES_PER_SECOND, Unit.SECONDS)
"""What gets worse with less time on a core: memory and error rates do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """Shares of the time in which others had a core that was wanted; 0.0 also where the system does not tell."""

    server: float = 0.0
    """Of the time on one core, or on as many as the server wanted on average."""
    generator: float = 0.0
    host: float = 0.0
    """The part of the greater one that the host of a virtual machine had."""

    @property
    def is_busy(self) -> bool:
        """Whether it was so much that it must be said."""
        return max(self.server, self.generator) >= BUSY

    def __str__(self) -> str:
        """Returns `others had the server's core for 26 % of the time`; empty where it is not busy."""
        if not self.is_busy:
            return ""
        shares = (("the server's core", self.server), ("the load generator's core", self.generator))
        told = [f"{whose} for {share * 100:.0f} % of the time" for whose, share in shares if share >= BUSY]
        host = f" (this virtual machine's host for {self.host * 100:.0f} %)" if self.host >= BUSY else ""
        return f"others had {' and '.join(told)}{host}"

    def explains(self, metric: Metric) -> float:
        """Returns by how much, as a log ratio, the metric may have got worse for this reason alone; may be infinite.

        Who stands still for a share t of the time loses that share of a rate. What it had in its caches goes with it,
        which counts as `_COLD` times the loss. A percentile suffers from where in time this lies: requests that others
        took a share s from are at most t / s of all (Markov), so where the percentile leaves a share r of the requests
        above it, it may have become 1 / (1 - t / r) times as long.
        """
        if metric.unit not in _OF_TIME or not self.is_busy:
            return 0.0
        taken = min(1.0, self.server + self.generator)
        above = 1.0 if metric.percentile is None else 1 - metric.percentile / 100
        if taken >= above:
            return math.inf
        return -math.log1p(-taken / above) * (_COLD if metric.percentile is None else 1.0)


def busy_of(recording: Recording) -> Busy:
    """Returns how busy others kept the machine during the rounds that count, as the mean over the boots."""
    boots = [_busy_in(span) for span in spans_of(recording)]
    if not boots:
        return Busy()
    server, generator, host = (fmean(shares) for shares in zip(*boots, strict=True))
    return Busy(server=server, generator=generator, host=host)


def _busy_in(span: Span) -> tuple[float, float, float]:
    """Returns what others took from the server and from the generator, and the host's part of the greater."""
    boot = span.boot

    def workers_of(sample: Sample) -> Iterable[ProcessUse]:
        return (use for use in sample.server if not boot.worker_pids or use.pid in boot.worker_pids)

    server_ran, _ = _shares(span, lambda sample: sample.server)
    _, server_waited = _shares(span, workers_of)
    generator_ran, generator_waited = _shares(span, lambda sample: sample.generators)
    beside = bool(boot.cores & boot.generator_cores)
    server = _taken(span, boot.cores, server_ran, server_waited, generator_ran if beside else 0.0)
    generator = _taken(span, boot.generator_cores, generator_ran, generator_waited, server_ran if beside else 0.0)
    return server[0], generator[0], max(server, generator)[1]


def _taken(span: Span, cores: Collection[int], ran: float, waited: float, other_side_ran: float) -> tuple[float, float]:
    """Returns what others took from one side on its cores, as a share of the time, and the host's part of that.

    `ran` and `waited` are its own seconds per second, the last is what the other side ran on the same cores.
    """

    def of_cores(value: Callable[[CoreTime], int]) -> float:
        return span.growth(lambda sample: _sum(value(core) for core in sample.cores if core.core in cores)) or 0.0

    busy = of_cores(lambda core: core.busy_ns)
    others = max(0.0, busy - ran - other_side_ran)
    host = of_cores(lambda core: core.stolen_ns) * min(1.0, ran / busy) if busy else 0.0
    taken = min(waited, others) + host
    wanted = max(1.0, ran + taken)
    return taken / wanted, host / wanted


def _shares(span: Span, processes: Callable[[Sample], Iterable[ProcessUse]]) -> tuple[float, float]:
    """Returns how much some processes ran, and how much their main threads waited for a core, in seconds per second."""
    return (
        span.growth(lambda sample: _sum(use.cpu_ns for use in processes(sample))) or 0.0,
        span.growth(lambda sample: _sum(use.waiting_ns for use in processes(sample))) or 0.0,
    )


def _sum(values: Iterable[int | None]) -> int | None:
    """Returns the sum; None of nothing, and where one of them is not known."""
    known = list(values)
    return sum(value for value in known if value is not None) if known and None not in known else None
