"""Measures the old and the new code alternately, until each change is decided or the time is over.

    start base + now | probe | base now now base … | start base + now | base now base now … | … | find the bottleneck
    └─────────────────── pair 1 ───────────────────┘└────────────── pair 2 ───────────────┘

`base` is the old version, and `now` is the new one. A probe is a short first load, which shows how long requests take.
Each pair starts both servers anew, because chance makes one start-up slower than another.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from enum import Enum, auto
from functools import partial
from pathlib import Path
from statistics import median_low

from pytest_fileperf.drive.run import Run, RunProgress
from pytest_fileperf.errors import (
    AppMissingError,
    BaseDiedError,
    BaseFailedError,
    BaseSetupError,
    FilePerfError,
    PlanError,
    ServerDiedError,
)
from pytest_fileperf.judge.evidence import BootEvidence, Pair, differing, pair_side, pairs_alike
from pytest_fileperf.judge.gate import ErrorBudget, unless_base_failed, unless_saturated, unless_unsteady
from pytest_fileperf.judge.paired import Sequential, noise_floor, paired_difference, times_to_decide
from pytest_fileperf.judge.record import Explanation, Result
from pytest_fileperf.judge.verdict import MetricComparison, Outcome, Reason, ReasonKind, Verdict, within_budget
from pytest_fileperf.measure.capacity import Capacity, CapacityEnd
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.loss import Loss
from pytest_fileperf.measure.measurement import Measurement, measurement_of
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.measure.recording import Boot, Failure, Recording, Round, merge_failures
from pytest_fileperf.measure.startup import ImportTimes, import_times
from pytest_fileperf.measure.usage import course_after
from pytest_fileperf.plan.load import LoadPlan, Side
from pytest_fileperf.plan.request import WHOLE_LOAD, SubjectName
from pytest_fileperf.plan.work import Work
from pytest_fileperf.serve.databases import Queries
from pytest_fileperf.serve.job import StartUp
from pytest_fileperf.serve.launch import Launch, refuse_changed, refuse_hidden, refuse_other_version
from pytest_fileperf.serve.process import ProcessLaunch, RunningProcess
from pytest_fileperf.serve.running import RunningServer
from pytest_fileperf.serve.spec import InProcess, Url, worker_count
from pytest_fileperf.session.budget import TIMES
from pytest_fileperf.session.capacity import RateSearch, closed_loop
from pytest_fileperf.session.causes import Looked, explain_loss, loss_between, served_of, with_slow_start
from pytest_fileperf.session.loads import (
    BothServers,
    BothWorks,
    Load,
    after_probe,
    asked_alone,
    recording_of,
)
from pytest_fileperf.session.rig import Measured, Rig, notes_of, with_parts
from pytest_fileperf.session.setup import set_up, setup_identity, work_of_boot
from pytest_fileperf.settings.plans import Plan, load_identity
from pytest_fileperf.units import format_duration
from pytest_fileperf.versions.checkout import changed_packages
from pytest_fileperf.versions.tree import HERE, CodeTree

# --- Reads a comparison's first answers, if one version gives no good one
#
# answers                              meaning                          gates
# 400 404 405 410 415 422 501          no such endpoint, or changed     NEW
# another status, size or content      an unexpected answer             INCONCLUSIVE
# 500 …, nothing in time, a reset      broken                           none: one more try, then an error

_MISSING = frozenset({400, 404, 405, 410, 415, 422, 501})
"""Statuses from a server that lacks this endpoint, or has it with other methods or parameters. If parameters are
unknown, frameworks answer with either 400 or 422."""
_UNANSWERED = frozenset({"connect", "timeout", "disconnected", "protocol"})


class Answer(Enum):
    GOOD = auto()
    MISSING = auto()
    OTHER = auto()
    BROKEN = auto()


def answer_of(rounds: Sequence[Round]) -> Answer:
    """Classifies the answers to a version's first requests. One successful request is enough for GOOD."""
    kinds = {failure.kind for round_ in rounds for failure in round_.failures}
    if not kinds or any(round_.requests for round_ in rounds):
        return Answer.GOOD
    # A journey's failure also has a status: its last answer's, even if an assertion failed.
    statuses = {status for round_ in rounds for status, _ in round_.statuses}
    if not statuses or kinds & _UNANSWERED or any(status >= 500 for status in statuses - _MISSING):
        return Answer.BROKEN
    return Answer.MISSING if statuses <= _MISSING else Answer.OTHER


def failures_of(rounds: Sequence[Round]) -> tuple[Failure, ...]:
    return merge_failures(failure for round_ in rounds for failure in round_.failures)


def described(failures: Sequence[Failure]) -> str:
    said = []
    for failure in failures[:3]:
        example = " ".join(failure.example.split())
        said.append(f"{failure.kind} ({example})" if example and example != failure.kind else failure.kind)
    return "; ".join(said)


# --- Starts both versions: the old one, and the code here


class _NoBaseError(Exception):
    """The old version did not start, but the test goes on without that version."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


class Sides:
    def __init__(self, base: CodeTree, plan: Plan, rig: Rig, *, is_stored: bool) -> None:
        """`is_stored` says that the old version also has stored figures. Then its failed start raises _NoBaseError."""
        self._base = base
        self._is_stored = is_stored
        self.plan = plan
        self._pool = rig.servers
        self._chance = rig.chance
        self._first_boot = rig.chance.randrange(1 << 31)  # PYTHONHASHSEED ends at twice this
        self._why_fresh = ""
        """Why both versions import the app anew for each start-up, although one of them could be forked. Else empty."""

    @contextmanager
    def booted(self, number: int) -> Iterator[BothServers]:
        """Starts both versions, yields the old and the new server, and ends them. Raises _NoBaseError."""
        self._pool.close()
        with ExitStack() as stack:
            base, now = self._launched(number, stack)
            if self._base.url is None and base.is_forked is not now.is_forked:
                of_base = base.why_fresh and f"{self._base.title}: {base.why_fresh}"
                self._why_fresh = now.why_fresh or of_base or "one of the two versions can no longer be forked"
                stack.close()
                base, now = self._launched(number, stack)
            try:
                yield base, now
            except ServerDiedError as error:
                if self._base.url is None:
                    try:
                        base.check()
                    except ServerDiedError:
                        raise BaseDiedError(f"{self._base.title}: {error}") from error
                raise

    def _launched(self, number: int, stack: ExitStack) -> BothServers:
        launches: list[Launch] = []
        for side in Side:
            with self._starting(side):
                launches.append(self._prepared(number, side))
        for launch in launches:
            stack.callback(self._pool.end, launch)
        for launch in launches:
            stack.callback(launch.ask_to_stop)
        servers: dict[Side, RunningServer] = {}
        # Real apps take seconds to import, so both import at the same time, unless start-ups are measured.
        for step in () if self.plan.times_starts else (ProcessLaunch.import_ahead, ProcessLaunch.hold):
            for side in Side:
                with self._starting(side):
                    if isinstance(launch := launches[side], ProcessLaunch):
                        step(launch)
        for side in self._chance.sample(tuple(Side), 2):
            with self._starting(side):
                launches[side].start()
                servers[side] = launches[side].ready()
                servers[side].family = self._pool.family
        if self._base.url is None and not self._base.is_here:
            refuse_changed(servers[Side.NOW], title=self._base.title)
            if number == 0:
                with self._starting(Side.BASE):
                    refuse_hidden(servers[Side.BASE], self._base)
        if self._why_fresh:
            servers[Side.NOW].why_fresh = self._why_fresh
        return servers[Side.BASE], servers[Side.NOW]

    def _prepared(self, number: int, side: Side, *, tells_imports: bool = False) -> Launch:
        base, plan, is_base = self._base, self.plan, side is Side.BASE
        server, app = plan.settings.server, plan.app
        start_up = StartUp(
            number=self._first_boot + number,  # the same for both versions, but new in each session
            cores=plan.cores,
            in_turn=True,
            code_tree=base if is_base and base.url is None and not base.is_here else HERE,
            version="base" if is_base and base.is_here else "",
            forks=not (self._why_fresh or plan.times_starts),
            is_timed=plan.times_starts and not tells_imports,
            tells_imports=tells_imports,
            counts_queries=plan.counts_queries,
        )
        if is_base and base.url is not None:
            server, app = replace(server, url=base.url) if isinstance(server, Url) else Url(base.url), None
        return self._pool.launch(server, app, start_up)

    def import_looks(self) -> tuple[list[ImportTimes], list[ImportTimes]]:
        looks: tuple[list[ImportTimes], list[ImportTimes]] = ([], [])
        workers = worker_count(self.plan.settings.server) or 1
        for side in (Side.BASE, Side.NOW, Side.NOW, Side.BASE):
            launch = self._prepared(0, side, tells_imports=True)
            try:
                launch.start()
                running = launch.ready()
                if isinstance(running, RunningProcess):
                    own = set(running.loaded.modules) - set(running.loaded.installed)
                    looks[side].append(import_times(running.whole_log(), own, workers=workers))
            finally:
                self._pool.end(launch)
        return looks

    @contextmanager
    def _starting(self, side: Side) -> Iterator[None]:
        """If the test can go on without the old version, raises that version's start errors as _NoBaseError."""
        try:
            yield
        except FilePerfError as error:
            is_missing, title = isinstance(error, AppMissingError), self._base.title
            if side is Side.NOW or not (is_missing or self._is_stored):
                raise
            advice = (
                "Store it again with --fileperf-update=all. Or set fileperf_confirm = never to use stored figures only"
            )
            text = f"{title} has no such app" if is_missing else f"{title} does not start"
            why = str(error) if is_missing else f"{str(error).splitlines()[0]}. {advice}"
            raise _NoBaseError(Reason(kind=ReasonKind.NO_APP, side="base", text=text, differences=(why,))) from error


# --- comparison


def measure_in_turn(
    plan: Plan, base: CodeTree, budget: ErrorBudget, rig: Rig, *, is_stored: bool = False, base_alone: bool = False
) -> Measured | Reason:
    """Loads both versions alternately and judges the changes. If no comparison is possible, returns the reason.

    `is_stored` says that `base` is a baseline's code. A failed start of this code then gives a reason, not an error.
    With `base_alone` the old version is also loaded alone, for the comparison with its stored figures. These come from
    such a load, because an alternately loaded server is slower. Raises PlanError if this kind of server, or a tracer,
    prevents a comparison.
    """
    refuse_base(plan, base)
    comparison = None if rig.time is None else rig.time.kept(plan.test.nodeid)
    if comparison is None or comparison.work != plan.work.identity():  # the test may ask for something else now
        comparison = Comparison(plan, base, budget, rig, is_stored=is_stored, base_alone=base_alone)
    else:
        comparison.go_on(plan)
    try:
        found = comparison.result()
    except _NoBaseError as error:
        return error.reason
    finally:
        rig.progress.done()
    if rig.time is not None and isinstance(found, Measured):
        rig.time.keep(comparison)
    return found


def refuse_base(plan: Plan, base: CodeTree) -> None:
    server = plan.settings.server
    if isinstance(server, InProcess) or (base.url is None and not isinstance(server, Url)):
        refuse_other_version(server, None, title=base.title)


class Comparison:
    def __init__(
        self, plan: Plan, base: CodeTree, budget: ErrorBudget, rig: Rig, *, is_stored: bool, base_alone: bool
    ) -> None:
        self.plan = plan
        self._base_alone = base_alone
        self._base = base
        self._budget = budget
        self._sides = Sides(base, plan, rig, is_stored=is_stored)
        self._rig = rig
        self._gates: dict[SubjectName, Sequential] = {}
        self._found: dict[SubjectName, tuple[MetricComparison, ...]] = {}
        self._begun_s = rig.clock()
        self.work = plan.work.identity()
        self.spent_s = 0.0
        self._open_gates({WHOLE_LOAD, *(name for name, subject in plan.subjects.items() if subject.compared)})
        self._runs: tuple[list[Run], list[Run]] = ([], [])
        self._searches = tuple(RateSearch(plan, chance=rig.chance) for _ in Side) if plan.searches else None
        self._pairs: dict[SubjectName, list[Pair]] = {subject: [] for subject in plan.subjects}
        self._requests = 0
        self._base_failed = False
        """Whether the old version has failed once, in its setup or in all first requests. A second failure raises the
        error."""
        self._works: BothWorks = (plan.work, plan.work)
        self._pair_ns = plan.first_pair_ns
        """The least time for which the next two start-ups (old and new code) are loaded, together."""
        self._cycle_ns = 0 if plan.turn is None else 2 * plan.turn.duration_ns
        """The average time for two slices of load, one on each version, in the latest start-ups."""
        self._latency_ns = 0
        """A request's duration on the slower version, in the probes (first short loads)."""
        self._probes: dict[Side, Run] = {}
        """Each version's probe. Its requests count as warm-up, so no figure uses them."""

    def go_on(self, plan: Plan) -> None:
        """Prepares another call of `result`, which gives the undecided metrics the further time in `plan`."""
        self.plan = self._sides.plan = replace(plan, alpha=self.plan.alpha, first_ns=self.plan.first_ns)
        self._begun_s = self._rig.clock() - self.spent_s
        self._pair_ns = plan.first_pair_ns
        self._open_gates({subject for subject, found in self._found.items() if self._times(subject, found) > 1})

    def _open_gates(self, subjects: Collection[SubjectName]) -> None:
        plan, limit_s = self.plan, self.plan.max_duration_ns / 1e9
        self._gates = {
            subject: Sequential(
                plan.tolerances(subject),
                alpha=plan.alpha,
                limit_s=limit_s,
                part=1.0 if self._rig.time is None else 1 / TIMES,
                to_the_end=plan.to_the_end,
            )
            for subject in plan.subjects
            if subject in subjects
        }
        self._line = self._rig.telling(plan.test.title, limit_s)

    @property
    def needs_s(self) -> float:
        """How many more seconds are likely to decide the comparison; 0.0 if more time does not help."""
        times = max((self._times(subject, found) for subject, found in self._found.items()), default=1.0)
        return (times - 1) * self.spent_s

    def _times(self, subject: SubjectName, found: Sequence[MetricComparison]) -> float:
        """Returns (total time that will likely decide `subject`) ÷ (time so far). 1.0 if more time does not help."""
        times = (
            times_to_decide(METRICS[item.metric], self._pairs[subject], item.tolerance, self.plan.alpha)
            for item in found
            if item.outcome is Outcome.INCONCLUSIVE
        )
        return max((1.0, *times))

    def result(self) -> Measured | Reason:
        if self.plan.times_starts:
            with self._sides.booted(0):
                pass  # the first starts may compile code, or read from disk
        while True:
            number, pair_begun_s = len(self._pairs[WHOLE_LOAD]), self._rig.clock()
            with self._sides.booted(number) as servers, ExitStack() as torn_down:
                self._require_same_tracer(servers)
                try:
                    self._set_up(servers, torn_down)
                    why_not = self._probed(servers) if number == 0 else None
                except (BaseSetupError, BaseFailedError):
                    servers[Side.BASE].check()
                    if self._base_failed:
                        raise
                    self._base_failed = True  # maybe by chance, so new start-ups are tried
                    continue
                if why_not is not None:
                    return why_not
                self._pair(number, servers)
                if not self._is_enough(number, pair_begun_s):
                    continue
                measured = self._measured(servers)
                self._rig.servers.fetch_document(self.plan.app, servers[Side.NOW])
            # Once both servers have ended:
            return measured.judged(partial(with_slow_start, look=self._sides.import_looks))

    def _set_up(self, servers: BothServers, torn_down: ExitStack) -> None:
        work, settings = self.plan.work, self.plan.settings

        def work_on(server: RunningServer, base: str) -> Work:
            return work_of_boot(work, torn_down.enter_context(set_up(settings, server, base)), server, settings, base)

        self._works = work_on(servers[Side.BASE], self._base.title), work_on(servers[Side.NOW], "")

    def _is_enough(self, number: int, pair_begun_s: float) -> bool:
        """Judges by all start-ups so far. Returns False if more are needed, and plans how long to load them."""
        now_s, plan = self._rig.clock(), self.plan
        more_ns = max(0, round(1e9 * (now_s - pair_begun_s)) - self._pair_ns)
        # The last pair is followed by a load that shows what limits the code here. A millisecond is left, so that
        # rounding does not make a last pair too long.
        left_ns = plan.max_duration_ns - round(1e9 * (now_s - self._begun_s)) - plan.limiting.duration_ns - 1_000_000
        self._pair_ns = plan.next_pair_ns(number + 1, left_ns=left_ns, more_ns=more_ns, cycle_ns=self._cycle_ns)
        next_s = (self._pair_ns + more_ns + plan.limiting.duration_ns) / 1e9
        self._pairs[WHOLE_LOAD] = pairs_alike(self._pairs[WHOLE_LOAD])
        for subject, gate in tuple(self._gates.items()):
            found = gate.look(self._pairs[subject], elapsed_s=now_s - self._begun_s, next_s=next_s)
            if found is not None:
                self._found[subject] = found
                del self._gates[subject]
        return not self._gates

    def _require_same_tracer(self, servers: BothServers) -> None:
        base, now = (server.tracer for server in servers)
        if base != now:  # a tracer alone makes a version slower
            traced, other = ("the new code", self._base.title) if now else (self._base.title, "the new code")
            raise PlanError(
                f"{traced} is traced by {base or now}, but {other} isn't. Run the test without fileperf_coverage, "
                "or trace both",
                where=self.plan.test.title,
            )

    # --- loading

    def _probed(self, servers: BothServers) -> Reason | None:
        """Measures how long a request takes on each version. If both cannot be compared, returns the reason.

        Raises BaseFailedError if the old version fails all requests.
        """
        probe, work, later = self.plan.probe, self.plan.work.name, 0.0
        for side in reversed(Side):
            load = partial(self._load_by, 0, side, servers[side])
            run = load(probe) if self._searches is None else closed_loop(load, probe)
            answer, failures = answer_of(run.rounds), failures_of(run.rounds)
            whose = self._base.title if side is Side.BASE else "the new code"
            kinds = ", ".join(failure.kind for failure in failures)
            is_timeout = answer is Answer.BROKEN and kinds == "timeout"
            # The probe may wait for less time than the comparison does.
            if is_timeout and side is Side.NOW and probe.timeout_ns < self.plan.limiting.timeout_ns:
                said = f"{whose} gave no answer to {work} within {_seconds(probe.timeout_ns)}"
                return self._too_slow(f"{said} ({self._base.title} gave {self._answer_of_base(servers)})")
            if answer is Answer.BROKEN and side is Side.BASE:
                raise BaseFailedError(side=whose, work=work, said=described(failures), log=servers[side].log)
            if answer is Answer.OTHER:
                said, details = f"{whose} gave another answer to {work} than this test expects", (described(failures),)
                return Reason(kind=ReasonKind.INCOMPARABLE, side=side.name.lower(), text=said, differences=details)
            # If the new code is broken, its error comes later, when that code is measured alone.
            if answer is not Answer.GOOD:
                said, details = f"{whose} gave no successful answer to {work}", (kinds,)
                return Reason(kind=ReasonKind.ABSENT, side=side.name.lower(), text=said, differences=details)
            if self._searches is not None:
                self._searches[side].begin(run)
            first_ns = _under_way_ns(run)
            longer = None if later else self.plan.longer_probe(first_ns)
            if longer is not None and answer_of((again := load(longer)).rounds) is Answer.GOOD:
                later, run = min(1.0, _under_way_ns(again) / first_ns), after_probe(again, run)
            # Until the first pair shows it, later requests of both versions count as faster by the same factor.
            self._latency_ns = max(self._latency_ns, round((later or 1.0) * first_ns))
            self.plan = self.plan.with_slow_first(first_ns, later * first_ns)
            self._probes[side] = run
        least_ns = self.plan.too_long_ns(self._latency_ns)
        if least_ns and self._rig.time is not None and least_ns < 1e9 * self._rig.time.left_s:
            self.plan = replace(self.plan, settings=self.plan.settings.lasting(least_ns))
            self._open_gates(tuple(self._gates))
        elif least_ns:
            base, now = (_seconds(_under_way_ns(self._probes[side])) for side in Side)
            took = f"{work} takes {now} now and {base} in {self._base.title}"
            return self._too_slow(f"{took}, so at least {_seconds(least_ns)} are needed")
        return None

    def _answer_of_base(self, servers: BothServers) -> str:
        try:
            rounds = self._load_by(0, Side.BASE, servers[Side.BASE], self.plan.probe).rounds
        except FilePerfError:
            return "none"
        return "one" if answer_of(rounds) is Answer.GOOD else "none"

    def _too_slow(self, said: str) -> Reason:
        more = "a longer max_duration" if self._rig.time is None else "more time with --fileperf-budget"
        text = f"{said}, but the comparison may take only {_seconds(self.plan.max_duration_ns)}"
        lighter = " or fewer connections" if self.plan.settings.connections > 1 else ""
        return Reason(kind=ReasonKind.INCOMPARABLE, side="base", text=text, differences=(f"give it {more}{lighter}",))

    def _pair(self, number: int, servers: BothServers) -> None:
        # Whether each pair has its own start-up of the old version.
        boots_anew = self._base.url is None and not isinstance(self.plan.settings.server, Url)
        if self._searches is not None:
            self._search(self._searches, number, servers)
            held = [pair.stabilised for pair in self._pairs[WHOLE_LOAD]]
            held.append(tuple(sorted(set.intersection(*(set(server.stabilised) for server in servers)))))
            # Each load changes the results of earlier pairs, because all loads together give the slope.
            base_on, now_on = (partial(search.on_boot, found=search.estimate()) for search in self._searches)
            self._pairs[WHOLE_LOAD] = [
                Pair(base=base_on(place), now=now_on(place), stabilised=stabilised, base_boots_anew=boots_anew)
                for place, stabilised in enumerate(held)
            ]
            return
        turn = self.plan.turn
        runs = self._turns(number, servers) if turn is None else self._loads(turn, number, servers)
        for side, probe in self._probes.items():
            runs[side][0] = after_probe(runs[side][0], probe)
        self._probes.clear()
        stabilised = tuple(sorted(set.intersection(*(set(run.boot.stabilised) for own in runs for run in own))))
        for side in Side:
            self._runs[side].extend(runs[side])
        for subject in self.plan.subjects:
            base, now = (_pair_side(own, subject) for own in runs)
            pair = Pair(base=base, now=now, stabilised=stabilised, base_boots_anew=boots_anew)
            self._pairs[subject].append(pair)

    def _search(self, searches: tuple[RateSearch, ...], number: int, servers: BothServers) -> None:
        ends_s = self._rig.clock() + self._pair_ns / 1e9
        going = list(Side)
        while going:
            for side in self._rig.chance.sample(going, len(going)):
                left_s = (ends_s - self._rig.clock()) / len(going)
                load = partial(self._load_by, number, side, servers[side])
                if not searches[side].step(load, number, left_s=left_s):
                    going.remove(side)

    def _load_by(self, number: int, side: Side, server: RunningServer, plan: LoadPlan) -> Run:
        cores = self.plan.generator_cores
        return self._rig.loads.make(self._works[side], plan, number, server, cores, self._tell)

    def _turns(self, number: int, servers: BothServers) -> tuple[list[Run], list[Run]]:
        # All pairs so far show how long a request takes. The probe may have met a stall, or a start-up's first moment.
        each_ns = (median_low(map(_under_way_ns, runs)) if runs else 0 for runs in self._runs)
        latency_ns = max(each_ns) or self._latency_ns
        turns = self.plan.alternation(self._pair_ns, latency_ns=latency_ns, chance=self._rig.chance)
        self._cycle_ns = 2 * sum(turns.turns_ns) // len(turns.turns_ns)
        cores = self.plan.generator_cores
        base, now = self._rig.loads.alternate(self._works, turns, number, servers, cores, self._tell)
        self._requests += sum(round_.requests for round_ in now.rounds)
        return [base], [now]

    def _loads(self, turn: LoadPlan, number: int, servers: BothServers) -> tuple[list[Run], list[Run]]:
        runs: tuple[list[Run], list[Run]] = ([], [])
        ends_s = self._rig.clock() + self._pair_ns / 1e9
        while not runs[Side.BASE] or self._rig.clock() < ends_s:
            for side in self._rig.chance.sample(tuple(Side), 2):
                runs[side].append(self._load_by(number, side, servers[side], turn))
        return runs

    def _tell(self, progress: RunProgress) -> None:
        self._line(len(self._pairs[WHOLE_LOAD]) + 1, self._requests, progress)

    # --- results

    def _measured(self, servers: BothServers) -> Measured:
        plan, server = self.plan, servers[Side.NOW]
        load_base, load = loads = tuple(partial(self._load_by, 0, side, servers[side]) for side in Side)
        # A server that takes turns idles half of the time. Its limit shows when it is loaded alone.
        alone = measurement_of(recording_of([asked_alone(load(plan.limiting), load)]))
        seconds = self.spent_s = self._rig.clock() - self._begun_s
        base_capacity: Capacity | None = None
        capacity: Capacity | None = None
        limit = alone.limit
        saturated: bool | None = None
        if self._searches is not None:
            base, now = (search.recording() for search in self._searches)
            base_capacity, capacity = (search.capacity() for search in self._searches)
            base_alone = base if self._base_alone else None
            limit, saturated = capacity.limit, CapacityEnd.GENERATOR in (base_capacity.ended, capacity.ended)
        else:
            base_alone = recording_of([load_base(plan.load_again)]) if self._base_alone else None
            base, now = map(recording_of, self._runs)
        workers = alone.server.worker_cpu_shares
        measurement = measurement_of(now, limit=limit, saturated=saturated, busy=alone.busy, worker_cpu_shares=workers)
        of_base, of_now = looked = self._looked_at(servers, loads, now)
        # A search loads at many rates, so its latencies do not belong to one load.
        load_plan = None if self._searches is not None else plan.limiting
        served = partial(served_of, load_plan, worker_count(plan.settings.server) or 1)
        loss, by_others = loss_between(served(base, of_base.cpu_per_request), served(now, of_now.cpu_per_request))
        load_of = {} if plan.searches else {"load": load_identity(plan.load)}
        compared = {"work": plan.work.identity(), "server": server.identity(), "against": self._base.title, **load_of}
        noise = tuple(
            noise_floor(METRICS[name], self._pairs[WHOLE_LOAD], tolerance=tolerance, alpha=plan.alpha, seconds=seconds)
            for name, tolerance in plan.tolerances().items()
            if plan.to_the_end
        )
        whole = Result(
            test=plan.test,
            work=plan.work.name,
            server=server.title,
            load=plan.title_in_turn(len(self._pairs[WHOLE_LOAD]), seconds),
            identity=compared | setup_identity(plan.settings),
            recording=now,
            measurement=measurement,
            verdict=Verdict(against=self._base.title, old_tree=self._base.tree),
            base_seconds=seconds,
            capacity=capacity,
            base_capacity=base_capacity,
            notes=notes_of(server),
        )

        def judged(result: Result) -> Result:
            subject = result.test.subject
            is_whole = subject == WHOLE_LOAD
            own_base = base if is_whole else recording_of(self._runs[Side.BASE], *subject)
            comparisons = self._judged(subject, result.measurement, own_base, by_others)
            return result.having(
                comparisons=comparisons,
                base=own_base,
                other_answers=differing(own_base, result.recording),
                pairs=tuple(self._pairs.get(subject, ())),
                noise=noise if is_whole else (),
                explanation=self._explanation(comparisons, looked, loss) if is_whole else None,
            )

        results = with_parts(plan, self._runs[Side.NOW], whole)
        return Measured(results=results, loaded=servers[Side.BASE].loaded, base_alone=base_alone).judged(judged)

    def _judged(
        self, subject: SubjectName, measurement: Measurement, base: Recording, by_others: float
    ) -> tuple[MetricComparison, ...]:
        """Returns the gated metrics' outcomes: INCONCLUSIVE if the load or the old version cannot be trusted.

        `by_others` is the part of the latencies' change that other programs may have caused, as a log ratio.
        """
        found = self._found.get(subject, ())
        if self._rig.time is not None:
            found = tuple(map(within_budget, found))
        # The advice is for `max_duration`, of which this comparison gets half.
        if self.plan.in_half and self._searches is None:
            found = tuple(
                replace(item, reason=item.reason and replace(item.reason, seconds=2 * item.reason.seconds))
                for item in found
            )
        allowed = self.plan.allowed_errors(subject)
        found = unless_base_failed(found, base, allowed=allowed, title=self._base.title)
        found = unless_unsteady(found, measurement.busy, by_others=by_others)
        found = unless_saturated(found, measurement.saturated)
        self._budget.used(self.plan.alpha, sum(item.outcome is Outcome.REGRESSED for item in found))
        # The code compared with itself shows the least visible change. It is not judged.
        return () if self.plan.to_the_end else found

    def _explanation(
        self, comparisons: Sequence[MetricComparison], looked: Sequence[Looked], loss: Loss | None
    ) -> Explanation | None:
        # Memory costs no time. A longer start-up is explained after the servers' end.
        others = ("rss", "startup", "queries")
        if not any(found.outcome is Outcome.REGRESSED and found.metric not in others for found in comparisons):
            return None
        changed = {} if self._base.python is None else changed_packages(Path(self._base.python))
        # Up to twelve looks must fit into the time that is left. With them the test may exceed `max_duration` by 30 %.
        left_ns = 1.3 * self.plan.max_duration_ns - 1e9 * (self._rig.clock() - self._begun_s)
        look = self.plan.profile(max(600_000_000, round(left_ns / 12)))
        return explain_loss(look, looked, self.plan.generator_cores, loss, changed)

    def _looked_at(self, servers: BothServers, loads: Sequence[Load], now: Recording) -> tuple[Looked, ...]:
        cpu, base = METRICS["cpu_per_request"], self._base
        typical, now_s = paired_difference(cpu, self._pairs[WHOLE_LOAD]), cpu.of_run(now)
        # The ratio of turns in succession is far more exact than one of two figures from different moments.
        base_s = None if now_s is None or typical is None else now_s / math.exp(typical.worse)
        own = ((base.there or base.here, base_s), (base.here, now_s))
        return tuple(
            Looked(server=server, load=load, root=root, cpu_per_request=cpu_s)
            for server, load, (root, cpu_s) in zip(servers, loads, own, strict=True)
        )


def _seconds(ns: int) -> str:
    return format_duration(round(ns, -6))


def _under_way_ns(run: Run) -> int:
    """Returns how long a request typically takes, with a journey's pauses. 0 without requests.

    Long requests count more, because a slice of load ends only after its slowest request.
    """
    latency = Histogram.merged(round_.latency for round_ in run.rounds)
    return latency.under_way_ns() + run.uncounted_ns // max(1, latency.count)


def _pair_side(runs: Sequence[Run], subject: SubjectName) -> BootEvidence:
    boot: Boot | None = None
    for run in runs if subject == WHOLE_LOAD else ():  # nothing of it is known for a part or step
        memory, queries = ((), None) if boot is None else (boot.memory, boot.queries)
        queries = Queries.summed((queries, run.boot.queries))
        boot = replace(run.boot, memory=course_after(memory, run.boot.memory), queries=queries)
    return pair_side((round_ for run in runs for round_ in run.rounds_of(*subject)), boot)
