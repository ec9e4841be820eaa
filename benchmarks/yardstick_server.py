"""The server that yardstick.py measures others by: it reads each request to its end and answers with two bytes.

python benchmarks/yardstick_server.py PORT
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import httptools
import uvloop

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Yardstick(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self._parser = httptools.HttpRequestParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps what to answer through."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class

    def data_received(self, data: bytes) -> None:
        """Parses what came."""
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        """Forgets it."""

    def on_message_complete(self) -> None:
        """Answers."""
        self._transport.write(ANSWER)


async def serve(port: int) -> None:
    """Serves until the process is ended."""
    server = await asyncio.get_running_loop().create_server(Yardstick, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
