"""Stored baselines from beginning to end: their code, the world and what is stored; on fake servers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from session.fakes import GET, MS, TEST, App, Host, Loads, rig_of

from pytest_fileperf.drive.run import Run
from pytest_fileperf.errors import BaselineError, PerformanceError, PlanError
from pytest_fileperf.judge.baseline import BaselineStore
from pytest_fileperf.judge.record import Result
from pytest_fileperf.judge.verdict import Outcome, ReasonKind
from pytest_fileperf.measure.usage import Busy
from pytest_fileperf.plan.work import Mix, Part, Work
from pytest_fileperf.report.wording import note_text, notes_text
from pytest_fileperf.session.session import Session
from pytest_fileperf.settings.settings import Options, Settings
from pytest_fileperf.versions.loaded import LoadedFiles
from pytest_fileperf.versions.source import Source, SourceState
from pytest_fileperf.versions.tree import CodeTree

SETTINGS = Settings(app="app:app", connections=2, duration_ns=600 * MS, rounds=6, warmup_ns=0, gate=("rps",))
OLD, NEW = "a" * 40, "b" * 40
"""Trees."""


class Code(Source):
    """A repository with two versions of the code."""

    def __init__(self, directory: Path, here: str | None, known: Iterable[str] = (OLD, NEW)) -> None:
        self._directory = directory
        self._here = here
        self._known = set(known)
        self.kept: list[str] = []
        self.forgotten: list[str] = []
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

    def loaded_inside(self, loaded: LoadedFiles, tree: str) -> None:
        return None

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
        if tree is None or tree not in self._known:
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
        pass


@dataclass
class Project:
    """A project with a baseline directory, on a machine."""

    directory: Path
    notes: list[str] = field(default_factory=list)
    """Of the last session."""
    parts: dict[str, Result] = field(default_factory=dict)
    """Those of its load."""

    def code(self, here: str | None = NEW, **known: Iterable[str]) -> Code:
        return Code(self.directory, here, **known)

    def run(
        self,
        host: Host | App,
        code: Source,
        settings: Settings = SETTINGS,
        loads: Loads | None = None,
        work: Work = GET,
        **options: Any,
    ) -> Result:
        """Measures in a session of its own; a verdict that fails is no error here."""
        host = host if isinstance(host, Host) else Host(base=App(), now=host)
        host.files = host.files or (str(self.directory / "app.py"),)
        rig, own, _ = rig_of(host)
        rig = replace(rig, source=code, loads=loads or own)
        with Session(Options(baselines=self.directory / "baselines", **options), rig) as session:
            with suppress(PerformanceError):
                session.measure(work, settings, TEST)
                session.settle(TEST.nodeid, passed=True)
            self.notes = list(session.notes)
            *_, whole = (result for result in session.results if not result.test.own)
            self.parts = {result.test.own: result for result in session.results if result.test.own}
            return whole

    def store(self, settings: Settings = SETTINGS, *, code: Code | None = None) -> Result:
        return self.run(App(), code or self.code(OLD), settings, update="new")

    @property
    def file(self) -> Path:
        (file,) = (self.directory / "baselines").glob("*/*.json")
        return file

    def entry(self) -> dict[str, Any]:
        entry: dict[str, Any] = json.loads(self.file.read_text(encoding="utf-8"))["tests"][TEST.nodeid]
        return entry


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.fixture
def stored(project: Project) -> Project:
    """With the baseline of an app that answers in 2 ms."""
    assert project.store().baseline_written
    return project


def outcome_of(result: Result) -> Outcome:
    (comparison,) = result.verdict.comparisons
    return comparison.outcome


def said_of(result: Result) -> str:
    return notes_text(result.verdict.code_notes)


SLOWER, SLOWEST = App(latency_ns=5 * MS), App(latency_ns=15 * MS)


@pytest.mark.parametrize(
    "base, now, tree, outcome, reason, world",
    [
        (App(), App(), NEW, Outcome.PASS, None, 0.0),
        (App(), App(), OLD, Outcome.PASS, ReasonKind.SAME_CODE, 0.0),
        (App(latency_ns=4 * MS), App(latency_ns=4_400_000), NEW, Outcome.REGRESSED, None, -0.5),
        (App(latency_ns=3 * MS), App(latency_ns=3 * MS), NEW, Outcome.PASS, None, -0.33),
        (SLOWER, SLOWER, NEW, Outcome.INCONCLUSIVE, ReasonKind.ENVIRONMENT, -0.6),
        (SLOWER, SLOWER, OLD, Outcome.INCONCLUSIVE, ReasonKind.ENVIRONMENT, -0.6),
        (SLOWEST, SLOWEST, NEW, Outcome.REGRESSED, ReasonKind.ENVIRONMENT, -0.87),
        (SLOWEST, SLOWEST, OLD, Outcome.REGRESSED, ReasonKind.ENVIRONMENT, -0.87),
    ],
)
def test_the_code_is_judged_by_its_baseline_s_code_and_the_machine_by_its_figures(
    base: App, now: App, tree: str, outcome: Outcome, reason: ReasonKind | None, world: float, stored: Project
) -> None:
    result = stored.run(Host(base=base, now=now), stored.code(tree))
    (comparison,) = result.verdict.comparisons
    assert comparison.outcome is outcome
    assert reason is None or (comparison.reason is not None and comparison.reason.kind is reason)
    (of_world,) = result.verdict.world
    assert of_world.change == pytest.approx(world, abs=0.03)
    if tree == OLD:
        assert not result.pairs
        assert result.stored_latency is not None
        return
    assert result.verdict.against.startswith(f"its baseline ({OLD[:7]} of ")
    if reason is None:
        assert comparison.change == pytest.approx(base.latency_ns / now.latency_ns - 1, abs=0.03)


@pytest.mark.parametrize(
    "base, why",
    [
        (App(breaks=True), "does not start"),
        (App(missing=True), "has no such app"),
        (App(dies_after=100), "ended with exit status 3"),
        (
            App(paths=(), failing="status 500"),
            "fails every request of GET /, on two start-ups: status 500",
        ),
        (App(paths=(), failing="size"), "gave another answer to GET / than this test expects: size (no such path)"),
        (App(paths=()), "gave no successful answer"),
    ],
)
def test_a_baseline_whose_code_does_not_work_any_more_leaves_its_figures(base: App, why: str, stored: Project) -> None:
    result = stored.run(Host(base=base), stored.code())
    assert outcome_of(result) in (Outcome.INCONCLUSIVE, Outcome.PASS)
    assert why in said_of(result)
    assert "\n" not in said_of(result)


@pytest.mark.parametrize(
    "files, outcome, said",
    [
        (("/usr/lib/app.py",), Outcome.INCONCLUSIVE, "the server's code is not in the Git repository"),
        (("{project}", "/opt/server"), Outcome.INCONCLUSIVE, "code elsewhere may have changed: /opt"),
        (("{project}", "{project}/server"), Outcome.PASS, "the code is the same as"),
    ],
)
def test_code_is_the_same_only_if_all_of_it_lies_in_the_tree(
    files: tuple[str, ...], outcome: Outcome, said: str, stored: Project
) -> None:
    inside = [file.replace("{project}", str(stored.directory)) for file in files]
    result = stored.run(Host(files=tuple(inside)), stored.code(OLD))
    assert outcome_of(result) is outcome
    assert said in said_of(result)


def test_ignored_files_that_are_newer_than_the_baseline_leave_it_to_the_figures(stored: Project) -> None:
    code = stored.code(OLD)
    code.ignored = ("server",)
    result = stored.run(App(), code)
    assert outcome_of(result) is Outcome.INCONCLUSIVE
    assert "files that Git ignores changed after the baseline was stored: server" in said_of(result)


def test_code_of_a_baseline_from_another_machine_is_compared_and_its_figures_are_not(stored: Project) -> None:
    hosts = Host(now=WORSE), Host(now=WORSE)
    of_this, of_other = (Loads(host.clock) for host in hosts)
    assert stored.run(hosts[0], stored.code(), loads=of_this).verdict.world
    file, content = stored.file, json.loads(stored.file.read_text(encoding="utf-8"))
    content["environment"]["cpu"] = "another one"
    other = file.parent.with_name("linux-x86_64-2-cpython3.11-00000000")
    other.mkdir()
    file.rename(other / file.name).write_text(json.dumps(content), encoding="utf-8")
    result = stored.run(hosts[1], stored.code(), loads=of_other)
    assert outcome_of(result) is Outcome.REGRESSED
    assert result.pairs
    assert result.verdict.world == ()
    assert len(of_other.made) == len(of_this.made) - 1, "its code is not loaded alone"


@pytest.mark.parametrize("tree", [OLD, NEW])
def test_a_file_that_no_tree_has_and_that_changed_leaves_it_to_the_figures(project: Project, tree: str) -> None:
    old, same, other = project.code(OLD), project.code(tree), project.code(tree)
    old.beside, same.beside, other.beside = {"engine.py": "1"}, {"engine.py": "1"}, {"engine.py": "2"}
    project.store(code=old)
    assert outcome_of(project.run(App(), same)) is Outcome.PASS
    result = project.run(App(), other)
    assert outcome_of(result) is Outcome.INCONCLUSIVE
    assert "engine.py" in said_of(result)


def test_packages_that_cannot_be_had_are_told(stored: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(stored.directory / "cache"))
    content = json.loads(stored.file.read_text(encoding="utf-8"))
    content["tests"][TEST.nodeid]["packages"]["not-here"] = "1.0 (git 1a2b3c4)"
    stored.file.write_text(json.dumps(content), encoding="utf-8")
    result = stored.run(App(), stored.code(OLD), base_packages="stored")
    assert outcome_of(result) is Outcome.PASS
    assert "not-here" in said_of(result)
    assert "the packages installed here were used" in said_of(result)


# --- What is stored

BETTER, WORSE, BROKEN = (
    App(latency_ns=1_500_000),
    App(latency_ns=2_400_000),
    replace(SETTINGS, limits={"min_rps": 1e12}),
)
FAILING = replace(SETTINGS, limits={"max_error_rate": 0.0})


@pytest.mark.parametrize(
    "now, settings, outcome, stores",
    [
        (BETTER, SETTINGS, Outcome.IMPROVED, {"all", "passed"}),
        (WORSE, SETTINGS, Outcome.REGRESSED, {"all"}),
        (App(), BROKEN, Outcome.PASS, set()),
        (App(good_of=2), FAILING, Outcome.REGRESSED, set()),
    ],
)
def test_a_baseline_is_replaced_by_better_ones_or_where_all_are_asked_for(
    now: App, settings: Settings, outcome: Outcome, stores: set[str], stored: Project
) -> None:
    before = stored.file.read_text(encoding="utf-8")
    for update in ("new", "passed", "all"):
        code = stored.code()
        result = stored.run(now, code, settings, update=update)
        assert outcome_of(result) is outcome
        assert result.baseline_written is (update in stores)
        assert (stored.file.read_text(encoding="utf-8") != before) is (update in stores)
        assert (code.kept, code.forgotten) == (([NEW], [OLD]) if update in stores else ([], []))
        stored.file.write_text(before, encoding="utf-8")


def test_a_baseline_of_other_work_is_replaced_where_new_ones_are_asked_for(stored: Project) -> None:
    more = replace(SETTINGS, connections=4)
    assert stored.run(App(), stored.code(OLD), more, update="new").baseline_written


def test_a_part_that_improved_is_stored(project: Project) -> None:
    mix = Mix(parts=tuple(Part(name=name, work=GET, gate=("rps",), tolerances={"rps": 0.2}) for name in ("a", "b")))
    settings, slow = replace(SETTINGS, gate=()), App(slow_part="b")
    assert project.run(slow, project.code(OLD), settings, work=mix, update="new").baseline_written
    assert project.run(Host(base=slow), project.code(), settings, work=mix, update="passed").baseline_written
    assert {name: outcome_of(part) for name, part in project.parts.items()} == {
        "a": Outcome.PASS,
        "b": Outcome.IMPROVED,
    }
    assert all(part.pairs for part in project.parts.values())


def test_small_losses_do_not_add_up(stored: Project) -> None:
    """Five commits that cost 2 % each, with an update after each one."""
    outcomes = [
        outcome_of(stored.run(App(latency_ns=round(2 * MS * 1.02**number)), stored.code(), update="passed"))
        for number in range(1, 6)
    ]
    assert Outcome.REGRESSED in outcomes[:4]
    assert stored.entry()["tree"] == OLD


def test_a_level_that_stays_unclear_is_stored_when_the_time_is_over_and_says_so(project: Project) -> None:
    """With its code, after three loads; without it, after twelve, because then only figures are compared."""
    for tree, update, least_s, most_s in ((OLD, "new", 10, 19), (OLD, "all", 16, 30), (None, "all", 20, 40)):
        host = Host(now=App(noise=0.5))
        settings = replace(SETTINGS, duration_ns=6_000 * MS)
        result = project.run(host, project.code(tree), settings, update=update)
        assert result.baseline_written
        assert "the stored figures are exact only to" in said_of(result)
        assert project.entry()["precision"]["rps"] > 0.015
        assert least_s < host.clock.now_s - 1000 < most_s, host.clock.now_s


def test_a_first_baseline_from_a_busy_machine_has_its_code_and_better_figures_come_later(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as others:
        for module in ("measure.measurement", "session.alone"):
            others.setattr(f"pytest_fileperf.{module}.busy_of", lambda _: Busy(server=0.5))
        without_code = project.store(code=project.code(None))
        assert "a run on a busy machine cannot become a baseline" in without_code.not_stored
        result = project.store()
        assert result.baseline_written
        assert "the stored figures are rough. Later runs compare with this code" in said_of(result)
        assert not project.store().baseline_written
    assert [project.store().baseline_written for _ in range(2)] == [True, False]


def test_code_that_was_edited_while_it_was_measured_is_not_stored(project: Project) -> None:
    code = project.code(OLD)
    code.edited = ("app.py", "app.log")
    result = project.run(Host(is_known=True), code, update="new")
    assert not result.baseline_written
    assert result.not_stored == "app.py changed during the measurement. Run it again"
    result = project.store(code=code)  # nobody knows what a command loads
    assert result.not_stored == "app.py, app.log changed during the measurement. Run it again"


def test_a_file_that_no_server_loaded_may_change(project: Project) -> None:
    code = project.code(OLD)
    code.edited = ("app.log",)
    result = project.run(Host(is_known=True), code, update="new")
    assert result.baseline_written
    assert [*map(note_text, result.notes)] == ["app.log changed during the measurement"]


def test_a_baseline_is_the_one_that_was_there_before_the_load_and_a_damaged_one_is_told_before(stored: Project) -> None:
    file = stored.file

    class Removing(Loads):
        def make(self, *args: Any, **keywords: Any) -> Run:
            file.unlink(missing_ok=True)
            return super().make(*args, **keywords)

    host, text = Host(), file.read_text(encoding="utf-8")
    result = stored.run(host, stored.code(), loads=Removing(host.clock), update="new")
    assert outcome_of(result) is Outcome.PASS
    assert not result.baseline_written
    assert not file.exists()
    file.write_text(text[:1], encoding="utf-8")
    host = Host()
    with pytest.raises(BaselineError, match="not JSON"):
        stored.run(host, stored.code())
    assert host.booted == []


def test_a_baseline_that_cannot_be_written_keeps_no_other_from_being_stored(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = BaselineStore.write

    def failing(self: BaselineStore, module: str, nodeid: str, *args: Any, **keywords: Any) -> None:
        if nodeid == TEST.nodeid:
            raise BaselineError("the disk is full")
        write(self, module, nodeid, *args, **keywords)

    monkeypatch.setattr(BaselineStore, "write", failing)
    with Session(Options(baselines=project.directory, update="new"), rig_of(Host())[0]) as session:
        for further in ("", "#2", "#3"):
            session.measure(GET, SETTINGS, replace(TEST, nodeid=TEST.nodeid + further))
        session.settle("test_any.py::test_other", passed=True)
        assert not list(project.directory.rglob("*.json"))
        with pytest.raises(BaselineError, match="the disk is full"):
            session.settle(TEST.nodeid, passed=True)
        assert [(one.baseline_written, one.not_stored) for one in session.results] == [
            (False, "its file could not be written"),
            (True, ""),
            (True, ""),
        ]
        session.measure(GET, SETTINGS, replace(TEST, nodeid="test_any.py::test_failed"))
        session.settle(passed=False)  # the session is over
        assert (session.results[3].baseline_written, session.results[3].not_stored) == (False, "the test did not pass")
        assert "test_failed" not in "".join(file.read_text() for file in project.directory.rglob("*.json"))
