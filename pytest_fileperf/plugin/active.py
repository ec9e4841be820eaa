"""The plugin for runs with load tests: it checks the options, makes the session, and reports its results.

Most modules are imported only when the first test needs them.
"""

from __future__ import annotations

import base64
import math
import os
import pickle
import sys
import weakref
from collections.abc import Generator, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_fileperf.errors import FilePerfError, PlanError
from pytest_fileperf.plugin.invocation import header_words, read_options, server_problems
from pytest_fileperf.plugin.measuring import ScreenProgress, Turns, tell_properties
from pytest_fileperf.plugin.options import is_load_test, marker_keys, measures
from pytest_fileperf.plugin.outcomes import Outcomes, collects_all, screen_of
from pytest_fileperf.report.text import show_what_it_can
from pytest_fileperf.settings.settings import Options, Settings, resolve
from pytest_fileperf.units import format_count

if TYPE_CHECKING:
    from pytest_fileperf.judge.groups import SessionRecord
    from pytest_fileperf.judge.record import Result
    from pytest_fileperf.session.budget import TimeBudget
    from pytest_fileperf.session.selection import Selection
    from pytest_fileperf.session.session import Session
    from pytest_fileperf.versions.source import Source
    from pytest_fileperf.versions.tree import CodeTree

_WORKER_RESULTS = "fileperf_results"
_ENDED = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)


def activate(config: pytest.Config) -> None:
    """Registers the plugins for load tests. Raises UsageError with every problem of options and ini values."""
    options, problems = read_options(config)
    try:
        settings = resolve(options=options.command_line, ini=options.ini)
    except PlanError as error:
        raise pytest.UsageError(_listed(*problems, *error.problems)) from None
    problems += server_problems(settings.server, options.network)
    against: CodeTree | None = None
    selection: Selection | None = None
    for option, text in (("against", options.against), ("changed", options.changed)):
        if text is None:
            continue
        from pytest_fileperf.versions.checkout import parse_against
        from pytest_fileperf.versions.source import instead_of_itself

        try:
            version = parse_against(text, cwd=config.invocation_params.dir, rootdir=config.rootpath, option=option)
            with _source(config, options) as source:
                version = instead_of_itself(version, text.strip(), source)
                if option == "changed":
                    from pytest_fileperf.session.selection import Selection

                    selection = Selection(version, source, options.baselines, config.rootpath, config.inipath)
                else:
                    against = version
        except PlanError as error:
            where = error.where or f"--fileperf-{option}={text.strip()}"
            problems += tuple(f"{where}: {problem}" for problem in error.problems)
        else:
            if version.url is not None and (problem := options.network.problem_of(version.url)):
                problems += (f"--fileperf-against: {problem}",)
    if not problems and not options.smoke and _is_distributed(config):
        problems = (
            "load tests under xdist would disturb each other. Run them alone with -n 0, as in `pytest --fileperf -n "
            "0`, or make only a few requests with --fileperf-smoke",
        )
    if problems:
        raise pytest.UsageError(_listed(*problems))
    show_what_it_can(sys.stdout)
    active = Active(config, options, settings, against, selection)
    config.stash[ACTIVE] = active
    config.pluginmanager.register(active, "fileperf-active")
    config.pluginmanager.register(active.outcomes, "fileperf-outcomes")
    if options.budget_s is not None:
        from pytest_fileperf.plugin.again import Again
        from pytest_fileperf.session.budget import TimeBudget

        active.time = TimeBudget(total_s=options.budget_s)
        config.pluginmanager.register(Again(active, active.time), "fileperf-again")


def _source(config: pytest.Config, options: Options) -> Source:
    from pytest_fileperf.versions.source import Source

    outputs = filter(None, (*options.files, options.history))
    return Source(config.rootpath, options.baselines, keeps_trees=options.keeps_trees, outputs=outputs)


def _listed(*problems: str) -> str:
    return str(PlanError(*problems, where="fileperf"))


def _is_distributed(config: pytest.Config) -> bool:
    """Returns whether xdist runs the tests in several processes."""
    if hasattr(config, "workerinput"):
        return True
    if config.getoption("collectonly", default=False):
        return False
    return bool(config.getoption("numprocesses", default=None)) or config.getoption("dist", default="no") != "no"


class Active:
    def __init__(
        self,
        config: pytest.Config,
        options: Options,
        settings: Settings,
        against: CodeTree | None,
        selection: Selection | None,
    ) -> None:
        self._config = config
        self.options = options
        self.progress = ScreenProgress(config)
        self.turns = Turns()
        self.outcomes = Outcomes(self)
        self.time: TimeBudget | None = None
        """The time limit for all comparisons together. None without `--fileperf-budget`."""
        self._settings = settings
        """The settings from options and ini file, without the tests' own keys."""
        self._against = against
        self._selection = selection
        self._held = ExitStack()
        """Removes temporary files, such as checked-out code, when the session ends."""
        self._no_base: PlanError | None = None
        """The error if the old code could not be checked out. Every test raises this error."""
        self._session: Session | None = None
        self.results: list[Result] = []
        """Every measurement of the session; empty until the session ends."""
        self._record: SessionRecord | None = None
        """The reports' data. None until the session has ended with results."""
        self._endpoints: dict[str, Mapping[str, bool]] = {}
        """By app and endpoint, whether the endpoint has a load test. Empty unless all load tests have passed."""
        self._untraced = ""
        """A line for the user if coverage traces this process, but not the servers. Otherwise empty."""
        self._gates = 0
        """How many comparisons this session will make."""
        self._gated: list[Settings] = []
        """The settings of the tests that are measured and have a gate."""
        self._said: list[str] = []
        """Lines about the whole session, for the terminal and for the session's record."""
        self._written: list[str] = []
        """Lines about written files, for the terminal."""
        self._of_parent: tuple[object, ...] = ()
        """In a forked process: the parent's objects, which the fork must not close."""
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=partial(_leave_to_parent, weakref.ref(self)))

    def leave_to_parent(self) -> None:
        """In a forked process, forgets servers, load generators and results, because the parent still uses them."""
        self._of_parent = (self._session, self._held)
        self._session, self._held = None, ExitStack()
        self.results.clear()
        self._said.clear()

    def _say(self, *notes: str) -> None:
        self._said += (f"fileperf: {note}" for note in notes)

    # --- for fixtures

    def session(self) -> Session:
        """Returns the session. The first call makes it, and imports most of the package. Raises FilePerfError."""
        if self._session is None:
            from pytest_fileperf.session.rig import Rig
            from pytest_fileperf.session.session import Session

            if self._no_base is not None:
                raise self._no_base
            source = self._held.enter_context(_source(self._config, self.options))
            against = self._base(source)
            self._untraced = self._why_untraced()
            asks = self._selection is None and self.outcomes.has_all and collects_all(self._config)
            rig = Rig.starting(self.options, progress=self.progress, source=source, time=self.time, asks=asks)
            self._session = Session(self.options, rig, against=against, gates=max(1, self._gates))
        return self._session

    def _why_untraced(self) -> str:
        from pytest_fileperf.serve.stability import COVERAGE, tracer_in, tracer_now

        missing = "add --fileperf-coverage" * (not self.options.coverage)
        patch = "set patch = subprocess and sigterm = true in coverage's [run]" * (not tracer_in(os.environ))
        if tracer_now() != COVERAGE or not (to_do := " and ".join(filter(None, (missing, patch)))):
            return ""
        return f"fileperf: coverage did not trace the servers, because that slows them. To trace them too, {to_do}"

    def settle(self, item: pytest.Item, passed: bool) -> None:
        """Ends a test, and stores the test's baselines if it has `passed`. Raises BaselineError."""
        if self._session is None:
            return
        try:
            self._session.settle(item.nodeid, passed=passed)
        finally:
            of_test = [result for result in self._session.results if result.test.item == item.nodeid]
            tell_properties(item, of_test)  # again, because only now their baselines are settled

    def _base(self, source: Source) -> CodeTree | None:
        """Returns the old code. None without `--fileperf-against`. Raises PlanError."""
        if self._against is None:
            return None
        from pytest_fileperf.versions.checkout import Checkout, dependency_notes, environment_notes
        from pytest_fileperf.versions.tree import CodeTree

        if self._against.commit is not None and source.is_that_of(self._against.commit):
            self._say(*self._against.notes)
            return CodeTree(title=self._against.title)
        try:
            code_tree = self._held.enter_context(Checkout(self._against, self._config.rootpath))
        except PlanError as error:
            self._no_base = error
            raise
        notes = [*code_tree.notes]
        if self._against.commit is not None and code_tree.there is not None:
            notes += source.share_with(code_tree.there)
        if code_tree.here is not None and code_tree.there is not None:
            notes += dependency_notes(code_tree.here, code_tree.there)
        if code_tree.python is not None:
            notes += environment_notes(Path(code_tree.python))
        self._say(*notes)
        commit = self._against.commit
        return code_tree if commit is None else replace(code_tree, tree=source.tree_of(commit))

    # --- collection

    @pytest.hookimpl(tryfirst=True)  # the terminal then asks for a line about it
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Raises UsageError with all wrong markers. Counts the comparisons to come."""
        if hasattr(self._config, "workerinput"):
            return  # xdist would take a usage error for a crash, and the tests fail for the same problems
        problems: list[str] = []
        measuring: dict[pytest.Item, Settings] = {}
        for item in filter(is_load_test, session.items):
            found: tuple[str, ...] = ()
            if any(marker.args for marker in item.iter_markers("fileperf")):
                found = ("the marker fileperf takes only keywords, as in fileperf(connections=32)",)
            try:
                settings = resolve(marker=marker_keys(item), options=self.options.command_line, ini=self.options.ini)
            except PlanError as error:
                found += error.problems
            else:
                found += server_problems(settings.server, self.options.network)
                if measures(item):
                    measuring[item] = settings
            problems += (f"{item.nodeid}: {problem}" for problem in found)
        if problems:
            raise pytest.UsageError(_listed(*dict.fromkeys(problems)))
        if self._selection is not None and measuring:
            for item in self._unaffected(self._selection, measuring):
                del measuring[item]
        self._gates = sum(len(settings.gate) for settings in measuring.values())
        self._gated = [settings for settings in measuring.values() if settings.gate]

    def pytest_report_collectionfinish(self) -> list[str]:
        """Returns a line about how long the comparisons may take. Empty without comparisons.

        The estimate ignores capacity searches, and tests that measure more than once.
        """
        from pytest_fileperf.judge.rules import RULES

        is_quiet = self._config.get_verbosity() < 0 or self._config.getoption("collectonly")
        if is_quiet or self.options.smoke or not self._gated:
            return []
        longest_s = sum(RULES.few_pairs_times * settings.max_duration_ns / 1e9 for settings in self._gated)
        total_s = self.options.budget_s or longest_s + len(self._gated) * RULES.few_pairs_more_s
        most = f"{total_s:.0f} s" if total_s < 120 else f"{math.ceil(total_s / 60)} min"
        tests = format_count(len(self._gated), "load test")
        return [f"fileperf: comparing {tests} may take up to about {most}, and some seconds more for each failure"]

    def _unaffected(self, selection: Selection, items: Iterable[pytest.Item]) -> list[pytest.Item]:
        """Makes pytest skip the tests that the change cannot affect, and returns them."""
        whys, same = {item: selection.why(item.nodeid) for item in items}, f"no change since {selection.title} affects"
        unaffected = [item for item, why in whys.items() if not why]
        for item in unaffected:
            item.add_marker(pytest.mark.skip(reason=f"not measured, because {same} it"))
        if unaffected:
            them = "it" if len(unaffected) == 1 else "them"
            self._say(f"{len(unaffected)} of {format_count(len(whys), 'test')} not measured, because {same} {them}")
        else:
            self._say(f"the changes since {selection.title} may affect every test, so all are measured")
        if self._config.get_verbosity() >= 1:
            self._say(*(f"{item.nodeid} is measured: {why}" for item, why in whys.items() if why))
        return unaffected

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtestloop(self) -> Generator[None, bool, bool]:
        """With `--fileperf-coverage`, ends the servers before pytest-cov combines its data."""
        done = yield
        if self.options.coverage and self._session is not None:
            self._session.end()
        return done

    # --- reporting

    def pytest_report_header(self) -> list[str]:
        """Returns the line above all tests. Empty without -v, unless options change how tests are measured."""
        given, since = self.options, None if self._selection is None else self._selection.title
        special = (given.smoke, given.update, given.prune, self._against, since, given.aa, given.budget_s)
        if not any(special) and self._config.get_verbosity() < 1:
            return []
        return [f"fileperf: {'; '.join(header_words(self._config, given, self._settings, self._against, since))}"]

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Ends servers and load generators, and writes reports."""
        failed = False
        if self._of_parent:
            self._close()
            return
        if self._session is not None:
            if session.exitstatus in _ENDED:
                self._say(*self._session.notes)
            self._session.settle(passed=False)  # baselines that an interrupted test was about to store
            if self.options.history is not None:
                failed = self._add_to_history(self._session, self.options.history, session.exitstatus in _ENDED)
            self.results += self._session.results
            if self._untraced and any(not boot.tracer for one in self.results for boot in one.recording.boots):
                self._said.append(self._untraced)
            if self._ran_all(session):
                self._add_endpoints(self._session.covered())
        self._close()
        if hasattr(self._config, "workerinput"):
            packed = base64.b64encode(pickle.dumps((self.results, self._endpoints))).decode("ascii")
            self._config.workeroutput[_WORKER_RESULTS] = packed  # type: ignore[attr-defined]
        elif (self._finish(session) or failed) and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _add_to_history(self, session: Session, path: Path, has_ended: bool) -> bool:
        """Adds the run to the history, and returns whether that failed."""
        said, failed = f"nothing was added to {path}: the run was interrupted", False
        if has_ended:
            try:
                said = session.add_to(path)
            except FilePerfError as error:
                said, failed = str(error), True
        self._written.append(f"fileperf: {said}")
        return failed

    def _finish(self, session: pytest.Session) -> bool:
        """Writes reports, and returns whether anything failed."""
        failed = False
        self._say(*self.turns.notes)
        if not self.options.smoke:
            said, failed = self.outcomes.settle_stale(session)
            self._said += said
        is_asked = any(argument.startswith("--fileperf") for argument in self._config.invocation_params.args)
        is_here = is_asked and not self.outcomes.left_out and not _is_distributed(self._config)
        has_ended = session.exitstatus in (*_ENDED, pytest.ExitCode.NO_TESTS_COLLECTED)
        if is_here and has_ended and not any(map(is_load_test, session.items)):
            self._say(
                "found no load test. A load test uses the fixture fileperf. `python -m pytest_fileperf new "
                "package.module:app` writes one for each endpoint of an app"
            )
        failed_tests = self.outcomes.failed
        if self.results or failed_tests:
            from pytest_fileperf.plugin.written import record_of, tell_ci, write_files

            endpoints = self._endpoints if self._ran_all(session) else {}
            self._record = record_of(self.results, failed_tests, self._config, self.options, self._said, endpoints)
            said, not_written = write_files(self._config, self.options, self._record)
            self._written += (*said, *tell_ci(self._config, self._record))
            failed |= not_written
        elif not self._config.getoption("collectonly", default=False):
            for path in self.options.files:
                stays = ". The existing file comes from an earlier run" if path.exists() else ""
                self._written.append(f"fileperf: nothing was measured, so {path} was not written{stays}")
        return failed

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        output: Mapping[str, str] = getattr(node, "workeroutput", {})
        if _WORKER_RESULTS in output:
            results, endpoints = pickle.loads(base64.b64decode(output[_WORKER_RESULTS]))  # noqa: S301 - our own worker's
            self.results += results
            self._add_endpoints(endpoints)
        else:  # its process has died
            self.outcomes.lacks_some = True

    def _ran_all(self, session: pytest.Session) -> bool:
        is_cut = session.exitstatus not in _ENDED or session.shouldfail or session.shouldstop
        return self.outcomes.has_all and not is_cut

    def _add_endpoints(self, covered: Mapping[str, Mapping[str, bool]]) -> None:
        for app, found in covered.items():
            known = self._endpoints.get(app, {})
            self._endpoints[app] = {name: is_covered or known.get(name, False) for name, is_covered in found.items()}

    def pytest_unconfigure(self) -> None:
        self._close()  # after a session that broke off

    def _close(self) -> None:
        session, self._session = self._session, None
        with self._held:
            if session is not None:
                try:
                    session.close()
                finally:
                    self._say(*session.endings)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Prints the results, notes about the session, and the names of written files."""
        lines, only_rows = ([], False) if self._record is None else _result_lines(self._record, terminalreporter)
        said = (*self._said, *self._written)
        if not lines and not said:
            return
        terminalreporter.ensure_newline()
        if said or not only_rows or any(map(terminalreporter.stats.get, ("failed", "error", "warnings"))):
            terminalreporter.section("fileperf")
        if lines:
            from pytest_fileperf.plugin.written import no_command

            lines = list(map(no_command, lines))
        for line in (*lines, *said):
            terminalreporter.write_line(line)


def _leave_to_parent(active: weakref.ref[Active]) -> None:
    if (forked := active()) is not None:
        forked.leave_to_parent()


def _result_lines(record: SessionRecord, reporter: pytest.TerminalReporter) -> tuple[list[str], bool]:
    """Returns (lines about the results, whether all of them are only table rows)."""
    from pytest_fileperf.report.terminal import report_lines

    shows_failures = reporter.config.getoption("tbstyle", default="auto") not in ("no", "line")
    told = {report.nodeid for report in reporter.stats.get("failed", ())} if shows_failures else set()
    return report_lines(record, screen_of(reporter.config), verbosity=reporter.config.get_verbosity(), told=told)


ACTIVE = pytest.StashKey[Active]()
