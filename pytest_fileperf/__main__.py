"""`python -m pytest_fileperf report run.json`: makes reports of a run again. Only what is asked for is imported."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from pytest_fileperf.errors import FilePerfError


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit code: 0, 1 if a file cannot be read or written, 2 for wrong usage."""
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.command is None:
        parser.print_help()
        return 0
    if given.html is not None and find_spec("plotly") is None:
        sys.stderr.write('--html: its charts need plotly, install it with pip install "pytest-fileperf[html]"\n')
        return 2
    try:
        _report(given)
    except FilePerfError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pytest_fileperf", description="Works with results of load tests that pytest has run."
    )
    commands = parser.add_subparsers(dest="command", title="commands")
    report = commands.add_parser(
        "report",
        help="make reports of a run again",
        description="Makes reports of what `pytest --fileperf-json=PATH` has written; prints one without any PATH.",
    )
    report.add_argument("run", type=Path, help="the file of --fileperf-json")
    report.add_argument("--text", action="store_true", help="print what the terminal showed")
    report.add_argument("-v", "--verbose", action="store_true", help="print every figure, as pytest -v does")
    report.add_argument("--html", type=Path, metavar="PATH", help="write tables and charts as one HTML file")
    report.add_argument("--markdown", type=Path, metavar="PATH", help="write a summary for a pull request as Markdown")
    return parser


def _report(given: argparse.Namespace) -> None:
    from pytest_fileperf.host.files import write_text
    from pytest_fileperf.report.record_file import read_record

    record, out = read_record(given.run), sys.stdout
    if given.html is not None:
        from pytest_fileperf.report.page.document import results_html

        write_text(given.html, results_html(record))
        out.write(f"wrote {given.html}\n")
    if given.markdown is not None:
        from pytest_fileperf.report.markdown import markdown_report

        write_text(given.markdown, markdown_report(record))
        out.write(f"wrote {given.markdown}\n")
    if given.text or (given.html is None and given.markdown is None):
        from pytest_fileperf.report.terminal import session_text
        from pytest_fileperf.report.text import Screen, show_what_it_can

        show_what_it_can(out)
        screen = Screen(width=shutil.get_terminal_size().columns, colour=True) if out.isatty() else Screen()
        out.write(session_text(record, screen, verbosity=int(given.verbose)))


if __name__ == "__main__":
    raise SystemExit(main())
