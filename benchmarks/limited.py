"""The app that `limits.py` loads: endpoints with one limit each."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import mmap
import os
import socket
import tempfile
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

SCRATCH = Path(os.environ.get("FILEPERF_LIMITS_SCRATCH", tempfile.gettempdir()))
"""A directory that whoever starts the server removes."""
SO_MAX_PACING_RATE = 47
"""From the kernel's socket.h; Python has no name for it."""
PACED_BYTES_PER_SECOND = 2_000_000
BLOCK_BYTES = 256 * 1024
BLOCK = bytes(BLOCK_BYTES)
CONTENT = os.urandom(BLOCK_BYTES)

hot = False
"""Whether this worker is the one of several that works hard."""
places = asyncio.Semaphore(4)
lock = threading.Lock()


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Makes the first worker the hot one, and connections slow where that is asked for."""
    global hot
    with (SCRATCH / "hot").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            hot = True
        except BlockingIOError:
            hot = False
        if os.environ.get("FILEPERF_LIMITS_PACED"):
            pace()
        yield


def pace() -> None:
    """Lets every connection that is accepted from here on send at a limited rate, as a slow network would."""
    for path in Path("/proc/self/fd").iterdir():
        try:
            listener = socket.socket(fileno=os.dup(int(path.name)))
        except OSError:
            continue  # no socket
        with listener:
            if listener.family == socket.AF_INET:
                listener.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, PACED_BYTES_PER_SECOND)


api = FastAPI(lifespan=lifespan)


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers `/raw` with nothing else between, for a server that costs less than any client; the rest is FastAPI's."""
    if scope["type"] != "http" or scope["path"] != "/raw":
        await api(scope, receive, send)
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


def burn(seconds: float) -> None:
    """Keeps a core busy, and the interpreter's lock."""
    end_s = time.thread_time() + seconds
    while time.thread_time() < end_s:
        hashlib.sha256(b"x" * 1000).digest()


def write(times: int) -> None:
    """Writes a little so often, and waits each time until the disk has it."""
    with (SCRATCH / f"written-{os.getpid()}-{threading.get_ident()}").open("wb", buffering=0) as file:
        for _ in range(times):
            file.seek(0)
            file.write(BLOCK[:4096])
            os.fsync(file)


def read(times: int) -> None:
    """Reads a mebibyte so often from the disk, not from the kernel's cache."""
    path = SCRATCH / f"read-{os.getpid()}-{threading.get_ident()}"
    if not path.exists():
        path.write_bytes(CONTENT * 4)
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        with mmap.mmap(-1, 4 * BLOCK_BYTES) as content:  # at a page's boundary, as O_DIRECT wants it
            for _ in range(times):
                os.preadv(file, [content], 0)
    finally:
        os.close(file)


@api.get("/tiny")
async def tiny() -> dict[str, bool]:
    """Answers with a few bytes."""
    return {"ok": True}


@api.get("/block")
async def block() -> Response:
    """Answers with 256 KiB."""
    return Response(CONTENT)


@api.get("/burn")
async def burning() -> Response:
    """Computes."""
    burn(0.002)
    return Response()


@api.get("/burn-in-thread")
def burning_in_thread() -> Response:
    """Computes, in the thread pool."""
    burn(0.005)
    return Response()


@api.get("/one-worker")
async def one_worker() -> Response:
    """Computes in one worker, waits in the others."""
    if hot:
        burn(0.005)
    else:
        await asyncio.sleep(0.05)
    return Response()


@api.get("/thread")
def in_thread() -> Response:
    """Sleeps in the framework's thread pool."""
    time.sleep(0.1)
    return Response()


@api.get("/executor")
async def in_executor() -> Response:
    """Sleeps in asyncio's own thread pool."""
    await asyncio.to_thread(time.sleep, 0.02)
    return Response()


@api.get("/thread-lock")
def in_thread_with_lock() -> Response:
    """Sleeps in the thread pool, one thread at a time."""
    with lock:
        time.sleep(0.002)
    return Response()


@api.get("/sleep")
async def sleeping() -> Response:
    """Waits as if for another service."""
    await asyncio.sleep(0.05)
    return Response()


@api.get("/sleep-and-thread")
async def sleeping_and_thread() -> Response:
    """Waits, and does a little in a thread."""
    await asyncio.to_thread(time.sleep, 0.001)
    await asyncio.sleep(0.1)
    return Response()


@api.get("/semaphore")
async def semaphore() -> Response:
    """Waits with few others, as for a pool of database connections."""
    async with places:
        await asyncio.sleep(0.02)
    return Response()


@api.get("/stream")
async def stream() -> StreamingResponse:
    """Answers slowly, bit by bit."""

    async def blocks() -> AsyncIterator[bytes]:
        for _ in range(10):
            yield BLOCK[:10_000]
            await asyncio.sleep(0.02)

    return StreamingResponse(blocks())


@api.get("/blocking")
async def blocking() -> Response:
    """Sleeps on the event loop, which it must not."""
    time.sleep(0.01)  # noqa: ASYNC251 # the mistake to be found
    return Response()


@api.get("/fsync")
async def fsync() -> Response:
    """Waits for the disk on the event loop."""
    write(30)
    return Response()


@api.get("/read-on-loop")
async def reading_on_loop() -> Response:
    """Waits for the disk on the event loop, longer each time."""
    read(4)
    return Response()


@api.get("/read")
def reading() -> Response:
    """Waits for the disk in the thread pool."""
    read(4)
    return Response()
