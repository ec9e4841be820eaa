"""An app that sends 20 events a second to each client, and keeps a log of its own: `streams.py` loads it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from time import monotonic
from typing import Any

Message = MutableMapping[str, Any]
EVERY_S = 1 / 20
log: list[list[float]] = []
"""For each stream when it was asked for, then when each event was sent."""


async def app(
    scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    """Answers `/events` with events without end, and `/log` with what it sent."""
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    if scope["path"] == "/log":
        body = json.dumps(log).encode()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})
        return
    own = [monotonic()]
    log.append(own)
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    gone = asyncio.create_task(_gone(receive))
    while not gone.done():
        await asyncio.sleep(own[0] + len(own) * EVERY_S - monotonic())
        if not gone.done():
            own.append(monotonic())
            await send({"type": "http.response.body", "body": b"data: %d\n\n" % len(own), "more_body": True})


async def _gone(receive: Callable[[], Awaitable[Message]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
