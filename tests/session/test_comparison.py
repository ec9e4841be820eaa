"""Comparisons from beginning to end: a real session and real judges, on fake servers, loads, clock and chance."""

from __future__ import annotations

import random
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from session.fakes import App, Booted, Host, Loads, Server, Sink, rig_of

from pytest_fileperf.errors import (
    AppLoadError,
    AppMissingError,
    BaseFailedError,
    NotMeasuredError,
    PerformanceError,
    PlanError,
    RegressionError,
    RequestsFailedError,
    ServerDiedError,
    ServerStartError,
)
from pytest_fileperf.judge.gate import ErrorBudget
from pytest_fileperf.judge.groups import session_record
from pytest_fileperf.judge.record import Result, Standing, TestId
from pytest_fileperf.judge.verdict import MetricComparison, Outcome, ReasonKind
from pytest_fileperf.measure.histogram import EMPTY
from pytest_fileperf.measure.recording import Failure, Phase, Round
from pytest_fileperf.plan.load import Side
from pytest_fileperf.plan.request import Operation
from pytest_fileperf.plan.work import Work
from pytest_fileperf.report.record_file import results_json
from pytest_fileperf.report.terminal import terminal_report
from pytest_fileperf.report.wording import sentence
from pytest_fileperf.serve.spec import InProcess, Url, Uvicorn
from pytest_fileperf.session.comparison import Answer, answer_of, described, kinds_of
from pytest_fileperf.session.rig import Rig
from pytest_fileperf.session.session import Session
from pytest_fileperf.session.sides import Base
from pytest_fileperf.session.stored import measure_other_version
from pytest_fileperf.settings.plans import Plan, app_of
from pytest_fileperf.settings.settings import Options, Settings
from pytest_fileperf.versions.tree import CodeTree

MS = 1_000_000
GET = Operation(method="GET", url="/")
GET_MORE = Operation(method="GET", url="/more")
TEST = TestId(nodeid="test_any.py::test_any", module="test_any.py", name="test_any")
TITLE = "main (1a2b3c4)"
PLAIN = App()
SLOW = App(latency_ns=7 * MS)
MORE = App(paths=("/", "/more"))
NO_PATHS = App(paths=())
SETTINGS = Settings(
    app="compared_app:app", connections=2, max_duration_ns=20_000 * MS, duration_ns=500 * MS, rounds=2, warmup_ns=0
)
"""The last three are for what cannot be compared."""
RPS = replace(SETTINGS, gate=("rps",))


@dataclass(frozen=True)
class Compared:
    """A comparison that is over."""

    result: Result
    failed: PerformanceError | None
    """What failed the test."""
    host: Host
    loads: Loads
    sink: Sink

    @property
    def outcomes(self) -> dict[str, Outcome]:
        return {comparison.metric: comparison.outcome for comparison in self.result.verdict.comparisons}

    @property
    def only(self) -> MetricComparison:
        (comparison,) = self.result.verdict.comparisons
        return comparison


@dataclass
class Comparing:
    """A session that compares two versions of an app."""

    options: Options
    host: Host
    seed: int = 1
    base: Base | None = None

    def __post_init__(self) -> None:
        rig, self.loads, self.sink = rig_of(self.host, seed=self.seed)
        self.session = Session(self.options, rig, against=self.base, gates=2)

    def measure(self, settings: Settings = SETTINGS, work: Work = GET) -> Compared:
        failed = None
        try:
            self.session.measure(work, settings, TEST)
        except PerformanceError as error:
            failed = error
        return Compared(self.session.results[-1], failed, self.host, self.loads, self.sink)


class Compare:
    """Makes sessions that compare the code here with a tree at another commit."""

    def __init__(self, tmp_path: Path) -> None:
        for tree in ("here", "base"):
            (tmp_path / tree).mkdir()
        code_tree = CodeTree(title=TITLE, here=tmp_path / "here", there=tmp_path / "base")
        self.base = Base(title=TITLE, code_tree=code_tree)
        self.baselines = tmp_path / "baselines"

    def session(
        self, base: App = PLAIN, now: App = PLAIN, *, strict: bool = False, ci: bool = False, seed: int = 1
    ) -> Comparing:
        options = Options(baselines=self.baselines, strict=strict, ci=ci)
        return Comparing(options, Host(base=base, now=now), seed, self.base)

    def __call__(
        self,
        base: App = PLAIN,
        now: App = PLAIN,
        settings: Settings = SETTINGS,
        work: Operation = GET,
        *,
        strict: bool = False,
        ci: bool = False,
    ) -> Compared:
        return self.session(base, now, strict=strict, ci=ci).measure(settings, work)


@pytest.fixture
def compare(tmp_path: Path) -> Compare:
    return Compare(tmp_path)


# --- what is measured


def test_equal_code_passes_and_all_of_it_is_told(compare: Compare) -> None:
    compared = compare(settings=replace(RPS, tolerances={"rps": 4.0}))
    result, comparison = compared.result, compared.only

    assert compared.failed is None
    assert (comparison.outcome, comparison.pairs) == (Outcome.PASS, 4)
    assert comparison.change == pytest.approx(0, abs=0.05)
    assert result.verdict.against == TITLE
    assert result.load.startswith("2 connections in turn, 4 pairs of boots, ")
    assert result.base is not None
    assert len(result.pairs) == 4
    for recording in (result.recording, result.base):
        assert [boot.index for boot in recording.boots] == [0, 1, 2, 3]
        assert all(boot.worker_pids and boot.peak_rss_bytes for boot in recording.boots)
        assert all(round_.requests and not round_.failed for round_ in recording.measured())
        assert {round_.phase for round_ in recording.rounds} == {Phase.ROUND, Phase.HANDOVER}
    assert len(result.recording.measured()) == len(result.base.measured())
    text = terminal_report(session_record([result]), width=100, colour=False, verbosity=1)
    assert f"against {TITLE}" in text
    assert f'"title": "{TITLE}"' in results_json(session_record([result]))
    assert not compare.baselines.exists()


def test_each_boot_is_loaded_in_one_pair_and_ends_with_it(compare: Compare) -> None:
    compared = compare(settings=RPS)
    assert compared.result.base is not None
    recordings = (compared.result.recording, compared.result.base)
    loaded = [pid for recording in recordings for boot in recording.boots for pid in boot.pids]
    assert sorted(loaded) == [server.number for server in compared.host.servers]
    assert all(server.is_over for server in compared.host.servers)


def test_progress_is_told_from_the_first_load_to_the_last(compare: Compare) -> None:
    compared = compare(settings=RPS)
    lines = compared.sink.lines
    assert {(line.title, line.boots, line.total_s) for line in lines} == {("test_any", 1, 20.0)}
    assert sorted({line.boot for line in lines}) == [1, 2, 3, 4, 5]  # the load that shows limits is the last
    assert [line.elapsed_s for line in lines] == sorted(line.elapsed_s for line in lines)
    assert lines[-1].requests > lines[0].requests
    assert compared.sink.is_done


def test_turns_are_not_for_ever_as_long_as_a_bad_first_moment_asks(compare: Compare) -> None:
    """The first boot takes 100 ms for a request, all others hardly any time."""
    hesitant = App(latency_of_first_boot_ns=100 * MS)
    turns_ns = [plan.turns_ns[0] for plan in compare(hesitant, hesitant, RPS).loads.turns]
    assert min(turns_ns[:2]) > 700 * MS
    assert turns_ns[2] < 300 * MS


def test_chance_says_whose_turn_is_first(compare: Compare) -> None:
    firsts = [compare.session(seed=seed).measure(RPS).loads.turns[0].firsts for seed in (1, 1, 2)]
    assert firsts[0] == firsts[1] != firsts[2]
    assert set(firsts[0]) == set(Side)


def test_sessions_have_other_numbers_of_boots_whatever_tests_seed(compare: Compare) -> None:
    numbers = [compare.session(seed=seed).measure(RPS).host.booted[0].boot for seed in (1, 2)]
    assert numbers[0] != numbers[1]
    chances = []
    for _ in range(2):
        random.seed(0)  # as plugins and fixtures do before each test
        with closing(Rig()) as rig:
            chances.append(rig.chance.random())
    assert chances[0] != chances[1]


# --- what is judged


def test_slower_code_regresses_and_says_against_what(compare: Compare) -> None:
    compared = compare(PLAIN, SLOW)

    assert compared.outcomes["rps"] is Outcome.REGRESSED
    assert compared.result.standing is Standing.REGRESSED
    assert isinstance(compared.failed, RegressionError)
    assert f"worse than {TITLE}" in str(compared.failed)
    assert "--fileperf-update" not in str(compared.failed)
    assert compared.result.explanation is not None
    assert not compare.baselines.exists()


@pytest.mark.parametrize("busy, whose", [(Side.BASE, "the base"), (Side.NOW, "the code here")])
def test_a_regression_says_which_side_worked_in_the_others_turns(busy: Side, whose: str, compare: Compare) -> None:
    base, now = (replace(app, background=0.3 * (side is busy)) for side, app in zip(Side, (PLAIN, SLOW), strict=True))
    failed = compare(base, now, RPS).failed
    assert isinstance(failed, RegressionError)
    assert f"{whose} used 30 % of a core while the other side had its turn" in str(failed)


def test_a_generator_at_its_limit_shows_no_equal_code(compare: Compare) -> None:
    busy = App(client_cpu_ns=MS)
    compared = compare(busy, busy, replace(RPS, tolerances={"rps": 4.0}))
    assert compared.result.measurement.saturated
    assert compared.only.outcome is Outcome.INCONCLUSIVE
    assert compared.only.reason is not None
    assert compared.only.reason.kind is ReasonKind.SATURATED


def test_faster_code_does_not_regress(compare: Compare) -> None:
    compared = compare(SLOW, PLAIN)
    assert compared.failed is None
    assert compared.outcomes["rps"] is Outcome.IMPROVED
    assert compared.result.explanation is None


def test_what_is_measured_is_the_code_here(compare: Compare) -> None:
    measured = compare(PLAIN, App(body_bytes=5000), RPS).result.measurement
    assert measured.bytes_received == 5000 * measured.requests > 0


def test_it_ends_when_the_time_is_over_with_a_reason(compare: Compare) -> None:
    compared = compare(settings=replace(SETTINGS, gate=("p999",), max_duration_ns=6_000 * MS), strict=True)
    assert compared.outcomes == {"p999": Outcome.INCONCLUSIVE}
    assert "give it a longer max_duration" in sentence(compared.only.reason)
    assert isinstance(compared.failed, NotMeasuredError)
    assert compared.only.pairs == 3


def test_limits_are_judged_beside_it(compare: Compare) -> None:
    compared = compare(settings=replace(RPS, limits={"min_rps": 1e9}))
    assert [check.holds for check in compared.result.verdict.limits] == [False]
    assert compared.failed is not None
    assert "min_rps" in str(compared.failed)


def test_a_regression_leaves_its_part_of_the_error_to_the_next_test(compare: Compare) -> None:
    budget = ErrorBudget(2)
    level = budget.level(1)
    plan, (rig, _, _) = Plan(work=GET, settings=RPS, app=app_of(RPS), test=TEST, alpha=level), rig_of(Host(now=SLOW))
    measured = measure_other_version(plan, compare.base, budget, rig)
    (comparison,) = measured.results[0].verdict.comparisons
    assert comparison.outcome is Outcome.REGRESSED
    assert budget.level(1) == pytest.approx(2 * level)


# --- shapes of load


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"rate": 40.0, "connections": 50}, "40.0/s, at most 50 connections, 1.00 s in turn"),
        ({"requests": 60}, "2 connections, 60 requests in turn"),
        ({"burst": 20, "connections": 5}, "20 requests at once, 5 connections in turn"),
    ],
)
def test_loads_that_are_whole_are_made_in_turn(changes: dict[str, object], said: str, compare: Compare) -> None:
    settings = replace(RPS, tolerances={"rps": 4.0}, **changes)  # type: ignore[arg-type]
    compared = compare(settings=settings)
    result = compared.result

    assert result.load.startswith(said)
    assert compared.only.change is not None
    assert compared.only.outcome is not Outcome.REGRESSED
    assert result.measurement.errors == 0
    assert compared.loads.turns == []
    assert result.base is not None
    counts = [len([round_ for round_ in each.rounds if round_.boot == 0]) for each in (result.recording, result.base)]
    assert counts[0] == counts[1] > 0
    assert [round_.index for round_ in result.recording.rounds if round_.boot == 0] == list(range(counts[0]))


# --- what one side has not


def test_an_endpoint_that_is_missing_on_the_base_is_new(compare: Compare) -> None:
    compared = compare(PLAIN, MORE, work=GET_MORE)
    comparisons = compared.result.verdict.comparisons

    assert compared.outcomes == {"rps": Outcome.NEW, "p99": Outcome.NEW}
    assert {sentence(item.reason) for item in comparisons} == {f"{TITLE} has no good answer to GET /more: status 404"}
    assert all(item.now is not None and item.base is None for item in comparisons)
    assert compared.result.verdict.against == TITLE
    assert compared.result.measurement.requests > 0
    assert compared.failed is None


@pytest.mark.parametrize("failing", ["size", "assertion", "status 401", "status 302"])
def test_another_answer_of_the_base_is_no_proof_that_it_lacks_the_endpoint(failing: str, compare: Compare) -> None:
    compared = compare(App(failing=failing), MORE, work=GET_MORE, ci=True)
    comparisons = compared.result.verdict.comparisons
    assert compared.outcomes == {"rps": Outcome.INCONCLUSIVE, "p99": Outcome.INCONCLUSIVE}
    assert {sentence(item.reason) for item in comparisons} == {
        f"{TITLE} has another answer to GET /more than this test expects: {failing} (no such path)"
    }
    assert compared.failed is None
    assert isinstance(compare(App(failing=failing), MORE, work=GET_MORE, strict=True).failed, NotMeasuredError)


@pytest.mark.parametrize("failing", ["status 500", "status 503", "timeout", "disconnected", "connect"])
def test_a_base_that_is_broken_is_an_error_that_says_what_it_said(
    failing: str, compare: Compare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Server, "log", ("OperationalError: no such table",))
    comparing = compare.session(App(failing=failing), MORE, ci=True)
    with pytest.raises(BaseFailedError) as raised:
        comparing.measure(work=GET_MORE)
    first, *_, log = str(raised.value).splitlines()
    assert first == f"{TITLE} fails in every request of GET /more: {failing} (no such path)"
    assert log == "  | OperationalError: no such table"
    assert len(comparing.host.booted) == 4, "it was tried again on fresh boots"
    assert all(server.is_over for server in comparing.host.servers)


def test_a_base_that_was_broken_once_is_compared(compare: Compare, monkeypatch: pytest.MonkeyPatch) -> None:
    boot = Host.boot

    def broken_once(host: Host, asked: Booted, code_tree: CodeTree) -> Server:
        server = boot(host, asked, code_tree)
        if asked.side is Side.BASE and len(host.booted) <= 2:
            server.paths.clear()
        return server

    monkeypatch.setattr(Host, "boot", broken_once)
    compared = compare(App(failing="timeout"), PLAIN, RPS)
    assert compared.only.pairs is not None
    assert len(compared.host.booted) == 2 * (len(compared.result.pairs) + 1)


def test_an_app_that_is_missing_on_the_base_is_new(compare: Compare) -> None:
    compared = compare(App(missing=True))
    assert set(compared.outcomes.values()) == {Outcome.NEW}
    assert sentence(compared.result.verdict.comparisons[0].reason).startswith(f"{TITLE} has no such app: ")
    assert compared.failed is None


@pytest.mark.parametrize("strict, ci", [(True, False), (False, True)])
def test_new_fails_where_it_is_asked_to(strict: bool, ci: bool, compare: Compare) -> None:
    failed = compare(App(missing=True), strict=strict, ci=ci).failed
    assert isinstance(failed, NotMeasuredError)
    assert "has no such app" in str(failed)


def test_an_endpoint_that_is_new_does_not_fail_in_ci(compare: Compare) -> None:
    compared = compare(PLAIN, MORE, work=GET_MORE, ci=True)
    assert set(compared.outcomes.values()) == {Outcome.NEW}
    assert compared.failed is None


def test_what_a_test_has_put_on_its_own_server_is_missed_and_that_is_said(compare: Compare) -> None:
    comparing = compare.session(PLAIN, NO_PATHS)
    comparing.session.server(SETTINGS, TEST.nodeid)
    (server,) = comparing.host.servers
    server.paths.add("/")
    failed = comparing.measure().failed
    assert isinstance(failed, RequestsFailedError)
    assert "what it puts there is on one boot of the server only" in str(failed)


def test_what_has_no_gate_is_measured_alone(compare: Compare) -> None:
    compared = compare(PLAIN, SLOW, replace(SETTINGS, gate=()))
    assert (compared.result.base, compared.outcomes, compared.failed) == (None, {}, None)
    assert compared.result.measurement.requests > 0


def test_an_app_that_is_missing_here_is_an_error(compare: Compare) -> None:
    with pytest.raises(AppMissingError):
        compare(PLAIN, App(missing=True))


# --- what breaks


@pytest.mark.parametrize("broken", Side)
def test_an_app_that_does_not_import_is_an_error_and_not_missing(broken: Side, compare: Compare) -> None:
    breaks = App(breaks=True)
    with pytest.raises(AppLoadError, match="a_module_that_is_not_there") as raised:
        compare(breaks if broken is Side.BASE else PLAIN, breaks if broken is Side.NOW else PLAIN)
    assert not isinstance(raised.value, AppMissingError)
    assert (TITLE in str(raised.value)) is (broken is Side.BASE)


@pytest.mark.parametrize("dying", Side)
def test_a_server_that_dies_under_load_says_whose_it_was(dying: Side, compare: Compare) -> None:
    dies = App(dies_after=30)
    comparing = compare.session(dies if dying is Side.BASE else PLAIN, dies if dying is Side.NOW else PLAIN)
    with pytest.raises(ServerDiedError, match="ended with exit status 3") as raised:
        comparing.measure()
    assert str(raised.value).startswith(f"{TITLE}: ") is (dying is Side.BASE)
    assert all(server.is_over for server in comparing.host.servers)
    assert comparing.sink.is_done


def test_code_here_that_only_fails_has_failed_at_once(compare: Compare) -> None:
    """Not after all of the time there is."""
    compared = compare(PLAIN, NO_PATHS, replace(SETTINGS, max_duration_ns=3_600_000 * MS))
    assert isinstance(compared.failed, RequestsFailedError)
    assert "status 404" in str(compared.failed)
    assert compared.result.standing is Standing.FAILED
    assert compared.result.base is None
    assert "the code here has no good answer to GET /" in sentence(compared.result.verdict.comparisons[0].reason)
    assert compared.host.clock.now_s < 1010


@pytest.mark.parametrize("gate, now, tolerance", [("rps", PLAIN, 4.0), ("p50", SLOW, 0.04)], ids=["rps", "p50"])
def test_a_base_that_fails_in_part_is_no_measure(gate: str, now: App, tolerance: float, compare: Compare) -> None:
    compared = compare(App(good_of=2), now, replace(SETTINGS, gate=(gate,), tolerances={gate: tolerance}))
    assert compared.only.outcome is Outcome.INCONCLUSIVE
    said = sentence(compared.only.reason)
    assert f"requests failed on {TITLE}: its good ones alone are no measure" in said


def test_after_an_error_the_next_test_is_compared(compare: Compare) -> None:
    comparing = compare.session(MORE, PLAIN)
    assert isinstance(comparing.measure(work=GET_MORE).failed, RequestsFailedError)
    assert comparing.measure(RPS).only.pairs is not None


# --- what cannot be compared


@pytest.mark.parametrize(
    "server, reason",
    [
        (InProcess(), "one process cannot hold two"),
        (Uvicorn(port=18_123), "two versions cannot have port 18123 at once: leave `port` out"),
        (Url("http://127.0.0.1:9"), "give its address with --fileperf-against=URL"),
    ],
)
def test_what_cannot_be_compared_is_refused(server: InProcess | Uvicorn | Url, reason: str, compare: Compare) -> None:
    with pytest.raises(PlanError, match=reason):
        compare(settings=replace(SETTINGS, server=server))


def test_a_base_that_does_not_run_is_an_error(tmp_path: Path) -> None:
    base = Base(title="http://127.0.0.1:9", url=Url("http://127.0.0.1:9"))
    comparing = Comparing(Options(baselines=tmp_path / "baselines"), Host(), base=base)
    with pytest.raises(ServerStartError, match="nothing answers at"):
        comparing.measure()
    assert all(server.is_over for server in comparing.host.servers)


# --- the code with itself


def test_a_side_that_alone_is_traced_is_refused(compare: Compare, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = iter(["", "coverage"] * 9)
    monkeypatch.setattr(Server, "tracer", property(lambda _: next(numbers)))
    with pytest.raises(PlanError, match=r"is traced by coverage, and .* is not: run it without fileperf_coverage"):
        compare(PLAIN, PLAIN)


def test_the_code_with_itself_shows_what_could_be_seen(tmp_path: Path) -> None:
    options = Options(baselines=tmp_path / "baselines", aa=True)
    compared = Comparing(options, Host(now=SLOW)).measure()
    result = compared.result

    assert (result.verdict.comparisons, result.verdict.against, compared.failed) == ((), "itself", None)
    assert [floor.metric for floor in result.noise] == ["rps", "p99"]
    assert all(15 < floor.seconds <= 21 for floor in result.noise)
    text = terminal_report(session_record([result]), width=100, colour=False, verbosity=1)
    assert "against itself" in text
    assert "rps: " in text


# --- What the first requests of a comparison tell of a side that answers none of them well


def round_of(*kinds: str, statuses: tuple[int, ...] = (), requests: int = 0) -> Round:
    return Round(
        boot=0,
        index=0,
        phase=Phase.ROUND,
        started_ns=0,
        ended_ns=1,
        requests=requests,
        latency=EMPTY,
        ttfb=EMPTY,
        bytes_sent=0,
        bytes_received=0,
        statuses=tuple((status, 5) for status in statuses),
        failures=tuple(Failure(kind=kind, count=9 - at, example="an\n example") for at, kind in enumerate(kinds)),
        server_cpu_ns=None,
        client_cpu_ns=0,
    )


@pytest.mark.parametrize(
    "round_, answer",
    [
        (round_of(), Answer.GOOD),
        (round_of("status 500", statuses=(200, 500), requests=1), Answer.GOOD),
        *((round_of(f"status {status}", statuses=(status,)), Answer.MISSING) for status in (404, 405, 410, 501)),
        # Frameworks differ in what they answer to parameters and bodies that they do not know.
        *((round_of(f"status {status}", statuses=(status,)), Answer.MISSING) for status in (400, 415, 422)),
        (round_of("status 404", "status 405", statuses=(404, 405)), Answer.MISSING),
        # A journey's assertion about an answer, or what it looked for in it.
        (round_of("assertion", statuses=(404,)), Answer.MISSING),
        (round_of("KeyError", statuses=(422,)), Answer.MISSING),
        *((round_of(f"status {status}", statuses=(status,)), Answer.OTHER) for status in (200, 302, 401, 403, 429)),
        (round_of("size", statuses=(200,)), Answer.OTHER),
        (round_of("assertion", statuses=(200,)), Answer.OTHER),
        (round_of("status 404", "size", statuses=(200, 404)), Answer.OTHER),
        *((round_of(f"status {status}", statuses=(status,)), Answer.BROKEN) for status in (500, 502, 503, 504)),
        *((round_of(kind), Answer.BROKEN) for kind in ("timeout", "disconnected", "connect", "protocol", "cancelled")),
        (round_of("status 404", "status 500", statuses=(404, 500)), Answer.BROKEN),
        (round_of("status 404", "timeout", statuses=(404,)), Answer.BROKEN),
        (round_of("assertion", statuses=(500,)), Answer.BROKEN),
    ],
)
def test_only_some_answers_say_that_there_is_no_such_endpoint(round_: Round, answer: Answer) -> None:
    assert answer_of([round_of(), round_]) is answer


def test_failures_are_described_by_kind_with_an_example() -> None:
    rounds = [round_of("timeout"), round_of("status 404", "timeout")]
    assert kinds_of(rounds) == "timeout, status 404"
    assert described(rounds) == "timeout (an example); status 404 (an example)"
