"""Which imports made start-ups longer, by what `python -X importtime` says of both versions.

import time:       702 |        702 |     numpy._core       microseconds of its own | with what it imports | depth
import time:      1402 |      41043 |   numpy
import time:       310 |      41353 | app.reports           imports are told as they end: those inside come first
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

_LINE = re.compile(r"^import time:\s+(\d+) \|\s+\d+ \| ( *)(\S+)$", re.MULTILINE)
_OURS = "pytest_fileperf"
_MOST_NAMED = 5
_WORTH_NAMING = 0.05
"""Share of the growth from which an import is named."""
_ENOUGH = 0.5
"""Share of the growth that all of these have to account for: else none of them is the cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportTimes:
    """What one start-up told of its imports. An app's modules are apart, those of a package or the interpreter one."""

    seconds: Mapping[str, float]
    """What a module or package takes by itself, without what it imports; of several workers the mean."""
    importers: Mapping[str, str]
    """Which other module or package imported it first; without one it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportGrowth:
    """A module of the app, or a package, whose import takes longer."""

    name: str
    base_s: float
    """The most that the old version took for it; 0.0 if it was not imported."""
    now_s: float
    """The least that the new one took."""
    importer: str
    """What imports it in the new version; empty if nothing else does."""

    @property
    def growth_s(self) -> float:
        return self.now_s - self.base_s


def import_times(log: str, own_files: Iterable[str], *, workers: int = 1) -> ImportTimes:
    """Returns what a server's log says of its imports; `own_files` are those that its app does not have from packages.

    It is empty for a log without a word of imports.
    """
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
    """Returns what takes so much longer to import that it accounts for the growth of the start-up, most first.

    Nothing if imports account for less than half of it. Each look at the new version has to be longer than all of the
    old one: a moment in which the machine was busy is in few of them.
    """
    found = []
    for name in dict.fromkeys(name for now in nows for name in now.seconds):
        base_s = max(base.seconds.get(name, 0.0) for base in bases)
        now_s = min(now.seconds.get(name, 0.0) for now in nows)
        found.append(ImportGrowth(name=name, base_s=base_s, now_s=now_s, importer=nows[0].importers.get(name, "")))
    found = [each for each in found if each.growth_s >= _WORTH_NAMING * growth_s]
    found = sorted(found, key=lambda each: -each.growth_s)[:_MOST_NAMED]
    return found if sum(each.growth_s for each in found) >= _ENOUGH * growth_s else []
