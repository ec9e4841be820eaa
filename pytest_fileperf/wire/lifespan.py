"""Starts an ASGI app and shuts it down, by ASGI's lifespan protocol."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Self

from pytest_fileperf.errors import ServerStartError

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

ASGI_VERSION = "3.0"

CLOSE_GRACE_S = 1.0
"""After the last answer, an app's tasks may go on for this long. Then they are cancelled."""

_log = logging.getLogger(__name__)


class Lifespan:
    """An async context manager that starts an app on entry and shuts it down on exit, as a server does.

    `state` is the app's lifespan state, which each request gets. Apps without lifespan support also work. Raises
    ServerStartError if the app cannot start. A failing shutdown is only logged. Start and shutdown have no time limit.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.state: dict[str, Any] = {}
        self._app = app
        self._task: asyncio.Task[None] | None = None
        self._asked = asyncio.Event()
        self._received: list[str] = []
        self._answers: dict[str, str] = {}
        self._answered = asyncio.Event()
        self.failure = ""
        """Why the app's shutdown failed; empty if it did not fail."""

    async def __aenter__(self) -> Self:
        self._task = asyncio.get_running_loop().create_task(self._run())
        try:
            await self._answered.wait()
        except BaseException:
            await ended(self._task)
            raise
        if "lifespan.startup.failed" in self._answers:
            await ended(self._task)
            self._fail(self._answers["lifespan.startup.failed"])
        error = self._task.exception() if self._task.done() else None
        if error is not None and "lifespan.startup.complete" not in self._answers:
            if self._received:
                self._fail(f"{type(error).__name__}: {error}", error)
            _log.info("the app has no lifespan (%s: %s)", type(error).__name__, error)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        try:
            if not self._task.done():
                self._answered.clear()
                self._asked.set()
                await self._answered.wait()
                await asyncio.wait((self._task,), timeout=CLOSE_GRACE_S)
        finally:
            await ended(self._task)
        if "lifespan.shutdown.failed" in self._answers:
            self.failure = self._answers["lifespan.shutdown.failed"] or "it gave no reason"
            _log.error("the app's shutdown failed: %s", self.failure)
        elif not self._task.cancelled() and self._received and (error := self._task.exception()):
            self.failure = f"{type(error).__name__}: {error}"
            _log.error("exception in the app's lifespan", exc_info=error)

    async def _run(self) -> None:
        scope = {
            "type": "lifespan",
            "asgi": {"version": ASGI_VERSION, "spec_version": "2.0"},
            "state": self.state,
        }
        try:
            await self._app(scope, self._receive, self._send)
        except SystemExit as error:  # it would end the process that runs the event loop
            raise RuntimeError(f"the app called sys.exit({error.code!r})") from error
        finally:
            self._answered.set()

    async def _receive(self) -> Message:
        if self._received:
            await self._asked.wait()
        self._received.append("lifespan.shutdown" if self._received else "lifespan.startup")
        return {"type": self._received[-1]}

    async def _send(self, message: Message) -> None:
        stage = "shutdown" if self._asked.is_set() else "startup"
        kind = message["type"]
        if kind not in (f"lifespan.{stage}.complete", f"lifespan.{stage}.failed"):
            raise RuntimeError(f"the app sent {kind!r} during the {stage}, not lifespan.{stage}.complete or .failed")
        self._answers[kind] = str(message.get("message", ""))
        self._answered.set()

    def _fail(self, message: str, cause: BaseException | None = None) -> None:
        lines = message.rstrip().splitlines() or ["it gave no reason"]
        raise ServerStartError(f"the app's lifespan failed at startup: {lines[-1]}", log=lines[:-1]) from cause


async def ended(*tasks: asyncio.Task[None]) -> None:
    """Cancels the tasks and waits until they have ended. Their exceptions are not raised."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
