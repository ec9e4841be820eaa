"""The report as one HTML file, for `--fileperf-html`: tables, and charts that plotly.js draws, without any network.

Needs plotly for its JavaScript, which becomes part of the file. A policy in the file allows only the scripts that are
in it: nothing else runs or is loaded, whatever a test's name or a server's answer contains.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib.resources import files

from pytest_fileperf.judge.environment import server_packages
from pytest_fileperf.judge.groups import SessionRecord
from pytest_fileperf.judge.result import Result, Standing
from pytest_fileperf.report.counts import summary_line
from pytest_fileperf.report.details import word_of
from pytest_fileperf.report.failed import failed_count
from pytest_fileperf.report.page.causes import failed_section
from pytest_fileperf.report.page.charts import charts_of
from pytest_fileperf.report.page.drawing import Chart
from pytest_fileperf.report.page.gates import badge
from pytest_fileperf.report.page.groups import group_sections
from pytest_fileperf.report.page.markup import Markup, data_block, document, element, raw_element
from pytest_fileperf.report.page.overview import entries_of, overview
from pytest_fileperf.report.page.section import facts_list, section
from pytest_fileperf.report.short_summary import SLOWER_WORLD, slower_worlds

__all__ = ("results_html",)

_SHORT_COMMIT = 10


def results_html(record: SessionRecord) -> str:
    """Returns the text of the file."""
    from plotly.offline import get_plotlyjs

    entries = entries_of(record)
    sections: list[Markup] = []
    charts: list[Chart] = []
    for entry in entries:
        own = charts_of(entry.result)
        sections.append(section(entry, own, len(charts)))
        charts += own
    scripts = (_part("filter.js"), get_plotlyjs(), _part("script.js"))
    return document(
        head=(
            element("meta", charset="utf-8"),
            element("meta", http_equiv="Content-Security-Policy", content=_policy(scripts)),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("title", f"Load tests: {summary_line(record.results, record.failed)}"),
            raw_element("style", _part("style.css")),
        ),
        body=(
            _header(record),
            element("noscript", element("p", "There are no charts without JavaScript; all else is in the tables.")),
            element(
                "main",
                failed_section(record.failed),
                overview(entries),
                group_sections(record.groups, {id(entry.result): entry for entry in entries}),
                element("section", element("h2", "Each test"), *sections) if sections else Markup(""),
            ),
            data_block([{"traces": chart.traces, "layout": chart.layout} for chart in charts], id="charts"),
            *(raw_element("script", script) for script in scripts),
        ),
    )


def _part(name: str) -> str:
    return files("pytest_fileperf.report.page").joinpath(name).read_text(encoding="utf-8")


def _policy(scripts: Sequence[str]) -> str:
    """Returns a content security policy under which these scripts run, and no others."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    # plotly.js styles what it draws in place, and makes pictures for those who save one.
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:"


def _header(record: SessionRecord) -> Markup:
    results = record.results
    smoke = bool(results) and all(result.smoke for result in results)
    failed = failed_count(record.failed, measured=bool(results))
    counts = f"{len(results)} measured" if results else "nothing was measured"
    return element(
        "header",
        element("h1", "Load tests"),
        element("p", counts, *_badges(results), *([badge(Standing.FAILED, failed)] if failed else []), class_="counts"),
        element("p", "A smoke run: a few requests each, nothing judged.") if smoke else Markup(""),
        facts_list(_facts(record)),
    )


def _badges(results: Sequence[Result]) -> list[Markup]:
    counts = Counter(result.standing for result in results)
    found = [badge(standing, f"{counts[standing]} {word_of(standing)}") for standing in Standing if counts[standing]]
    slower = len(slower_worlds(results))
    return [*found, badge(Standing.REGRESSED, f"{slower} {SLOWER_WORLD}")] if slower else found


def _facts(record: SessionRecord) -> list[tuple[str, list[str]]]:
    known = record.environment
    cores = [f"{known['cores']} cores"] if "cores" in known else []
    machine = [str(known[name]) for name in ("cpu", "machine", "system", "python") if name in known]
    packages = known.get("packages")
    shown = server_packages(packages) if isinstance(packages, Mapping) else {}
    versions = [f"{name} {version}" for name, version in shown.items()]
    return [
        ("made", [f"{datetime.fromisoformat(record.created):%Y-%m-%d %H:%M %Z}".rstrip()] if record.created else []),
        ("by", [record.asked.command] if record.asked.command else []),
        ("commit", [] if record.commit is None else _commit(record.commit)),
        ("machine", [*machine, *cores]),
        ("packages", versions),
    ]


def _commit(commit: Mapping[str, object]) -> list[str]:
    changed = ["with changes not committed"] if commit.get("dirty") else []
    return [str(commit.get("id"))[:_SHORT_COMMIT], f"branch {commit.get('branch')}", *changed]
