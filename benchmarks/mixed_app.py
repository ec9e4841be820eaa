"""The app that `mixes.py` loads: kinds of requests, and counts of its own of all that came.

It is bare ASGI, so that the server is no part of what a client costs. `MIXED_COST_S` in its environment is CPU time
that each request burns: with it the server sets the pace of a closed loop, whoever loads it.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
COST_S = float(os.environ.get("MIXED_COST_S", "0"))
BUCKETS_PER_S = 20
BODIES = {"item": b"x" * 100, "file": bytes(64 * 1024), "upload": b"taken", "bad": b"sorry"}
FAILING = "bad"
"""The kind that is answered with an error."""
_kinds: Counter[str] = Counter()
_paths: set[str] = set()
_digests: set[bytes] = set()
_buckets: Counter[int] = Counter()
_first_s: list[float] = []


async def app(scope: Message, receive: Callable[[], Awaitable[Message]], send: Send) -> None:
    """Answers `/item/…`, `/file/…`, `/upload/…` and `/bad/…`; `/counts` with what came since it was last asked."""
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    kind = scope["path"].split("/", 2)[1]
    if kind not in BODIES:
        await _answer(send, _counts() if kind == "counts" else b"")
        return
    if not _first_s:
        _first_s.append(time.monotonic())
    digest, more = hashlib.sha256() if kind == "upload" else None, True
    while more:
        message = await receive()
        if digest is not None:
            digest.update(message.get("body", b""))
        more = message.get("more_body", False)
    if digest is not None:
        _digests.add(digest.digest())
    _paths.add(scope["path"])
    burn(COST_S)
    _kinds[kind] += 1
    _buckets[int(time.monotonic() * BUCKETS_PER_S)] += 1
    await _answer(send, BODIES[kind], 500 if kind == FAILING else 200)


def burn(cost_s: float) -> None:
    """Uses so much CPU time."""
    if cost_s:
        until_s = time.process_time() + cost_s
        while time.process_time() < until_s:
            pass


async def _answer(send: Send, body: bytes, status: int = 200) -> None:
    headers = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/octet-stream")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _counts() -> bytes:
    """Returns the counts as JSON, and begins anew. `rps` is the rate between a quarter and nine tenths of the time."""
    first, last = min(_buckets, default=0), max(_buckets, default=0)
    middle = range(first + (last - first) // 4, first + (last - first) * 9 // 10)
    counts = {
        "kinds": dict(_kinds),
        "paths": len(_paths),
        "digests": len(_digests),
        "rps": sum(_buckets[bucket] for bucket in middle) * BUCKETS_PER_S / len(middle) if middle else 0.0,
        "first_s": _first_s[0] if _first_s else 0.0,
    }
    for kept in (_kinds, _paths, _digests, _buckets, _first_s):
        kept.clear()
    return json.dumps(counts).encode()
