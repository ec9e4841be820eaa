"""What a measurement is compared with: nothing, another version that is measured in turn, a stored baseline.

The last is in `stored`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from pytest_fileperf.judge.gate import ErrorBudget
from pytest_fileperf.judge.judge import unless_base_failed, unless_same_files, unless_saturated, unless_unsteady
from pytest_fileperf.judge.result import SAME_CODE, Result
from pytest_fileperf.judge.verdict import MetricComparison, Outcome, Reason, ReasonKind, Verdict
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.serve.launch import refuse_other_version
from pytest_fileperf.serve.spec import InProcess, Url
from pytest_fileperf.session.alone import measure_alone
from pytest_fileperf.session.comparison import Comparison
from pytest_fileperf.session.planning import AlonePlan, ComparisonPlan, alone_plan, gate_tolerances, patient_for
from pytest_fileperf.session.rig import Kept, Measured, Rig, Task
from pytest_fileperf.session.sides import Absent, Base, Sides
from pytest_fileperf.versions.loaded import used_by_both
from pytest_fileperf.versions.tree import outside_code

__all__ = ("Nothing", "OtherVersion", "Reference")


class Reference(Protocol):
    """What one measurement is compared with. Each one knows its plan, and how to measure, judge and keep by it."""

    def measure(self, task: Task, rig: Rig) -> Measured:
        """Measures the code here and what it is compared with, and judges both.

        Raises what booting and loading raise.
        """

    def keep(self, task: Task, results: Sequence[Result], rig: Rig) -> tuple[Kept, ...]:
        """Returns how to store what later ones are compared with, where that was asked for, and the results by then.

        The first result is of the whole load, the others of its parts; nothing is returned where none changes.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing:
    """No comparison: a test without a gate, or a smoke run."""

    plan: AlonePlan

    def measure(self, task: Task, rig: Rig) -> Measured:
        """Measures the code here."""
        return measure_alone(task, self.plan, rig)

    def keep(self, task: Task, results: Sequence[Result], rig: Rig) -> tuple[Kept, ...]:
        """Stores nothing."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherVersion:
    """Another version of the code, or the same one, which is measured in turn with the code here."""

    plan: ComparisonPlan
    base: Base
    budget: ErrorBudget

    def measure(self, task: Task, rig: Rig) -> Measured:
        """Measures both in turn and judges; the code here alone, where there is nothing to compare.

        That is NEW where one side lacks what is measured, INCONCLUSIVE where it answers otherwise, and PASS where both
        are the same code. Raises PlanError for what cannot be compared.
        """
        if self.base.is_same_code:
            self._refuse()
            return self._alone(task, rig, Outcome.PASS, Reason(kind=ReasonKind.SAME_CODE, side=self.base.title))
        begun_s = rig.clock()
        found = self.in_turn(task, rig)
        if not isinstance(found, Absent):
            return self._unless_same_files(found, rig)
        if found.outcome is Outcome.INCONCLUSIVE:  # it may never answer, and an endpoint that base lacks may be slow
            spent_ns = round((rig.clock() - begun_s) * 1e9)
            task = replace(task, settings=patient_for(task.settings, spent_ns=spent_ns))
        measured = self._alone(task, rig, found.outcome, Reason(kind=ReasonKind.ABSENT, text=found.what))
        return replace(measured, absent=found)

    def _alone(self, task: Task, rig: Rig, outcome: Outcome, reason: Reason) -> Measured:
        """Measures the code here; the outcome of every gate is known before."""
        measured = measure_alone(task, alone_plan(replace(task.settings, boots=1)), rig)
        same = partial(MetricComparison, outcome=outcome, reason=reason)

        def judged(result: Result, tolerances: Mapping[str, float]) -> Result:
            comparisons = tuple(
                same(metric=name, tolerance=tolerance, now=METRICS[name].of_run(result.recording))
                for name, tolerance in tolerances.items()
            )
            if result.measurement.saturated:
                comparisons = tuple(map(unless_saturated, comparisons))
            return replace(result, verdict=Verdict(comparisons=comparisons, against=self.base.title))

        parts = tuple(judged(part, gate_tolerances(task.of(part.test).settings)) for part in measured.parts)
        return replace(measured, result=judged(measured.result, self.plan.tolerances), parts=parts)

    def in_turn(self, task: Task, rig: Rig) -> Measured | Absent:
        """Measures both in turn and judges; returns what one side lacks, where there is nothing to compare.

        What the gates used of the session's error is taken off its budget. Raises PlanError for what does not compare.
        """
        self._refuse()
        sides = Sides(self.base, self.plan.server, pool=rig.servers, chance=rig.chance)
        comparison = Comparison(task, self.plan, self.base, sides, rig)
        try:
            found = comparison.result()
        finally:
            rig.progress.done()
        if isinstance(found, Absent):
            return found
        return Measured(
            result=self._with_verdict(task, found),
            parts=tuple(self._with_verdict(task.of(part.test), part) for part in comparison.parts),
            loaded=comparison.base_loaded,
            base_alone=comparison.base_alone,
        )

    def _unless_same_files(self, measured: Measured, rig: Rig) -> Measured:
        """Returns what was measured, with what both sides ran although it is no part of the other version."""
        tree = self.base.code_tree
        files, outside = used_by_both(measured.loaded, tree), outside_code(measured.loaded.modules, tree)
        if rig.source is not None:
            files = (*files, *rig.source.shared_modules(measured.loaded, tree))
        tops = () if tree.here is None else (tree.here, tree.here.resolve())
        elsewhere = [one for one in outside if not any(Path(one).is_relative_to(top) for top in tops)]
        notes = (f"{SAME_CODE}: {', '.join(elsewhere)}",) if elsewhere else ()

        def told(result: Result) -> Result:
            compared = unless_same_files(result.verdict.comparisons, files)
            return replace(result, verdict=replace(result.verdict, comparisons=compared))

        whole = told(measured.result)
        whole = replace(whole, server_notes=(*whole.server_notes, *notes))
        return replace(measured, result=whole, parts=tuple(map(told, measured.parts)))

    def _with_verdict(self, task: Task, result: Result) -> Result:
        return replace(result, verdict=Verdict(comparisons=self._judged(task, result), against=self.base.title))

    def keep(self, task: Task, results: Sequence[Result], rig: Rig) -> tuple[Kept, ...]:
        """Stores nothing: nobody asked for a baseline."""
        return ()

    def _judged(self, task: Task, result: Result) -> tuple[MetricComparison, ...]:
        """Returns what the gates have found, as far as both sides can be trusted."""
        found = result.verdict.comparisons
        if result.base is not None:
            found = unless_base_failed(found, result.base, allowed=task.allowed_errors, title=self.base.title)
        found = unless_unsteady(found, result.measurement.busy)
        if result.measurement.saturated:
            found = tuple(map(unless_saturated, found))
        self.budget.used(self.plan.alpha, sum(item.outcome is Outcome.REGRESSED for item in found))
        # The code compared with itself shows what a gate could see; nothing of it is judged.
        return () if self.plan.to_the_end else found

    def _refuse(self) -> None:
        server = self.plan.server.spec
        if isinstance(server, InProcess) or (self.base.url is None and not isinstance(server, Url)):
            refuse_other_version(server, None, title=self.base.title)
