"""Compares with a stored baseline. If the baseline's code can be found, that code is measured again.

    the baseline's code              measured code                      decided by
    is the code here                 here                               the code, which is the same
    is found                         both alternately                   the ratio of both
    is not found                     here                               stored figures

Besides that, the baseline's code is compared with its own stored figures. This shows changes of the environment: the
machine, the packages, the settings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

from pytest_fileperf.errors import BaseDiedError, BaseFailedError, BaseSetupError, PlanError
from pytest_fileperf.judge.baseline import BaselineStore, Entry
from pytest_fileperf.judge.environment import Environment, package_changes
from pytest_fileperf.judge.evidence import differing, evidence_of, precision_of
from pytest_fileperf.judge.gate import (
    ErrorBudget,
    judge_same_code,
    judge_stored,
    judge_world,
    may_be_worse,
    unless_environment,
    unless_same_files,
    unless_saturated,
)
from pytest_fileperf.judge.record import Result, TestId
from pytest_fileperf.judge.rules import RULES
from pytest_fileperf.judge.verdict import (
    MetricComparison,
    Note,
    NoteKind,
    Outcome,
    Reason,
    ReasonKind,
    check_limits,
)
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.measure.recording import Recording
from pytest_fileperf.report.wording import sentence
from pytest_fileperf.session.alone import identity_of, level_error, measure_alone
from pytest_fileperf.session.comparison import measure_in_turn, refuse_base
from pytest_fileperf.session.rig import Measured, Rig
from pytest_fileperf.settings.plans import Plan
from pytest_fileperf.settings.settings import Options
from pytest_fileperf.units import format_names
from pytest_fileperf.versions.loaded import Digests, LoadedFiles, used_by_both
from pytest_fileperf.versions.packages import python_with
from pytest_fileperf.versions.source import Source, SourceState
from pytest_fileperf.versions.tree import CodeTree, outside_code


def title_of(entry: Entry, code: str = "") -> str:
    """Returns a baseline's name for messages, e.g. `its baseline (1a2b3c4 of 2026-11-20)`. `code` names its commit."""
    day = entry.captured.partition("T")[0]
    return f"its baseline ({code} of {day})" if code else f"its baseline of {day}"


# --- An old version, or the same code again, measured alternately with the code here


def measure_other_version(plan: Plan, base: CodeTree, budget: ErrorBudget, rig: Rig) -> Measured:
    """Measures both versions alternately and judges. If they cannot be compared, measures only the code here.

    If a version lacks the endpoint, the outcome is NEW. If a version gives other answers or is too slow, the outcome is
    INCONCLUSIVE. Raises PlanError if this kind of server cannot run two versions.
    """
    why_not: Reason | None = None
    spent_ns: int | None = None
    if base.is_here and not plan.to_the_end:
        refuse_base(plan, base)
        outcome, reason = Outcome.PASS, Reason(kind=ReasonKind.SAME_CODE, side=base.title)
    else:
        begun_s = rig.clock()
        found = measure_in_turn(plan, base, budget, rig)
        if isinstance(found, Measured):
            return _unless_same_files(found, base, rig)
        outcome, why_not, reason = Outcome.NEW, found, found
        if found.kind is ReasonKind.INCOMPARABLE:  # base may never answer, or lack a slow endpoint
            outcome, spent_ns = Outcome.INCONCLUSIVE, round((rig.clock() - begun_s) * 1e9)

    def judged(result: Result) -> Result:
        now = result.recording
        comparisons = [
            MetricComparison.of(METRICS[name], tolerance, outcome, now=METRICS[name].of_run(now), reason=reason)
            for name, tolerance in plan.tolerances(result.test.subject).items()
        ]
        told = unless_saturated(comparisons, result.measurement.saturated)
        return result.having(comparisons=told, against=base.title)

    return measure_alone(plan.alone(spent_ns=spent_ns), rig).judged(judged, why_not=why_not)


def _unless_same_files(measured: Measured, tree: CodeTree, rig: Rig) -> Measured:
    files = (*used_by_both(measured.loaded, tree), *rig.source.shared_modules(measured.loaded, tree))
    outside = outside_code(measured.loaded.modules, tree)
    tops = () if tree.here is None else (tree.here, tree.here.resolve())
    elsewhere = [one for one in outside if not any(Path(one).is_relative_to(top) for top in tops)]
    notes = _noted(NoteKind.ELSEWHERE, elsewhere)

    def judged(result: Result) -> Result:
        own_notes = result.notes if result.test.own else (*result.notes, *notes)
        return result.having(comparisons=unless_same_files(result.verdict.comparisons, files), notes=own_notes)

    return measured.judged(judged)


# --- Stored baselines: the figures that earlier runs have stored, and their code

Keeping: TypeAlias = list[tuple[Result, Callable[[], None] | None]]
"""Each result, with the function that stores it. The function is None if the result is not to be stored."""


class Baselines:
    def __init__(self, options: Options, rig: Rig, budget: ErrorBudget, environment: Environment) -> None:
        self._options = options
        self._rig = rig
        self._budget = budget
        self._environment = environment
        self._store = BaselineStore(options.baselines)
        self._pythons: dict[frozenset[tuple[str, str]], Path | PlanError] = {}
        """For each set of packages: the Python of an environment that has them, or why there is none."""

    def find(self, test: TestId) -> Entry | None:
        """Returns a test's baseline, from this machine or another. Raises BaselineError."""
        return self._store.find(test.module, test.nodeid, self._environment)

    def measure(self, plan: Plan, found: Entry | None) -> Measured:
        self._rig.source.here  # noqa: B018 # before anything starts, because code may be edited meanwhile
        if found is None:  # more carefully if it becomes a baseline
            measured = measure_alone(plan, self._rig, most_loads=self._most_loads if self._options.update else 1)
            return self._by_figures(plan, None, None, measured)
        if self._options.confirm == "never":
            return self._by_figures(plan, found, Note(kind=NoteKind.NEVER_CONFIRMED))
        code, said = self._code(found)
        if code is None:
            return self._by_figures(plan, found, _figures_only(said))
        if code.is_here:
            return self._same(plan, found, code, said)
        return self._in_turn(plan, found, code, said)

    def _code(self, found: Entry) -> tuple[CodeTree | None, str]:
        """Returns a baseline's code and a text. If the code is None, the text says why.

        Else the text is empty, or says why the baseline's own packages are not used.
        """
        said, python = "", None
        commit = None if found.commit is None else found.commit.get("id")
        try:
            code_tree = self._rig.source.code(found.tree, commit if isinstance(commit, str) else None)
        except PlanError as error:
            return None, str(error)
        if self._options.base_packages == "stored" and package_changes(found.packages, self._environment.packages):
            key = frozenset(found.packages.items())
            if (made := self._pythons.get(key)) is None:
                try:
                    made = python_with(found.packages)
                except PlanError as error:
                    made = error
                self._pythons[key] = made
            said, python = (str(made), None) if isinstance(made, PlanError) else ("", str(made))
        return replace(code_tree, title=title_of(found, code_tree.title), python=python, tree=found.tree or ""), said

    def keep(self, plan: Plan, found: Entry | None, results: Sequence[Result]) -> Keeping:
        """Returns each result, with the function that stores it or None. Empty if no baseline is wanted.

        The functions may raise BaselineError.
        """
        whole = results[0]
        if not self._is_wanted(found, results) or whole.never_fit:
            return []
        levels, kept = {result.test.own: result for result in results}, whole
        # Servers that are loaded alternately have other figures, so the code is measured again alone.
        if found is not None:
            levels = {own.test.own: own for own in measure_alone(plan, self._rig, most_loads=self._most_loads).results}
            kept = levels[""]
            kept = kept.having(limits=check_limits(plan.settings.limits, kept.recording, kept.least_capacity))
        of_data: list[str] = []
        is_first = found is None and kept.is_provisional and self._has_code
        if kept.never_fit or (kept.unfit and self._options.update != "all" and not is_first):
            anyway = "" if kept.never_fit else ". To store it anyway, use --fileperf-update=all"
            why = f"{kept.unfit} cannot become a baseline{anyway}"
        else:
            why, of_data = _changed(self._rig.source, self._loaded_here())
        keeping: Keeping = []
        for result in results:
            is_to_store = result is whole or bool(result.verdict.comparisons)
            if is_to_store and why:
                keeping.append((result.having(not_stored=why), None))
            elif is_to_store and result.test.own in levels:
                keeping.append(self._kept(plan, found, result, levels[result.test.own], also=of_data))
            else:
                keeping.append((result, None))
        return keeping

    def _kept(
        self, plan: Plan, found: Entry | None, result: Result, level: Result, *, also: Sequence[str]
    ) -> tuple[Result, Callable[[], None]]:
        """Returns a result with notes about its storing, and the function that stores it.

        The function stores the figures of `level`: the same code, measured alone. `also` are changed files that are not
        code.
        """
        gated = [comparison.metric for comparison in result.verdict.comparisons]
        test, is_whole, source = result.test, not result.test.own, self._rig.source
        evidence, ran = evidence_of(level.recording), self._loaded_here()
        here = source.here_with(ran)
        known = {name: precision_of(METRICS[name], evidence) for name in gated}
        tree = here.tree if isinstance(here, SourceState) else None
        entry = Entry(
            identity=level.identity,
            evidence=evidence,
            captured=datetime.now(UTC).isoformat(timespec="seconds"),
            commit=source.commit_info(),
            reason=self._options.reason,
            tree=tree,
            packages=self._environment.packages,
            conditions=self._environment.conditions,
            precision={name: error for name, error in known.items() if math.isfinite(error)},
            busy=level.measurement.busy,
            loaded=None if tree is None else source.loaded_beside(ran, tree=tree),
            files=None if tree is None or not is_whole else source.loaded_inside(ran, tree),
        )

        def store() -> None:
            self._store.write(test.module, test.nodeid, entry, self._environment, summary_of=gated)
            if isinstance(here, SourceState) and is_whole:
                source.keep(here)
                if found is not None and found.tree is not None:  # no longer needed, unless another baseline needs it
                    source.forget([found.tree])

        stored, notes = list(result.verdict.code_notes), result.notes
        if (error := level_error(plan.subject(test.subject).gate, level.recording)) > RULES.known_to:
            stored.append(Note(kind=NoteKind.ROUGHLY_KNOWN, share=error))
        if level.is_provisional and tree is not None:
            stored.append(Note(kind=NoteKind.PROVISIONAL))
        if tree is None:
            stored.append(Note(kind=NoteKind.NO_CODE_STORED, texts=(str(here),)))
        if also and is_whole:
            notes += (Note(kind=NoteKind.CHANGED_MEANWHILE, texts=(format_names(also),)),)
        return result.having(code_notes=tuple(stored), notes=notes, baseline_written=True), store

    # --- ways to measure

    def _same(self, plan: Plan, found: Entry, here: CodeTree, said: str) -> Measured:
        """Measures the code here, which equals the baseline's. Changed figures then come from the environment."""
        measured = measure_alone(plan, self._rig)
        if doubt := _why_not_the_same(measured, found, here, self._rig.source):
            return self._by_figures(plan, found, doubt, measured)
        packages = self._environment.packages
        code_notes = (
            Note(kind=NoteKind.SAME_CODE, texts=(title_of(found),)),
            *_noted(NoteKind.PACKAGES_HERE, filter(None, (said,))),
            *_noted(NoteKind.PACKAGES, package_changes(found.packages, packages)),
        )

        def judged(result: Result) -> Result:
            is_whole = not result.test.own
            stored = found if is_whole else self.find(result.test)
            if stored is None:  # the part is newer than the baseline
                return self._with_figures(plan, result, None)
            comparisons = judge_same_code(
                stored,
                evidence_of(result.recording),
                tolerances=plan.tolerances(result.test.subject),
                identity=result.identity,
                saturated=result.measurement.saturated,
            )
            latency = _stored_latency(stored, comparisons)
            if is_whole:
                world = self._world(plan, found, result, result.recording, packages)
                comparisons = unless_environment(comparisons, world, result.measurement.busy)
                result = result.having(world=world, code_notes=code_notes)
            return result.having(comparisons=comparisons, stored_latency=latency)

        return measured.judged(judged)

    def _in_turn(self, plan: Plan, found: Entry, base: CodeTree, said: str) -> Measured:
        """Measures the baseline's code and the code here alternately. If that fails, judges by stored figures."""
        packages = self._environment.packages if base.python is None else found.packages
        base_alone = not found.differences  # if there are some, its stored figures do not compare
        try:
            measured = measure_in_turn(plan, base, self._budget, self._rig, is_stored=True, base_alone=base_alone)
        except (PlanError, BaseDiedError, BaseFailedError, BaseSetupError) as error:
            why = str(error).splitlines()[0].removesuffix(":")
            # The error's traceback and the server's log are shown nowhere else.
            notes = (str(error),) if isinstance(error, BaseFailedError | BaseSetupError) else ()
            return self._by_figures(plan, found, _figures_only(why), notes=notes)
        why = sentence(measured) if isinstance(measured, Reason) else self._other_files(measured, found, base)
        if isinstance(measured, Reason) or why:
            return self._by_figures(plan, found, _figures_only(why))
        code_notes = (
            Note(kind=NoteKind.IN_TURN, texts=(base.title,)),
            *_noted(NoteKind.PACKAGES_HERE, filter(None, (said,))),
            *_noted(NoteKind.ELSEWHERE, outside_code(measured.loaded.modules, base)),
        )
        unchanged = measured.base_alone

        def judged(result: Result) -> Result:
            if result.test.own:
                return result
            world = self._world(plan, found, result, unchanged, packages)
            told = unless_environment(result.verdict.comparisons, world, result.measurement.busy)
            return result.having(comparisons=told, world=world, code_notes=code_notes)

        return measured.judged(judged)

    def _other_files(self, measured: Measured, found: Entry, tree: CodeTree) -> str:
        """Returns a text if the baseline's code may have run with other files than when it was stored. Else empty."""
        stored = found.loaded
        if tree.there is None or found.tree is None:
            return ""
        beside = self._rig.source.loaded_beside(measured.loaded, tree, found.tree)
        if beside is not None and stored is not None:
            others = _others(beside, stored)
        else:
            others = list(used_by_both(measured.loaded, tree))
        return f"its code could only run with today's {format_names(others)}, {_not_kept(others)}" if others else ""

    # --- verdicts by figures alone

    def _by_figures(
        self,
        plan: Plan,
        found: Entry | None,
        why: Note | None,
        measured: Measured | None = None,
        notes: tuple[str, ...] = (),
    ) -> Measured:
        """Judges by stored figures only. `why` says why the baseline's code did not run."""
        measured = measured or measure_alone(plan, self._rig)

        def judged(result: Result) -> Result:
            return self._with_figures(plan, result, self.find(result.test) if result.test.own else found, why)

        return measured.judged(judged, notes=notes)

    def _with_figures(self, plan: Plan, result: Result, found: Entry | None, why: Note | None = None) -> Result:
        comparisons = judge_stored(
            tolerances=plan.tolerances(result.test.subject),
            alpha=plan.alpha,
            found=found,
            now=evidence_of(result.recording),
            identity=result.identity,
            packages=self._environment.packages,
            saturated=result.measurement.saturated,
            busy=result.measurement.busy,
            no_code="" if why is None else why.why_no_code,
        )
        self._budget.used(plan.alpha, sum(item.outcome is Outcome.REGRESSED for item in comparisons))
        latency, other_answers = _stored_latency(found, comparisons), result.other_answers
        if found is not None and latency is not None:
            other_answers = differing(found.evidence, result.recording)
        return result.having(
            comparisons=comparisons,
            code_notes=() if why is None or result.test.own else (why,),
            since="" if found is None else title_of(found),
            stored_latency=latency,
            other_answers=other_answers,
        )

    def _world(
        self, plan: Plan, found: Entry, result: Result, unchanged: Recording | None, packages: Mapping[str, str]
    ) -> tuple[MetricComparison, ...]:
        """Compares a new recording of the baseline's code (`unchanged`) with the baseline's stored figures."""
        if unchanged is None:
            return ()
        return judge_world(
            found,
            evidence_of(unchanged),
            tolerances=plan.tolerances(),
            alpha=plan.alpha,
            identity=identity_of(plan, unchanged, result.identity["server"]),
            packages=packages,
            conditions=self._environment.conditions,
            saturated=result.measurement.saturated,
            busy=result.measurement.busy,
        )

    # --- keeping

    def _is_wanted(self, found: Entry | None, results: Sequence[Result]) -> bool:
        """Returns whether to store the results. If each PASS replaced its baseline, small losses would add up."""
        if self._options.update is None:
            return False
        if found is None or self._options.update == "all":
            return True
        comparisons = [item for result in results for item in result.verdict.comparisons]
        reasons = {item.reason.kind for item in comparisons if item.reason}
        if reasons and reasons <= {ReasonKind.OTHER_MACHINE, ReasonKind.OTHER_WORK, ReasonKind.OTHER_ROWS}:
            return True  # there is nothing to compare, so no worse figures would replace better ones
        if found.busy is not None and found.busy.is_busy and reasons == {ReasonKind.SAME_CODE} and not results[0].unfit:
            return True  # the stored figures are provisional
        is_better = results[0].base is not None and any(item.outcome is Outcome.IMPROVED for item in comparisons)
        return self._options.update == "passed" and is_better and not any(map(may_be_worse, comparisons))

    @property
    def _has_code(self) -> bool:
        """Whether later runs can measure this code again. If so, stored figures need not be exact."""
        return self._options.confirm != "never" and isinstance(self._rig.source.here, SourceState)

    @property
    def _most_loads(self) -> int:
        return 3 if self._has_code else 12

    def _loaded_here(self) -> LoadedFiles:
        running = self._rig.servers.running
        return LoadedFiles() if running is None else running.loaded


def _stored_latency(found: Entry | None, comparisons: Sequence[MetricComparison]) -> Histogram | None:
    """Returns the baseline's latencies. None if nothing was compared with the baseline."""
    if found is None or all(comparison.base is None for comparison in comparisons):
        return None
    return Histogram.merged(boot.latency for boot in found.evidence.boots)


def _why_not_the_same(measured: Measured, found: Entry, here: CodeTree, source: Source) -> Note | None:
    """Returns a note that says why the server may not have run the baseline's code; None if it surely did."""
    held, loaded, stored = CodeTree(here=here.here, there=here.here), measured.loaded, found.loaded
    tree = "the code in Git is the baseline's, but"
    if not any(held.holds(Path(file)) for file in loaded.modules):
        return _figures_only("the server's code is not in the Git repository, so it may have changed")
    beside = source.loaded_beside(loaded, tree=found.tree or "")
    if beside is not None and stored is not None:
        if others := _others(beside, stored):
            why = f"{format_names(others)} changed since the baseline was stored, {_not_kept(others)}"
            return Note(kind=NoteKind.FILES_CHANGED, texts=(why,))
    elif outside := outside_code(loaded.modules, here):
        return _figures_only(f"{tree} code elsewhere may have changed: {', '.join(outside)}")
    elif newer := source.ignored_since(found.captured_at):
        return _figures_only(f"{tree} files that Git ignores changed after the baseline was stored: {', '.join(newer)}")
    why, _ = _changed(source, loaded)
    return _figures_only(why) if why else None


def _figures_only(why: str) -> Note:
    return Note(kind=NoteKind.FIGURES_ONLY, texts=(why,))


def _noted(kind: NoteKind, texts: Iterable[str]) -> tuple[Note, ...]:
    held = tuple(texts)
    return (Note(kind=kind, texts=held),) if held else ()


def _others(now: Digests, stored: Digests) -> list[str]:
    return [name for name, digest in sorted(now.items()) if stored.get(name) != digest]


def _changed(source: Source, loaded: LoadedFiles) -> tuple[str, list[str]]:
    """Returns a sentence if code changed during the measurement (else empty), and the other changed files.

    Code means the files that the server loaded. If these files are unknown, every file counts as code.
    """
    changed = source.changed()
    found = loaded.among(map(source.path, changed))
    of_code = [name for name in changed if not loaded.is_known or source.path(name) in found]
    why = f"{format_names(of_code)} changed during the measurement. Run it again" if of_code else ""
    return why, [name for name in changed if name not in of_code]


def _not_kept(names: Sequence[str]) -> str:
    return f"and Git does not have {'its' if len(names) == 1 else 'their'} old content"
