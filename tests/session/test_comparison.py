"""Real servers of two versions compared. What differs is so gross that no noise hides it, and nobody asks for PASS."""

from __future__ import annotations

import inspect
import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from serve.processes import launch

from pytest_fileperf.errors import (
    AppLoadError,
    AppMissingError,
    LoadError,
    NotMeasuredError,
    PerformanceError,
    PlanError,
    RegressionError,
    RequestsFailedError,
    ServerDiedError,
    ServerStartError,
)
from pytest_fileperf.judge.groups import session_record
from pytest_fileperf.judge.result import Result, Standing, TestId
from pytest_fileperf.judge.verdict import Outcome
from pytest_fileperf.measure.recording import Phase
from pytest_fileperf.plan.alternation import Alternation
from pytest_fileperf.plan.operation import Operation, Work
from pytest_fileperf.report.json_file import results_json
from pytest_fileperf.report.progress import ProgressLine
from pytest_fileperf.report.reasons import sentence
from pytest_fileperf.report.terminal import terminal_report
from pytest_fileperf.serve.app import AppSpec
from pytest_fileperf.serve.cores import boot_cores, keep_to, split_cores
from pytest_fileperf.serve.launch import Launch, prepare
from pytest_fileperf.serve.running import RunningServer
from pytest_fileperf.serve.spec import Command, InProcess, Url, Uvicorn
from pytest_fileperf.session.loading import Loader, Run
from pytest_fileperf.session.planning import alternation_plan
from pytest_fileperf.session.session import Session, SessionOptions
from pytest_fileperf.session.sides import Base
from pytest_fileperf.settings.resolve import Settings
from pytest_fileperf.versions.tree import CodeTree
from pytest_fileperf.watch.machine import cores_of

pytestmark = pytest.mark.timeout(300)

MS = 1_000_000
GET = Operation(method="GET", url="/")
TEST = TestId(nodeid="test_any.py::test_any", module="test_any.py", name="test_any")
QUICK = Settings(
    app="versus_app:app",
    connections=2,
    max_duration_ns=8_000 * MS,
    timeout_ns=5_000 * MS,
    duration_ns=500 * MS,
    rounds=2,
    warmup_ns=0,
)
"""The last three are for what cannot be compared."""

APP = """
import asyncio, os

async def answer(scope, receive, send, paths=("/",), sleep_s=0.0, body=b"x" * 1000):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    while (await receive()).get("more_body"):
        pass
    await asyncio.sleep(sleep_s)
    there = scope["path"] in paths
    status, body = (200, body) if there else (404, b"no such path")
    await send({"type": "http.response.start", "status": status,
                "headers": [(b"content-length", str(len(body)).encode())]})
    await send({"type": "http.response.body", "body": body})
"""


def source(code: str) -> str:
    """Returns the module of an app; the code of its `app` uses `answer`."""
    return APP + inspect.cleandoc(code) + "\n"


PLAIN = source("app = answer")
SLOW = source("async def app(scope, receive, send): await answer(scope, receive, send, sleep_s=0.005)")
MORE = source("async def app(scope, receive, send): await answer(scope, receive, send, paths=('/', '/more'))")
OTHER_NAME = source("application = answer")
CRASHING = source("import a_module_that_is_not_there")
DYING = source(
    """
    count = 0
    async def app(scope, receive, send):
        global count
        count += scope["type"] == "http"
        if count > 30:
            os._exit(3)
        await answer(scope, receive, send)
    """
)
FAILING = source(
    """
    async def app(scope, receive, send):
        await answer(scope, receive, send, paths=("/",) if scope["type"] == "lifespan" else ())
    """
)

HALF_FAILING = source(
    """
    count = 0
    async def app(scope, receive, send):
        global count
        count += 1
        paths = ("/",) if scope["type"] == "lifespan" or count % 2 else ()
        await answer(scope, receive, send, paths=paths)
    """
)


SLOW_AT_FIRST = source(
    """
    import pathlib
    settled = pathlib.Path(__file__).with_name("settled")
    sleep_s = 0.0 if settled.exists() else 0.1
    async def app(scope, receive, send):
        await answer(scope, receive, send, sleep_s=sleep_s)
        settled.touch()
    """
)
ALLOWED = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
CHOOSING = source(
    f"""
    os.sched_setaffinity(0, {ALLOWED})
    app = answer
    """
)
FULL_ONCE_ASKED = source(
    """
    paths = ["/put"]
    async def app(scope, receive, send):
        if scope["type"] == "http" and scope["path"] == "/put":
            paths.append("/")
        await answer(scope, receive, send, paths=paths)
    """
)


class Silent:
    def __init__(self) -> None:
        self.lines: list[ProgressLine] = []
        self.is_done = False

    def update(self, line: ProgressLine) -> None:
        self.lines.append(line)

    def done(self) -> None:
        self.is_done = True


Trees = Callable[..., CodeTree]


@pytest.fixture(autouse=True)
def _short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked here needs few cycles."""
    for name, value in (("_FIRST_PAIR_NS", 300 * MS), ("_PAIR_NS", 300 * MS), ("_PAIR_WARMUP_NS", 50 * MS)):
        monkeypatch.setattr(f"pytest_fileperf.session.planning.{name}", value)


@pytest.fixture
def trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trees:
    """Makes the tree of the test run and the one to compare with."""

    def make(base: str | None = PLAIN, now: str = PLAIN) -> CodeTree:
        for tree, code in (("here", now), ("base", base)):
            (tmp_path / tree).mkdir()
            (tmp_path / tree / "other.py").touch()
            if code is not None:
                (tmp_path / tree / "versus_app.py").write_text(code, encoding="utf-8")
        monkeypatch.chdir(tmp_path / "here")
        monkeypatch.syspath_prepend(tmp_path / "here")
        return CodeTree(title="main (1a2b3c4)", here=tmp_path / "here", there=tmp_path / "base")

    return make


@contextmanager
def session(base: Base, tmp_path: Path, *, strict: bool = False, ci: bool = False, gates: int = 2) -> Iterator[Session]:
    """Gives a session; asserts that it leaves no process."""
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    options = SessionOptions(baselines=tmp_path / "baselines", against=base, strict=strict, ci=ci, gates=gates)
    try:
        with Session(options, progress=Silent()) as made:
            yield made
    finally:
        assert {child.pid for child in psutil.Process().children(recursive=True)} <= before
        assert not (tmp_path / "baselines").exists()


def compared(
    code_tree: CodeTree, tmp_path: Path, work: Work = GET, settings: Settings = QUICK, *, strict: bool = False
) -> tuple[Result, PerformanceError | None]:
    """Compares once; returns the result and what failed the test, if anything."""
    failed = None
    with session(Base(title=code_tree.title, code_tree=code_tree), tmp_path, strict=strict) as made:
        try:
            made.measure(work, settings, TEST)
        except PerformanceError as error:
            failed = error
        return made.results[0], failed


def outcomes(result: Result) -> dict[str, Outcome]:
    return {comparison.metric: comparison.outcome for comparison in result.verdict.comparisons}


# --- what is measured


def test_the_same_code_does_not_regress_and_all_of_it_is_told(trees: Trees, tmp_path: Path) -> None:
    result, _ = compared(trees(), tmp_path, settings=replace(QUICK, gate=("rps",), tolerances={"rps": 4.0}))

    assert Outcome.REGRESSED not in outcomes(result).values()
    (comparison,) = result.verdict.comparisons
    assert comparison.pairs is not None
    assert comparison.pairs >= 3
    assert comparison.change is not None
    assert result.verdict.against == "main (1a2b3c4)"
    assert result.load.startswith("2 connections in turn, 3 pairs of boots, ")
    assert result.base is not None
    for recording in (result.recording, result.base):
        assert len(recording.boots) == comparison.pairs
        assert [boot.index for boot in recording.boots] == [0, 1, 2]
        assert all(boot.worker_pids and boot.peak_rss_bytes for boot in recording.boots)
        assert all(round_.requests and not round_.failed for round_ in recording.measured())
        assert {round_.phase for round_ in recording.rounds} >= {Phase.ROUND, Phase.HANDOVER}
    assert len(result.recording.measured()) == len(result.base.measured())
    text = terminal_report(session_record([result]), width=100, colour=False, verbosity=1)
    assert "against main (1a2b3c4)" in text
    assert '"title": "main (1a2b3c4)"' in results_json(session_record([result]), environment={}, created="now")


def test_two_boots_of_a_pair_are_two_servers(trees: Trees, tmp_path: Path) -> None:
    result, _ = compared(trees(), tmp_path, settings=replace(QUICK, gate=("rps",)))
    assert result.base is not None
    pids = [pid for recording in (result.recording, result.base) for boot in recording.boots for pid in boot.pids]
    assert len(set(pids)) == len(pids)


SPLIT = split_cores(1)
two_cores = pytest.mark.skipif(
    SPLIT is None or boot_cores(*SPLIT) != SPLIT, reason="needs two cores beside the same memory"
)
Where = tuple[list[frozenset[int]], list[frozenset[int]]]


@pytest.fixture
def where(monkeypatch: pytest.MonkeyPatch) -> Where:
    """Where servers are booted, and where they are loaded, base and now by turns."""
    booted: list[frozenset[int]] = []
    loaded: list[frozenset[int]] = []
    alternate = Loader.alternate

    def noted(*args: Any, cores: frozenset[int], **kwargs: Any) -> Launch:
        booted.append(cores)
        return prepare(*args, cores=cores, **kwargs)

    def looked(self: Loader, *args: Any) -> tuple[Run, Run]:
        loaded.extend(cores_of(running.pids) for running in args[3])
        return alternate(self, *args)

    monkeypatch.setattr("pytest_fileperf.session.sides.prepare", noted)
    monkeypatch.setattr(Loader, "alternate", looked)
    return booted, loaded


@two_cores
@pytest.mark.parametrize("turned", [False, True])
def test_sides_boot_on_different_cores_by_chance_and_serve_on_the_same(
    trees: Trees, tmp_path: Path, where: Where, turned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert SPLIT is not None
    chance = random.Random(0)
    monkeypatch.setattr(chance, "sample", lambda values, count: list(values)[::-1] if turned else list(values))
    monkeypatch.setattr("pytest_fileperf.session.sides._CHANCE", chance)
    compared(trees(), tmp_path, settings=replace(QUICK, gate=("rps",)))

    booted, loaded = where
    assert len(loaded) >= 6
    assert booted == list(SPLIT[::-1] if turned else SPLIT) * (len(loaded) // 2)
    assert set(loaded) == {SPLIT[0]}


@two_cores
def test_sides_that_cannot_be_moved_boot_on_the_same_core(
    trees: Trees, tmp_path: Path, where: Where, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert SPLIT is not None
    monkeypatch.setattr("pytest_fileperf.session.sides.keep_to", lambda cores, server: False)
    result, _ = compared(trees(), tmp_path, settings=replace(QUICK, gate=("rps",)))

    booted, loaded = where
    assert result.verdict.comparisons[0].pairs == len(loaded) // 2
    assert set(booted[:2]) == set(SPLIT)
    assert booted[2:] == loaded == [SPLIT[0]] * len(loaded)


@two_cores
def test_apps_that_choose_their_cores_have_them_on_both_sides(trees: Trees, tmp_path: Path, where: Where) -> None:
    assert SPLIT is not None
    compared(trees(CHOOSING, CHOOSING), tmp_path, settings=replace(QUICK, gate=("rps",)))

    booted, loaded = where
    assert booted[2:] == [SPLIT[0]] * len(loaded)
    assert set(loaded) == {frozenset(ALLOWED)}


@two_cores
def test_a_side_that_dies_before_it_is_moved_is_named(
    trees: Trees, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its processes are looked for once it is gone."""
    code_tree = trees()
    killed: list[int] = []

    def killing(cores: frozenset[int], server: RunningServer) -> bool:
        if not killed:
            killed.append(server.pids[0])
            os.kill(killed[0], signal.SIGKILL)
            psutil.wait_procs([psutil.Process(killed[0])], timeout=5)
        return keep_to(cores, server)

    monkeypatch.setattr("pytest_fileperf.session.sides.keep_to", killing)
    with pytest.raises(ServerDiedError, match=r"^main \(1a2b3c4\): uvicorn ×1 .* ended with"):
        compared(code_tree, tmp_path, settings=replace(QUICK, gate=("rps",)))


@two_cores
def test_programs_of_their_own_boot_where_they_serve(trees: Trees, tmp_path: Path, where: Where) -> None:
    assert SPLIT is not None
    program = Command("{python} -m uvicorn versus_app:app --host 127.0.0.1 --port {port}")
    compared(trees(), tmp_path, settings=replace(QUICK, server=program, gate=("rps",)))

    booted, loaded = where
    assert booted == loaded == [SPLIT[0]] * len(loaded)
    assert len(loaded) >= 6


def test_both_boots_of_a_pair_have_one_number_and_each_session_has_others(
    trees: Trees, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code_tree, numbers = trees(), []

    def noted(*args: Any, boot: int, **kwargs: Any) -> Launch:
        numbers.append(boot)
        return prepare(*args, boot=boot, **kwargs)

    monkeypatch.setattr("pytest_fileperf.session.sides.prepare", noted)
    firsts = []
    for _ in range(2):
        random.seed(0)  # as plugins and fixtures do before each test
        compared(code_tree, tmp_path, settings=replace(QUICK, gate=("rps",)))
        firsts.append(numbers[0])
        assert numbers == [firsts[-1] + place // 2 for place in range(len(numbers))]
        numbers.clear()
    assert firsts[0] != firsts[1]


def test_turns_are_not_for_ever_as_long_as_a_bad_first_moment_asks(
    trees: Trees, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first boot takes 100 ms for a request, all others hardly any time."""
    turns_ns: list[int] = []

    def noted(*args: Any, **kwargs: Any) -> Alternation:
        plan = alternation_plan(*args, **kwargs)
        turns_ns.append(plan.turn_ns)
        return plan

    monkeypatch.setattr("pytest_fileperf.session.comparison.alternation_plan", noted)
    settings = replace(QUICK, gate=("rps",), max_duration_ns=30_000 * MS)
    compared(trees(SLOW_AT_FIRST, SLOW_AT_FIRST), tmp_path, settings=settings)
    assert len(turns_ns) >= 3
    assert min(turns_ns[:2]) > 900 * MS
    assert turns_ns[2] < 300 * MS


def test_slower_code_regresses_and_says_against_what(trees: Trees, tmp_path: Path) -> None:
    result, failed = compared(trees(PLAIN, SLOW), tmp_path)

    assert outcomes(result)["rps"] is Outcome.REGRESSED
    assert result.standing is Standing.REGRESSED
    assert isinstance(failed, RegressionError)
    assert "worse than main (1a2b3c4)" in str(failed)
    assert "--fileperf-update" not in str(failed)
    assert not (tmp_path / "baselines").exists()


def test_faster_code_does_not_regress(trees: Trees, tmp_path: Path) -> None:
    result, failed = compared(trees(SLOW, PLAIN), tmp_path)
    assert failed is None
    assert Outcome.REGRESSED not in outcomes(result).values()


def test_what_is_measured_is_the_code_here(trees: Trees, tmp_path: Path) -> None:
    code_tree = trees(
        PLAIN, source("async def app(scope, receive, send): await answer(scope, receive, send, body=b'y' * 5000)")
    )
    result, _ = compared(code_tree, tmp_path, settings=replace(QUICK, gate=("rps",)))
    measured = result.measurement
    assert measured.bytes_received == 5000 * measured.requests > 0


def test_it_ends_when_the_time_is_over_with_a_reason(trees: Trees, tmp_path: Path) -> None:
    settings = replace(QUICK, gate=("p999",), max_duration_ns=1_000 * MS)
    result, failed = compared(trees(), tmp_path, settings=settings, strict=True)
    assert outcomes(result) == {"p999": Outcome.INCONCLUSIVE}
    reason = sentence(result.verdict.comparisons[0].reason)
    # Of some thousand requests a stall may be all of p99.9: then it says that, and not that there are too few.
    assert "give it a longer max_duration" in reason or reason.endswith("gate a percentile beside it")
    assert isinstance(failed, NotMeasuredError)


def test_limits_are_judged_beside_it(trees: Trees, tmp_path: Path) -> None:
    settings = replace(QUICK, gate=("rps",), limits={"min_rps": 1e9})
    result, failed = compared(trees(), tmp_path, settings=settings)
    assert [check.holds for check in result.verdict.limits] == [False]
    assert failed is not None
    assert "min_rps" in str(failed)


# --- shapes of load


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"rate": 40.0, "connections": 50}, "40.0/s, at most 50 connections, 1.00 s in turn"),
        ({"requests": 60}, "2 connections, 60 requests in turn"),
        ({"burst": 20, "connections": 5}, "20 requests at once, 5 connections in turn"),
    ],
)
def test_loads_that_are_whole_are_made_in_turn(
    changes: dict[str, object], said: str, trees: Trees, tmp_path: Path
) -> None:
    settings = replace(QUICK, gate=("rps",), tolerances={"rps": 4.0}, **changes)  # type: ignore[arg-type]
    result, _ = compared(trees(), tmp_path, settings=settings)

    assert result.load.startswith(said)
    (comparison,) = result.verdict.comparisons
    assert comparison.change is not None
    assert comparison.outcome is not Outcome.REGRESSED
    assert result.measurement.errors == 0
    assert result.base is not None
    counts = [len([round_ for round_ in each.rounds if round_.boot == 0]) for each in (result.recording, result.base)]
    assert counts[0] == counts[1] > 0
    indexes = [round_.index for round_ in result.recording.rounds if round_.boot == 0]
    assert indexes == list(range(counts[0]))


# --- what the base has not


def test_an_endpoint_that_is_missing_on_the_base_is_new(trees: Trees, tmp_path: Path) -> None:
    code_tree = trees(PLAIN, MORE)
    result, failed = compared(code_tree, tmp_path, Operation(method="GET", url="/more"))

    assert outcomes(result) == {"rps": Outcome.NEW, "p99": Outcome.NEW}
    assert {sentence(item.reason) for item in result.verdict.comparisons} == {
        "main (1a2b3c4) has no good answer to GET /more: status 404"
    }
    assert all(item.now is not None and item.base is None for item in result.verdict.comparisons)
    assert result.measurement.requests > 0
    assert failed is None


@pytest.mark.parametrize("base", [None, OTHER_NAME], ids=["no module", "another name"])
def test_an_app_that_is_missing_on_the_base_is_new(base: str | None, trees: Trees, tmp_path: Path) -> None:
    result, failed = compared(trees(base), tmp_path)
    assert set(outcomes(result).values()) == {Outcome.NEW}
    assert sentence(result.verdict.comparisons[0].reason).startswith("main (1a2b3c4) has no such app: ")
    assert failed is None


@pytest.mark.parametrize("strict, ci", [(True, False), (False, True)])
def test_new_fails_where_it_is_asked_to(strict: bool, ci: bool, trees: Trees, tmp_path: Path) -> None:
    code_tree = trees(None)
    base = Base(title=code_tree.title, code_tree=code_tree)
    with (
        session(base, tmp_path, strict=strict, ci=ci) as made,
        pytest.raises(NotMeasuredError, match="has no such app"),
    ):
        made.measure(GET, QUICK, TEST)


def test_an_endpoint_that_is_new_does_not_fail_in_ci(trees: Trees, tmp_path: Path) -> None:
    code_tree = trees(PLAIN, MORE)
    with session(Base(title=code_tree.title, code_tree=code_tree), tmp_path, ci=True) as made:
        made.measure(Operation(method="GET", url="/more"), QUICK, TEST)
    assert set(outcomes(made.results[0]).values()) == {Outcome.NEW}


def test_what_a_test_has_put_on_its_own_server_is_missed_and_that_is_said(trees: Trees, tmp_path: Path) -> None:
    code_tree = trees(PLAIN, FULL_ONCE_ASKED)
    with session(Base(title=code_tree.title, code_tree=code_tree), tmp_path) as made:
        httpx.get(f"{made.server(QUICK).url}/put")
        with pytest.raises(LoadError, match="what the test has put there before is missing"):
            made.measure(GET, QUICK, TEST)


def test_what_has_no_gate_is_measured_alone(trees: Trees, tmp_path: Path) -> None:
    result, failed = compared(trees(PLAIN, SLOW), tmp_path, settings=replace(QUICK, gate=()))
    assert (result.base, outcomes(result), failed) == (None, {}, None)
    assert result.measurement.requests > 0


def test_an_app_that_is_missing_here_is_an_error(trees: Trees, tmp_path: Path) -> None:
    with pytest.raises(AppMissingError):
        compared(trees(PLAIN, OTHER_NAME), tmp_path)


# --- what breaks


def test_a_base_that_does_not_import_is_an_error_that_names_it(trees: Trees, tmp_path: Path) -> None:
    with pytest.raises(AppLoadError, match="a_module_that_is_not_there") as raised:
        compared(trees(CRASHING), tmp_path)
    assert not isinstance(raised.value, AppMissingError)
    assert "main (1a2b3c4)" in str(raised.value)


def test_code_here_that_does_not_import_is_not_laid_on_the_base(trees: Trees, tmp_path: Path) -> None:
    with pytest.raises(AppLoadError, match="a_module_that_is_not_there") as raised:
        compared(trees(PLAIN, CRASHING), tmp_path)
    assert "main (1a2b3c4)" not in str(raised.value)


@pytest.mark.parametrize("side", ["base", "now"])
def test_a_server_that_dies_under_load_says_whose_it_was(side: str, trees: Trees, tmp_path: Path) -> None:
    with pytest.raises(ServerDiedError) as raised:
        compared(trees(**{side: DYING}), tmp_path)
    assert ("main (1a2b3c4)" in str(raised.value)) is (side == "base")


def test_code_here_that_only_fails_has_failed_at_once(trees: Trees, tmp_path: Path) -> None:
    """Not after all of the time there is."""
    code_tree, settings = trees(PLAIN, FAILING), replace(QUICK, max_duration_ns=3_600_000 * MS)
    with session(Base(title=code_tree.title, code_tree=code_tree), tmp_path) as made:
        with pytest.raises(RequestsFailedError, match="status 404"):
            made.measure(GET, settings, TEST)
        (result,) = made.results
    assert result.standing is Standing.FAILED
    assert result.base is None
    assert "the code here has no good answer to GET /" in sentence(result.verdict.comparisons[0].reason)


@pytest.mark.parametrize("gate, now, tolerance", [("rps", PLAIN, 4.0), ("p50", SLOW, 0.04)], ids=["rps", "p50"])
def test_a_base_that_fails_in_part_is_no_measure(
    gate: str, now: str, tolerance: float, trees: Trees, tmp_path: Path
) -> None:
    settings = replace(QUICK, gate=(gate,), tolerances={gate: tolerance})
    result, _ = compared(trees(HALF_FAILING, now), tmp_path, settings=settings)

    (comparison,) = result.verdict.comparisons
    assert comparison.outcome is Outcome.INCONCLUSIVE
    assert "requests failed on main (1a2b3c4): its good ones alone are no measure" in sentence(comparison.reason)


def test_after_an_error_the_next_test_is_compared(trees: Trees, tmp_path: Path) -> None:
    code_tree = trees(MORE, PLAIN)
    with session(Base(title=code_tree.title, code_tree=code_tree), tmp_path) as made:
        with pytest.raises(RequestsFailedError):
            made.measure(Operation(method="GET", url="/more"), QUICK, TEST)
        with suppress(PerformanceError):
            made.measure(GET, replace(QUICK, gate=("rps",)), TEST)
        assert len(made.results[-1].verdict.comparisons) == 1


# --- what cannot be compared


@pytest.mark.parametrize(
    "server, reason",
    [
        (InProcess(), "one process cannot hold two"),
        (Uvicorn(port=18_123), "port=18123 cannot be had by two versions at once"),
        (Url("http://127.0.0.1:9"), "give its address with --fileperf-against=URL"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    server: InProcess | Uvicorn | Url, reason: str, trees: Trees, tmp_path: Path
) -> None:
    with pytest.raises(PlanError, match=reason):
        compared(trees(), tmp_path, settings=replace(QUICK, server=server))


# --- a server that runs already


def test_the_base_may_be_a_server_that_runs(trees: Trees, tmp_path: Path) -> None:
    code_tree = trees(PLAIN, SLOW)
    with launch(Uvicorn(), AppSpec("versus_app:app"), code_tree=code_tree) as running:
        with session(Base(title=running.url, url=Url(running.url)), tmp_path) as made:
            with pytest.raises(RegressionError, match=f"worse than {running.url}"):
                made.measure(GET, QUICK, TEST)
            assert made.results[0].base is not None
        assert all(process.is_running() for process in running.processes)


def test_a_base_that_does_not_run_is_an_error(trees: Trees, tmp_path: Path) -> None:
    trees()
    base = Base(title="http://127.0.0.1:9", url=Url("http://127.0.0.1:9"))
    with session(base, tmp_path) as made, pytest.raises(ServerStartError, match="nothing answers at"):
        made.measure(GET, QUICK, TEST)


# --- the code with itself


def test_the_code_with_itself_shows_what_could_be_seen(trees: Trees, tmp_path: Path) -> None:
    trees()
    options = SessionOptions(baselines=tmp_path / "baselines", aa=True, gates=2)
    with Session(options, progress=Silent()) as made:
        made.measure(GET, QUICK, TEST)
        (result,) = made.results

    assert (result.verdict.comparisons, result.verdict.against) == ((), "itself")
    assert [floor.metric for floor in result.noise] == ["rps", "p99"]
    assert all(floor.seconds >= 5 for floor in result.noise)
    text = terminal_report(session_record([result]), width=100, colour=False)
    assert "against itself" in text
    assert "rps: " in text
