"""What a measurement is compared with: nothing, a stored baseline, another version that is measured in turn."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Protocol

from pytest_fileperf.judge.baseline import BaselineStore, Entry, Found
from pytest_fileperf.judge.boots import precision_of
from pytest_fileperf.judge.environment import Environment
from pytest_fileperf.judge.evidence import evidence_of
from pytest_fileperf.judge.gate import ErrorBudget
from pytest_fileperf.judge.judge import judge_stored, may_be_worse, unless_base_failed, unless_saturated
from pytest_fileperf.judge.result import Result
from pytest_fileperf.judge.steadiness import Steadiness
from pytest_fileperf.judge.verdict import MetricComparison, Outcome, Reason, ReasonKind
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.serve.launch import refuse_other_version
from pytest_fileperf.serve.spec import InProcess, Url
from pytest_fileperf.session.alone import measure_alone
from pytest_fileperf.session.comparison import Comparison
from pytest_fileperf.session.planning import AlonePlan, ComparisonPlan, alone_plan
from pytest_fileperf.session.rig import Measured, Rig, Task
from pytest_fileperf.session.sides import Absent, Base, Sides

__all__ = ("Nothing", "OtherVersion", "Reference", "StoredBaseline")


class Reference(Protocol):
    """What one measurement is compared with. Each one knows its plan, and how to measure, judge and keep by it."""

    @property
    def title(self) -> str:
        """Another version that is measured in turn, as `origin/main (1a2b3c4)`; empty where there is none."""

    def measure(self, task: Task, rig: Rig) -> Measured:
        """Measures the code here, and what it is compared with. Raises what booting and loading raise."""

    def judge(self, task: Task, measured: Measured) -> tuple[MetricComparison, ...]:
        """Returns a comparison for each gated metric."""

    def keep(self, result: Result) -> bool:
        """Stores the result for later ones to be compared with, where that was asked for; returns whether it did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing:
    """No comparison: a test without a gate, or a smoke run."""

    plan: AlonePlan
    title: str = ""

    def measure(self, task: Task, rig: Rig) -> Measured:
        """Measures the code here."""
        return measure_alone(task, self.plan, rig)

    def judge(self, task: Task, measured: Measured) -> tuple[MetricComparison, ...]:
        """Returns no comparison."""
        return ()

    def keep(self, result: Result) -> bool:
        """Stores nothing."""
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBaseline:
    """The figures that an earlier run has stored, or that this one is to store."""

    plan: AlonePlan
    store: BaselineStore
    found: Found | None
    """What the store has of this test."""
    environment: Environment
    steadiness: Steadiness
    """What earlier sessions have shown of this machine."""
    budget: ErrorBudget
    update: str | None
    """Which runs become the baseline: `new`, `passed` or `all`; None for none."""
    reason: str | None
    """Why they do, in the user's words."""
    commit: Callable[[], Mapping[str, object] | None]
    title: str = ""

    def measure(self, task: Task, rig: Rig) -> Measured:
        """Measures the code here."""
        return measure_alone(task, self.plan, rig)

    def judge(self, task: Task, measured: Measured) -> tuple[MetricComparison, ...]:
        """Compares with what is stored."""
        alpha = self.budget.level(len(task.settings.gate))
        found = judge_stored(
            gate=task.settings.gate,
            tolerances=task.settings.tolerances,
            alpha=alpha,
            found=self.found,
            now=evidence_of(measured.result.recording),
            identity=measured.result.identity,
            packages=self.environment.packages,
            steadiness=self.steadiness,
            saturated=measured.result.measurement.saturated,
            busy=measured.result.measurement.busy,
        )
        self.budget.used(alpha, sum(item.outcome is Outcome.REGRESSED for item in found))
        return found

    def keep(self, result: Result) -> bool:
        """Stores a run that is fit to be the baseline, where that was asked for. Raises BaselineError."""
        if not self._becomes_the_baseline(result):
            return False
        gated = [comparison.metric for comparison in result.verdict.comparisons]
        evidence = evidence_of(result.recording)
        known = {name: precision_of(METRICS[name], evidence) for name in gated}
        entry = Entry(
            identity=result.identity,
            evidence=evidence,
            captured=datetime.now(UTC).isoformat(timespec="seconds"),
            commit=self.commit(),
            reason=self.reason,
            packages=self.environment.packages,
            precision={name: error for name, error in known.items() if math.isfinite(error)},
            busy=result.measurement.busy,
        )
        self.store.write(result.test.module, result.test.nodeid, entry, self.environment, summary_of=gated)
        return True

    def _becomes_the_baseline(self, result: Result) -> bool:
        if self.update is None or result.never_fit or (result.unfit and self.update != "all"):
            return False
        if self.update == "new":
            return self.found is None or bool(self.found.differences)
        return self.update == "all" or not any(map(may_be_worse, result.verdict.comparisons))


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherVersion:
    """Another version of the code, or the same one, which is measured in turn with the code here."""

    plan: ComparisonPlan
    base: Base
    budget: ErrorBudget

    @property
    def title(self) -> str:
        """How messages call it."""
        return self.base.title

    def measure(self, task: Task, rig: Rig) -> Measured:
        """Measures both in turn, or the code here alone where one side lacks what is measured.

        Raises PlanError for what cannot be compared.
        """
        self._refuse()
        plan, machine, builds = self.plan.server, rig.machine, rig.servers.builds
        sides = Sides(self.base, plan, builds=builds, machine=machine, chance=rig.chance)
        try:
            found = Comparison(task, self.plan, self.base, sides, rig).result()
        finally:
            rig.progress.done()
        if isinstance(found, Absent):
            return replace(measure_alone(task, alone_plan(replace(task.settings, boots=1)), rig), absent=found)
        return Measured(result=found)

    def judge(self, task: Task, measured: Measured) -> tuple[MetricComparison, ...]:
        """Returns what the gates have found, as far as both sides can be trusted; NEW where one side was absent.

        What they used of the session's error is taken off its budget.
        """
        result = measured.result
        if measured.absent is not None:
            reason = Reason(kind=ReasonKind.ABSENT, text=measured.absent.what)
            new = partial(MetricComparison, outcome=Outcome.NEW, reason=reason)
            return tuple(
                new(metric=name, tolerance=tolerance, now=METRICS[name].of_run(result.recording))
                for name, tolerance in self.plan.tolerances.items()
            )
        found = result.verdict.comparisons
        if result.base is not None:
            allowed = task.settings.limits.get("max_error_rate", 0.0)
            found = unless_base_failed(found, result.base, allowed=allowed, title=self.base.title)
        if result.measurement.saturated:
            found = tuple(map(unless_saturated, found))
        self.budget.used(self.plan.alpha, sum(item.outcome is Outcome.REGRESSED for item in found))
        # The code compared with itself shows what a gate could see; nothing of it is judged.
        return () if self.plan.to_the_end else found

    def keep(self, result: Result) -> bool:
        """Stores nothing: figures that were measured in turn are not those of a run alone."""
        return False

    def _refuse(self) -> None:
        server = self.plan.server.spec
        if isinstance(server, InProcess) or (self.base.url is None and not isinstance(server, Url)):
            refuse_other_version(server, None, title=self.base.title)
