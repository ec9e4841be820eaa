"""The app of boots.py: endpoints whose bodies cost memory, as many apps have them."""

from __future__ import annotations

from collections.abc import AsyncIterator

from fastapi import FastAPI, Request, Response, UploadFile
from starlette.responses import StreamingResponse

KIB, MIB = 1 << 10, 1 << 20
PIECE = bytes(MIB)
ROWS = [{"id": number, "name": f"row {number}", "tags": ["a", "b"], "value": number / 7} for number in range(1000)]

app = FastAPI()


@app.get("/down/{kib}")
async def down(kib: int) -> Response:
    """Answers with a body that is made anew."""
    return Response(bytes(kib * KIB), media_type="application/octet-stream")


@app.post("/up")
async def up(request: Request) -> dict[str, int]:
    """Joins the whole body."""
    return {"size_bytes": len(await request.body())}


@app.post("/form")
async def form(file: UploadFile) -> dict[str, int]:
    """Parses a form, and reads its file."""
    return {"size_bytes": len(await file.read())}


@app.get("/json")
async def rows() -> list[dict[str, object]]:
    """Answers with some 70 kB of JSON."""
    return ROWS


@app.get("/stream")
async def stream() -> StreamingResponse:
    """Answers with 20 MiB in pieces that are made anew."""

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield bytes(MIB)

    return StreamingResponse(pieces())


@app.get("/held")
async def held() -> StreamingResponse:
    """Answers with 20 MiB: the same piece 20 times."""

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield PIECE

    return StreamingResponse(pieces())
