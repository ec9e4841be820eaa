"""The client of a journey: an `httpx.AsyncClient` that can also wait without being measured, and go through steps."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import httpx

from pytest_fileperf.drive.steps import Step, Uncounted, Walk, on_the_way_in, uncounted_in
from pytest_fileperf.measure.tally import Tally
from pytest_fileperf.plan.mix import why_no_name
from pytest_fileperf.plan.pause import Pause, parse_pause
from pytest_fileperf.wire.request import LoadClient
from pytest_fileperf.wire.transport import LoadTransport

__all__ = ("Client",)


class Client(LoadClient):
    """An `httpx.AsyncClient` of one user, with its cookies and connections: what a journey is called with."""

    def __init__(self, *, number: int = 0, **options: Any) -> None:
        """`number` is that of the user among all; it makes the user's chance."""
        super().__init__(**options)
        self._uncounted = Uncounted()
        transport = options.get("transport")
        self.wire = transport if isinstance(transport, LoadTransport) else None
        """What it sends over; None where the app is in this process."""
        if self.wire is not None:
            self.wire.under_way = partial(on_the_way_in, self._uncounted)
        self._number = number
        self._chances: dict[Pause, random.Random] = {}
        self._walk = Walk()
        self._tally_of: Callable[[str], Tally] | None = None
        self._tallies: dict[str, Tally | None] = {}
        """What counts the steps of a name; nothing does outside of a load."""

    def goes(self, walk: Walk, tally_of: Callable[[str], Tally]) -> None:
        """Measures its steps from now on, in the runs of a walk; `tally_of` returns what counts those of a name."""
        self._walk, self._tally_of = walk, tally_of

    async def pause(self, time: float | str | Pause) -> None:
        """Waits as a user does who reads or thinks: `"1s"`, seconds, `uniform(…)` or `exponential(…)`.

        The pause counts in no figure, also not in those of a step that it is in. Raises ValueError for what is no time.
        """
        pause = parse_pause(time)
        if pause is None:
            return
        chance = self._chances.get(pause)
        if chance is None:
            chance = self._chances[pause] = random.Random(f"{pause.seed} {self._number}")  # noqa: S311 - no secret
        with uncounted_in(self._uncounted, pauses=1):
            await asyncio.sleep(pause.draw(chance) / 1e9)

    def step(self, name: str) -> AbstractAsyncContextManager[None]:
        """Returns a block that is a step of the journey, `async with client.step("login"):`, with figures of its own.

        An exception that leaves the block is a failure of the step, and so is an answer of 500 or more. Steps may be in
        steps, and in several tasks at once. Outside of a load nothing is measured. Raises ValueError for what is no
        name, and for more than a hundred names in a journey.
        """
        if name not in self._tallies:
            if problem := why_no_name(name):
                raise ValueError(problem)
            self._tallies[name] = None if self._tally_of is None else self._tally_of(name)
        return Step(self._walk, self._tallies[name])

    def build_request(self, method: str, url: httpx.URL | str, **arguments: Any) -> httpx.Request:
        """Builds the request as httpx does; the work counts in no figure."""
        with self._calling():
            return super().build_request(method, url, **arguments)

    async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        """Sends the request as httpx does; what counts is the time that it is on its way."""
        with self._calling():
            return await super().send(request, **options)

    def uncounted_ns(self, now_ns: int) -> int:
        """Returns how long, from when it was made until now, nothing went on that counts in a figure."""
        return self._uncounted.until_ns(now_ns)

    def _calling(self) -> AbstractContextManager[None]:
        return nullcontext() if self.wire is None else uncounted_in(self._uncounted, calls=1)
