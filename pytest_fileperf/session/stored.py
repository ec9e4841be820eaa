"""Compares with a stored baseline: its code is measured again, in turn with the code here, where it can be found.

    its code                         what is measured                   what decides
    is the code here                 here                               nothing has changed
    is found                         both in turn                       the ratio of both
    is found, on a steady machine    here; both in turn, unless PASS    stored figures, or the ratio of both
    is not found                     here                               stored figures

Beside that, what the baseline's code does now against its stored figures tells what the world did: the machine, the
packages, the environment.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Protocol

from pytest_fileperf.errors import BaseDiedError, BaseFailedError, BaseSetupError, PlanError
from pytest_fileperf.judge.baseline import BaselineStore, Entry, Found
from pytest_fileperf.judge.environment import Environment, package_changes
from pytest_fileperf.judge.evidence import answers_of, differing, evidence_of, precision_of
from pytest_fileperf.judge.gate import (
    ErrorBudget,
    Steadiness,
    judge_same_code,
    judge_stored,
    judge_world,
    may_be_worse,
    unless_base_failed,
    unless_environment,
    unless_same_files,
    unless_saturated,
    unless_unsteady,
)
from pytest_fileperf.judge.history import SPAN_NS
from pytest_fileperf.judge.record import SAME_CODE, WHILE_MEASURED, Result
from pytest_fileperf.judge.verdict import MetricComparison, Outcome, Reason, ReasonKind, Verdict
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.measure.recording import Recording
from pytest_fileperf.report.wording import FIGURES_ONLY
from pytest_fileperf.serve.launch import refuse_other_version
from pytest_fileperf.serve.spec import InProcess, Url
from pytest_fileperf.session.alone import identity_of, judged_by_limits, measure_alone, measure_to_store, precision_said
from pytest_fileperf.session.comparison import Comparison
from pytest_fileperf.session.rig import Kept, Measured, Rig, Task
from pytest_fileperf.session.sides import Absent, Base, Sides
from pytest_fileperf.settings.plans import AlonePlan, ComparisonPlan, alone_plan, gate_tolerances, patient_for
from pytest_fileperf.versions.loaded import Digests, LoadedFiles, used_by_both
from pytest_fileperf.versions.packages import python_with
from pytest_fileperf.versions.source import Source, SourceState
from pytest_fileperf.versions.tree import CodeTree, outside_code

__all__ = ("BaselineCode", "CodeFound", "Nothing", "OtherVersion", "Reference", "StoredBaseline", "title_of")


# --- Finds the code of stored baselines, and the packages that they were stored with


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeFound:
    """The code of a baseline, as far as it can be measured again."""

    base: Base | None = None
    """None where there is nothing to measure in turn."""
    here: CodeTree | None = None
    """The code here, where that is the baseline's, with the same packages on both sides."""
    said: str = ""
    """Why it is not to be found, or what differs from when it was stored; in a sentence."""


class BaselineCode:
    """Finds the code of baselines. What cannot be had is tried once in a session."""

    def __init__(
        self,
        source: Source | None,
        environment: Environment,
        *,
        stored_packages: bool = False,
        python_with: Callable[[Mapping[str, str]], Path] = python_with,
    ) -> None:
        """With `stored_packages` it runs with the packages that it was stored with, else with those of now."""
        self._source = source
        self._packages = environment.packages
        self._stored_packages = stored_packages
        self._python_with = python_with
        self._pythons: dict[frozenset[tuple[str, str]], Path | PlanError] = {}

    def of(self, entry: Entry) -> CodeFound:
        """Returns the code of a baseline."""
        if self._source is None:
            return CodeFound(said="this session does not look for its code")
        commit = None if entry.commit is None else entry.commit.get("id")
        try:
            code_tree = self._source.code(entry.tree, commit if isinstance(commit, str) else None)
        except PlanError as error:
            return CodeFound(said=str(error))
        python, said = None, ""
        if self._stored_packages and package_changes(entry.packages, self._packages):
            try:
                python = str(self._python_of(entry.packages))
            except PlanError as error:
                said = f"{error}: it runs with the packages installed here"
        if code_tree.is_here and python is None:
            return CodeFound(here=code_tree, said=said)
        title = title_of(entry, code_tree.title)
        code_tree = replace(code_tree, title=title, python=python)
        return CodeFound(base=Base(title=title, code_tree=code_tree, may_fail=True), said=said)

    def _python_of(self, packages: Mapping[str, str]) -> Path:
        key = frozenset(packages.items())
        if key not in self._pythons:
            try:
                self._pythons[key] = self._python_with(packages)
            except PlanError as error:
                self._pythons[key] = error
        made = self._pythons[key]
        if isinstance(made, PlanError):
            raise made
        return made


def title_of(entry: Entry, code: str = "") -> str:
    """Returns how messages call a baseline: `its baseline (1a2b3c4 of 2026-11-20)`."""
    day = entry.captured.partition("T")[0]
    return f"its baseline ({code} of {day})" if code else f"its baseline of {day}"


# --- What a measurement is compared with: nothing, another version that is measured in turn, a stored baseline
#
# The last is in `stored`.


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


# --- stored

_MOST_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBaseline:
    """The figures that an earlier run has stored, and the code that they are of."""

    alone: AlonePlan
    comparison: ComparisonPlan
    store: BaselineStore
    found: Found | None
    """What the store has of this test, of this machine or another one."""
    environment: Environment
    steadiness: Steadiness
    budget: ErrorBudget
    code: BaselineCode
    confirm: str
    """Whether the baseline's code is measured again: `auto`, `always` or `never`."""
    update: str | None
    """Which runs become the baseline: `new`, `passed` or `all`; None for none."""
    reason: str | None
    """Why they do, in the user's words."""

    def measure(self, task: Task, rig: Rig) -> Measured:
        """Measures the code here, and the baseline's code where that is needed; judges both."""
        found = self.found
        if rig.source is not None:
            rig.source.here  # noqa: B018 # found out before anything boots: the code may be edited while it is measured
        if found is None:
            return self._without(task, rig)
        if self.confirm == "never":
            return self._by_figures(task, rig, "only stored figures compare, as fileperf_confirm=never says")
        code = self.code.of(found.entry)
        if code.here is not None:
            return self._same(task, rig, found, code.here, code.said)
        if code.base is None:
            return self._by_figures(task, rig, FIGURES_ONLY + code.said, no_code=code.said)
        if self.confirm == "auto" and self._is_steady(task, found):
            said = "stored figures decide, as this machine has proven steady"
            measured = self._by_figures(task, rig, said)
            if all(item.outcome is Outcome.PASS for item in _compared((measured.result, *measured.parts))):
                return measured
        return self._in_turn(task, rig, found, code.base, code.said)

    def keep(self, task: Task, results: Sequence[Result], rig: Rig) -> tuple[Kept, ...]:
        """Returns how to store a level that is fit to be the baseline, where that was asked for.

        Figures that were measured in turn are not those of a run alone: what is stored is measured anew then. Parts
        are stored with the whole.
        """
        result, *parts = results
        if not self._is_wanted(results) or result.never_fit:
            return ()
        kept, kept_parts = result, parts
        if self.found is not None:
            anew = measure_to_store(task, self.alone, rig)
            kept, kept_parts = judged_by_limits(task, anew.result), list(anew.parts)
        if kept.never_fit or (kept.unfit and self.update != "all"):
            anyway = "" if kept.never_fit else ", but --fileperf-update=all stores it all the same"
            return _keeping_nothing(results, f"{kept.unfit} is no baseline{anyway}")
        anew_of = {part.test.own: part for part in kept_parts}
        changed = _Changed.of(rig, LoadedFiles() if rig.servers.running is None else rig.servers.running.loaded)
        if changed.of_code:
            return _keeping_nothing(results, f"{changed.of_code}, so run it again")
        return (
            self._kept(result, kept, rig, with_code=True, also=changed.of_data),
            *(
                self._kept(part, anew_of[part.test.own], rig, with_code=False)
                if part.verdict.comparisons and part.test.own in anew_of
                else Kept(result=part)
                for part in parts
            ),
        )

    def _kept(self, result: Result, kept: Result, rig: Rig, *, with_code: bool, also: str = "") -> Kept:
        """Returns how to store the level of one result, as `kept` shows it; with its code where others have none.

        `also` is a sentence for its reader.
        """
        gated = [comparison.metric for comparison in result.verdict.comparisons]
        test = result.test
        evidence = evidence_of(kept.recording)
        running = rig.servers.running
        ran = LoadedFiles() if running is None else running.loaded
        here = "this session does not look for code" if rig.source is None else rig.source.here_with(ran)
        known = {name: precision_of(METRICS[name], evidence) for name in gated}
        tree = here.tree if isinstance(here, SourceState) else None
        entry = Entry(
            identity=kept.identity,
            evidence=evidence,
            captured=datetime.now(UTC).isoformat(timespec="seconds"),
            commit=None if rig.source is None else rig.source.commit_info(),
            reason=self.reason,
            tree=tree,
            packages=self.environment.packages,
            conditions=self.environment.conditions,
            precision={name: error for name, error in known.items() if math.isfinite(error)},
            busy=kept.measurement.busy,
            loaded=None if rig.source is None or tree is None else rig.source.loaded_beside(ran, tree=tree),
        )

        def store() -> None:
            self.store.write(test.module, test.nodeid, entry, self.environment, summary_of=gated)
            if isinstance(here, SourceState) and with_code:
                self._keep_code(here, rig)

        no_code = (
            ""
            if isinstance(here, SourceState)
            else f"only figures were stored, as its code cannot be found again: {here}"
        )
        said = precision_said(gated, kept.recording), no_code
        code = _sentences(result.verdict.code, *said)
        verdict, notes = replace(result.verdict, code=code), (*result.load_notes, *filter(None, (also,)))
        return Kept(result=replace(result, verdict=verdict, load_notes=notes, baseline_written=True), store=store)

    # --- ways to measure

    def _without(self, task: Task, rig: Rig) -> Measured:
        """Measures what there is no baseline of; carefully, where it becomes one."""
        measured = measure_to_store(task, self.alone, rig) if self.update else measure_alone(task, self.alone, rig)
        return self._judged_by_figures(task, measured, "")

    def _by_figures(self, task: Task, rig: Rig, said: str, *, no_code: str = "") -> Measured:
        """Measures the code here and compares it with the stored figures; `said` says in a sentence why."""
        return self._judged_by_figures(task, measure_alone(task, self.alone, rig), said, no_code=no_code)

    def _same(self, task: Task, rig: Rig, found: Found, here: CodeTree, said: str) -> Measured:
        """Measures the code here, which is that of the baseline: only the world can differ.

        Stored figures decide where it is not certain that the server runs that code, and nothing else of the project.
        """
        measured = measure_alone(task, self.alone, rig)
        if doubt := _why_not_the_same(measured, found, here, rig):
            return self._judged_by_figures(task, measured, FIGURES_ONLY + doubt, no_code=doubt)
        result = measured.result
        packages = self.environment.packages
        comparisons = _same_code(found, task, result)

        def again() -> tuple[MetricComparison, ...]:
            anew = measure_alone(task, self.alone, rig).result
            return self._world(task, anew, anew.recording, packages)

        changed = package_changes(found.entry.packages, packages)
        code = _sentences(
            f"the code here is that of {title_of(found.entry)}",
            said,
            f"changed packages: {', '.join(changed)}" if changed else "",
        )
        world = self._world(task, result, result.recording, packages)
        verdict = Verdict(
            comparisons=unless_environment(comparisons, world, result.measurement.busy), world=world, code=code
        )
        return replace(
            measured,
            result=replace(result, verdict=verdict, stored_latency=_stored_latency(found, comparisons)),
            parts=tuple(self._same_part(task.of(part.test), part) for part in measured.parts),
            tells_spread=self._tells_spread(found, packages),
            world_again=again,
        )

    def _same_part(self, task: Task, result: Result) -> Result:
        """Returns the result of a part of code that is that of the baseline."""
        found = self._found_of(task)
        if found is None:  # stored before there was this part
            return self._with_figures(task, result, None, "")
        comparisons = _same_code(found, task, result)
        latency = _stored_latency(found, comparisons)
        return replace(result, verdict=Verdict(comparisons=comparisons), stored_latency=latency)

    def _found_of(self, part: Task) -> Found | None:
        """Returns what is stored of a part."""
        return self.store.find(part.test.module, part.test.nodeid, self.environment)

    def _in_turn(self, task: Task, rig: Rig, found: Found, base: Base, said: str) -> Measured:
        """Measures the baseline's code and the code here in turn; stored figures are left where that cannot be."""
        packages = self.environment.packages if base.code_tree.python is None else found.entry.packages
        plan = self.comparison if found.differences else replace(self.comparison, base_alone=self.alone.load)
        other = OtherVersion(plan=plan, base=base, budget=self.budget)
        try:
            measured = other.in_turn(task, rig)
        except (PlanError, BaseDiedError, BaseFailedError, BaseSetupError) as error:
            why = str(error).splitlines()[0].removesuffix(":")
            by_figures = self._by_figures(task, rig, FIGURES_ONLY + why, no_code=why)
            # Its traceback and the server's log are nowhere else.
            return replace(
                by_figures, notes=(str(error),) if isinstance(error, BaseFailedError | BaseSetupError) else ()
            )
        if isinstance(measured, Absent):
            return self._by_figures(task, rig, FIGURES_ONLY + measured.what, no_code=measured.what)

        def again() -> tuple[MetricComparison, ...]:
            anew = other.in_turn(task, rig)
            return () if isinstance(anew, Absent) else self._world(task, anew.result, anew.base_alone, packages)

        if of_now := self._other_files(measured, found, base, rig):
            return self._by_figures(task, rig, FIGURES_ONLY + of_now, no_code=of_now)
        result = measured.result
        outside = outside_code(measured.loaded.modules, base.code_tree)
        shared = f"{SAME_CODE}: {', '.join(outside)}" if outside else ""
        code = _sentences(f"measured in turn with the code of {base.title}", said, shared)
        world = self._world(task, result, measured.base_alone, packages)
        judged = unless_environment(result.verdict.comparisons, world, result.measurement.busy)
        verdict = replace(result.verdict, comparisons=judged, world=world, code=code)
        return replace(
            measured,
            result=replace(result, verdict=verdict),
            tells_spread=self._tells_spread(found, packages),
            world_again=again,
        )

    def _other_files(self, measured: Measured, found: Found, base: Base, rig: Rig) -> str:
        """Returns why the baseline's code may have run with files that are not those of then; empty if it did not."""
        tree, stored = base.code_tree, found.entry.loaded
        if rig.source is None or tree.there is None or found.entry.tree is None:
            return ""
        beside = rig.source.loaded_beside(measured.loaded, tree, found.entry.tree)
        if beside is not None and stored is not None:
            others = _others(beside, stored)
        else:
            others = list(used_by_both(measured.loaded, tree))
        if not others:
            return ""
        return f"its old code ran with {_named(others)} as of now, and Git does not have what {_was(others)}"

    # --- what figures say

    def _judged_by_figures(self, task: Task, measured: Measured, said: str, *, no_code: str = "") -> Measured:
        """Returns what was measured alone, compared with the stored figures."""
        parts = tuple(
            self._with_figures(of, part, self._found_of(of), "", no_code=no_code)
            for part in measured.parts
            for of in [task.of(part.test)]
        )
        whole = self._with_figures(task, measured.result, self.found, said, no_code=no_code)
        return replace(measured, result=whole, parts=parts)

    def _with_figures(self, task: Task, result: Result, found: Found | None, said: str, *, no_code: str = "") -> Result:
        """Returns a result, of the whole load or of a part, compared with the stored figures."""
        comparisons = judge_stored(
            gate=task.settings.gate,
            tolerances=task.settings.tolerances,
            alpha=self.comparison.alpha,
            found=found,
            now=evidence_of(result.recording),
            identity=result.identity,
            packages=self.environment.packages,
            steadiness=self.steadiness,
            saturated=result.measurement.saturated,
            busy=result.measurement.busy,
            no_code=no_code,
        )
        self.budget.used(self.comparison.alpha, sum(item.outcome is Outcome.REGRESSED for item in comparisons))
        since = "" if found is None else title_of(found.entry)
        verdict = Verdict(comparisons=comparisons, code=said, since=since)
        told = replace(result, verdict=verdict, stored_latency=_stored_latency(found, comparisons))
        if found is None or told.stored_latency is None:
            return told
        return replace(told, other_answers=differing(found.entry.evidence.answers, answers_of(result.recording)))

    def _world(
        self, task: Task, result: Result, unchanged: Recording | None, packages: Mapping[str, str]
    ) -> tuple[MetricComparison, ...]:
        """Compares what the baseline's code does now, with these packages, with what was stored of it."""
        if self.found is None or unchanged is None:
            return ()
        server = result.identity["server"]
        assert isinstance(server, Mapping)
        return judge_world(
            self.found,
            evidence_of(unchanged),
            gate=task.settings.gate,
            tolerances=task.settings.tolerances,
            alpha=self.comparison.alpha,
            identity=identity_of(task, self.alone, unchanged, server),
            packages=packages,
            conditions=self.environment.conditions,
            steadiness=self.steadiness,
            saturated=result.measurement.saturated,
            busy=result.measurement.busy,
        )

    def _is_steady(self, task: Task, found: Found) -> bool:
        """Returns whether stored figures can decide: the machine is the same and steady, with the same packages."""
        return self._is_unchanged(found, self.environment.packages) and all(
            self.steadiness.is_steady(own.settings.gate, own.settings.tolerances) for own in (task, *task.parts)
        )

    def _tells_spread(self, found: Found, packages: Mapping[str, str]) -> bool:
        """Returns whether unchanged code tells how sessions differ: not in the hour of the baseline itself."""
        age = datetime.now(UTC) - found.entry.captured_at
        return self._is_unchanged(found, packages) and age >= timedelta(microseconds=SPAN_NS / 1000)

    def _is_unchanged(self, found: Found, packages: Mapping[str, str]) -> bool:
        """Returns whether the baseline is of this machine, and of these packages."""
        return not found.differences and not package_changes(found.entry.packages, packages)

    # --- keeping

    def _is_wanted(self, results: Sequence[Result]) -> bool:
        """Returns whether a load is to become the baseline, by the results of the whole and of its parts.

        One that passes leaves it alone: small losses would add up.
        """
        if self.update is None:
            return False
        if self.found is None or self.update == "all":
            return True
        comparisons = _compared(results)
        reasons = {comparison.reason.kind for comparison in comparisons if comparison.reason}
        if reasons and reasons <= {ReasonKind.OTHER_MACHINE, ReasonKind.OTHER_WORK, ReasonKind.OTHER_ROWS}:
            return True  # there is nothing to compare with, so nothing that a worse level would replace
        is_better = results[0].base is not None and any(item.outcome is Outcome.IMPROVED for item in comparisons)
        return self.update == "passed" and is_better and not any(map(may_be_worse, comparisons))

    def _keep_code(self, here: SourceState, rig: Rig) -> None:
        """Keeps the code of what was just stored; that of the baseline before goes, unless another one needs it."""
        if rig.source is None:
            return
        rig.source.keep(here)
        before = None if self.found is None else self.found.entry.tree
        if before is not None:
            rig.source.forget([before])


def _compared(results: Sequence[Result]) -> list[MetricComparison]:
    """Returns the comparisons of all results."""
    return [comparison for result in results for comparison in result.verdict.comparisons]


def _same_code(found: Found, task: Task, result: Result) -> tuple[MetricComparison, ...]:
    return judge_same_code(
        found,
        evidence_of(result.recording),
        gate=task.settings.gate,
        tolerances=task.settings.tolerances,
        identity=result.identity,
        saturated=result.measurement.saturated,
    )


def _stored_latency(found: Found | None, comparisons: Sequence[MetricComparison]) -> Histogram | None:
    """Returns the latencies of the baseline; None where the comparisons have none of its figures."""
    if found is None or all(comparison.base is None for comparison in comparisons):
        return None
    return Histogram.merged(boot.latency for boot in found.entry.evidence.boots)


def _why_not_the_same(measured: Measured, found: Found, here: CodeTree, rig: Rig) -> str:
    """Returns why it is not certain that the server ran the baseline's code; empty where it is."""
    held, loaded, stored = replace(here, there=here.here), measured.loaded, found.entry.loaded
    tree = "the tree is that of the baseline, but"
    if not any(held.holds(Path(file)) for file in loaded.modules):
        return f"{tree} the server's code is not in it, so it may have changed"
    beside = None if rig.source is None else rig.source.loaded_beside(loaded, tree=found.entry.tree or "")
    if beside is not None and stored is not None:
        if others := _others(beside, stored):
            return f"{_named(others)} changed since the baseline was stored, and Git does not have what {_was(others)}"
    elif outside := outside_code(loaded.modules, here):
        return f"{tree} code outside it may have changed: {', '.join(outside)}"
    elif rig.source is not None and (newer := rig.source.ignored_since(found.entry.captured_at)):
        return f"{tree} files that it does not have are newer: {', '.join(newer)}"
    changed = _Changed.of(rig, loaded)
    return f"{changed.of_code}, so run it again" if changed.of_code else ""


def _others(now: Digests, stored: Digests) -> list[str]:
    """Returns the files that are not what they were."""
    return [name for name, digest in sorted(now.items()) if stored.get(name) != digest]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Changed:
    """Which files changed while the code was measured, in sentences; empty for none."""

    of_code: str = ""
    """Those that the server loaded; of a command, whose files nobody knows, all of the tree."""
    of_data: str = ""

    @classmethod
    def of(cls, rig: Rig, loaded: LoadedFiles) -> _Changed:
        changed = () if rig.source is None else rig.source.changed()
        if rig.source is None:
            return cls()
        of_code = [name for name in changed if not loaded.is_known or loaded.has(rig.source.path(name))]
        of_data = [name for name in changed if name not in of_code]
        return cls(of_code=_while_measured(of_code), of_data=_while_measured(of_data))


def _while_measured(names: Sequence[str]) -> str:
    return f"{_named(names)} {WHILE_MEASURED}" if names else ""


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{', '.join(names[:_MOST_NAMED])}{more}"


def _was(names: Sequence[str]) -> str:
    return "it was" if len(names) == 1 else "they were"


def _keeping_nothing(results: Sequence[Result], why: str) -> tuple[Kept, ...]:
    """Returns the whole and its parts with the reason; a part that is not compared was not to be stored."""
    whole, *parts = results
    said = (replace(part, not_stored=why) if part.verdict.comparisons else part for part in parts)
    return Kept(result=replace(whole, not_stored=why)), *(Kept(result=part) for part in said)


def _sentences(*said: str) -> str:
    return "; ".join(filter(None, said))
