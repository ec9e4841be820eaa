"""A small file service: streamed upload, form upload and streamed download, on scratch space that never grows.

Set SLOWDOWN to make every request cost more CPU, and see which tests notice.
"""

from __future__ import annotations

import itertools
import os
import random
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import BinaryIO

from fastapi import FastAPI, HTTPException, Request, UploadFile
from fastapi.responses import StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

SLOWDOWN = 0.0
"""The CPU that each request burns in vain, as a share of what it costs anyway: 0.3 makes it cost 30 % more."""
SLOTS = 64
"""Uploads that are kept; the next one replaces the oldest. Without a bound, a load test fills the disk."""
BLOCK_BYTES = 64 * 1024
DOWNLOAD_BYTES = 256 * 1024


class Scratch:
    """A ring of files in one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.download = directory / "download"
        self.download.write_bytes(random.Random(0).randbytes(DOWNLOAD_BYTES))
        self._numbers = itertools.count()

    def create(self) -> tuple[int, Path]:
        """Returns the number of a new upload, and where to write it until it is complete."""
        number = next(self._numbers)
        return number, self.directory / f"partial-{number}"

    def keep(self, number: int, partial: Path) -> None:
        """Moves a complete upload into its slot: whoever reads the slot never sees half a file."""
        partial.replace(self.path(number))

    def path(self, number: int) -> Path:
        return self.directory / f"slot-{number % SLOTS}"


class Slowdown:
    """Makes each request burn CPU: the given share of what the process has used since the last one."""

    def __init__(self, app: ASGIApp, share: float) -> None:
        self.app = app
        self.share = share
        self._mark_s = time.process_time()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            now_s = time.process_time()
            until_s = now_s + self.share * (now_s - self._mark_s)
            while now_s < until_s:
                now_s = time.process_time()
            self._mark_s = now_s
        await self.app(scope, receive, send)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    with tempfile.TemporaryDirectory(prefix="quickstart-") as directory:
        app.state.scratch = Scratch(Path(directory))
        yield


app = FastAPI(lifespan=lifespan)
if SLOWDOWN:
    app.add_middleware(Slowdown, share=SLOWDOWN)


@app.get("/health")
async def health() -> dict[str, bool]:
    return {"ok": True}


@app.post("/upload")
async def upload(request: Request) -> dict[str, int]:
    """Takes the request's body as it comes."""
    scratch: Scratch = request.app.state.scratch
    number, partial = scratch.create()
    size_bytes = 0
    with partial.open("wb") as file:  # blocks, but not longer than a change of thread would
        async for block in request.stream():
            size_bytes += file.write(block)
    scratch.keep(number, partial)
    return {"id": number, "size_bytes": size_bytes}


@app.post("/form")
async def form(request: Request, file: UploadFile) -> dict[str, int]:
    """Takes a file out of a multipart form."""
    scratch: Scratch = request.app.state.scratch
    number, partial = scratch.create()
    size_bytes = 0
    with partial.open("wb") as target:
        while block := await file.read(BLOCK_BYTES):
            size_bytes += target.write(block)
    scratch.keep(number, partial)
    return {"id": number, "size_bytes": size_bytes}


@app.get("/download")
async def download(request: Request) -> StreamingResponse:
    """Streams a file that is always there."""
    scratch: Scratch = request.app.state.scratch
    return streamed(scratch.download)


@app.get("/download/{number}")
async def download_upload(request: Request, number: int) -> StreamingResponse:
    """Streams an upload back, as long as it is among the last ones."""
    scratch: Scratch = request.app.state.scratch
    return streamed(scratch.path(number))


def streamed(path: Path) -> StreamingResponse:
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise HTTPException(404) from None
    size_bytes = os.fstat(file.fileno()).st_size
    return StreamingResponse(
        blocks_of(file), media_type="application/octet-stream", headers={"content-length": str(size_bytes)}
    )


async def blocks_of(file: BinaryIO) -> AsyncIterator[bytes]:
    with file:
        while block := file.read(BLOCK_BYTES):
            yield block
