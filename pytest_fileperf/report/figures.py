"""Every figure of a measurement, as text for the terminal's `-v` and the HTML report."""

from __future__ import annotations

from collections.abc import Collection

from pytest_fileperf.judge.record import Result
from pytest_fileperf.judge.verdict import Outcome
from pytest_fileperf.measure.measurement import ClientUse, LatencySummary, Measurement
from pytest_fileperf.measure.metrics import Unit
from pytest_fileperf.measure.recording import LATE_NS
from pytest_fileperf.measure.usage import CHILDREN_WORK, GeneratorUse
from pytest_fileperf.report.remarks import event_texts, query_texts
from pytest_fileperf.report.story import setting
from pytest_fileperf.report.text import INDENT, Screen, Style, pad, paint, plain, quantity, rate_text, time_text
from pytest_fileperf.report.wording import limit_text, would_show
from pytest_fileperf.units import format_bytes, format_count, format_duration, format_share

NOTABLE = 1.1
"""Texts show two times separately if one is at least this many times the other."""
SPREAD = ("min", "mean", "stdev", "p50", "p75", "p90", "p95", "p99", "p99.9", "max")


def figure_lines(result: Result, screen: Screen, *, said: Collection[str] = ()) -> list[str]:
    """Returns a result's figures as lines below its row. Leaves out the texts in `said`."""
    rows = figure_rows(result, said=said)
    size = max(len(title) for title, _ in rows)
    indent = INDENT + size + 2
    lines = []
    for title, texts in rows:
        head = " " * INDENT + paint(pad(title, size), Style.DIM, colour=screen.colour)
        first, *rest = screen.flow([(text, Style.NONE) for text in texts], indent=indent, hanging=0)
        lines += [head + first[INDENT + size :], *rest]
    return lines


def figure_rows(result: Result, *, said: Collection[str] = ()) -> list[tuple[str, list[str]]]:
    """Returns rows of figures, such as `("latency", ["min 1.20 ms", "mean 3.41 ms"])`. Leaves out the texts in `said`.

    An open loop also has the figures of the load generator vegeta: due rate, throughput, attack and wait.
    """
    run = result.measurement
    near = f"{run.latency.within_one_stdev * 100:.0f} % within one stdev of the mean"
    within = [near] if run.latency.count > 1 else []
    http = [f"{run.http_requests:,} HTTP requests", rate_text(run.http_rps)]
    # For a regression, nobody needs the smallest change that would have shown.
    gates = would_show(item for item in result.verdict.comparisons if item.outcome is not Outcome.REGRESSED)
    rows = (
        ("work", [result.work, *(text for text in setting(result) if text not in said)]),
        *_due_rows(run),
        ("latency", [*_spread_texts(run.latency), *within]),
        ("service", _spread_texts(run.service) if run.service.count else []),
        ("send delay", [] if result.test.step else _send_delay(run)),
        ("ttfb", _spread_texts(run.ttfb)),
        ("events", [f"{run.events.count:,} in all", *event_texts(run)] if run.events.count else []),
        ("first event", _spread_texts(run.events.first) if run.events.first.count else []),
        ("event gap", _spread_texts(run.events.gap) if run.events.gap.count else []),
        ("bytes", _bytes(run)),
        ("HTTP", http if run.http_requests > run.requests + run.errors else []),
        ("answers", _answers(run)),
        ("failures", [f"{kind} × {count:,}" for kind, count in run.error_kinds.items()]),
        ("server", [] if result.test.own else _server(run)),
        ("generator", [] if result.test.own else _generator(run.client)),
        *((f"generator {use.number}", generator_texts(use)) for use in run.client.generators if not result.test.own),
        ("run", _run(result)),
        ("limited by", [] if result.smoke or result.test.own else [str(run.limit)]),
        ("limits", [f"{limit_text(check)}: holds" for check in result.verdict.limits if check.holds]),
        ("gate", [gates]),
    )
    if result.smoke:  # so few requests have no rate
        rows = tuple(row for row in rows if row[0] in ("work", "answers", "failures", "run"))
    shown = ((title, [text for text in map(plain, texts) if text]) for title, texts in rows)
    return [(title, texts) for title, texts in shown if texts]


def _spread_texts(latency: LatencySummary) -> list[str]:
    if latency.count == 0:
        return ["no successful request"]
    return [f"{name} {time_text(seconds)}" for name, seconds in spread(latency).items()]


def load_texts(run: Measurement) -> list[str]:
    """Returns an open loop's times and late requests; empty if every request was sent and answered in time."""
    texts = []
    if run.due is not None:
        finished = f"finished in {time_text(run.elapsed)}"
        if not run.open_loop or run.attack == 0:
            texts.append(finished)
        elif run.elapsed >= run.attack * NOTABLE:
            texts.append(f"{finished}: attack {time_text(run.attack)}, wait {time_text(run.wait)}")
    sent, due = run.service, run.latency
    if sent.count and (due.p50 >= sent.p50 * NOTABLE or due.p99 >= sent.p99 * NOTABLE):
        texts.append(f"service time p50 {time_text(sent.p50)}, p99 {time_text(sent.p99)}")
    if run.late or run.dropped:
        texts.append(f"{run.late:,} requests sent late, {run.dropped:,} dropped")
    return texts


def spread(latency: LatencySummary) -> dict[str, float]:
    return {name: getattr(latency, name.replace(".", "")) for name in SPREAD}


def _due_rows(run: Measurement) -> list[tuple[str, list[str]]]:
    if run.due is None:
        return []
    due = [f"{run.due:,} due"] if run.attack else [f"{run.due:,} due at once"]
    if run.open_loop and run.due_rate is not None:
        due.append(f"rate {rate_text(run.due_rate)}")
    if run.done_rate is not None:
        due.append(f"throughput {rate_text(run.done_rate)}")
    parts = [f"attack {time_text(run.attack)}", f"wait {time_text(run.wait)}"] if run.attack else []
    return [("requests", due), ("duration", [f"{time_text(run.elapsed)} in all", *parts])]


def _send_delay(run: Measurement) -> list[str]:
    if not run.open_loop:
        return []
    delay = run.send_delay
    named = (("p50", delay.p50), ("p99", delay.p99), ("max", delay.max)) if delay.count else ()
    return [
        *(f"{name} {time_text(seconds)}" for name, seconds in named),
        f"{run.late:,} sent more than {format_duration(LATE_NS)} late",
        f"{run.dropped:,} dropped",
    ]


def _bytes(run: Measurement) -> list[str]:
    sent, received = run.bytes_sent, run.bytes_received
    requests = max(1, run.requests)
    return [
        f"sent {quantity(run.bytes_sent_per_second, Unit.BYTES_PER_SECOND)}",
        f"received {quantity(run.bytes_received_per_second, Unit.BYTES_PER_SECOND)}",
        f"in all {format_bytes(sent)} sent and {format_bytes(received)} received",
        f"per request {format_bytes(sent / requests)} sent and {format_bytes(received / requests)} received",
    ]


def _answers(run: Measurement) -> list[str]:
    ratio = "almost 100 %" if run.errors and run.success_ratio > 0.9995 else format_share(run.success_ratio)
    statuses = [f"status {status} × {count:,}" for status, count in run.statuses.items()]
    return [f"{run.requests:,} good ({ratio})", *statuses]


def _server(run: Measurement) -> list[str]:
    use = run.server
    texts = []
    if use.cpu_per_request is not None:
        texts.append(f"CPU {time_text(use.cpu_per_request)}/request")
    if use.cpu_share is not None:
        texts.append(f"{use.cpu_share:.2f} cores busy")
    if len(use.worker_cpu_shares) > 1:
        busiest, *_, idlest = use.worker_cpu_shares
        shares = f"{idlest * 100:.0f} % to {busiest * 100:.0f} %"
        texts.append(f"each of its {len(use.worker_cpu_shares)} workers used {shares} of a core")
    if (use.children_cpu_share or 0.0) >= CHILDREN_WORK:
        cores = format_count(use.cores or 1, "core")
        texts.append(f"{use.children_cpu_share:.2f} of the busy cores in child processes, which may use {cores}")
    if use.peak_rss is not None:
        texts.append(f"peak RSS {format_bytes(use.peak_rss)}")
    texts += query_texts(run)
    return texts or ["CPU and memory not measured"]


def _run(result: Result) -> list[str]:
    run, recording = result.measurement, result.recording
    connections = format_count(run.connections, "connection")
    if run.most_open not in (0, run.connections):
        of = f" of {run.connections:,}" if run.most_open < run.connections else ""
        connections = f"at most {run.most_open:,}{of} connections were open"
    return [
        connections,
        format_count(len(recording.boots), "start-up"),
        f"{format_count(len(recording.measured()), 'round')} in {time_text(run.duration)}",
        *([f"wait {time_text(run.wait)}"] if run.due is None else []),
    ]


# --- The figures of each load generator


def _generator(use: ClientUse) -> list[str]:
    of = f"a core, all {len(use.generators)} generators together" if len(use.generators) > 1 else "its core"
    texts = [f"engine {use.engine}", f"CPU {use.cpu_share * 100:.0f} % of {of}"]
    if use.cpu_per_request is not None:
        texts.append(f"{time_text(use.cpu_per_request)}/request")
    return texts


def generator_texts(use: GeneratorUse) -> tuple[str, ...]:
    """Returns a generator's core or machine, connections, rate, errors and CPU.

    For a generator on another machine, adds the network delay and the clock's error. For a lost generator, adds the
    reason.
    """
    clock = f"clock offset known to ±{time_text(use.clock_error)}" if use.clock_error else "same clock"
    return (
        use.worker or (f"core {', '.join(map(str, use.cores))}" if use.cores else "any core"),
        format_count(use.connections, "connection"),
        rate_text(use.rps),
        format_count(use.errors, "error"),
        f"CPU {use.cpu_share * 100:.0f} %",
        *([f"{time_text(use.distance)} away", clock] if use.distance else []),
        *([f"lost: it{use.lost}".replace("it's process", "its process")] if use.lost else []),
    )
