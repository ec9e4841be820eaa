"""What ASGI apps of tests are made of, without a framework. `SOURCE` is the same for files that a test writes."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


async def lifespan(receive: Receive, send: Send) -> None:
    """Starts and ends as it is asked to."""
    while True:
        message = await receive()
        await send({"type": message["type"] + ".complete"})
        if message["type"] == "lifespan.shutdown":
            return


async def request_body(receive: Receive) -> bytes:
    """Returns the whole body of a request."""
    parts, more = [], True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


async def respond(send: Send, body: bytes, status: int = 200) -> None:
    """Sends a whole response."""
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


SOURCE = inspect.getsource(sys.modules[__name__]).partition("\n\nSOURCE = ")[0] + "\n\n"
