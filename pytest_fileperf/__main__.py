"""The command `python -m pytest_fileperf`: makes reports from stored runs, trends, and new tests for an app."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from pytest_fileperf.errors import FilePerfError
from pytest_fileperf.units import format_count

HISTORY = Path(".fileperf/history.jsonl")
_INI_FILES = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
NEW_TESTS = Path("tests/performance/test_endpoints.py")


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 1 for an unusable file or a loss above `--fail-over`, 2 for wrong usage, otherwise 0."""
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.command is None:
        parser.print_help()
        return 0
    try:
        return {"report": _report, "new": _new, "trend": _trend}[given.command](given)
    except FilePerfError as error:
        sys.stderr.write(f"{error}\n")
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pytest_fileperf", description="Writes load tests. Makes reports and trends of earlier runs."
    )
    commands = parser.add_subparsers(dest="command", title="commands")
    report = commands.add_parser(
        "report",
        help="make reports from an earlier run",
        description="Makes reports from a file that --fileperf-json wrote. Without an option, prints the report.",
    )
    report.add_argument("run", type=Path, help="the file that --fileperf-json wrote")
    report.add_argument("--text", action="store_true", help="print the report for a terminal")
    report.add_argument("-v", "--verbose", action="store_true", help="print every figure, as pytest -v does")
    report.add_argument("--html", type=Path, metavar="PATH", help="write tables and charts as one HTML file")
    report.add_argument("--markdown", type=Path, metavar="PATH", help="write a summary for a pull request as Markdown")
    report.add_argument(
        "--comment", type=Path, metavar="PATH", help="write a short Markdown file for a comment on a pull request"
    )
    new = commands.add_parser(
        "new",
        help="write a load test for each endpoint of an app",
        description="Writes a module with a load test for each endpoint that an app documents or a browser recorded.",
    )
    new.add_argument(
        "source",
        help='the app, as "module:attribute" or "module:factory()"; or an OpenAPI or HAR file in JSON',
    )
    new.add_argument("--app", help="the app to test if the source is a file (default: fileperf_app in the ini file)")
    new.add_argument("--output", type=Path, default=NEW_TESTS, metavar="PATH", help=f"the module (default {NEW_TESTS})")
    trend = commands.add_parser(
        "trend",
        help="show how tests changed over many runs",
        description="Shows which commits made tests slower or faster, from files that --fileperf-history wrote.",
    )
    trend.add_argument("histories", nargs="*", type=Path, help=f"history files (default {HISTORY})", metavar="PATH")
    trend.add_argument("-k", default="", metavar="TEXT", help="show only tests with this text in their names")
    trend.add_argument("--metric", metavar="NAME", help="show only this metric, such as rps or p99")
    trend.add_argument("--since", metavar="REF|DATE", help="show changes since a commit, tag or day (2026-11-20)")
    trend.add_argument(
        "--fail-over", metavar="SHARE", help="exit with code 1 if a metric surely worsened by more than this, as in 3%%"
    )
    trend.add_argument("--check", action="store_true", help="measure each test's last lasting change (step) again")
    trend.add_argument("--link", action="store_true", help="compare each renewed baseline with the one before it")
    trend.add_argument("--json", type=Path, metavar="PATH", help="write all values as JSON")
    trend.add_argument("--html", type=Path, metavar="PATH", help="write charts as one HTML file")
    return parser


def _report(given: argparse.Namespace) -> int:
    from pytest_fileperf.host.files import write_text
    from pytest_fileperf.report.record_file import read_record

    record, out = read_record(given.run), sys.stdout
    if given.html is not None:
        from pytest_fileperf.report.page.document import results_html

        write_text(given.html, results_html(record))
        out.write(f"wrote {given.html}\n")
    if given.markdown is not None or given.comment is not None:
        from pytest_fileperf.report.markdown import comment_report, markdown_report

        for path, made_of in ((given.markdown, markdown_report), (given.comment, comment_report)):
            if path is not None:
                write_text(path, made_of(record))
                out.write(f"wrote {path}\n")
    if given.text or (given.html is None and given.markdown is None and given.comment is None):
        from pytest_fileperf.report.terminal import session_text
        from pytest_fileperf.report.text import Screen, show_what_it_can

        show_what_it_can(out)
        screen = Screen(width=shutil.get_terminal_size().columns, colour=True) if out.isatty() else Screen()
        out.write(session_text(record, screen, verbosity=int(given.verbose)))
    return 0


def _new(given: argparse.Namespace) -> int:
    from pytest_fileperf.report.new_tests import is_left_out, new_tests
    from pytest_fileperf.serve.endpoints import document_of, endpoints_of

    path = given.output
    if path.exists():
        raise FilePerfError(f"{path} exists already. Give another path with --output")
    endpoints = endpoints_of(document_of(given.source))
    if not endpoints:
        raise FilePerfError(f"no test was written, because {given.source} describes no endpoints")
    is_file = given.source.endswith((".json", ".har"))
    text = new_tests(endpoints, given.app if is_file else given.source, given.source)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise FilePerfError(f"cannot write {path}: {error.strerror}") from error
    left_out = [endpoint for endpoint in endpoints if is_left_out(endpoint)]
    waiting = [endpoint for endpoint in endpoints if endpoint.needs and not is_left_out(endpoint)]
    out = [f"wrote {path}: {format_count(len(endpoints) - len(left_out), 'test')}"]
    if waiting:
        out += [f"skipped until you fill in missing values: {format_count(len(waiting), 'test')} (-rs says which)"]
    if any("credentials" in endpoint.needs for endpoint in waiting):
        out += ["some endpoints need a login: let a setup log in (examples/auth)"]
    if left_out:
        out += [f"written as comments, because they would delete data: {format_count(len(left_out), 'more test')}"]
    if is_file and given.app is None:
        out += ["name the app in pytest's ini file: fileperf_app = module:attribute"]
    if any(endpoint.method not in ("get", "head") for endpoint in endpoints):
        out += ["these tests write data: first give the server a database and files of its own (examples/databases)"]
    out += [f"try them with a few requests: python -m pytest --fileperf-smoke -rs {path}"]
    if not any("pythonpath" in file.read_text("utf-8", "replace") for file in map(Path, _INI_FILES) if file.is_file()):
        out += ["to let plain `pytest` find the app, add to its ini file: pythonpath = ."]
    sys.stdout.write("".join(f"{line}\n" for line in out))
    return 0


def _trend(given: argparse.Namespace) -> int:
    from pytest_fileperf.host.files import write_text
    from pytest_fileperf.judge.history import trends_of
    from pytest_fileperf.report.text import Screen, show_what_it_can
    from pytest_fileperf.report.trend import trend_text, trend_values
    from pytest_fileperf.units import format_names, parse_share

    paths, since, out = given.histories or [HISTORY], given.since, sys.stdout
    try:
        worst = None if given.fail_over is None else parse_share(given.fail_over)
        if worst is not None and worst >= 1:
            raise ValueError(f"{given.fail_over!r} would be {worst:.0%}. Write a percentage, as in 3%")
    except ValueError as error:
        sys.stderr.write(f"--fail-over: {error}\n")
        return 2
    if worst is not None and since is None:
        sys.stderr.write("--fail-over needs a start, as in --since=v1.4\n")
        return 2
    if given.link:
        from pytest_fileperf.session.history import link_baselines

        out.writelines(f"{line}\n" for line in link_baselines(paths, given.k))
    trends, said, unknown = trends_of(paths, name=given.k, metric=given.metric, since=since)
    if given.json is not None:
        write_text(given.json, json.dumps(trend_values(trends), indent=1) + "\n")
    if given.html is not None:
        from pytest_fileperf.report.page.trend import trend_html

        write_text(given.html, trend_html(trends))
    show_what_it_can(out)
    screen = Screen(width=shutil.get_terminal_size().columns, colour=out.isatty())
    out.write(trend_text(trends, screen, since=since, said=said))
    if given.check:
        from pytest_fileperf.session.history import check_steps

        for line in check_steps(trends):
            out.write(f"{line}\n")
            out.flush()
    if worst is None:
        return 0
    beyond = [own.series for own in trends if own.sure_loss > worst]
    for series in beyond:
        worse = f"{series.metric} became worse by more than {given.fail_over} since {since}"
        sys.stderr.write(f"{series.nodeid}: {worse}\n")
    if unknown or not trends:
        whose = format_names(unknown) or "any test"
        sys.stderr.write(f"--fail-over: the runs do not show how much {whose} changed since {since}\n")
    return 1 if beyond or unknown or not trends else 0


if __name__ == "__main__":
    raise SystemExit(main())
