"""The same form, with a large file in it, at the same pace at FastAPI, aiohttp and Go.

Run it with `pytest --fileperf`, and with `--full-size` as it was published. The tests compare servers with each other
and not with a baseline: there is no gate.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import httpx
import psutil
import pytest

from pytest_fileperf import Command, Payload, Uvicorn, payload

HERE = Path(__file__).parent
PUBLISHED_BODY_BYTES = 103_419_638
"""The whole form: the file, and what a form puts around it."""
AT_FULL_SIZE_BYTES = 11_000_000_000
"""What a server that falls behind may come to keep of 100 such uploads: FastAPI on disk, Go in memory and on disk."""

pytestmark = pytest.mark.fileperf(
    app="form_uploads.fastapi_app:app",
    group="form uploads",
    gate="none",
    warmup="0s",  # so many requests and no more
    timeout="2m",  # a server that falls behind answers the last of them a minute late
)


def file_in_body(body_bytes: int) -> Payload:
    """Returns a file that makes the whole form so large."""
    empty = payload(0)
    form = httpx.Request("POST", "http://127.0.0.1", files={"file": (empty.filename, b"", empty.content_type)})
    return payload(body_bytes - len(form.read()))


def skip_without_room(free_bytes: int, where: str) -> None:
    if free_bytes < AT_FULL_SIZE_BYTES:
        pytest.skip(f"needs up to {AT_FULL_SIZE_BYTES / 1e9:.0f} GB {where}, and {free_bytes / 1e9:.1f} GB are free")


@pytest.fixture(scope="module")
def form(full_size: bool) -> dict[str, object]:
    """What is uploaded, how often, and what a server answers that has got all of it."""
    if full_size:
        scratch = tempfile.gettempdir()
        skip_without_room(shutil.disk_usage(scratch).free, f"in {scratch} (TMPDIR names another directory)")
    file = file_in_body(PUBLISHED_BODY_BYTES if full_size else 10_000_000)
    rate, seconds = (10, 10) if full_size else (100, 1)  # as many bytes a second, in a tenth of the time
    return {
        "files": {"file": file},
        "expect_body": f'{{"size":{file.size_bytes}}}'.encode(),
        "rate": rate,
        "duration": seconds,
        "connections": rate * seconds,  # enough for all: a request never waits for another one's connection
    }


@pytest.fixture(scope="module")
def aiohttp() -> Command:
    pytest.importorskip("aiohttp")
    return Command(["{python}", str(HERE / "aiohttp_app.py"), "--port", "{port}"], title="aiohttp")


@pytest.fixture(scope="module")
def go(tmp_path_factory: pytest.TempPathFactory, full_size: bool) -> Command:
    """The Go server on two cores; built into a temporary directory, from nothing but Go itself."""
    if shutil.which("go") is None:
        pytest.skip("needs Go 1.21 or newer, and there is no `go` on the PATH")
    if full_size:
        skip_without_room(psutil.virtual_memory().available, "of memory")
    directory = tmp_path_factory.mktemp("go")
    program = str(directory / "form_uploads.exe")
    env = {"GOMAXPROCS": "2", "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off", "GOFLAGS": ""}
    if not os.environ.keys() & {"GOCACHE", "XDG_CACHE_HOME", "HOME", "LOCALAPPDATA"}:
        env["GOCACHE"] = str(directory / "cache")
    return Command(
        [program, "-port", "{port}"],
        build=["go", "build", "-trimpath", "-buildvcs=false", "-o", program, "."],
        cwd=HERE / "go_server",
        env=env,
        workers=2,
        title="Go",
    )


def test_fastapi(fileperf, form):
    fileperf.post("/upload", server=Uvicorn(), label="FastAPI ×1", **form)


def test_aiohttp(fileperf, form, aiohttp):
    fileperf.post("/upload", server=aiohttp, label="aiohttp ×1", **form)


def test_aiohttp_spooled(fileperf, form, aiohttp):
    """Not in the study: aiohttp doing what the others do, which is to keep the file before it is read."""
    fileperf.post("/spooled", server=aiohttp, label="aiohttp ×1, spooled", **form)


def test_fastapi_on_two_cores(fileperf, form):
    fileperf.post("/upload", server=Uvicorn(workers=2), label="FastAPI ×2", **form)


def test_go_on_two_cores(fileperf, form, go):
    fileperf.post("/upload", server=go, label="Go ×2", **form)
