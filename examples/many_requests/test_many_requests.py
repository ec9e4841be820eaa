"""Loads of many different requests, on the quickstart's app."""

from __future__ import annotations

from pytest_fileperf import part, payload

UPLOADS = 50


async def upload_some(client):
    """Puts some files on the server: it runs on every boot, before the load."""
    answers = [await client.post("/upload", content=payload("64KiB", seed=seed)) for seed in range(UPLOADS)]
    return [answer.json()["id"] for answer in answers]


def test_values_for_a_field(fileperf):
    fileperf.get("/download/{id}", feed=lambda ids: ids, setup=upload_some, expect_bytes="64KiB", gate="none")


def test_some_are_asked_for_more(fileperf):
    fileperf.get(
        "/download/{id}",
        feed=lambda ids: ids,
        order="zipf",
        seed=7,
        setup=upload_some,
        expect_bytes="64KiB",
        gate="none",
    )


def test_rows_of_several_fields(fileperf):
    pages = [{"name": "a/b?", "page": page} for page in range(100)]
    fileperf.get("/health", params={"name": "{name}", "page": "{page}"}, feed=pages, order="shuffle", gate="none")


def test_unique_uploads(fileperf):
    fileperf.post("/upload", content=payload("64KiB", unique=True), gate="none")


def test_unique_forms(fileperf):
    fileperf.post("/form", files={"file": payload("64KiB", unique=True)}, headers={"X-Key": "{unique}"}, gate="none")


CONTENT = payload("64KiB", unique=True)


async def upload_and_read_back(client):
    sent = CONTENT.fresh()  # this one, and no other
    uploaded = await client.post("/upload", content=sent)
    downloaded = await client.get(f"/download/{uploaded.json()['id']}")
    assert downloaded.content == sent.read()


def test_uploads_are_read_back(fileperf):
    fileperf.run(upload_and_read_back, connections=8, gate="none")


UPLOAD = part.post("/upload", content=payload("64KiB", unique=True), name="upload")
DOWNLOAD = part.get("/download", name="download", max_p99="1s")


def test_mix(fileperf):
    result = fileperf.mix({UPLOAD: 1, DOWNLOAD: 9}, rate=50, duration="3s", gate="none")
    assert result.parts["download"].latency.p50 < 0.5


def test_list_of_requests(fileperf):
    result = fileperf.requests(
        [
            ("GET", "/health"),
            ("POST", "/upload", {"content": payload("1KiB"), "name": "small upload"}),
            ("POST", "/upload", {"content": payload("64KiB"), "name": "large upload"}),
        ],
        order="shuffle",
        gate="none",
    )
    assert result.parts["small upload"].errors == 0
