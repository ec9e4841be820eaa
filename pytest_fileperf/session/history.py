"""Adds a session's comparisons to a history: a file with the changes that earlier sessions measured.

Measures a history's steps (lasting changes) and renewed baselines again.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from pytest_fileperf.errors import FilePerfError, PlanError
from pytest_fileperf.host import scratch
from pytest_fileperf.host.child import run
from pytest_fileperf.judge.baseline import slow_digest
from pytest_fileperf.judge.environment import Environment
from pytest_fileperf.judge.history import Run, TestRatios, Trend, append, read, trends_of
from pytest_fileperf.judge.record import Result
from pytest_fileperf.judge.trend import Step
from pytest_fileperf.judge.verdict import MetricComparison, ReasonKind
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.report.record_file import read_record
from pytest_fileperf.report.trend import shares
from pytest_fileperf.report.wording import sentence
from pytest_fileperf.units import as_share, format_change, format_count
from pytest_fileperf.versions.repository import GitError, find_repository
from pytest_fileperf.versions.source import Source, other_branch

# --- A line of a session

_VOID = frozenset((
    ReasonKind.BASE_FAILED, ReasonKind.INCOMPARABLE, ReasonKind.LEFT_WORK, ReasonKind.LOST,
    ReasonKind.OTHER_ANSWERS, ReasonKind.SAME_FILES, ReasonKind.SATURATED,
))  # fmt: skip
"""Comparisons with such a reason never enter a history: something other than the code may have changed the figures."""
_OF_THE_RUN = frozenset({"against", "engine", "pinned", "tracer", "load from"})
"""Keys of `Result.identity` that may differ between comparable runs."""
_SALT = sha256(b"pytest-fileperf history").hexdigest()[:32]


def ratios_of(results: Iterable[Result]) -> dict[str, TestRatios]:
    """Returns log(new figure ÷ old figure) by node id.

    A test has ratios only if known versions were loaded alternately.
    """
    found = {}
    for result in results:
        ratios = {
            item.metric: (round(item.log_ratio, 4), max(round(item.log_error, 4), 0.0001), item.pairs)
            for item in result.verdict.comparisons
            if item.log_ratio is not None and item.log_error is not None and item.pairs is not None
            if item.reason is None or item.reason.kind not in _VOID
        }
        if ratios and (old := result.verdict.old_tree[:12]):
            work, stored = work_of(result.identity), result.baseline_written
            found[result.test.nodeid] = TestRatios(old=old, work=work, ratios=ratios, stored=stored)
    return found


def work_of(identity: Mapping[str, object]) -> str:
    """Returns a digest of a test's request, load, server and setup. Comparable runs have equal digests.

    A digest is slow to compute, so that nobody can guess the values from it.
    """
    held = {key: value for key, value in identity.items() if key not in _OF_THE_RUN}
    if isinstance(server := held.get("server"), Mapping):
        # This key may also differ between comparable runs.
        held["server"] = {key: value for key, value in server.items() if key != "stabilised"}
    return slow_digest(json.dumps(held, sort_keys=True, default=str), _SALT)[-8:]


def added(results: Sequence[Result], history: Path, source: Source) -> tuple[list[Result], str]:
    """Appends results to a history. Returns the results and a sentence about the history.

    The returned results also have their changes since the newest Git tag, if known. Raises RecordError.
    """
    tests, here, commit = ratios_of(results), source.here, source.commit_info() or {}
    if not tests or isinstance(here, str):
        reasons = [item.reason for result in results for item in result.verdict.comparisons]
        why = "no test compared old and new code. The code may be the same as the baseline's"
        if reasons and all(reason is not None and reason.kind is ReasonKind.NO_BASELINE for reason in reasons):
            why = "no test has a baseline. Store them with --fileperf-update=new"
        return [*results], f"added nothing to {history}: {here if isinstance(here, str) else why}"
    environment = Environment.current()
    run = Run(
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        tree=here.tree[:12],
        machine=environment.profile,
        packages=sha256(repr(sorted(environment.packages.items())).encode()).hexdigest()[:8],
        tests=tests,
        commit=here.commit or "",
        dirty=here.dirty,
        made=str(commit.get("time", "")),
        branch=str(commit.get("branch", "")),
    )
    if branch := other_branch(os.environ):
        said = f"nothing was added to {history}: runs of {branch} only read it"
    else:
        append(history, run)
        said = f"added a line with {format_count(len(tests), 'test')} to {history}"
    try:
        return with_release(results, history, run, source), said
    except (FilePerfError, GitError) as error:
        return [*results], f"{said}. How much tests changed since the newest Git tag is unknown: {error}"


def with_release(results: Sequence[Result], history: Path, run: Run, source: Source) -> list[Result]:
    """Returns the results with `since_release`: each metric's change since the newest Git tag, from the history.

    Raises FilePerfError.
    """
    repository = find_repository(source.rootdir) if history.exists() else None
    words = ("describe", "--tags", "--abbrev=0", "HEAD" if run.dirty else "HEAD^")
    tag = None if repository is None else repository.answers(*words)
    if not tag:
        return [*results]
    commit = f"refs/tags/{tag}"
    changes = {
        (trend.series.nodeid, trend.series.metric): (tag, *shares(*trend.total))
        for trend in trends_of([history], since=commit, now=run, source=source)[0]
        if trend.series.runs[-1] is run and trend.is_known
    }

    def told(result: Result) -> Result:
        # This comparison was already with the tag's code.
        if result.verdict.old_tree == source.tree_of(commit):
            return result
        nodeid, comparisons = result.test.nodeid, result.verdict.comparisons
        return result.having(
            comparisons=tuple(replace(item, since_release=changes.get((nodeid, item.metric))) for item in comparisons)
        )

    return [*map(told, results)]


# --- Measures a test at two commits again, alternately, in a clone

_TIME = "60s"
"""`max_duration` for these measurements: twice the default, so that fewer stay undecided."""
_PATIENCE_S = 600.0


def check_steps(trends: Iterable[Trend]) -> Iterator[str]:
    """For each trend's newest lasting change, measures the commits before and after it again.

    Yields lines for the user. The lines say whether the change is confirmed, and how to find its commit.
    """
    measured: dict[tuple[str, str, str], Sequence[MetricComparison]] = {}
    for trend in trends:
        if not trend.steps:
            continue
        step, series = trend.steps[-1], trend.series
        title = f"{series.nodeid} {series.metric}"
        before, after = series.runs[step.at - 1].commit, series.runs[step.latest if step.is_slow else step.at].commit
        if not (before and after) or before == after:
            yield f"{title}: its last step isn't between two commits, so it cannot be measured again"
            continue
        both = before, after, series.nodeid
        if both not in measured:
            yield f"measuring {series.nodeid} at {before[:7]} and {after[:7]}, which takes about a minute"
            try:
                measured[both] = _compared(*both)
            except FilePerfError as error:
                yield f"{series.nodeid}: {error}"
                measured[both] = ()
        one = next((item for item in measured[both] if item.metric == series.metric), None)
        answer = _answer(one, step)
        yield f"{title}: {answer}"
        if METRICS[series.metric].worse_sign * step.change > 0 and not answer.startswith("no,"):
            yield from _bisect(*both, step)


def _answer(found: MetricComparison | None, step: Step) -> str:
    """Returns whether the step is confirmed, such as `yes, +8.1 % [+6.0, +10.2], measured again`."""
    if found is None or found.change is None or found.low is None or found.high is None:
        why = sentence(found.reason) if found is not None else ""
        return f"not decided: {why or 'both commits could not be compared'}"
    low, high = (format_change(bound, unit=False) for bound in (found.low, found.high))
    sign = math.copysign(1, step.change)
    least, most = sorted((sign * found.low, sign * found.high))
    answer = "yes" if least > 0 else "no" if most < abs(as_share(step.change / 2)) else "not decided"
    return f"{answer}, {format_change(found.change)} [{low}, {high}], measured again"


def _bisect(before: str, after: str, nodeid: str, step: Step) -> Iterator[str]:
    repository = find_repository(Path.cwd())
    between = None if repository is None else repository.answers("rev-list", "--count", f"{before}..{after}")
    if between == "1":
        yield f"  the commit is {after[:10]}, the only one between both runs"
    elif between not in (None, "0"):
        tolerance = f"-o fileperf_tolerance={100 * abs(as_share(step.change / 2)):.2g}%"
        # A run would change a history that is committed, and Git then checks nothing out.
        options = f"--fileperf-max-duration={_TIME} {tolerance} -o fileperf_history= {shlex.quote(_item_of(nodeid))}"
        yield f"  the commit is one of {between}; these commands find it:"
        yield f"  git bisect start {after[:10]} {before[:10]}"
        yield f"  git bisect run python -m pytest --fileperf --fileperf-against={before[:10]} {options}"


def link_baselines(paths: Sequence[Path], name: str = "") -> Iterator[str]:
    """Compares each renewed baseline's code with the code of the baseline before. Yields lines for the user.

    Leaves out comparisons that a run has already made. `paths` are histories, and `name` selects tests. The first
    history gets the new comparisons.
    """
    commits = {run.tree: run.commit for run in read(paths)[0] if run.commit and not run.dirty}
    series = [trend.series for trend in trends_of(paths, name=name)[0]]
    wanted = sorted({(own.nodeid, *both) for own in series for both in own.unlinked})
    if not wanted:
        yield "nothing to do: each renewed baseline has been compared with the one before"
    for nodeid, old, new in wanted:
        if not commits.keys() >= {new, old}:
            yield f"{nodeid}: the history does not know both baselines' commits, so they cannot be measured"
            continue
        try:
            _compared(commits[old], commits[new], nodeid, f"--fileperf-history={paths[0].resolve()}")
            yield f"{nodeid}: {commits[new][:7]} was compared with {commits[old][:7]}"
        except FilePerfError as error:
            yield f"{nodeid}: {error}"


def _compared(before: str, after: str, nodeid: str, *options: str) -> Sequence[MetricComparison]:
    """Measures a test at commit `after` against commit `before`; returns its comparisons. Raises FilePerfError.

    pytest runs with `options` in a clone, so the user's files, index and branches stay as they are.
    """
    repository = find_repository(Path.cwd())
    if repository is None:
        raise PlanError(f"{Path.cwd()} isn't in a Git repository")
    test, place = _item_of(nodeid), scratch.make("recheck")
    clone, record = place / repository.top.name, place / "record.json"
    against = f"--fileperf-against={before}", f"--fileperf-json={record}", f"--fileperf-max-duration={_TIME}"
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--fileperf", *against, *options, test)
    try:
        repository.clone(after, clone)
        inside = clone / Path.cwd().resolve().relative_to(repository.top.resolve())
        done = run(command, cwd=inside, env=os.environ, timeout_s=_PATIENCE_S)
        if not record.exists():
            said = os.fsdecode(done.stdout + done.stderr)[-2000:]
            raise FilePerfError(f"{test} was not measured at commit {after[:7]}. Output of pytest:\n{said}")
        results = read_record(record).results
    except (GitError, OSError) as error:
        raise FilePerfError(f"commit {after[:7]} cannot be checked out: {error}") from error
    except subprocess.TimeoutExpired as error:
        raise FilePerfError(
            f"its measurement at commit {after[:7]} was stopped after {_PATIENCE_S:g} s. Run the test there to see why"
        ) from error
    finally:
        scratch.remove(place)
    return next((result.verdict.comparisons for result in results if result.test.nodeid == nodeid), ())


def _item_of(nodeid: str) -> str:
    """Returns pytest's node id, without our suffix: `test_a[x#1]#upload` gives `test_a[x#1]`."""
    name, bracket, rest = nodeid.rpartition("]")
    return name + bracket + rest.partition("#")[0]
