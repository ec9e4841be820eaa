"""Which workers of a Dask cluster can make a load: those that answer, with this code and these versions."""

from __future__ import annotations

import asyncio
import importlib.metadata
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pytest_fileperf.drive.whereabouts import Whereabouts
from pytest_fileperf.errors import GeneratorError

if TYPE_CHECKING:
    from distributed import Client

__all__ = ("Roster", "Workers")

_PACKAGE = "pytest-fileperf"
_ANSWER_S = 5.0
"""A worker that says nothing about itself for so long is not used."""
_ASKED_AGAIN_S = 60.0
"""It is asked once more then."""
_SHOWN = 8
"""Workers whose problems a message names."""
_SAME = "it has to be the same"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """The workers of a cluster."""

    count: int
    """How many can make a load."""
    silent: tuple[str, ...] = ()
    """The addresses of those that do not answer."""
    is_shared: bool = False
    """Whether another test run has generators beside some of them, where that is told for the first time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """What a worker has said about itself: text, or the exception that it had in place of that."""

    python: object
    package: object
    """This package's version."""
    there: object
    """`Whereabouts`; without some of its fields where the package there is another one."""


class Roster:
    """The workers of one cluster; those that were fit once stay so until they are doubted."""

    def __init__(self, title: str) -> None:
        """`title` is how messages call the cluster."""
        self._title = title
        self._fit: set[str] = set()
        self._silent_since_s: dict[str, float] = {}

    @property
    def silent(self) -> tuple[str, ...]:
        """Those that did not answer when they were asked last."""
        return tuple(sorted(self._silent_since_s))

    def doubt(self, worker: str) -> None:
        """Has the worker asked again before it is used."""
        self._fit.discard(worker)

    async def workers(self, client: Client) -> Sequence[str]:
        """Returns the addresses of those that can make a load, of different machines in turn.

        Raises GeneratorError where there are none, and where one has another version of something.
        """
        there = list(await client.nthreads())
        now_s = monotonic()
        for worker, since_s in tuple(self._silent_since_s.items()):
            if worker not in there or now_s > since_s + _ASKED_AGAIN_S:
                del self._silent_since_s[worker]
        unknown = [worker for worker in there if worker not in self._fit and worker not in self._silent_since_s]
        if problems := await self._problems(client, unknown):
            raise GeneratorError(
                f"the Dask cluster at {self._title} cannot make the load: {'; '.join(sorted(problems)[:_SHOWN])}"
            )
        fit = [worker for worker in there if worker in self._fit]
        if not fit:
            why = f", of which {len(self.silent)} did not answer" if self.silent else ""
            raise GeneratorError(
                f"the Dask cluster at {self._title} has no workers that answer{why}: start some, as with "
                f"`dask worker {client.scheduler.address}`"
            )
        return _in_turn(fit)

    async def _problems(self, client: Client, workers: Sequence[str]) -> list[str]:
        """Returns what is wrong with workers that answer, and notes which ones are fit, and which are silent."""
        found = []
        for worker, told in (await self._told_by(client, workers)).items():
            if problem := _problem_of(told):
                found.append(f"worker {worker} {problem}")
            else:
                self._fit.add(worker)
        return found

    async def _told_by(self, client: Client, workers: Sequence[str]) -> Mapping[str, _Told]:
        """Returns what each of the workers says that answer."""
        if not workers:
            return {}
        try:
            return await _told(client, workers)
        except TimeoutError:
            if len(workers) == 1:
                self._silent_since_s[workers[0]] = monotonic()
                return {}
        each = await asyncio.gather(*(self._told_by(client, [worker]) for worker in workers))
        return {worker: told for own in each for worker, told in own.items()}


async def _told(client: Client, workers: Sequence[str]) -> dict[str, _Told]:
    # The first two are functions of the standard library: a worker that lacks this package can be asked for them.
    whom = list(workers)
    async with asyncio.timeout(_ANSWER_S):
        pythons = await client.run(platform.python_version, workers=whom, on_error="return")
        packages = await client.run(importlib.metadata.version, _PACKAGE, workers=whom, on_error="return")
        theres = await client.run(Whereabouts.here, workers=whom, on_error="return")
    answered = (worker for worker in whom if not isinstance(pythons[worker], Exception))
    return {
        worker: _Told(python=pythons[worker], package=packages[worker], there=theres[worker]) for worker in answered
    }


def _problem_of(told: _Told) -> str:
    """Returns why a worker is unfit; empty where it is fit."""
    own_python, own_package = platform.python_version(), importlib.metadata.version(_PACKAGE)
    if isinstance(told.package, importlib.metadata.PackageNotFoundError):
        return f'lacks this package: pip install "{_PACKAGE}[cluster]=={own_package}" there'
    if _minor(str(told.python)) != _minor(own_python):
        return f"has Python {told.python}, and here it is {own_python}: {_SAME}"
    if told.package != own_package:
        return f"has {_PACKAGE} {told.package}, and here it is {own_package}: {_SAME}"
    if getattr(told.there, "code", "") != Whereabouts.here().code:
        return f"has other code of {_PACKAGE} {own_package} than is here: install the same there"
    return ""


def _minor(python: str) -> str:
    """Returns `3.11` of `3.11.7`: code is carried from one Python to another of the same."""
    return ".".join(python.split(".")[:2])


def _in_turn(workers: Sequence[str]) -> Sequence[str]:
    """Returns the workers so that the first ones are of as many machines as there are."""
    places: dict[str, int] = {}
    ranked = []
    for worker in sorted(workers):
        host = urlsplit(worker).hostname or worker
        places[host] = places.get(host, 0) + 1
        ranked.append((places[host], worker))
    return [worker for _, worker in sorted(ranked)]
