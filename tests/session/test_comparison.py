"""Comparisons from beginning to end: a real session and real judges, on fake servers, loads, clock and chance."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import httpx
import pytest
from session.fakes import GET, MS, TEST, App, Host, Loads, Server, Sink, rig_of

from pytest_fileperf.errors import (
    AppLoadError,
    AppMissingError,
    BaseDiedError,
    BaseFailedError,
    BaseSetupError,
    FilePerfError,
    LimitExceededError,
    NotMeasuredError,
    PerformanceError,
    PlanError,
    RegressionError,
    ServerDiedError,
    ServerStartError,
    SetupError,
)
from pytest_fileperf.judge.record import Result
from pytest_fileperf.judge.verdict import MetricComparison, Outcome
from pytest_fileperf.measure.histogram import EMPTY
from pytest_fileperf.measure.recording import Failure, Phase, Round
from pytest_fileperf.plan.feed import Requests
from pytest_fileperf.plan.load import Side
from pytest_fileperf.plan.request import Operation
from pytest_fileperf.plan.work import Work
from pytest_fileperf.report.wording import sentence
from pytest_fileperf.serve.running import RunningServer
from pytest_fileperf.session.comparison import Answer, answer_of
from pytest_fileperf.session.session import Session
from pytest_fileperf.session.setup import set_up
from pytest_fileperf.settings.settings import Options, Settings
from pytest_fileperf.versions.tree import CodeTree

GET_MORE = Operation(method="GET", url="/more")
TITLE = "main (1a2b3c4)"
PLAIN, SLOW, MORE, NO_PATHS = App(), App(latency_ns=7 * MS), App(paths=("/", "/more")), App(paths=())
SETTINGS = Settings(
    app="compared_app:app", connections=2, max_duration_ns=20_000 * MS, duration_ns=500 * MS, rounds=2, warmup_ns=0
)
"""The last three are for what cannot be compared."""
RPS = replace(SETTINGS, gate=("rps",))
WIDE = replace(RPS, tolerances={"rps": 4.0})


@dataclass(frozen=True)
class Compared:
    """A comparison that is over, and what failed the test."""

    result: Result
    failed: PerformanceError | None
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


class Compare:
    """Compares two versions of an app, one of them at another commit; each call is a session."""

    def __init__(self, tmp_path: Path) -> None:
        for tree in ("here", "base"):
            (tmp_path / tree).mkdir()
        self.base = CodeTree(title=TITLE, here=tmp_path / "here", there=tmp_path / "base")
        self.baselines = tmp_path / "baselines"
        self.host = Host()
        """Of the last session."""

    def __call__(
        self,
        base: App = PLAIN,
        now: App = PLAIN,
        settings: Settings = SETTINGS,
        work: Work = GET,
        *,
        seed: int = 1,
        **options: bool,
    ) -> Compared:
        self.host = host = Host(base=base, now=now)
        rig, loads, sink = rig_of(host, seed=seed)
        session = Session(Options(baselines=self.baselines, **options), rig, against=self.base, gates=2)  # type: ignore[arg-type]
        failed = None
        try:
            session.measure(work, settings, TEST)
        except PerformanceError as error:
            failed = error
        return Compared(session.results[-1], failed, host, loads, sink)


@pytest.fixture
def compare(tmp_path: Path) -> Compare:
    return Compare(tmp_path)


def test_equal_code_passes_and_all_of_it_is_measured_and_told(compare: Compare) -> None:
    compared = compare(settings=WIDE)
    result, comparison, lines = compared.result, compared.only, compared.sink.lines
    assert compared.failed is None
    assert (comparison.outcome, comparison.pairs) == (Outcome.PASS, len(result.pairs)) == (Outcome.PASS, 4)
    assert comparison.change == pytest.approx(0, abs=0.05)
    assert result.verdict.against == TITLE
    assert result.load.startswith("2 connections alternately, 4 start-ups of each version, ")
    assert result.base is not None
    for recording in (result.recording, result.base):
        assert [boot.index for boot in recording.boots] == [0, 1, 2, 3]
        assert all(round_.requests and not round_.failed for round_ in recording.measured())
        assert {round_.phase for round_ in recording.rounds} == {Phase.ROUND, Phase.HANDOVER}
    assert len(result.recording.measured()) == len(result.base.measured())
    assert not compare.baselines.exists()
    # Each boot is loaded in one pair, has a number that it shares with the other side's, and ends with the pair.
    servers, booted = compared.host.servers, compared.host.booted
    loaded = [pid for recording in (result.recording, result.base) for boot in recording.boots for pid in boot.pids]
    assert sorted(loaded) == [server.number for server in servers]
    assert [asked.boot - booted[0].boot for asked in booted] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert sorted(asked.serial for asked in booted) == [*range(8)]
    assert (compared.host.most_alive, all(server.is_over for server in servers)) == (2, True)
    assert {(line.title, line.boots, line.total_s) for line in lines} == {("test_any", 1, 20.0)}
    assert sorted({line.boot for line in lines}) == [1, 2, 3, 4, 5]  # the load that shows limits is the last
    assert [line.elapsed_s for line in lines] == sorted(line.elapsed_s for line in lines)
    assert compared.sink.is_done


BUSY = App(client_cpu_ns=MS)
HALF = App(good_of=2)
P50 = replace(SETTINGS, gate=("p50",), tolerances={"p50": 0.04})
ERRORS = {
    Outcome.PASS: LimitExceededError,
    Outcome.IMPROVED: type(None),
    Outcome.REGRESSED: RegressionError,
    Outcome.INCONCLUSIVE: NotMeasuredError,
}
IN_PART = f"requests failed on {TITLE}, so its successful ones alone prove nothing"


@pytest.mark.parametrize(
    "base, now, settings, outcome, said",
    [
        (PLAIN, SLOW, RPS, Outcome.REGRESSED, f"compared with {TITLE}"),
        (SLOW, PLAIN, RPS, Outcome.IMPROVED, ""),
        (
            replace(PLAIN, background=0.3),
            SLOW,
            RPS,
            Outcome.REGRESSED,
            "the old code used 30 % of a core during the other",
        ),
        (PLAIN, replace(SLOW, background=0.3), RPS, Outcome.REGRESSED, "the new code used 30 % of a core during"),
        (BUSY, BUSY, WIDE, Outcome.INCONCLUSIVE, "generator"),
        (
            PLAIN,
            PLAIN,
            replace(SETTINGS, gate=("p999",), max_duration_ns=6_000 * MS),
            Outcome.INCONCLUSIVE,
            'Try max_duration="',
        ),
        (PLAIN, PLAIN, replace(WIDE, limits={"min_rps": 1e9}), Outcome.PASS, "min_rps"),
        (HALF, PLAIN, WIDE, Outcome.INCONCLUSIVE, IN_PART),
        (HALF, SLOW, P50, Outcome.INCONCLUSIVE, IN_PART),
    ],
)
def test_outcomes(base: App, now: App, settings: Settings, outcome: Outcome, said: str, compare: Compare) -> None:
    compared = compare(base, now, settings, strict=True)
    assert compared.only.outcome is outcome
    told = f"{sentence(compared.only.reason)} {' '.join(str(compared.failed).split())}"
    assert said in told
    assert "--fileperf-update" not in told
    kinds = {
        Outcome.REGRESSED: RegressionError,
        Outcome.INCONCLUSIVE: NotMeasuredError,
        Outcome.PASS: LimitExceededError,
    }
    assert type(compared.failed) is kinds.get(outcome, type(None))
    assert (compared.result.explanation is not None) is (outcome is Outcome.REGRESSED)


# --- What one side has not

OTHER = f"{TITLE} gave another answer to GET /more than this test expects: "


@pytest.mark.parametrize(
    "base, work, outcome, said, fails",
    [
        (PLAIN, GET_MORE, Outcome.NEW, f"{TITLE} gave no successful answer to GET /more: status 404", {"strict"}),
        (App(missing=True), GET, Outcome.NEW, f"{TITLE} has no such app: ", {"strict", "ci"}),
        (App(failing="size"), GET_MORE, Outcome.INCONCLUSIVE, f"{OTHER}size (no such path)", {"strict"}),
        (App(failing="status 401"), GET_MORE, Outcome.INCONCLUSIVE, f"{OTHER}status 401 (no such path)", {"strict"}),
    ],
)
def test_what_the_base_lacks_is_measured_alone(
    base: App, work: Operation, outcome: Outcome, said: str, fails: set[str], compare: Compare
) -> None:
    for option in ("", "strict", "ci"):
        compared = compare(base, MORE, SETTINGS, work, **({option: True} if option else {}))
        assert compared.outcomes == {"rps": outcome, "p99": outcome}
        assert all(sentence(one.reason).startswith(said) for one in compared.result.verdict.comparisons)
        assert all(one.now is not None and one.base is None for one in compared.result.verdict.comparisons)
        assert compared.result.measurement.requests > 0
        assert type(compared.failed) is (NotMeasuredError if option in fails else type(None))


@pytest.mark.parametrize("failing", ["status 500", "timeout", "disconnected"])
def test_a_base_that_is_broken_is_an_error_that_says_what_it_said(
    failing: str, compare: Compare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Server, "log", ("OperationalError: no such table",))
    with pytest.raises(BaseFailedError) as raised:
        compare(App(failing=failing), MORE, work=GET_MORE, ci=True)
    first, *_, log = str(raised.value).splitlines()
    assert first == f"{TITLE} fails every request of GET /more, on two start-ups: {failing} (no such path)"
    assert log == "  | OperationalError: no such table"
    assert len(compare.host.booted) == 4, "it was tried again on fresh boots"
    assert all(server.is_over for server in compare.host.servers)


# --- What breaks, or cannot be compared


def fails_on(side: Side, compare: Compare, times: int = 1_000, *, dies: bool = False) -> Settings:
    """Returns settings with a setup that fails on one side, in its first calls there."""
    left = [None] * times

    def fill(client: httpx.Client) -> None:
        server = compare.host.servers[client.base_url.port or 0]
        if compare.host.booted[server.number].side is side and left:
            left.pop()
            server.is_dead = dies
            raise OSError("no such table: items")

    return replace(WIDE, setup=fill)


BREAKS, DIES = App(breaks=True), App(dies_after=30)


@pytest.mark.parametrize(
    "base, now, kind, said",
    [
        (BREAKS, PLAIN, AppLoadError, r"main \(1a2b3c4\).*a_module_that_is_not_there"),
        (PLAIN, BREAKS, AppLoadError, "^(?!main).*a_module_that_is_not_there"),
        (PLAIN, App(missing=True), AppMissingError, "there is no module of this name"),
        (DIES, PLAIN, BaseDiedError, r"^main \(1a2b3c4\): .* ended with exit status 3"),
        (PLAIN, DIES, ServerDiedError, "^fake.* ended with exit status 3"),
    ],
)
def test_a_server_that_breaks_says_whose_it_was(
    base: App, now: App, kind: type[FilePerfError], said: str, compare: Compare
) -> None:
    with pytest.raises(FilePerfError, match=said) as raised:
        compare(base, now)
    assert type(raised.value) is kind
    assert all(server.is_over for server in compare.host.servers)


def test_a_setup_that_fails_is_told_with_its_side_and_tried_again_on_the_base(compare: Compare) -> None:
    """It is no proof that the base lacks anything: that would be NEW, which passes in CI."""
    with pytest.raises(SetupError, match=r"^setup fill failed on fake [^\n]*\d:\n") as here:
        compare(settings=fails_on(Side.NOW, compare), ci=True)
    assert (type(here.value), len(compare.host.booted)) == (SetupError, 2)
    with pytest.raises(
        BaseSetupError, match=r"^setup fill failed on fake [^\n]*, with the code of main \(1a2b3c4\):\n"
    ):
        compare(settings=fails_on(Side.BASE, compare), ci=True)
    assert len(compare.host.booted) == 4
    with pytest.raises(BaseDiedError, match=r"^main \(1a2b3c4\): .*ended with exit status 3"):
        compare(settings=fails_on(Side.BASE, compare, dies=True))
    fed = Requests(recipes=(Operation(method="GET", url="/{id}"),), make=lambda ids: ids["id"])  # type: ignore[index]
    of_feed = r"(?s)^the feed of GET /\{id\} failed on fake [^\n]*, with the code of main .*let the setup return"
    with pytest.raises(BaseSetupError, match=of_feed):
        compare(settings=replace(WIDE, setup=lambda client: []), work=fed)
    assert compare(settings=fails_on(Side.BASE, compare, 1)).only.outcome is Outcome.PASS


@pytest.mark.parametrize("ends", [KeyError, KeyboardInterrupt])
@pytest.mark.parametrize("base", ["", "main"])
def test_a_teardown_follows_whatever_ends_the_load_whose_error_stays(ends: type[BaseException], base: str) -> None:
    """pytest's own time limits and Ctrl-C are no Exceptions."""

    def fails(client: str, value: str) -> None:
        raise OSError(f"{client} {value}")

    fake = SimpleNamespace(title="any", log=("a line",), sync_client=lambda **_: nullcontext("client"))
    server, steps = cast("RunningServer", fake), Settings(setup=lambda client: "value", teardown=fails)
    with pytest.raises(ends) as raised, set_up(steps, server, base):
        raise ends
    (note,) = raised.value.__notes__
    assert note.startswith(f"teardown fails failed on any{', with the code of main' if base else ''}:\n")
    assert "OSError: client value" in note
    with pytest.raises(BaseSetupError if base else SetupError) as failed, set_up(Settings(setup=fails), server, base):
        pass
    assert ("let the setup return without an error there" in str(failed.value)) is bool(base)
    assert str(failed.value).endswith("| a line")


def test_a_base_that_does_not_run_or_is_traced_alone_is_an_error(
    compare: Compare, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracers = iter(["", "coverage"] * 9)
    with monkeypatch.context() as patch:
        patch.setattr(Server, "tracer", property(lambda _: next(tracers)))
        with pytest.raises(
            PlanError, match=r"is traced by coverage, but .* isn't. Run the test without fileperf_coverage"
        ):
            compare()
    compare.base = CodeTree(title="http://127.0.0.1:9", url="http://127.0.0.1:9")
    with pytest.raises(ServerStartError, match="nothing answers at"):
        compare()
    assert all(server.is_over for server in compare.host.servers)


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
        # Frameworks differ in what they answer to parameters and bodies that they do not know.
        *((round_of(f"status {it}", statuses=(it,)), Answer.MISSING) for it in (400, 404, 405, 410, 415, 422, 501)),
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
