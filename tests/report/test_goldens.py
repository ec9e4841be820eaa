"""Every report of stored sessions, compared with the files beside them.

`golden/NAME/run.json` is what reports are made of again, of a file of `--fileperf-json`: to see a sentence more, add a
result or a value to it.

Files that should change: delete them, run the tests with RENEW_GOLDENS=1, and read the difference. Without that
variable, a missing file fails its test, and the text is in the test's `tmp_path`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from report.samples import GOLDEN, stored

from pytest_fileperf.errors import PerformanceError
from pytest_fileperf.judge.groups import SessionRecord
from pytest_fileperf.judge.record import Result, Standing
from pytest_fileperf.measure.codec import json_text
from pytest_fileperf.report.annotations import github_commands
from pytest_fileperf.report.markdown import markdown_report
from pytest_fileperf.report.message import raise_for
from pytest_fileperf.report.page.charts import charts_of
from pytest_fileperf.report.page.document import results_html
from pytest_fileperf.report.record_file import results_json
from pytest_fileperf.report.terminal import session_text, undecided_lines
from pytest_fileperf.report.text import Screen

SESSIONS = sorted(path.parent.name for path in GOLDEN.glob("*/run.json"))
WITH_A_PAGE = (
    "by_loop", "every_kind", "failed", "in_turn", "limits", "names", "odd", "only_failed", "open_loops", "smoke",
    "streams", "variants", "watched", "worlds",
)  # fmt: skip
"""Sessions whose page is compared as well: the others say nothing new there."""
WITH_CHARTS = ("capacity", "every_kind", "in_turn", "odd", "open_loops", "streams", "watched", "worlds")
IN_FULL = ("by_loop", "capacity", "failed", "in_turn", "odd", "open_loops", "streams")
"""Sessions whose JSON for other programs is compared."""
BLOCKS = r"article|details|div|dl|dt|fieldset|h\d|li|p|pre|section|summary|svg|t[dhr]|table"
IN_COLOUR = ("every_kind", "variants")


def terminal(record: SessionRecord) -> str:
    """Returns what a terminal shows, at several widths, without and with `-q` and `-v`."""
    made = []
    for width, verbosity in ((80, 0), (80, -1), (48, 0), (120, 0), (76, 1)):
        text = session_text(record, Screen(width=width), verbosity=verbosity)
        made.append(f"=== {width} wide, verbosity {verbosity}\n{text}")
    return "".join(made)


def in_colour(record: SessionRecord) -> str:
    return session_text(record, Screen(colour=True)).replace("\x1b", "<ESC>")


def messages(record: SessionRecord) -> str:
    """Returns the failure of each test, what fails only in CI or with `--fileperf-strict`, and annotations."""
    made = []
    for result in record.results:
        said = [message(result, strict=strict, ci=ci) for strict, ci in ((False, False), (False, True), (True, False))]
        made += [f"=== {result.test.nodeid}", *dict.fromkeys(filter(None, said))]
        if result.standing is Standing.INCONCLUSIVE:
            made += ["---", *undecided_lines(result.test.nodeid, [result], Screen())]
    return "\n".join([*made, "=== annotations", *github_commands(record, root="service"), ""])


def message(result: Result, *, strict: bool, ci: bool) -> str:
    try:
        raise_for(result, strict=strict, ci=ci)
    except PerformanceError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def page(record: SessionRecord) -> str:
    """Returns the page with an element a line, without what is the same in all, and without its charts."""
    text = re.sub(r"(?s)<(style|script)\b.*?</\1>", "", results_html(record))
    text = re.sub(r"<meta [^>]*>|<figure>.*?</figure>", "", text)
    return re.sub(f"(?=<(?:{BLOCKS})\\b)", "\n", text) + "\n"


def charts(record: SessionRecord) -> str:
    """Returns the data of all charts, a line each."""
    made = []
    for result in record.results:
        made.append(f"=== {result.test.nodeid}")
        for chart in charts_of(result):
            made.append(f"--- {chart.title}: {chart.says}")
            rest = replace(chart, title="", says="", lines=())
            drawn = [shortened(told(asdict(each))) for each in chart.lines]
            drawn.append(shortened(told(asdict(rest))))
            made += [json.dumps(each, ensure_ascii=False, allow_nan=False) for each in drawn]
    return "\n".join([*made, ""])


def told(value: Any) -> Any:
    """Returns the value without what is empty or False, with five digits of each number."""
    if isinstance(value, Mapping):
        return {key: told(item) for key, item in value.items() if item or (item == 0.0 and item is not False)}
    if isinstance(value, list | tuple):
        return [told(item) for item in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def in_full(record: SessionRecord) -> str:
    """Returns what other programs read of a file."""
    document = json.loads(results_json(record))
    del document["record"]
    return json_text(shortened(document) | {"results": [*map(shortened, document["results"])]}) + "\n"


def shortened(value: Any) -> Any:
    """Returns the value with the beginning and the end of long lists, and of lists of objects the first."""
    if isinstance(value, Mapping):
        return {key: shortened(item) for key, item in value.items()}
    if not isinstance(value, list | tuple):
        return value
    kept = [*map(shortened, value)]
    if any(isinstance(item, dict) for item in kept):
        return kept if len(kept) <= 4 else [*kept[:2], f"{len(kept) - 2} more"]
    return kept if len(kept) <= 16 else [*kept[:10], f"{len(kept) - 12} more", *kept[-2:]]


OUTPUTS: tuple[tuple[str, Callable[[SessionRecord], str], Sequence[str]], ...] = (
    ("terminal.txt", terminal, SESSIONS),
    ("in_colour.txt", in_colour, IN_COLOUR),
    ("messages.txt", messages, SESSIONS),
    ("report.md", markdown_report, SESSIONS),
    ("page.html", page, WITH_A_PAGE),
    ("charts.txt", charts, WITH_CHARTS),
    ("in_full.json", in_full, IN_FULL),
)
CASES = [(name, file, make) for file, make, names in OUTPUTS for name in names]


@pytest.mark.parametrize("name,file,make", CASES, ids=[f"{name}/{file}" for name, file, _ in CASES])
def test_reports_of_a_stored_session(
    name: str, file: str, make: Callable[[SessionRecord], str], tmp_path: Path
) -> None:
    path, text = GOLDEN / name / file, make(stored(name)).encode(errors="backslashreplace").decode()
    if not path.exists():
        written = path if os.environ.get("RENEW_GOLDENS") else tmp_path / file
        written.write_text(text, encoding="utf-8")
        pytest.fail(f"{path} was missing: {written} is written")
    assert text == path.read_text(encoding="utf-8")
