"""Writes results to pytest-benchmark's storage, for `--fileperf-save`, so that its CLI can read them.

pytest-benchmark's own code decides the file's place and name, and describes the machine. Our code describes the commit,
because pytest-benchmark's code would write Git's index and run hooks. These fields have another meaning:

    ops                     requests per second, at the concurrency of the load (so not 1 / mean)
    rounds                  number of successful requests; the times are their latencies in seconds
    median q1 q3            nearest-rank p50, p25, p75 (pytest-benchmark interpolates), to three significant digits
    extra_info.fileperf     percentiles, bytes/s, server CPU, errors, attack and wait, standing, and limit, in SI units

Quartiles and outliers come from the histogram, so latencies are at most 0.1 % too high.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from pytest_benchmark.storage.file import FileStorage
from pytest_benchmark.utils import get_current_time, get_machine_id, parse_save, safe_dumps

from pytest_fileperf.errors import FilePerfError, PlanError
from pytest_fileperf.host.files import write_text
from pytest_fileperf.judge.grouping import param_id
from pytest_fileperf.judge.groups import SessionRecord
from pytest_fileperf.judge.record import Result
from pytest_fileperf.measure.codec import json_value, named
from pytest_fileperf.measure.histogram import Histogram

# pytest-benchmark claims to be typed, but its functions are not.
# mypy: allow-untyped-calls

DEFAULT_STORAGE = "file://./.benchmarks"
"""pytest-benchmark's own default, relative to the current directory."""
_NO_COMMIT = {"id": "unversioned", "time": None, "author_time": None, "dirty": False, "branch": "(unknown)"}
"""Values that pytest-benchmark writes if there is no version control."""


def run_document(commit: Mapping[str, object] | None, project: str) -> dict[str, object]:
    """Returns pytest-benchmark's document without results, but with its facts about machine, commit and time."""
    from pytest_benchmark import __version__
    from pytest_benchmark.plugin import pytest_benchmark_generate_machine_info

    return {
        "machine_info": json_value(pytest_benchmark_generate_machine_info()),
        "commit_info": json_value({**(_NO_COMMIT if commit is None else commit), "project": project}),
        "benchmarks": [],
        "datetime": datetime.now(UTC).isoformat(),
        "version": __version__,
    }


def benchmarks_of(record: SessionRecord) -> list[dict[str, object]]:
    """Returns an entry of pytest-benchmark's format for each result with successful requests."""
    return [_benchmark(result) for result in record.results if result.measurement.requests and not result.smoke]


def benchmark_json(document: Mapping[str, object]) -> str:
    return str(safe_dumps(document, ensure_ascii=True, indent=4, allow_nan=False))


def save_benchmarks(
    document: Mapping[str, object], *, name: str | None = None, storage: str = DEFAULT_STORAGE
) -> Path | None:
    """Writes the document as the storage's next file, `NNNN_NAME.json`. Returns its path; None without benchmarks.

    `name` defaults to commit and time, as in `--benchmark-autosave`. Raises PlanError for a bad name, or a storage that
    isn't a directory of files. Raises FilePerfError if the storage cannot be written.
    """
    if not document["benchmarks"]:
        return None
    files = _file_storage(storage)
    tag = _tag(document["commit_info"], name)
    taken = [int(path.name.split("_")[0]) for path in files.query("[0-9][0-9][0-9][0-9]_*")]
    path = Path(files.get(f"{max(taken, default=0) + 1:04}_{tag}.json"))
    write_text(path, benchmark_json(document))
    return path


def _file_storage(storage: str) -> FileStorage:
    scheme, separator, path = storage.partition("://")
    if separator and scheme != "file":
        raise PlanError(f"cannot save runs to {storage}. Give a directory or file://PATH", where="--fileperf-save")
    directory = path if separator else storage
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FilePerfError(f"cannot create the directory {directory}: {error.strerror or error}") from error
    return FileStorage(directory, logger=None, default_machine_id=get_machine_id())


def _tag(commit: object, name: str | None) -> str:
    if name is None:
        facts = commit if isinstance(commit, Mapping) else _NO_COMMIT
        changed = ["uncommitted-changes"] if facts.get("dirty") else []
        return "_".join((str(facts.get("id")), get_current_time(), *changed))
    try:
        return str(parse_save(name))
    except argparse.ArgumentTypeError as error:
        raise PlanError(f"{name!r} cannot be part of a file name: {error}", where="--fileperf-save") from error


def _benchmark(result: Result) -> dict[str, object]:
    test = result.test
    return {
        "group": test.group,
        "name": f"{test.name}{test.further}",
        "fullname": test.nodeid,
        "params": json_value(test.params) or None,
        "param": param_id(test.name) or None,
        "extra_info": {"fileperf": json_value(_extra(result))},
        "options": {},
        "stats": _stats(result.recording.latency(), rps=result.measurement.rps),
    }


def _stats(latency: Histogram, *, rps: float) -> dict[str, object]:
    values_ns, mean_ns, stdev_ns = latency.values_ns(), latency.mean_ns(), latency.stdev_ns()
    q1_ns, median_ns, q3_ns = (latency.percentile_ns(percent) for percent in (25, 50, 75))
    iqr_ns = q3_ns - q1_ns
    near = (values_ns >= q1_ns - 1.5 * iqr_ns) & (values_ns <= q3_ns + 1.5 * iqr_ns)
    typical = (values_ns >= mean_ns - stdev_ns) & (values_ns <= mean_ns + stdev_ns)
    iqr_outliers, stddev_outliers = (int(latency.counts[~shown].sum()) for shown in (near, typical))
    return {
        "min": latency.min_ns / 1e9,
        "max": latency.max_ns / 1e9,
        "mean": mean_ns / 1e9,
        "stddev": stdev_ns / 1e9,
        "rounds": latency.count,
        "median": median_ns / 1e9,
        "iqr": iqr_ns / 1e9,
        "q1": q1_ns / 1e9,
        "q3": q3_ns / 1e9,
        "iqr_outliers": iqr_outliers,
        "stddev_outliers": stddev_outliers,
        "outliers": f"{stddev_outliers};{iqr_outliers}",
        "ld15iqr": int(values_ns[near].min()) / 1e9,
        "hd15iqr": int(values_ns[near].max()) / 1e9,
        "ops": rps,
        "total": latency.sum_ns / 1e9,
        "iterations": 1,
    }


def _extra(result: Result) -> dict[str, object]:
    run = result.measurement
    return {
        **named(result, "work", "server", "load", "standing"),
        **named(run, "attack", "wait", "errors", "bytes_sent_per_second", "bytes_received_per_second", "saturated"),
        **named(run.latency, "p75", "p90", "p95", "p99"),
        "p99.9": run.latency.p999,
        "limit": str(run.limit),
        "ttfb_p50": run.ttfb.p50,
        "ttfb_p99": run.ttfb.p99,
        **({"event_rate": run.events.rate, "first_event_p50": run.events.first.p50} if run.events.count else {}),
        "server_cpu_per_request": run.server.cpu_per_request,
        "server_peak_rss": run.server.peak_rss,
        **({} if run.server.queries is None else {"server_queries_per_request": run.server.queries}),
        "generator_cpu_share": run.client.cpu_share,
        "engine": run.client.engine,
    }
