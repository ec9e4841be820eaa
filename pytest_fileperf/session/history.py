"""Shows a history by the order of the commits here, and measures its steps again."""

from __future__ import annotations

import math
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from pytest_fileperf.errors import FilePerfError, PlanError
from pytest_fileperf.host import scratch
from pytest_fileperf.host.child import run
from pytest_fileperf.judge.difference import as_share
from pytest_fileperf.judge.history import Run, read, series_of
from pytest_fileperf.judge.record import Result
from pytest_fileperf.judge.trend import Step, courses_of
from pytest_fileperf.judge.verdict import MetricComparison
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.report.record_file import read_record
from pytest_fileperf.report.trend import Trend, shares
from pytest_fileperf.report.wording import sentence
from pytest_fileperf.units import format_change, format_count, format_names
from pytest_fileperf.versions.repository import GitError, Repository, find_repository
from pytest_fileperf.versions.source import Source

# --- Trends


def trends_of(
    paths: Sequence[Path],
    *,
    name: str = "",
    metric: str | None = None,
    since: str | None = None,
    now: Run | None = None,
    source: Source | None = None,
) -> tuple[list[Trend], list[str], str]:
    """Returns the trend of each test and metric, sentences about runs left out, and tests with an unknown change.

    `since` is a commit, a name for one, or a day. Changes end with the last runs, or with the run `now` alone. That run
    comes last, even if its code doesn't. Commits come from the repository of `source`, else of the working directory.
    Raises FilePerfError.
    """
    every, said = read(paths)
    repository = find_repository(Path.cwd() if source is None else source.rootdir)
    listed = None if repository is None else repository.answers("rev-list", "--first-parent", "--reverse", "HEAD")
    places = {commit: place for place, commit in enumerate((listed or "").split())}
    clean = [run for run in every if not run.dirty and run != now]
    runs = sorted((run for run in clean if run.commit in places), key=lambda run: (places[run.commit], run.at)) or clean
    if beside := len(every) - len(runs) - (now in every):
        said.append(f"{format_count(beside, 'run')} of uncommitted code or other branches left out")
    if now is not None:
        runs.append(now)
    shown = set(map(id, runs))
    found = [
        series
        for series in series_of(runs, [run for run in every if id(run) not in shown])
        if name.lower() in series.nodeid.lower() and metric in (None, series.metric)
    ]
    if (name or metric) and runs and not found:
        known = sorted({test for run in runs for test in run.tests})
        raise PlanError(f"no test and metric of this history matches. Its tests are {format_names(known)}")
    tree, is_later = ("", None) if since is None else _since(since, repository, places, source)
    trends, unknown = [], []
    for series, course in zip(found, courses_of(found), strict=True):
        begun = 0
        if is_later is not None:
            begun = next((at for at, run in enumerate(series.runs) if run is now or is_later(run)), len(series.runs))
        change = series.change_since(
            begun, tree if is_later else series.olds[0], course, of_last_run=series.runs[-1] is now
        )
        if change is None:
            said.append(f"{series.nodeid}: {series.metric} has no runs both before and after {since}")
            unknown.append(series.nodeid)
            continue
        trends.append(Trend(series=series, course=course, total=change, begun=begun))
        unknown += [series.nodeid] * (not trends[-1].is_known)
        if series.others:
            others = format_count(series.others, "run")
            said.append(f"{series.nodeid}: {others} with another load or request left out of {series.metric}")
        if series.unlinked:
            said.append(f"{series.nodeid}: no run compared a renewed baseline with the one before; `--link` does")
    return trends, list(dict.fromkeys(said)), format_names(list(dict.fromkeys(unknown)))


def _since(
    since: str, repository: Repository | None, places: Mapping[str, int], source: Source | None
) -> tuple[str, Callable[[Run], bool]]:
    """Returns the commit's tree (empty for a day), and a function that tells whether a run is later."""
    words = ("rev-parse", "--verify", "--quiet", f"{since}^{{commit}}")
    commit = None if repository is None else repository.answers(*words)
    if commit is None or repository is None:
        try:
            day = datetime.fromisoformat(since).astimezone(UTC)
        except ValueError:
            raise PlanError(f"--since={since} is neither a commit nor a day such as 2026-11-20") from None
        return "", lambda run: run.time >= day
    made = datetime.fromisoformat(repository.ask("show", "-s", "--format=%cI", commit))
    if source is None:
        with Source(Path.cwd(), Path(".fileperf")) as own:
            tree = own.tree_of(commit)[:12]
    else:
        tree = source.tree_of(commit)[:12]
    ordered = places.keys()
    return tree, lambda run: places[run.commit] > places[commit] if {run.commit, commit} <= ordered else run.time > made


def with_release(results: Sequence[Result], history: Path, run: Run, source: Source) -> list[Result]:
    """Returns a run's results, each with its change since the newest tag before the run's code, by the history.

    Results that were compared with that tag's own code stay as they are. Raises FilePerfError.
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
    return [
        result.having(
            comparisons=tuple(
                replace(item, since_release=changes.get((result.test.nodeid, item.metric)))
                for item in result.verdict.comparisons
            )
        )
        if result.verdict.old_tree != source.tree_of(commit)
        else result
        for result in results
    ]


# --- Measures a test at two commits again, alternately, in a clone

_TIME = "60s"
"""Twice the usual time of a comparison: fewer checks are undecided."""
_PATIENCE_S = 600.0


def compared(directory: Path, before: str, after: str, nodeid: str, *options: str) -> Sequence[MetricComparison]:
    """Returns the comparisons of a pytest run with these options, in a clone of `directory` and its repository.

    In the clone `after` is checked out. The user's files, index and branches stay as they are. Raises FilePerfError.
    """
    repository = find_repository(directory)
    if repository is None:
        raise PlanError(f"{directory} isn't in a Git repository")
    test, place = _item_of(nodeid), scratch.make("recheck")
    try:
        clone, record = place / repository.top.name, place / "record.json"
        repository.clone(after, clone)
        command = (
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--fileperf"),
            *(f"--fileperf-against={before}", f"--fileperf-json={record}", f"--fileperf-max-duration={_TIME}"),
            *(*options, test),
        )
        inside = clone / directory.resolve().relative_to(repository.top.resolve())
        done = run(command, cwd=inside, env=os.environ, timeout_s=_PATIENCE_S)
        if not record.exists():
            said = os.fsdecode(done.stdout + done.stderr)[-2000:]
            raise FilePerfError(f"{test} was not measured at {after[:7]}. Output of pytest:\n{said}")
        results = read_record(record).results
    except (GitError, OSError) as error:
        raise FilePerfError(f"{after[:7]} cannot be checked out: {error}") from error
    except subprocess.TimeoutExpired as error:
        raise FilePerfError(f"{test} at {after[:7]} took more than {_PATIENCE_S:g} s") from error
    finally:
        scratch.remove(place)
    return next((result.verdict.comparisons for result in results if result.test.nodeid == nodeid), ())


def _item_of(nodeid: str) -> str:
    """Returns pytest's name of a test, without the part or step of its load; parameters may have a `#`."""
    name, bracket, rest = nodeid.rpartition("]")
    return name + bracket + rest.partition("#")[0]


def check_steps(trends: Iterable[Trend]) -> Iterator[str]:
    """Measures both commits around the last step of each series; yields whether it is there, and how to find it."""
    measured: dict[tuple[str, str, str], Sequence[MetricComparison]] = {}
    for trend in trends:
        if not trend.steps:
            continue
        step, series = trend.steps[-1], trend.series
        before, after = series.runs[step.at - 1], series.runs[step.latest if step.is_slow else step.at]
        title = f"{series.nodeid} {series.metric}"
        if not (before.commit and after.commit) or before.commit == after.commit:
            yield f"{title}: its step is not between two commits, so it cannot be measured"
            continue
        both = before.commit, after.commit, series.nodeid
        if both not in measured:
            yield f"measuring {series.nodeid} at {both[0][:7]} and {both[1][:7]}, about a minute"
            try:
                measured[both] = compared(Path.cwd(), *both)
            except FilePerfError as error:
                yield f"{series.nodeid}: {error}"
                measured[both] = ()
        one = next((item for item in measured[both] if item.metric == series.metric), None)
        answer = _answer(one, step)
        yield f"{title}: {answer}"
        if METRICS[series.metric].worse_sign * step.change > 0 and not answer.startswith("no,"):
            yield from _bisect(*both, step)


def _answer(found: MetricComparison | None, step: Step) -> str:
    """Returns whether a comparison confirms a step."""
    if found is None or found.change is None or found.low is None or found.high is None:
        why = sentence(found.reason) if found is not None else ""
        return f"not decided: {why or 'both commits could not be compared'}"
    low, high = (format_change(bound, unit=False) for bound in (found.low, found.high))
    seen, half = f"{format_change(found.change)} [{low}, {high}], measured again", as_share(step.change / 2)
    sign = math.copysign(1, step.change)
    if min(sign * found.low, sign * found.high) > 0:
        return f"yes, {seen}"
    return f"no, {seen}" if max(sign * found.low, sign * found.high) < sign * half else f"not decided, {seen}"


def _bisect(before: str, after: str, nodeid: str, step: Step) -> Iterator[str]:
    repository = find_repository(Path.cwd())
    between = None if repository is None else repository.answers("rev-list", "--count", f"{before}..{after}")
    if between == "1":
        yield f"  it is {after[:10]}, the only commit between both runs"
    if between in (None, "0", "1"):
        return
    half = abs(as_share(step.change / 2))
    yield f"  one of {between} commits; this finds it:"
    yield f"  git bisect start {after[:10]} {before[:10]}"
    options = (
        f"--fileperf-against={before[:10]} --fileperf-max-duration={_TIME} -o fileperf_tolerance={100 * half:.2g}%"
        " -o fileperf_history="  # a history that is committed would change, and Git then checks nothing out
    )
    yield f"  git bisect run python -m pytest --fileperf {options} {shlex.quote(_item_of(nodeid))}"


def link_baselines(paths: Sequence[Path], name: str = "") -> Iterator[str]:
    """Measures the difference between renewed baselines if no run tells it, and appends it to the first history."""
    commits = {run.tree: run.commit for run in read(paths)[0] if run.commit and not run.dirty}
    series = [trend.series for trend in trends_of(paths, name=name)[0]]
    wanted = sorted({(own.nodeid, *both) for own in series for both in own.unlinked})
    if not wanted:
        yield "every renewed baseline is linked to the one before"
    for nodeid, old, new in wanted:
        if not commits.keys() >= {new, old}:
            yield f"{nodeid}: no run has the commits of both baselines, so they cannot be measured"
            continue
        try:
            compared(Path.cwd(), commits[old], commits[new], nodeid, f"--fileperf-history={paths[0].resolve()}")
            yield f"{nodeid}: {commits[new][:7]} was compared with {commits[old][:7]}"
        except FilePerfError as error:
            yield f"{nodeid}: {error}"
