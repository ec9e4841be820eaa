"""Answers every GET with 1 KiB: one of three HTTP stacks on one of two event loops.

    python server.py --stack protocol --loop uvloop --port 8080

Each stack leaves out a layer of the one before: routing, then the whole framework but the parser.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import httptools
from aiohttp import web

HOST = "127.0.0.1"
BODY = bytes(range(256)) * 4
BACKLOG = 16_384
"""Connections that may wait to be accepted; Linux allows no more than net.core.somaxconn, which is 4,096 by default."""


async def start_application(port: int) -> object:
    """The way aiohttp is meant to be used: an application with a route."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=BODY)

    app = web.Application()
    app.router.add_get("/", answer)
    return await start_aiohttp(web.AppRunner(app, access_log=None), port)


async def start_bare(port: int) -> object:
    """The low-level server of aiohttp: a handler for all requests, without an application and its router around it."""

    async def answer(request: web.BaseRequest) -> web.Response:
        return web.Response(body=BODY)

    return await start_aiohttp(web.ServerRunner(web.Server(answer, access_log=None)), port)


async def start_aiohttp(runner: web.BaseRunner, port: int) -> object:
    await runner.setup()
    await web.TCPSite(runner, HOST, port, backlog=BACKLOG).start()
    return runner


async def start_protocol(port: int) -> object:
    """No framework: httptools says where a request ends, and a prebuilt answer goes out."""
    return await asyncio.get_running_loop().create_server(Answering, HOST, port, backlog=BACKLOG)


class Answering(asyncio.Protocol):
    """One connection."""

    HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n" % len(BODY)
    ANSWER = HEAD + BODY
    REFUSAL = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.parser = httptools.HttpRequestParser(self)
        self.answers: list[bytes] = []
        """To the requests that came in one piece: a pipelining client sends many together."""
        self.last = False
        """Whether the client wants no more than this answer."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its class

    def data_received(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:  # the request has been answered; what follows would be another protocol
            self.last = True
        except httptools.HttpParserError:
            self.answers.append(self.REFUSAL)
            self.last = True
        self.transport.write(b"".join(self.answers))
        self.answers.clear()
        if self.last:
            self.transport.close()

    def on_message_complete(self) -> None:
        """Is called by the parser for each request that is complete."""
        if not self.last:
            self.answers.append(self.HEAD if self.parser.get_method() == b"HEAD" else self.ANSWER)
            self.last = not self.parser.should_keep_alive()

    def pause_writing(self) -> None:
        """Takes no more requests from a client that does not fetch its answers."""
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        self.transport.resume_reading()


def new_uvloop() -> asyncio.AbstractEventLoop:
    import uvloop

    return uvloop.new_event_loop()


STACKS: dict[str, Callable[[int], Awaitable[object]]] = {
    "application": start_application,
    "bare": start_bare,
    "protocol": start_protocol,
}
LOOPS = {"uvloop": new_uvloop, "asyncio": asyncio.new_event_loop}


def allow_files() -> None:
    """Raises the limit of open files as far as it goes: each connection is one."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def serve(stack: str, port: int) -> None:
    """Serves until the process is ended."""
    running = await STACKS[stack](port)
    await asyncio.Event().wait()
    del running  # has been kept alive until here


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stack", choices=STACKS, required=True)
    parser.add_argument("--loop", choices=LOOPS, required=True)
    parser.add_argument("--port", type=int, required=True)
    asked = parser.parse_args()
    allow_files()
    with asyncio.Runner(loop_factory=LOOPS[asked.loop]) as runner:
        runner.run(serve(asked.stack, asked.port))


if __name__ == "__main__":
    main()
