"""What happened on a boot over time, as JSON: a list for each column, a value for each sample or stretch of time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from pytest_fileperf.measure.recording import Boot, LeadTimes
from pytest_fileperf.watch.sample import ProcessUse, Sample, SocketQueues

__all__ = ("leads_series", "samples_series")

_QUEUES = ("connections", "server_unread", "server_unsent", "client_unread", "client_unsent", "under_way")
_TIME_DIGITS = 3
_SHARE_DIGITS = 4
"""More digits are noise and make files large."""


def leads_series(leads: LeadTimes) -> dict[str, list[float] | list[int]]:
    """Returns latencies in seconds by when their requests were due, in seconds since the warm-up."""
    return {
        "due": [due_ns / 1e9 for due_ns in leads.due_ns],
        "count": list(leads.counts),
        "mean": [mean_ns / 1e9 for mean_ns in leads.mean_ns],
        "max": [max_ns / 1e9 for max_ns in leads.max_ns],
    }


def samples_series(boot: Boot) -> dict[str, object]:
    """Returns what the server's processes, the generator and the sockets did; the boot must have samples."""
    samples = tuple(boot.samples)
    first = samples[0]
    pids = dict.fromkeys(process.pid for sample in samples for process in sample.server)
    processes = [
        {
            "pid": pid,
            "worker": pid in boot.worker_pids,
            **_columns(samples, [_process(sample, pid) for sample in samples]),
        }
        for pid in pids
    ]
    generators = [_columns(samples, own) for own in _generators(samples)]
    queues = [sample.queues for sample in samples]
    return {
        "at": [_offset(sample, first) for sample in samples],
        "processes": processes,
        "generator": generators[0] if len(generators) == 1 else None,
        "generators": generators if len(generators) > 1 else [],
        "queues": _queue_columns(queues) if any(queues) else None,
    }


def _offset(sample: Sample, first: Sample) -> float:
    return round((sample.at_ns - first.at_ns) / 1e9, _TIME_DIGITS)


def _process(sample: Sample, pid: int) -> ProcessUse | None:
    return next((process for process in sample.server if process.pid == pid), None)


def _generators(samples: Sequence[Sample]) -> list[list[ProcessUse | None]]:
    """Returns what each generator did, with an item for each sample."""
    pids = dict.fromkeys(use.pid for sample in samples for use in sample.generators)
    return [[next((use for use in sample.generators if use.pid == pid), None) for sample in samples] for pid in pids]


def _columns(samples: Sequence[Sample], uses: Sequence[ProcessUse | None]) -> dict[str, object]:
    def column(name: str) -> list[int | None]:
        return [None if use is None else getattr(use, name) for use in uses]

    return {
        "cpu": _cpu_shares([sample.at_ns for sample in samples], column("cpu_ns")),
        "rss": column("rss_bytes"),
        **{name: column(name) for name in ("threads", "files", "busy_threads")},
    }


def _cpu_shares(times_ns: Sequence[int], cpu_ns: Sequence[int | None]) -> list[float | None]:
    """Returns the cores used between each look and the one before; None for the first."""
    shares: list[float | None] = [None]
    for (start_ns, before_ns), (end_ns, after_ns) in pairwise(zip(times_ns, cpu_ns, strict=True)):
        if before_ns is None or after_ns is None or end_ns <= start_ns:
            shares.append(None)
        else:
            shares.append(round((after_ns - before_ns) / (end_ns - start_ns), _SHARE_DIGITS))
    return shares


def _queue_columns(looks: Iterable[SocketQueues | None]) -> dict[str, list[int | None]]:
    known = list(looks)
    return {name: [None if look is None else getattr(look, name) for look in known] for name in _QUEUES}
