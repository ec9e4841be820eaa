"""What tests get as `fileperf_server`: whichever boot of a server serves at the moment. Measurements change boots."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pytest_fileperf.serve.running import RunningServer

if TYPE_CHECKING:
    import httpx
    import psutil

__all__ = ("ServingServer",)


class ServingServer(RunningServer):
    """A server of which one boot serves at a time."""

    def __init__(self, now: Callable[[], RunningServer]) -> None:
        """`now` returns the boot that serves; it starts one where none does."""
        self._now = now

    @property
    def processes(self) -> tuple[psutil.Process, ...]:
        """The live process tree of the boot that serves."""
        return self._now().processes

    @property
    def worker_pids(self) -> tuple[int, ...]:
        """The process ids of those that serve requests."""
        return self._now().worker_pids

    @property
    def log(self) -> tuple[str, ...]:
        """The last lines of its output."""
        return self._now().log

    def identity(self) -> dict[str, object]:
        """Returns what a comparison with another run depends on."""
        return self._now().identity()

    def check(self) -> None:
        """Raises ServerDiedError when it is no longer alive."""
        self._now().check()

    def _sync_transport(self) -> httpx.BaseTransport:
        return self._now()._sync_transport()

    def _transport(self) -> httpx.AsyncBaseTransport:
        return self._now()._transport()  # of its own base class

    if not TYPE_CHECKING:  # to a type checker these are attributes, as they are of every other server

        def __getattribute__(self, name: str) -> object:
            if name in _OF_A_BOOT:
                return getattr(self._now(), name)
            return super().__getattribute__(name)


_OF_A_BOOT = frozenset(RunningServer.__annotations__)
