"""Lets one measurement run at a time: two at once would load each other, and share one server."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Condition, Event

from pytest_fileperf.plugin.screen import GivenUpError

__all__ = ("Turn", "Turns")

_PATIENCE_S = 1.0
"""So long one that can begin waits for an earlier one whose thread has not begun: that thread may never begin."""
_LOOK_S = 0.05


@dataclass(eq=False, slots=True, kw_only=True)
class Turn:
    """A place in the line."""

    test: str
    """The test's node id."""
    where: str
    """The call, for messages: `GET /upload`."""
    can_begin: bool = False
    """Whether its thread waits for its turn."""


class Turns:
    """The line of measurements of a session: gathered in one test, or called in threads."""

    def __init__(self, *, patience_s: float = _PATIENCE_S) -> None:
        """`patience_s` is for how long one that can begin waits for one whose thread has not begun."""
        self._patience_s = patience_s
        self._changed = Condition()
        self._line: list[Turn] = []
        self._running: Turn | None = None
        self._waited: dict[str, list[str]] = {}
        """The calls that had to wait, by test."""

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence for each test whose calls had to wait."""
        return tuple(_waited(test, calls) for test, calls in self._waited.items())

    def draw(self, test: str, where: str) -> Turn:
        """Returns the last place in the line; whoever draws it leaves it."""
        turn = Turn(test=test, where=where)
        with self._changed:
            self._line.append(turn)
        return turn

    def leave(self, turn: Turn) -> None:
        """Lets the next one begin. A turn may be left several times."""
        with self._changed:
            if turn in self._line:
                self._line.remove(turn)
            if self._running is turn:
                self._running = None
            self._changed.notify_all()

    @contextmanager
    def taken(self, turn: Turn, given_up: Event | None = None) -> Iterator[None]:
        """Waits for the turn, and leaves it at the end. Raises GivenUpError once `given_up` is set."""
        try:
            self._wait(turn, given_up)
            yield
        finally:
            self.leave(turn)

    def _wait(self, turn: Turn, given_up: Event | None) -> None:
        patient_until_s, has_waited = time.monotonic() + self._patience_s, False
        with self._changed:
            turn.can_begin = True
            while (before := self._before(turn, patient=time.monotonic() < patient_until_s)) is not None:
                if given_up is not None and given_up.is_set():
                    raise GivenUpError
                if before.can_begin and not has_waited:
                    self._waited.setdefault(turn.test, []).append(turn.where)
                    has_waited = True
                self._changed.wait(_LOOK_S)
            self._running = turn

    def _before(self, turn: Turn, *, patient: bool) -> Turn | None:
        """Returns the one to wait for; None for none."""
        if self._running is not None:
            return self._running
        earlier = self._line[: self._line.index(turn)]
        return next((each for each in earlier if each.can_begin or patient), None)


def _waited(test: str, calls: Sequence[str]) -> str:
    more = f" and {len(calls) - 1} more" if len(calls) > 1 else ""
    return f"{test}: {calls[0]}{more} waited for the measurement before, as one is made at a time"
