"""The aiohttp side, a program of its own: `python aiohttp_app.py --port 8000`.

Takes the file of a form in either of aiohttp's two ways, reads it to its end, and answers with its size.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from functools import partial

from aiohttp import web

BLOCK_BYTES = 1 << 20

compact = partial(json.dumps, separators=(",", ":"))
"""The answer is the same to the byte for all servers, so that the tests can compare it."""


async def upload(request: web.Request) -> web.Response:
    """Reads each part of the form while it arrives: nothing is kept, in memory or on disk."""
    size_bytes = 0
    async for part in await request.multipart():
        while block := await part.read_chunk(BLOCK_BYTES):
            if part.name == "file":
                size_bytes += len(block)
    return web.json_response({"size": size_bytes}, dumps=compact)


async def spooled(request: web.Request) -> web.Response:
    """Gets the form when all of it has arrived, in a temporary file, as the other servers do."""
    form = await request.post()
    field = form["file"]
    assert isinstance(field, web.FileField)
    size_bytes = 0
    with field.file as file:
        while block := await asyncio.to_thread(file.read, BLOCK_BYTES):
            size_bytes += len(block)
    return web.json_response({"size": size_bytes}, dumps=compact)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    arguments = parser.parse_args()
    app = web.Application(client_max_size=0)  # no limit: 1 MiB is usual
    app.router.add_post("/upload", upload)
    app.router.add_post("/spooled", spooled)
    web.run_app(app, host="127.0.0.1", port=arguments.port, access_log=None, print=None)


if __name__ == "__main__":
    main()
