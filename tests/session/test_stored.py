"""Stored baselines from beginning to end: their code, the world and what is stored; on fake servers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from session.fakes import App, Host, Server, rig_of

from pytest_fileperf.errors import PerformanceError, PlanError, RegressionError
from pytest_fileperf.judge.record import Result, TestId
from pytest_fileperf.judge.verdict import Outcome, ReasonKind
from pytest_fileperf.plan.request import Operation
from pytest_fileperf.plan.work import Mix, Part, Work
from pytest_fileperf.report.wording import note_text, notes_text
from pytest_fileperf.session.session import Session
from pytest_fileperf.settings.settings import Options, Settings
from pytest_fileperf.versions.loaded import LoadedFiles
from pytest_fileperf.versions.source import Source, SourceState
from pytest_fileperf.versions.tree import CodeTree

MS = 1_000_000
DAY_NS = 86_400 * 1_000 * MS
GET = Operation(method="GET", url="/")
TEST = TestId(nodeid="test_any.py::test_any", module="test_any.py", name="test_any")
SETTINGS = Settings(app="app:app", connections=2, duration_ns=600 * MS, rounds=6, warmup_ns=0, gate=("rps",))
MIX = Mix(parts=tuple(Part(name=name, work=GET, gate=("rps",), tolerances={"rps": 0.2}) for name in ("a", "b")))
PARTS_ONLY = replace(SETTINGS, gate=())
OLD, NEW = "a" * 40, "b" * 40
"""Trees."""


class Code(Source):
    """A repository with two versions of the code."""

    def __init__(self, directory: Path, here: str | None, known: Iterable[str] = (OLD, NEW)) -> None:
        self._directory = directory
        self._here = here
        self.known = set(known)
        self.kept: list[str] = []
        self.forgotten: list[str] = []
        self.is_closed = False
        self.ignored: tuple[str, ...] = ()
        self.edited: tuple[str, ...] = ()
        self.beside: dict[str, str] | None = None

    def commit_info(self) -> None:
        return None

    def changed(self) -> tuple[str, ...]:
        return self.edited

    def path(self, name: str) -> Path:
        return self._directory / name

    def here_with(self, loaded: LoadedFiles) -> SourceState | str:
        return self.here

    def loaded_beside(
        self, loaded: LoadedFiles, code_tree: CodeTree | None = None, tree: str = ""
    ) -> dict[str, str] | None:
        return self.beside

    def ignored_since(self, when: datetime) -> tuple[str, ...]:
        return self.ignored

    @property
    def notes(self) -> tuple[str, ...]:
        return ()

    @property
    def here(self) -> SourceState | str:
        if self._here is None:
            return "there is no Git repository"
        return SourceState(tree=self._here, commit="1" * 40, dirty=True)

    def code(self, tree: str | None, commit: str | None) -> CodeTree:
        if tree is None or tree not in self.known:
            raise PlanError("its code is not in this repository: store it again")
        if tree == self._here:
            return CodeTree(title=tree[:7], here=self._directory)
        base = self._directory / tree
        base.mkdir(exist_ok=True)
        return CodeTree(title=tree[:7], here=self._directory, there=base)

    def keep(self, here: SourceState) -> None:
        self.kept.append(str(self._here))

    def forget(self, trees: Iterable[str]) -> None:
        self.forgotten += trees

    def close(self) -> None:
        self.is_closed = True


@dataclass
class Project:
    """A project with a baseline directory, on a machine."""

    directory: Path
    results: tuple[Result, ...] = ()
    """Of the last session."""

    @property
    def baselines(self) -> Path:
        return self.directory / "baselines"

    @contextmanager
    def session(self, host: Host, code: Source | None, **options: object) -> Iterator[Session]:
        made = Options(baselines=self.baselines, **options)  # type: ignore[arg-type]
        host.files = host.files or (str(self.directory / "app.py"),)
        with Session(made, replace(rig_of(host)[0], source=code)) as session:
            yield session

    def run(
        self, host: Host, code: Source | None, settings: Settings = SETTINGS, *, work: Work = GET, **options: object
    ) -> Result:
        """Measures in a session of its own; a verdict that fails is no error here. Returns the last result."""
        with self.session(host, code, **options) as session:
            with suppress(PerformanceError):
                session.measure(work, settings, TEST)
                session.settle(TEST.nodeid, passed=True)
            self.results = tuple(session.results)
            return self.results[-1]

    def store(
        self, app: App | None = None, tree: str | None = OLD, *, work: Work = GET, settings: Settings = SETTINGS
    ) -> Result:
        """Stores the baseline of an app."""
        return self.run(Host(now=app or App()), Code(self.directory, tree), settings, work=work, update="new")

    def entry(self) -> dict[str, object]:
        (file,) = self.baselines.glob("*/*.json")
        entry: dict[str, object] = json.loads(file.read_text(encoding="utf-8"))["tests"][TEST.nodeid]
        return entry


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def outcomes_of_parts(project: Project) -> dict[str, Outcome]:
    return {result.test.part: outcome_of(result) for result in project.results if result.test.part}


def outcome_of(result: Result) -> Outcome:
    (comparison,) = result.verdict.comparisons
    return comparison.outcome


def test_a_baseline_has_its_code_its_precision_and_its_packages(project: Project) -> None:
    code = Code(project.directory, OLD)
    result = project.run(Host(), code, update="new")
    entry = project.entry()
    assert result.baseline_written
    assert entry["tree"] == OLD
    assert entry["precision"]["rps"] <= 0.015  # type: ignore[index]
    assert entry["packages"]["pytest"]  # type: ignore[index]
    assert code.kept == [OLD]


def test_a_baseline_without_a_repository_has_figures_only_and_says_so(project: Project) -> None:
    result = project.store(tree=None)
    assert project.entry()["tree"] is None
    assert "only figures were stored" in notes_text(result.verdict.code_notes)
    assert "no Git repository" in notes_text(result.verdict.code_notes)


def test_the_code_of_a_baseline_is_measured_in_turn(project: Project) -> None:
    project.store()
    host = Host(base=App(), now=App())
    result = project.run(host, Code(project.directory, NEW))
    assert outcome_of(result) is Outcome.PASS
    assert result.verdict.against.startswith(f"its baseline ({OLD[:7]} of ")
    assert result.pairs
    assert result.stored_latency is None


def test_slower_code_is_regressed_whatever_the_machine_does(project: Project) -> None:
    """The machine is half as fast as when the baseline was stored: the code has lost a tenth."""
    project.store()
    host = Host(base=App(latency_ns=4 * MS), now=App(latency_ns=4_400_000))
    with project.session(host, Code(project.directory, NEW)) as session, pytest.raises(RegressionError) as failed:
        session.measure(GET, SETTINGS, TEST)
    (comparison,) = session.results[0].verdict.comparisons
    assert comparison.change == pytest.approx(1 / 1.1 - 1, abs=0.02)
    assert "worse than its baseline (aaaaaaa of " in " ".join(str(failed.value).split())


@pytest.mark.parametrize("stored,now", [("", "coverage"), ("coverage", "")])
def test_traced_figures_are_never_compared_with_others(
    stored: str, now: str, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Server, "tracer", stored)
    project.store()
    monkeypatch.setattr(Server, "tracer", now)
    result = project.run(Host(), Code(project.directory, NEW), confirm="never")
    (comparison,) = result.verdict.comparisons
    assert comparison.outcome is Outcome.INCONCLUSIVE
    assert comparison.reason is not None
    assert comparison.reason.differences == (f"tracer was {stored or 'not set'}, is {now or 'not set'}",)
    assert result.verdict.world == ()


def test_traced_code_is_measured_in_turn_with_traced_code(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.store()
    monkeypatch.setattr(Server, "tracer", "coverage")
    result = project.run(Host(), Code(project.directory, NEW))
    assert outcome_of(result) is Outcome.PASS
    assert result.pairs
    assert all(world.outcome is not Outcome.REGRESSED for world in result.verdict.world)


def test_the_same_code_on_a_slower_machine_passes_and_the_world_says_so(project: Project) -> None:
    project.store()
    slow = App(latency_ns=3 * MS)
    result = project.run(Host(base=slow, now=slow), Code(project.directory, NEW))
    assert outcome_of(result) is Outcome.PASS
    (world,) = result.verdict.world
    assert world.change == pytest.approx(-0.33, abs=0.02)


@pytest.mark.parametrize("latency_ms,outcome", [(5, Outcome.INCONCLUSIVE), (15, Outcome.REGRESSED)])
@pytest.mark.parametrize("tree", [OLD, NEW])
def test_the_same_code_on_a_machine_that_is_far_slower_is_no_pass(
    project: Project, latency_ms: int, outcome: Outcome, tree: str
) -> None:
    project.store()
    slow = App(latency_ns=latency_ms * MS)
    result = project.run(Host(base=slow, now=slow), Code(project.directory, tree))
    assert outcome_of(result) is outcome
    (comparison,) = result.verdict.comparisons
    assert comparison.reason is not None
    assert comparison.reason.kind is ReasonKind.ENVIRONMENT


def test_unchanged_code_is_not_measured_in_turn(project: Project) -> None:
    project.store()
    host = Host()
    result = project.run(host, Code(project.directory, OLD))
    (comparison,) = result.verdict.comparisons
    assert comparison.outcome is Outcome.PASS
    assert comparison.reason is not None
    assert comparison.reason.kind is ReasonKind.SAME_CODE
    assert not result.pairs
    assert result.verdict.world
    assert result.stored_latency is not None


def test_code_that_is_not_found_leaves_the_stored_figures(project: Project) -> None:
    project.store()
    result = project.run(Host(), Code(project.directory, NEW, known=()))
    assert outcome_of(result) is Outcome.INCONCLUSIVE
    assert "store it again" in notes_text(result.verdict.code_notes)
    assert result.stored_latency is not None
    evidence: Any = project.entry()["evidence"]
    assert result.stored_latency.count == sum(boot["requests"] for boot in evidence["boots"])


@pytest.mark.parametrize(
    "base, why",
    [
        (App(breaks=True), "does not boot"),
        (App(missing=True), "has no such app"),
        (App(dies_after=100), "ended with exit status 3"),
        (App(paths=(), failing="status 500"), "fails in every request of GET /: status 500 (no such path)"),
        (App(paths=(), failing="size"), "has another answer to GET / than this test expects: size (no such path)"),
        (App(paths=()), "has no good answer"),
    ],
)
def test_a_baseline_whose_code_does_not_work_any_more_leaves_its_figures(base: App, why: str, project: Project) -> None:
    project.store()
    result = project.run(Host(base=base), Code(project.directory, NEW))
    assert outcome_of(result) in (Outcome.INCONCLUSIVE, Outcome.PASS)
    assert why in notes_text(result.verdict.code_notes)
    assert "\n" not in notes_text(result.verdict.code_notes)


def test_a_server_here_that_dies_is_an_error_and_no_reason_to_measure_otherwise(project: Project) -> None:
    project.store()
    from pytest_fileperf.errors import ServerDiedError

    with (
        project.session(Host(now=App(dies_after=100)), Code(project.directory, NEW)) as session,
        pytest.raises(ServerDiedError),
    ):
        session.measure(GET, SETTINGS, TEST)


def test_the_parts_of_a_load_are_measured_in_turn_too(project: Project) -> None:
    project.store(work=MIX, settings=PARTS_ONLY)
    slow, code = Host(now=App(slow_part="b")), Code(project.directory, NEW)
    project.run(slow, code, PARTS_ONLY, work=MIX)
    assert outcomes_of_parts(project) == {"a": Outcome.PASS, "b": Outcome.REGRESSED}
    assert all(result.pairs for result in project.results)
    project.run(Host(base=App(slow_part="b"), now=App(slow_part="b")), code, PARTS_ONLY, work=MIX)
    assert outcomes_of_parts(project) == {"a": Outcome.PASS, "b": Outcome.PASS}, "the machine is slower, not the code"


def test_a_part_that_improved_is_stored(project: Project) -> None:
    project.store(App(slow_part="b"), work=MIX, settings=PARTS_ONLY)
    code, host = Code(project.directory, NEW), Host(base=App(slow_part="b"))
    assert project.run(host, code, PARTS_ONLY, work=MIX, update="passed").baseline_written
    assert outcomes_of_parts(project) == {"a": Outcome.PASS, "b": Outcome.IMPROVED}


def test_always_and_never(project: Project) -> None:
    project.store()
    assert project.run(Host(), Code(project.directory, NEW), confirm="always").pairs
    slow = App(latency_ns=2_400_000)
    never = project.run(Host(now=slow), Code(project.directory, NEW), confirm="never")
    assert not never.pairs
    assert "fileperf_confirm=never" in notes_text(never.verdict.code_notes)


@pytest.mark.parametrize("update, stores", [("new", False), ("passed", False), ("all", True)])
def test_a_baseline_that_passes_stays_as_it_is(update: str, stores: bool, project: Project) -> None:
    project.store()
    before = project.entry()
    result = project.run(Host(), Code(project.directory, NEW), update=update)
    assert outcome_of(result) is Outcome.PASS
    assert (project.entry() != before) is stores
    assert result.baseline_written is stores


def test_an_improvement_that_was_measured_in_turn_is_stored_and_its_old_code_goes(project: Project) -> None:
    project.store()
    code = Code(project.directory, NEW)
    result = project.run(Host(now=App(latency_ns=1_500_000)), code, update="passed")
    assert outcome_of(result) is Outcome.IMPROVED
    assert result.baseline_written
    assert project.entry()["tree"] == NEW
    assert (code.kept, code.forgotten) == ([NEW], [OLD])


def test_small_losses_do_not_add_up(project: Project) -> None:
    """Five commits that cost 2 % each, with an update after each one."""
    project.store()
    outcomes = []
    for number in range(1, 6):
        slower = App(latency_ns=round(2 * MS * 1.02**number))
        result = project.run(Host(now=slower), Code(project.directory, NEW), update="passed")
        outcomes.append(outcome_of(result))
    assert Outcome.REGRESSED in outcomes[:4]
    assert project.entry()["tree"] == OLD


def test_a_baseline_of_another_machine_is_as_good(project: Project) -> None:
    project.store()
    (file,) = project.baselines.glob("*/*.json")
    content = json.loads(file.read_text(encoding="utf-8"))
    content["environment"]["cpu"] = "another one"
    other = file.parent.with_name("linux-x86_64-2-cpython3.11-00000000")
    other.mkdir()
    (other / file.name).write_text(json.dumps(content), encoding="utf-8")
    file.unlink()
    result = project.run(Host(now=App(latency_ns=2_400_000)), Code(project.directory, NEW))
    assert outcome_of(result) is Outcome.REGRESSED
    assert result.verdict.world == ()


def test_a_level_that_stays_unclear_is_stored_when_the_time_is_over_and_says_so(project: Project) -> None:
    host = Host(now=App(noise=0.5))
    settings = replace(SETTINGS, duration_ns=6_000 * MS)
    result = project.run(host, Code(project.directory, OLD), settings, update="new")
    assert result.baseline_written
    assert "the stored level is known to" in notes_text(result.verdict.code_notes)
    assert project.entry()["precision"]["rps"] > 0.015  # type: ignore[index]
    assert 20 < host.clock.now_s - 1000 < 40


def test_a_server_whose_code_is_not_in_the_tree_is_not_taken_for_the_same(project: Project) -> None:
    project.store()
    host = Host(files=("/usr/lib/app.py",))
    result = project.run(host, Code(project.directory, OLD))
    assert outcome_of(result) is Outcome.INCONCLUSIVE
    assert "the server's code is not in it" in notes_text(result.verdict.code_notes)


@pytest.mark.parametrize(
    "program, outcome, said",
    [
        ("server", Outcome.PASS, "the code here is that of"),
        ("/opt/server", Outcome.INCONCLUSIVE, "code outside it may have changed: /opt"),
    ],
)
def test_a_command_that_runs_in_the_tree_is_the_same_unless_its_program_lies_elsewhere(
    program: str, outcome: Outcome, said: str, project: Project
) -> None:
    project.store()
    host = Host(files=(str(project.directory), str(project.directory / program)))
    result = project.run(host, Code(project.directory, OLD))
    assert outcome_of(result) is outcome
    assert said in notes_text(result.verdict.code_notes)


def test_ignored_files_that_are_newer_than_the_baseline_are_in_doubt(project: Project) -> None:
    project.store()
    code = Code(project.directory, OLD)
    code.ignored = ("local_settings.py",)
    result = project.run(Host(), code)
    assert outcome_of(result) is Outcome.INCONCLUSIVE
    assert "local_settings.py" in notes_text(result.verdict.code_notes)


def test_code_that_was_edited_while_it_was_measured_is_not_stored(project: Project) -> None:
    code = Code(project.directory, OLD)
    code.edited = ("app.py", "app.log")
    result = project.run(Host(is_known=True), code, update="new")
    assert not result.baseline_written
    assert result.not_stored == "app.py changed while it was measured, so run it again"
    result = project.run(Host(), code, update="new")  # nobody knows what a command loads
    assert result.not_stored == "app.py, app.log changed while it was measured, so run it again"


def test_a_file_that_no_server_loaded_may_change(project: Project) -> None:
    code = Code(project.directory, OLD)
    code.edited = ("app.log",)
    result = project.run(Host(is_known=True), code, update="new")
    assert result.baseline_written
    assert [*map(note_text, result.notes)] == ["app.log changed while it was measured"]


@pytest.mark.parametrize("tree", [OLD, NEW])
def test_a_file_that_no_tree_has_and_that_changed_leaves_it_to_the_figures(project: Project, tree: str) -> None:
    code = Code(project.directory, OLD)
    code.beside = {"engine.py": "1"}
    project.run(Host(), code, update="new")
    assert project.entry()["loaded"] == {"engine.py": "1"}
    code = Code(project.directory, tree)
    code.beside = {"engine.py": "1"}
    assert outcome_of(project.run(Host(), code)) is Outcome.PASS
    code.beside = {"engine.py": "2"}
    result = project.run(Host(), code)
    assert outcome_of(result) is Outcome.INCONCLUSIVE
    assert "engine.py" in notes_text(result.verdict.code_notes)


def test_what_would_replace_a_baseline_keeps_to_the_limits_too(project: Project) -> None:
    """Some requests fail only after a while: in turn on fresh boots they do not."""
    project.store()
    result = project.run(
        Host(now=App(good_of=2)),
        Code(project.directory, NEW),
        replace(SETTINGS, limits={"max_error_rate": 0.0}),
        update="all",
    )
    assert not result.baseline_written


def test_a_baseline_of_other_work_is_replaced_where_new_ones_are_asked_for(project: Project) -> None:
    project.store()
    more = replace(SETTINGS, connections=4)
    assert project.run(Host(), Code(project.directory, OLD), more, update="new").baseline_written


def test_packages_that_cannot_be_had_are_told_where_the_code_is_the_same_too(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(project.directory / "cache"))
    project.store()
    (file,) = project.baselines.glob("*/*.json")
    content = json.loads(file.read_text(encoding="utf-8"))
    content["tests"][TEST.nodeid]["packages"]["not-here"] = "1.0 (git 1a2b3c4)"
    file.write_text(json.dumps(content), encoding="utf-8")
    result = project.run(Host(), Code(project.directory, OLD), base_packages="stored")
    assert outcome_of(result) is Outcome.PASS
    assert "not-here" in notes_text(result.verdict.code_notes)
    assert "it runs with the packages installed here" in notes_text(result.verdict.code_notes)
