"""A server that already runs. Its processes are found and watched, and neither started nor ended."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

import psutil

from pytest_fileperf.errors import PlanError, ServerDiedError, ServerStartError
from pytest_fileperf.plan.network import LOCAL, Network, refusal
from pytest_fileperf.serve.listening import listeners
from pytest_fileperf.serve.process_tree import process_tree
from pytest_fileperf.serve.running import RunningServer
from pytest_fileperf.serve.spec import Url

__all__ = ("RunningUrl", "UrlLaunch")

_CONNECT_TIMEOUT_S = 5.0


class RunningUrl(RunningServer):
    """A server that the user started. Only its kind is known, so runs on it compare only with each other."""

    kind = "url"

    def __init__(self, spec: Url, network: Network = LOCAL) -> None:
        self._network = network
        self.url = spec.url.rstrip("/")
        self.title = self.url
        parts = urlsplit(spec.url)
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._roots: tuple[int, ...] = ()

    @property
    def processes(self) -> tuple[psutil.Process, ...]:
        """The processes that listen on its port with all their children; empty where the system does not tell."""
        trees = self._trees()
        if not trees:
            self._roots = listeners(self._host, self._port)
            trees = self._trees()
        return tuple(trees.values())

    def connect(self) -> None:
        """Opens a connection and closes it. Raises OSError, and PlanError where load may not go."""
        if problem := self._network.problem_of(self.url):
            raise PlanError(problem, where="Url")
        found = [str(each[4][0]) for each in socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)]
        allowed = [address for address in found if self._network.reach.allows(address)]
        if not allowed:
            raise PlanError(f"{self.url!r} leads to {found[0]}: {refusal(found[0])}", where="Url")
        for address in allowed:
            try:
                socket.create_connection((address, self._port), timeout=_CONNECT_TIMEOUT_S).close()
            except OSError:
                if address == allowed[-1]:
                    raise
            else:
                return

    def check(self) -> None:
        """Raises ServerDiedError when it accepts no connection any more."""
        try:
            self.connect()
        except OSError as error:
            raise ServerDiedError(f"{self.url} does not answer any more ({error})") from error

    def _trees(self) -> dict[int, psutil.Process]:
        return {process.pid: process for root in self._roots for process in process_tree(root)}


class UrlLaunch:
    """Makes sure that the server is there; starts and ends nothing."""

    def __init__(self, spec: Url, network: Network = LOCAL) -> None:
        self._running = RunningUrl(spec, network)

    def start(self) -> None:
        """Does nothing: it runs already."""

    def ready(self) -> RunningUrl:
        """Returns the server; raises ServerStartError when it does not answer."""
        try:
            self._running.connect()
        except OSError as error:
            raise ServerStartError(
                f"nothing answers at {self._running.url} ({error}): start the server, or let fileperf boot the app"
            ) from error
        return self._running

    def ask_to_stop(self) -> None:
        """Does nothing: it is not ours to end."""

    def stop(self) -> str:
        """Does nothing: it is not ours to end."""
        return ""
