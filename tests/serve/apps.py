"""Small ASGI apps for the tests of `serve`; the server processes import them as `serve.apps`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


def _facts() -> dict[str, object]:
    return {
        "pid": os.getpid(),
        "hash": hash("a word"),
        "address": id(int),
        "cores": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [],
        "cwd": os.getcwd(),  # noqa: PTH109 # as JSON
        "env": dict(os.environ),
    }


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        print(message["type"])
        await send({"type": message["type"] + ".complete"})
        if message["type"] == "lifespan.shutdown":
            return


def _detach() -> None:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execvp("sleep", ("sleep", "60"))
        os._exit(0)
    os.wait()


async def app(scope: Message, receive: Receive, send: Send) -> None:
    """Answers with facts about its process.

    `/die` ends it without a word, `/compute` computes before, and `/detach` leaves a process behind that is none of its
    children.
    """
    if scope["type"] == "lifespan":
        return await _lifespan(receive, send)
    if scope["path"] == "/die":
        os.kill(os.getpid(), signal.SIGKILL)
    if scope["path"] == "/compute":
        sum(range(500_000))
    if scope["path"] == "/detach":
        _detach()
    body = json.dumps(_facts()).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})
    return None


def make() -> object:
    return app


async def make_async() -> object:
    return app


def make_failing() -> object:
    raise RuntimeError("no database here")


def make_vanishing() -> object:
    print("last words")
    os._exit(9)


def make_text() -> object:
    return "not an app"


def wsgi(environ: dict[str, object], start_response: Callable[..., object]) -> list[bytes]:
    return []


async def handler(request: object) -> None:
    return None


async def crashing_lifespan(scope: Message, receive: Receive, send: Send) -> None:
    """Breaks without telling, as apps do that no framework wraps."""
    if scope["type"] == "lifespan":
        await receive()
        raise RuntimeError("no database here")


async def hanging_lifespan(scope: Message, receive: Receive, send: Send) -> None:
    print("waiting for the database")
    await asyncio.Event().wait()


async def stubborn(scope: Message, receive: Receive, send: Send) -> None:
    """Serves, and never finishes its shutdown."""
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await asyncio.Event().wait()
    await app(scope, receive, send)


number = 7
