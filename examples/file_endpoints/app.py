"""The handlers of two published studies: nine ways to take or send a file (A), and thirteen (B).

Where both studies have the same handler, it stands here once, under both of its paths. The order is theirs.
"""

from __future__ import annotations

import base64
import random
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import aiofiles
from fastapi import APIRouter, FastAPI, Request, UploadFile
from fastapi.responses import FileResponse, StreamingResponse
from pydantic import BaseModel

FILE_BYTES = 256 * 1024
CHUNK_BYTES = 262_144
"""As in the studies: one chunk is the whole file. A request streams in by the server's own, smaller pieces."""
DOWNLOADS = 16
KEPT_UPLOADS = 512
"""128 MiB for each worker. It must be more than there are connections to it: none may lose the file it is writing."""


class Scratch:
    """The files of one server process: those that downloads read, and the last uploads.

    The studies kept every upload, 12 GB in ten seconds. Here each new one removes one that is KEPT_UPLOADS older. That
    adds the removal of a file to every upload, the same for every handler; and as a file is gone again within a second,
    its content hardly ever gets further than the system's page cache.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.downloads = tuple(directory / f"download-{number}.bin" for number in range(DOWNLOADS))
        content = random.Random(0)
        for path in self.downloads:
            path.write_bytes(content.randbytes(FILE_BYTES))
        self._uploads: deque[Path] = deque()

    def new_upload(self) -> Path:
        """Returns where to write the next upload. For any thread: each step on the deque is atomic."""
        path = self.directory / uuid4().hex
        self._uploads.append(path)
        if len(self._uploads) > KEPT_UPLOADS:
            self._uploads.popleft().unlink(missing_ok=True)
        return path

    def random_download(self) -> Path:
        return random.choice(self.downloads)


class Stored(BaseModel):
    """The answer to every upload: how much of it is in the file, as the file system says once it is closed."""

    size_bytes: int


def stored(path: Path) -> Stored:
    return Stored(size_bytes=path.stat().st_size)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Each worker process has a lifespan, and so a directory, of its own."""
    with tempfile.TemporaryDirectory(prefix="file-endpoints-") as directory:
        app.state.scratch = Scratch(Path(directory))
        yield


app = FastAPI(lifespan=lifespan)
study_a = APIRouter(prefix="/file_benchmarking")
study_b = APIRouter(prefix="/files")


def scratch() -> Scratch:
    found: Scratch = app.state.scratch
    return found


# --- uploads of the file as the request's body


@study_b.post("/upload/stream/async_read_and_memory_write")
async def stream_to_temporary_file(request: Request) -> Stored:
    """The study calls this a write to memory; but a NamedTemporaryFile is a file as any other."""
    with tempfile.NamedTemporaryFile(dir=scratch().directory) as file:
        async for chunk in request.stream():
            file.write(chunk)
        file.flush()
        return stored(Path(file.name))


@study_a.post("/upload/binary/chunk/async_func/async_r_sync_w")
@study_b.post("/upload/stream/async_read_and_disk_write")
async def stream_to_file(request: Request) -> Stored:
    path = scratch().new_upload()
    with path.open("wb") as file:
        async for chunk in request.stream():
            file.write(chunk)
    return stored(path)


@study_a.post("/upload/binary/chunk/async_func/async_rw")
@study_b.post("/upload/stream/async_read_and_async_write")
async def stream_to_async_file(request: Request) -> Stored:
    path = scratch().new_upload()
    async with aiofiles.open(path, "wb") as file:
        async for chunk in request.stream():
            await file.write(chunk)
    return stored(path)


# --- uploads in a form: before the handler starts, all of it has been parsed into a spooled file, here held in memory


@study_a.post("/upload/formdata/async_func/async_rw")
@study_b.post("/upload/single")
async def form_whole(file: UploadFile) -> Stored:
    path = scratch().new_upload()
    async with aiofiles.open(path, "wb") as target:
        await target.write(await file.read())
    return stored(path)


@study_a.post("/upload/formdata/sync_func")
@study_b.post("/upload/single/sync")
def form_whole_in_thread(file: UploadFile) -> Stored:
    path = scratch().new_upload()
    with path.open("wb") as target:
        target.write(file.file.read())
    return stored(path)


@study_a.post("/upload/formdata/chunk/async_func/async_rw")
@study_b.post("/upload/single/stream")
async def form_chunks(file: UploadFile) -> Stored:
    path = scratch().new_upload()
    async with aiofiles.open(path, "wb") as target:
        while chunk := await file.read(CHUNK_BYTES):
            await target.write(chunk)
    return stored(path)


@study_b.post("/upload/single/stream/async_read_sync_write")
async def form_chunks_sync_write(file: UploadFile) -> Stored:
    path = scratch().new_upload()
    with path.open("wb") as target:
        while chunk := await file.read(CHUNK_BYTES):
            target.write(chunk)
    return stored(path)


@study_b.post("/upload/single/stream/sync_read_sync_write")
async def form_chunks_sync(file: UploadFile) -> Stored:
    path = scratch().new_upload()
    with path.open("wb") as target:
        while chunk := file.file.read(CHUNK_BYTES):
            target.write(chunk)
    return stored(path)


# --- uploads as base64 in JSON


class Encoded(BaseModel):
    """A file as JSON can carry it."""

    base64: str


@study_a.post("/upload/raw/json/base64/sync_rw")
@study_b.post("/upload/raw/json/base64decode")
async def json_base64(encoded: Encoded) -> Stored:
    path = scratch().new_upload()
    with path.open("wb") as file:
        file.write(base64.b64decode(encoded.base64))
    return stored(path)


# --- downloads


@study_b.get("/download/stream/sync_read")
async def stream_from_file() -> StreamingResponse:
    return StreamingResponse(chunks(scratch().random_download()), media_type="application/octet-stream")


@study_a.get("/download/chunk/async_func/async_r")
@study_b.get("/download/stream/async_read")
async def stream_from_async_file() -> StreamingResponse:
    return StreamingResponse(async_chunks(scratch().random_download()), media_type="application/octet-stream")


@study_a.get("/download/async_func/sync_r", response_class=FileResponse)
@study_b.get("/download/file", response_class=FileResponse)
async def file_response() -> str:
    return str(scratch().random_download())


@study_a.get("/download/sync_func", response_class=FileResponse)
@study_b.get("/download/file/sync", response_class=FileResponse)
def file_response_in_thread() -> str:
    return str(scratch().random_download())


def chunks(path: Path) -> Iterator[bytes]:
    """Yields the file's content. It reads in a thread: Starlette takes each chunk of a plain iterator from one."""
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


async def async_chunks(path: Path) -> AsyncIterator[bytes]:
    """Yields the file's content. It reads in threads too: that is how aiofiles does it."""
    async with aiofiles.open(path, "rb") as file:
        while chunk := await file.read(CHUNK_BYTES):
            yield chunk


app.include_router(study_a)
app.include_router(study_b)
