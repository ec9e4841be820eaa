"""The handlers on their own, called once and without load: what they store and send is the whole file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anyio
import file_endpoints.app
import httpx
import pytest
from file_endpoints.app import DOWNLOADS, KEPT_UPLOADS, Scratch, Stored, app
from file_endpoints.bodies import FILE, STORED, body_of_kind

from pytest_fileperf import StreamingASGITransport

CONTENT = b"".join(FILE.blocks())
BODIES = {
    "application/octet-stream": {"content": CONTENT},
    "multipart/form-data": {"files": {"file": CONTENT}},
    "application/json": body_of_kind("json"),
}


def requests() -> list[tuple[str, str, str]]:
    """Returns the method and path of every handler, with the type of body it declares."""
    return [
        (method, path, next(iter(about.get("requestBody", {"content": BODIES})["content"])))
        for path, methods in app.openapi()["paths"].items()
        for method, about in methods.items()
    ]


UPLOADS = {path: body for method, path, body in requests() if method == "post"}
DOWNLOAD_PATHS = [path for method, path, _ in requests() if method == "get"]


def answer(method: str, path: str, **arguments: object) -> httpx.Response:
    async def answered() -> httpx.Response:
        transport = StreamingASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://app") as client,
        ):
            return await client.request(method, path, **arguments)

    return anyio.run(answered)


@pytest.mark.parametrize("prefix, uploads, downloads", [("/file_benchmarking/", 6, 3), ("/files/", 9, 4)])
def test_the_study_is_complete(prefix, uploads, downloads):
    assert sum(path.startswith(prefix) for path in UPLOADS) == uploads
    assert sum(path.startswith(prefix) for path in DOWNLOAD_PATHS) == downloads


@pytest.mark.parametrize("path", UPLOADS)
def test_an_upload_is_stored_whole(monkeypatch, path):
    contents = []
    stored: Callable[[Path], Stored] = file_endpoints.app.stored

    def seen(path: Path) -> Stored:
        contents.append(path.read_bytes())
        return stored(path)

    monkeypatch.setattr(file_endpoints.app, "stored", seen)
    response = answer("POST", path, **BODIES[UPLOADS[path]])
    assert response.content == STORED
    assert contents == [CONTENT]


@pytest.mark.parametrize("path", DOWNLOAD_PATHS)
def test_a_download_is_one_of_the_files(tmp_path, path):
    files = {file.read_bytes() for file in Scratch(tmp_path).downloads}
    response = answer("GET", path)
    assert response.status_code == 200
    assert response.content in files


def test_uploads_do_not_pile_up(tmp_path):
    scratch = Scratch(tmp_path)
    for _ in range(2 * KEPT_UPLOADS):
        last = scratch.new_upload()
        last.touch()
    assert last.exists()
    assert len(list(tmp_path.iterdir())) == DOWNLOADS + KEPT_UPLOADS


def test_nothing_is_left_behind():
    answer("GET", DOWNLOAD_PATHS[0])
    assert not file_endpoints.app.scratch().directory.exists()
