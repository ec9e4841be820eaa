"""A raw HTTP/1.1 server whose answers the test chooses, in a thread with its own event loop; and loads on some."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager

from pytest_fileperf.drive.preparation import Target
from pytest_fileperf.drive.run import Run, RunProgress, run_load
from pytest_fileperf.measure.recording import Failure, merge_failures
from pytest_fileperf.plan.load import Alternation, LoadPlan
from pytest_fileperf.plan.request import Operation
from pytest_fileperf.plan.work import Work
from pytest_fileperf.wire.eventloop import new_event_loop
from pytest_fileperf.wire.payload_files import PayloadFiles

MS = 1_000_000
FAMILY = "httpx"
"""Whose clients journeys get; the fixture `of_family` sets it."""
GET = Operation(method="GET", url="/")
Handler = Callable[[int, asyncio.StreamWriter], Awaitable[None]]
"""Gets the number of the request (from 0, over all connections) after its head and body were read."""


def answer(body: bytes, status: str = "200 OK", extra: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{extra}\r\n".encode() + body


HELLO, CLOSING = answer(b"hello"), answer(b"hello", extra="Connection: close\r\n")
SILENT, ABORT = b"", b"abort"


def saying(*answers: bytes, after_s: float = 0.0) -> Handler:
    """Returns a server that gives these answers, one after the other and again; each after that time."""

    async def handler(number: int, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(after_s)
        said = answers[number % len(answers)]
        if said == ABORT:
            writer.transport.abort()
            return
        writer.write(said)
        if said == CLOSING:
            writer.close()

    return handler


hello = saying(HELLO)


@contextmanager
def scripted(
    handler: Handler, seen: list[tuple[bytes, bytes]] | None = None, *, host: str = "127.0.0.1"
) -> Iterator[str]:
    """Runs the server; gives its base URL. `seen` gets the head and the body of every request."""
    number = iter(range(1 << 30))
    ready: Future[tuple[int, Callable[[], object]]] = Future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                body = b""
                for line in head.split(b"\r\n"):
                    if line.lower().startswith(b"content-length:"):
                        body = await reader.readexactly(int(line.split(b":")[1]))
                if seen is not None:
                    seen.append((head, body))
                await handler(next(number), writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.transport.abort()

    async def main() -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        served: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            served[asyncio.create_task(serve(reader, writer))] = writer

        server = await asyncio.start_server(accepted, host, 0)
        ready.set_result((server.sockets[0].getsockname()[1], lambda: loop.call_soon_threadsafe(stop.set)))
        await stop.wait()
        # asyncio accepts in tasks of its own, which leave a connection open where they are cancelled, or the server is
        # closed, before they end.
        while accepting := asyncio.all_tasks() - {asyncio.current_task(), *served}:
            if not (await asyncio.wait(accepting, timeout=1))[0]:
                break  # a handler's own
        server.close()
        for writer in served.values():
            writer.transport.abort()  # a task that is cancelled before it begins does not
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    port, stop = ready.result(10)
    try:
        yield f"http://{host}:{port}"
    finally:
        stop()
        thread.join(10)


def loaded(
    urls: Sequence[str],
    work: Work,
    plan: LoadPlan | Alternation,
    tell: Callable[[RunProgress], None] = lambda _: None,
    server_cpu: Sequence[Callable[[], int | None]] = (lambda: None, lambda: None),
) -> tuple[Run, ...]:
    """Loads one server, or two in turn, from this process."""
    targets = [Target(boot=3, url=url, family=FAMILY) for url in urls]
    with closing(PayloadFiles()) as files, asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(
            run_load([work] * len(urls), plan, targets, files=files, server_cpu=server_cpu[: len(urls)], progress=tell)
        )


def counted(requests: int, connections: int = 1, timeout_ms: int = 5000) -> LoadPlan:
    return LoadPlan(
        connections=connections,
        warmup_ns=0,
        round_ns=20_000 * MS,
        rounds=1,
        timeout_ns=timeout_ms * MS,
        requests=requests,
    )


def run(
    handler: Handler,
    work: Work = GET,
    plan: LoadPlan | None = None,
    tell: Callable[[RunProgress], None] = lambda _: None,
) -> Run:
    with scripted(handler) as url:
        (result,) = loaded([url], work, plan or counted(6), tell)
    return result


def failures(result: Run) -> tuple[Failure, ...]:
    return merge_failures(failure for round_ in result.rounds for failure in round_.failures)


def totals(result: Run) -> tuple[int, dict[str, int]]:
    """Returns how many requests succeeded, and the failures by kind."""
    return sum(r.requests for r in result.rounds), {failure.kind: failure.count for failure in failures(result)}
