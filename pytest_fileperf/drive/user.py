"""The client of a journey: an `httpx.AsyncClient` that can also wait without being measured."""

from __future__ import annotations

import asyncio
import random
from time import monotonic_ns
from typing import Any

from pytest_fileperf.plan.pause import Pause, parse_pause
from pytest_fileperf.wire.request import LoadClient
from pytest_fileperf.wire.transport import LoadTransport

__all__ = ("Client",)


class Client(LoadClient):
    """An `httpx.AsyncClient` of one user, with its cookies and connections: what a journey is called with."""

    def __init__(self, *, number: int = 0, **options: Any) -> None:
        """`number` is that of the user among all; it makes the user's chance."""
        super().__init__(**options)
        transport = options.get("transport")
        self.wire = transport if isinstance(transport, LoadTransport) else None
        """What it sends over; None where the app is in this process."""
        self._number = number
        self._chances: dict[Pause, random.Random] = {}
        self._pausing = 0
        """Pauses that go on; several where tasks of one journey pause at once, which counts once."""
        self._pausing_since_ns = 0
        self._paused_ns = 0

    async def pause(self, time: float | str | Pause) -> None:
        """Waits as a user does who reads or thinks: `"1s"`, seconds, `uniform(…)` or `exponential(…)`.

        The pause counts in no figure. Raises ValueError for what is no time.
        """
        pause = parse_pause(time)
        if pause is None:
            return
        chance = self._chances.get(pause)
        if chance is None:
            chance = self._chances[pause] = random.Random(f"{pause.seed} {self._number}")  # noqa: S311 - no secret
        if not self._pausing:
            self._pausing_since_ns = monotonic_ns()
        self._pausing += 1
        try:
            await asyncio.sleep(pause.draw(chance) / 1e9)
        finally:
            self._pausing -= 1
            if not self._pausing:
                self._paused_ns += monotonic_ns() - self._pausing_since_ns

    @property
    def paused_ns(self) -> int:
        """How long it has paused since it was made, the pause that goes on among them."""
        return self._paused_ns + (monotonic_ns() - self._pausing_since_ns if self._pausing else 0)
