"""Makes examples/reference.md from the code: every option, ini setting, key, fixture, figure and outcome.

python tests/reference.py      # writes the file; tests/test_reference.py fails while it is stale
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pytest_fileperf.measure.metrics import METRICS, Metric
from pytest_fileperf.plugin.options import add_options
from pytest_fileperf.settings.arguments import STEP_KEYS
from pytest_fileperf.settings.keys import KEYS, LIMITS
from pytest_fileperf.units import format_count

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "examples" / "reference.md"
PACKAGE = ROOT / "pytest_fileperf"
_HEAD = """\
# Reference

For everyone who looks up an option, ini setting, key, fixture, figure or outcome. `pytest --help` has the options too.
The JSON file has [its own page](json.md). The code makes this page:

```console
$ python tests/reference.py
```
"""
_KEYS_HEAD = """\
Write a key in the marker, `@pytest.mark.fileperf(connections=64)`, for a test, a class or a module (`pytestmark`). Or
give it to a call: `fileperf.get("/", connections=64)`. The call wins over the marker, the marker over the command line,
and that over the ini file. A usage error lists all unknown keys and wrong values.
"""
_REQUEST_HEAD = """\
`fileperf.get` and the others also take these keywords. `fileperf.run(journey)` takes the keys of the marker, `steps`
and `http2`.
"""
_RUN_HEAD = """\
`fileperf.run(journey)` and `part.run(journey)` also take these. A step takes {keys}.
"""
_STREAM_HEAD = """\
`fileperf.stream(url)` takes these, the keywords of a request, and the keys of the marker.
"""
_RESULT_HEAD = """\
`fileperf.get` and the others return a `Measurement`. Times are in seconds, sizes in bytes, and shares from 0 to 1.
`print(result)` is short.
"""
_METRICS_HEAD = """\
`gate`, `watch` and `tolerance` take these names. A percentile needs so many requests for each version.
"""


@dataclass(frozen=True, slots=True)
class _Options:
    """Takes what `add_options` registers, as pytest's parser does."""

    options: dict[str, tuple[str, str]] = field(default_factory=dict)
    """How each option is written, and what it does, by the name of the setting."""
    settings: dict[str, str] = field(default_factory=dict)
    """What each ini setting does."""

    def getgroup(self, *_: object) -> _Options:
        return self

    def addoption(self, name: str, *, help: str, metavar: str = "", nargs: str = "", **_: object) -> None:
        value = f"[={metavar}]" if nargs == "?" else f"={metavar}" if metavar else ""
        self.options[name.removeprefix("--").replace("-", "_")] = (name + value, help)

    def addini(self, name: str, help: str, **_: object) -> None:
        self.settings[name] = help


def reference_text() -> str:
    """Returns the page."""
    keywords = PACKAGE / "settings" / "keywords.py"
    marker = documented(keywords, "StepKeywords") | documented(keywords, "_Judged") | documented(keywords, "MarkerKeys")
    request: dict[str, str] = {}
    for name in ("_Recipe", "_Ordering"):
        request |= documented(keywords, name)
    stream = documented(keywords, "StreamKeywords")
    parts = (
        _HEAD,
        "## Options and ini settings\n",
        _options_table(),
        "## Keys of the marker\n",
        _KEYS_HEAD,
        _table(("key", "means"), ((f"`{key}`", marker[key]) for key in KEYS)),
        "## Keywords of a request\n",
        _REQUEST_HEAD,
        _table(("keyword", "means"), ((f"`{key}`", text) for key, text in request.items())),
        "## Keywords of a journey\n",
        _RUN_HEAD.format(keys=", ".join(f"`{key}`" for key in STEP_KEYS)),
        _table(("keyword", "means"), ((f"`{key}`", text) for key, text in documented(keywords, "_OfJourney").items())),
        "## Keywords of a stream\n",
        _STREAM_HEAD,
        _table(("keyword", "means"), ((f"`{key}`", text) for key, text in stream.items())),
        "## Figures of a result\n",
        _RESULT_HEAD,
        _table(("figure", "means"), _figures()),
        "## Metrics\n",
        _METRICS_HEAD,
        _table(("metric", "limit", "tolerance", "least requests"), _metrics()),
        "## Outcomes\n",
        _table(("outcome", "means"), _outcomes()),
        "## Fixtures\n",
        _table(("fixture", "value"), ((f"`{name}`", text) for name, text in _fixtures())),
    )
    return "\n".join(parts)


def documented(module: Path, class_name: str) -> dict[str, str]:
    """Returns the fields and properties that a class of the module defines, each with its text as one line."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    (found,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == class_name)
    texts: dict[str, str] = {}
    for node, after in zip(found.body, [*found.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign | ast.Assign):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            constant = after.value if isinstance(after, ast.Expr) else None
            texts[ast.unparse(target)] = _line(constant.value) if isinstance(constant, ast.Constant) else ""
        elif isinstance(node, ast.FunctionDef) and "property" in map(ast.unparse, node.decorator_list):
            texts[node.name] = _line(ast.get_docstring(node) or "")
    return texts


def _options_table() -> str:
    given = _Options()
    add_options(given)  # type: ignore[arg-type]  # it has the two methods that are called
    names = dict.fromkeys([*given.options, *given.settings])
    rows = []
    for name in names:
        option, option_help = given.options.get(name, ("", ""))
        setting = f"`{name}`" if name in given.settings else ""
        rows.append((f"`{option}`" if option else "", setting, option_help or given.settings[name]))
    return _table(("option", "ini setting", "does"), rows)


def _figures() -> Iterator[tuple[str, str]]:
    module = PACKAGE / "measure" / "measurement.py"
    parts = {"server": "ServerUse", "client": "ClientUse", "events": "EventSummary"}
    for name, text in documented(module, "Measurement").items():
        if name in parts:
            for part, part_text in documented(module, parts[name]).items():
                yield f"`{name}.{part}`", part_text
        elif name == "latency":
            *names, _ = documented(module, "LatencySummary")  # the last one holds the others
            listed = ", ".join(f"`latency.{part}`" for part in names)
            yield f"`{name}`", f"{text} It has {listed}, and `latency.percentile(99.5)` for any percentile."
        else:
            yield f"`{name}`", text


def _metrics() -> Iterator[tuple[str, ...]]:
    for metric in METRICS.values():
        limit = f"`{metric.limit_key}`" if metric.limit_key in LIMITS else ""
        yield f"`{metric.name}`", limit, f"{metric.tolerance * 100:g} %", _least(metric)


def _least(metric: Metric) -> str:
    return f"{metric.least_requests:,}" if metric.events is None else format_count(metric.least_events, "event")


def _outcomes() -> Iterator[tuple[str, ...]]:
    values = documented(PACKAGE / "judge" / "record.py", "Standing")
    for name, text in values.items():
        if name.isupper():
            yield f"`{'-' if name == 'UNGATED' else name}`", text


def _fixtures() -> Iterator[tuple[str, str]]:
    tree = ast.parse((PACKAGE / "plugin" / "fixtures.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and any(ast.unparse(it) == "pytest.fixture" for it in node.decorator_list):
            yield node.name, _line(ast.get_docstring(node) or "")


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _line(text: object) -> str:
    return re.sub(r"\s+", " ", str(text)).strip()


if __name__ == "__main__":
    PAGE.write_text(reference_text(), encoding="utf-8")
