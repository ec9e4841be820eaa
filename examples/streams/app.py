"""A small app whose answers come in pieces: server-sent events, JSON lines, a long download, messages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

from fastapi import FastAPI, WebSocket
from fastapi.responses import StreamingResponse

app = FastAPI()


@app.get("/events")
async def events(per_second: float = 20) -> StreamingResponse:
    """Sends an event every so often, until the client has enough."""

    async def ticks() -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        due, number = loop.time(), 0
        while True:
            due, number = due + 1 / per_second, number + 1
            await asyncio.sleep(due - loop.time())
            yield b"event: tick\ndata: %d\n\n" % number

    return StreamingResponse(ticks(), media_type="text/event-stream")


@app.post("/complete")
async def complete(prompt: dict[str, str]) -> StreamingResponse:
    """Answers word by word, as a language model does."""

    async def words() -> AsyncIterator[bytes]:
        for word in prompt["text"].split():
            await asyncio.sleep(0.005)
            yield json.dumps({"word": word}).encode() + b"\n"

    return StreamingResponse(words(), media_type="application/x-ndjson")


@app.get("/film")
async def film(pieces: int = 64) -> StreamingResponse:
    """Sends a long file, 64 KiB at a time."""

    async def parts() -> AsyncIterator[bytes]:
        for _ in range(pieces):
            yield bytes(64 * 1024)

    return StreamingResponse(parts(), media_type="video/mp4")


@app.websocket("/echo")
async def echo(socket: WebSocket) -> None:
    """Sends back what comes, until the client goes."""
    await socket.accept()
    async for text in socket.iter_text():
        await socket.send_text(text)
