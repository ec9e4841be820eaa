"""The baseline of one test: figures, and the code, packages and moment that they are of. `baseline` keeps the files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pytest_fileperf.judge.evidence import Evidence
from pytest_fileperf.judge.level import level_of
from pytest_fileperf.judge.stored import mapping_in, number_in, optional_text_in, text_in, value_in
from pytest_fileperf.measure.busy import Busy
from pytest_fileperf.measure.metrics import METRICS, Unit

__all__ = ("FLAT", "Entry", "entry_from_json", "entry_to_json", "tree_in")

FLAT = ("busy", "commit", "conditions", "loaded", "packages", "precision")
"""What has one line each in a file."""
SUMMARY_DIGITS = 5
"""Significant digits of an entry's summary, as many as the evidence has."""
PRECISION_DIGITS = 2
"""Significant digits of a standard error."""
_READABLE: Mapping[Unit, tuple[str, float]] = {
    Unit.PER_SECOND: ("", 1.0),
    Unit.SECONDS: (" ms", 1e3),
    Unit.BYTES: (" MiB", 1 / (1 << 20)),
    Unit.BYTES_PER_SECOND: (" MiB/s", 1 / (1 << 20)),
    Unit.SHARE: (" %", 100.0),
}
"""How a summary shows a unit: always alike, so that two values compare at a glance."""
_TREE = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The baseline of one test."""

    identity: Mapping[str, object]
    """Work, server and load as JSON values: only figures with an equal identity compare."""
    evidence: Evidence
    captured: str
    """When, in ISO 8601 with its offset."""
    tree: str | None = None
    """Git's hash of the source's tree, without the baselines' directory; None where it is not known."""
    commit: Mapping[str, object] | None = None
    """What version control said about the code."""
    reason: str | None = None
    """Why it was stored, on one line, where the user said so."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Versions of all packages installed then, by name."""
    conditions: Mapping[str, str] = field(default_factory=dict)
    """What else it ran under, as `Environment.conditions`; empty where that is not known."""
    precision: Mapping[str, float] = field(default_factory=dict)
    """How exactly its levels are known: the standard error of each one's logarithm, by metric."""
    busy: Busy | None = None
    """What others did on the machine then; None where it is not known."""
    loaded: Mapping[str, str] | None = None
    """Digests of what its server loaded and the tree does not have, by name; None where that is not known."""

    @property
    def captured_at(self) -> datetime:
        """When it was captured, with its offset; the beginning of time where the text does not tell."""
        try:
            at = datetime.fromisoformat(self.captured)
        except ValueError:
            return datetime.min.replace(tzinfo=UTC)
        return at if at.tzinfo else at.replace(tzinfo=UTC)


def entry_from_json(stored: object, where: str) -> Entry:
    """Reads an entry of any schema; raises ValueError that names the first thing wrong, by its place."""
    if not isinstance(stored, dict):
        raise ValueError(f"{where} is not an object")
    commit = value_in(stored, "commit", where)
    packages = mapping_in(stored, "packages", where)
    precision = mapping_in(stored, "precision", where) if "precision" in stored else {}
    return Entry(
        identity=mapping_in(stored, "identity", where),
        evidence=Evidence.from_json(mapping_in(stored, "evidence", where), f"{where}.evidence"),
        captured=text_in(stored, "captured", where),
        tree=tree_in(stored, where),
        commit=None if commit is None else mapping_in(stored, "commit", where),
        reason=optional_text_in(stored, "reason", where),
        packages={name: text_in(packages, name, f"{where}.packages") for name in packages},
        conditions=_texts_in(stored, "conditions", where) or {},
        precision={name: number_in(precision, name, f"{where}.precision") for name in precision},
        busy=_busy_in(stored, where),
        loaded=_texts_in(stored, "loaded", where),
    )


def tree_in(stored: object, where: str) -> str | None:
    """Returns the tree of an entry, None where it has none; raises ValueError for one that is no hash."""
    if not isinstance(stored, dict):
        raise ValueError(f"{where} is not an object")
    tree = optional_text_in(stored, "tree", where)
    if tree is not None and not _TREE.fullmatch(tree):  # it becomes an argument of Git
        raise ValueError(f"{where}.tree is {tree[:80]!r}, not a hash of Git")
    return tree


def entry_to_json(entry: Entry, summary_of: Iterable[str]) -> dict[str, object]:
    """Returns the entry as JSON values, in the order in which a reviewer reads it."""
    busy = entry.busy
    return {
        "captured": entry.captured,
        "tree": entry.tree,
        "commit": None if entry.commit is None else dict(entry.commit),
        "reason": entry.reason,
        "summary": _summary(entry.evidence, summary_of),
        "precision": {name: _short(error, PRECISION_DIGITS) for name, error in sorted(entry.precision.items())},
        "busy": None if busy is None else {name: _short(getattr(busy, name), PRECISION_DIGITS) for name in _BUSY},
        "packages": dict(sorted(entry.packages.items())),
        **({"conditions": dict(sorted(entry.conditions.items()))} if entry.conditions else {}),
        **({} if entry.loaded is None else {"loaded": dict(sorted(entry.loaded.items()))}),
        "identity": json.loads(json.dumps(entry.identity, sort_keys=True)),
        "evidence": entry.evidence.to_json(),
    }


def _texts_in(stored: Mapping[str, object], key: str, where: str) -> dict[str, str] | None:
    if stored.get(key) is None:
        return None
    texts = mapping_in(stored, key, where)
    return {name: text_in(texts, name, f"{where}.{key}") for name in texts}


_BUSY = ("server", "generator", "host")


def _busy_in(stored: Mapping[str, object], where: str) -> Busy | None:
    if stored.get("busy") is None:
        return None
    shares = mapping_in(stored, "busy", where)
    server, generator, host = (number_in(shares, name, f"{where}.busy") for name in _BUSY)
    return Busy(server=server, generator=generator, host=host)


def _summary(evidence: Evidence, names: Iterable[str]) -> dict[str, float | None]:
    """Returns the levels that comparisons show, in readable units: `{"rps": 5210.0, "p99 ms": 31.2}`."""
    summary = {}
    for metric in (METRICS[name] for name in names):
        unit, factor = _READABLE[metric.unit]
        level = level_of(metric, evidence)
        summary[metric.name + unit] = None if level is None else _short(level.value * factor, SUMMARY_DIGITS)
    return summary


def _short(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")
