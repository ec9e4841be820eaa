"""The apps that benchmarks load: `files`, `counted`, `limited`, and `Gate(…)`, whose cost is known."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import mmap
import os
import random
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

# --- files: as little work as FastAPI allows, for peers.py

BLOCK = bytes(256 * 1024)
files = FastAPI()


@files.get("/tiny")
async def tiny() -> dict[str, bool]:
    return {"ok": True}


@files.post("/upload")
async def upload(request: Request) -> dict[str, int]:
    size_bytes = 0
    async for block in request.stream():
        size_bytes += len(block)
    return {"size_bytes": size_bytes}


@files.get("/download")
async def download() -> Response:
    return Response(BLOCK, media_type="application/octet-stream")


# --- gate: known changes, for gate.py. Each side of a comparison has a copy of this file.

STALL_S = 0.030
gated = FastAPI()
gated.post("/upload")(upload)


@gated.get("/tiny")
async def small() -> Response:
    return Response(b"hello")


class Gate:
    """Burns a share of what the process has used since the last request, and lets one of so many wait, or all."""

    def __init__(self, *, slower: float, delayed: int, delay_s: float, stall_every_s: float) -> None:
        self.slower, self.delayed, self.delay_s, self.stall_every_s = slower, delayed, delay_s, stall_every_s
        self._mark_s = self._stalls_at_s = 0.0
        self._owed_s = 0.0
        self._requests = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await gated(scope, receive, send)
            return
        now_s = time.process_time()
        if not self._requests:  # not at import: the clock of a fork begins anew
            self._mark_s, self._stalls_at_s = now_s, time.monotonic() + self.stall_every_s
        self._owed_s += self.slower * (now_s - self._mark_s)
        if self._owed_s > 0:
            slow_function(now_s + self._owed_s)
        self._mark_s = time.process_time()
        if self.slower:
            self._owed_s -= self._mark_s - now_s  # what asking for the time takes is burned too
        if self.stall_every_s and time.monotonic() > self._stalls_at_s:
            time.sleep(STALL_S)  # noqa: ASYNC251 # all requests are to wait
            self._stalls_at_s = time.monotonic() + self.stall_every_s * random.uniform(0.5, 1.5)
        self._requests += 1
        if self.delayed and self._requests % self.delayed == 0:
            await asyncio.sleep(self.delay_s)
        await gated(scope, receive, send)


def slow_function(until_s: float) -> None:
    """Burns until the process has used so much; a comparison shall name it."""
    while time.process_time() < until_s:
        pass


# --- counted: bare ASGI, so that the server is little of what a client costs; it keeps a log of all that came

COST_S = float(os.environ.get("COST_S", "0"))
"""CPU time that each request burns: with it the server sets the pace of a closed loop, whoever loads it."""
EVENT_EVERY_S = 1 / 20
ANSWERS = {"item": b"x" * 100, "file": bytes(64 * 1024), "upload": b"taken", "bad": b"sorry", "chance": b"ok"}
kinds: Counter[str] = Counter()
streams: list[list[float]] = []
"""For each stream when it was asked for, then when each event was sent."""


async def counted(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers `/item/…`, `/file/…`, `/upload/…`, `/bad/…` (an error), and `/chance`, whose time differs by chance.

    `/events` sends 20 events a second without end, and `/log` says what came since it was last asked.
    """
    kind = scope["path"].split("/")[1]  # which a lifespan does not have: this app does without
    if kind == "events":
        await _send_events(receive, send)
        return
    if kind not in ANSWERS:
        await _answer(send, json.dumps({"kinds": kinds, "streams": streams}).encode())
        kinds.clear()
        return
    while (await receive()).get("more_body"):
        pass
    if kind == "chance":
        await asyncio.sleep(random.expovariate(100))
    if COST_S:
        slow_function(time.process_time() + COST_S)
    kinds[kind] += 1
    await _answer(send, ANSWERS[kind], 503 if kind == "bad" else 200)


async def _answer(send: Send, body: bytes, status: int = 200) -> None:
    headers = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/octet-stream")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _send_events(receive: Receive, send: Send) -> None:
    own = [time.monotonic()]
    streams.append(own)
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await receive()  # the request has no body
    gone = asyncio.ensure_future(receive())
    while not gone.done():
        await asyncio.sleep(own[0] + len(own) * EVENT_EVERY_S - time.monotonic())
        if not gone.done():
            own.append(time.monotonic())
            await send({"type": "http.response.body", "body": b"data: %d\n\n" % len(own), "more_body": True})


# --- limited: endpoints with one limit each, for limits.py

SCRATCH = Path(os.environ.get("LIMITS_SCRATCH", tempfile.gettempdir()))
"""A directory that whoever starts the server removes."""
SO_MAX_PACING_RATE = 47
"""From the kernel's socket.h; Python has no name for it."""
PACED_BYTES_PER_SECOND = 2_000_000
MIB = 1 << 20
hot = False
"""Whether this worker is the one of several that works hard."""
places = asyncio.Semaphore(4)
lock = threading.Lock()


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Makes the first worker the hot one, and connections slow if that is asked for."""
    global hot
    with (SCRATCH / "hot").open("w") as file:
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            hot = True
        if os.environ.get("LIMITS_PACED"):
            pace()
        yield


def pace() -> None:
    """Lets every connection that is accepted from here on send at a limited rate, as a slow network would."""
    for path in Path("/proc/self/fd").iterdir():
        # Others are no sockets.
        with suppress(OSError), socket.socket(fileno=os.dup(int(path.name))) as listener:
            if listener.family == socket.AF_INET:
                listener.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, PACED_BYTES_PER_SECOND)


api = FastAPI(lifespan=lifespan)
api.get("/tiny")(tiny)
api.get("/download")(download)


async def limited(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers `/raw` with nothing else between, for a server that costs less than any client; the rest is FastAPI's."""
    if scope["type"] == "http" and scope["path"] == "/raw":
        await _answer(send, b"ok")
    else:
        await api(scope, receive, send)


def burn(seconds: float) -> None:
    end_s = time.thread_time() + seconds
    while time.thread_time() < end_s:
        hashlib.sha256(b"x" * 1000).digest()


def write(times: int) -> None:
    with (SCRATCH / f"written-{os.getpid()}-{threading.get_ident()}").open("wb", buffering=0) as file:
        for _ in range(times):
            file.seek(0)
            file.write(BLOCK[:4096])
            os.fsync(file)


def read(times: int) -> None:
    """Reads a mebibyte so often from the disk, not from the kernel's cache."""
    path = SCRATCH / f"read-{os.getpid()}-{threading.get_ident()}"
    if not path.exists():
        path.write_bytes(os.urandom(MIB))
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        with mmap.mmap(-1, MIB) as content:  # at a page's boundary, as O_DIRECT wants it
            for _ in range(times):
                os.preadv(file, [content], 0)
    finally:
        os.close(file)


def in_pool(path: str, work: Callable[[], None]) -> None:
    def answer() -> Response:
        work()
        return Response()

    api.get(path)(answer)


def on_loop(path: str, work: Callable[[], Awaitable[None] | None]) -> None:
    async def answer() -> Response:
        waits = work()
        if waits is not None:
            await waits
        return Response()

    api.get(path)(answer)


def locked() -> None:
    with lock:
        time.sleep(0.002)


async def sleep_and_thread() -> None:
    await asyncio.to_thread(time.sleep, 0.001)
    await asyncio.sleep(0.1)


async def semaphore() -> None:
    """Waits with few others, as for a pool of database connections."""
    async with places:
        await asyncio.sleep(0.02)


in_pool("/burn-in-thread", lambda: burn(0.005))
in_pool("/thread", lambda: time.sleep(0.1))
in_pool("/thread-lock", locked)
in_pool("/read", lambda: read(4))  # waits for the disk
on_loop("/burn", lambda: burn(0.002))
on_loop("/one-worker", lambda: burn(0.005) if hot else asyncio.sleep(0.05))
on_loop("/executor", lambda: asyncio.to_thread(time.sleep, 0.02))  # asyncio's own thread pool
on_loop("/sleep", lambda: asyncio.sleep(0.05))  # as if for another service
on_loop("/sleep-and-thread", sleep_and_thread)
on_loop("/semaphore", semaphore)
on_loop("/blocking", lambda: time.sleep(0.01))  # which it must not: the mistake to be found
on_loop("/fsync", lambda: write(30))
on_loop("/read-on-loop", lambda: read(4))


@api.get("/stream")
async def stream() -> StreamingResponse:
    async def blocks() -> AsyncIterator[bytes]:
        for _ in range(10):
            yield BLOCK[:10_000]
            await asyncio.sleep(0.02)

    return StreamingResponse(blocks())
