"""Finds the imports that made start-ups longer, from the `python -X importtime` logs of both versions.

import time:       702 |        702 |     numpy._core       own microseconds | with its imports | depth
import time:      1402 |      41043 |   numpy
import time:       310 |      41353 | app.reports           a line comes when its import ends: inner ones first
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

_LINE = re.compile(r"^import time:\s+(\d+) \|\s+\d+ \| ( *)(\S+)$", re.MULTILINE)
_OURS = "pytest_fileperf"
_WORTH_NAMING = 0.05
"""An import is named if it has at least this share of the growth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportTimes:
    """One start-up's imports: each module of the app, and every other package as a whole."""

    seconds: Mapping[str, float]
    """Each import's time without the imports inside it; the mean over workers."""
    importers: Mapping[str, str]
    """For each import, the module or package that first imported it; an empty text if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportGrowth:
    """A module of the app, or a package, whose import takes longer."""

    name: str
    base_s: float
    """The longest time in start-ups of the old version; 0.0 if no start-up imported it."""
    now_s: float
    """The shortest time in start-ups of the new version."""
    importer: str
    """The module or package that first imported it in the new version; empty if unknown."""

    @property
    def growth_s(self) -> float:
        return self.now_s - self.base_s


def import_times(log: str, own_files: Iterable[str], *, workers: int = 1) -> ImportTimes:
    """Returns the imports in the log of `workers` processes. `own_files` are the app's own files."""
    own = tuple(file.removesuffix(".py").removesuffix(f"{os.sep}__init__") for file in own_files)

    def named(module: str) -> str:
        end = os.sep + module.replace(".", os.sep)
        return module if any(file.endswith(end) for file in own) else module.partition(".")[0]

    seconds: dict[str, float] = {}
    importers: dict[str, str] = {}
    above: list[str] = []
    for own_us, indent, module in reversed(_LINE.findall(log)):
        name, depth = named(module), len(indent) // 2
        above[depth:] = [name]
        if name != _OURS:
            seconds[name] = seconds.get(name, 0.0) + int(own_us) / 1e6 / workers
            importer = next((other for other in reversed(above) if other != name), "")
            importers[name] = "" if importer == _OURS else importer
    return ImportTimes(seconds=seconds, importers=importers)


def grown_imports(growth_s: float, bases: Sequence[ImportTimes], nows: Sequence[ImportTimes]) -> list[ImportGrowth]:
    """Returns the imports that made start-ups longer, at most five, the largest growth first.

    Empty if the imports explain less than half of `growth_s`. `bases` are old start-ups, and `nows` are new ones. An
    import must take longer in each new start-up than in any old one. A busy moment slows only a few start-ups.
    """
    found = []
    for name in dict.fromkeys(name for now in nows for name in now.seconds):
        base_s = max(base.seconds.get(name, 0.0) for base in bases)
        now_s = min(now.seconds.get(name, 0.0) for now in nows)
        found.append(ImportGrowth(name=name, base_s=base_s, now_s=now_s, importer=nows[0].importers.get(name, "")))
    found = [each for each in found if each.growth_s >= _WORTH_NAMING * growth_s]
    found = sorted(found, key=lambda each: -each.growth_s)[:5]
    return found if sum(each.growth_s for each in found) >= growth_s / 2 else []
