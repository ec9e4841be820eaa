"""Faults of an app and on the wire, seen from a test: each is told by its kind, and the run goes on with the next.

One run has all of them: as paths of an app on one uvicorn, and of a server that sends exact bytes.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from apps import SOURCE
from hostile.runs import LOAD, Ran, once, project_in, ran

HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

APP_FAULTS = {
    "raises": ("raise RuntimeError('odd \\udc80 \\x1b[31m')", "status 500"),
    "raises_after_the_head": ("await start(); raise RuntimeError", "disconnected"),
    "raises_in_the_body": ("await start(20); await body(b'x', more=True); raise RuntimeError", "disconnected"),
    "gives_no_answer": ("return", "status 500"),
    "gives_no_body": ("await start(20)", "disconnected"),
    "never_ends": ("await start(20); await body(b'x', more=True); await asyncio.sleep(60)", "timeout"),
    "never_begins": ("await asyncio.sleep(60)", "timeout"),
    "sends_too_little": ("await start(20); await body(b'x')", "disconnected"),
    "sends_too_much": ("await start(2); await body(b'x' * 20)", "disconnected"),
    "begins_with_the_body": ("await body(b'x')", "status 500"),
    "starts_twice": ("await start(); await start()", "disconnected"),
    "sends_text": ("await start(4); await body('text')", "disconnected"),
    "sends_no_type": ("await send({})", "status 500"),
    "sends_another_type": ("await send({'type': 'websocket.accept'})", "status 500"),
    "has_status_0": ("await start(status=0)", "disconnected"),
    "has_a_text_as_status": ("await start(status='ok')", "disconnected"),
    "has_a_text_as_header": ("await start(headers=[('x', 'y')])", "disconnected"),
    "has_a_long_header": ("await start(0, headers=[(b'x', b'y' * 70_000)]); await body(b'')", ""),
    "has_many_headers": ("await start(0, headers=[(b'x', b'y')] * 2_000); await body(b'')", ""),
    "has_two_lengths": ("await start(2, headers=[(b'content-length', b'3')]); await body(b'xy')", "protocol"),
    "sends_a_body_after_204": ("await start(2, status=204); await body(b'xy')", "maybe protocol"),
    "exits": ("raise SystemExit(3)", "status 500"),
    "interrupts": ("raise KeyboardInterrupt", "status 500"),
    "recurses": ("f = lambda: f(); f()", "status 500"),
    "has_no_memory": ("raise MemoryError", "status 500"),
    "is_cancelled": ("raise asyncio.CancelledError", "status 500"),
    "moves_away": ("os.chdir('/'); await start(2); await body(b'ok')", ""),
    "has_no_output": ("sys.stdout = sys.stderr = None; await start(2); await body(b'ok')", ""),
    "ignores_sigterm": ("signal.signal(signal.SIGTERM, signal.SIG_IGN); await start(2); await body(b'ok')", ""),
    "loses_its_environment": ("os.environ.clear(); await start(2); await body(b'ok')", ""),
    "forbids_collecting": ("gc.disable(); await start(2); await body(b'ok')", ""),
}
"""What the app does, and what kind of failure it is; empty for none.

`maybe` is for what comes after an answer: it may come when the next request is on its way, and is no answer to that.
"""

WIRE_FAULTS: dict[str, tuple[bytes, str, str]] = {
    "closes": (b"", "", "disconnected"),
    "resets": (b"", "reset", "disconnected"),
    "is_silent": (b"", "stay", "timeout"),
    "stops_in_the_head": (HELLO[:20], "stay", "timeout"),
    "closes_in_the_head": (HELLO[:20], "", "disconnected"),
    "resets_in_the_body": (HELLO[:-2], "reset", "disconnected"),
    "speaks_another_protocol": (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "", "protocol"),
    "speaks_http_2": (b"\0\0\x12\4\0\0\0\0\0" + bytes(18), "", "protocol"),
    "speaks_tls": (b"\x15\3\1\0\2\2\x46\r\n\r\n", "", "protocol"),
    "has_two_different_lengths": (HELLO.replace(b"\r\n\r\n", b"\r\nContent-Length: 6\r\n\r\n"), "", "protocol"),
    "has_a_negative_length": (HELLO.replace(b"5", b"-5"), "", "protocol"),
    "has_a_huge_length": (HELLO.replace(b" 5", b" " + b"9" * 30), "", "protocol"),
    "has_a_null_in_a_header": (HELLO.replace(b"\r\n\r\n", b"\r\nX: \0\r\n\r\n"), "", "protocol"),
    "has_an_endless_head": (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 40_000, "", "protocol"),
    "sends_hints_for_ever": (b"HTTP/1.1 103 Early Hints\r\n\r\n" * 5_000, "stay", "protocol"),
    "has_an_odd_chunk": (HEAD + b"zz\r\nhello\r\n0\r\n\r\n", "", "protocol"),
    "has_a_negative_chunk": (HEAD + b"-5\r\nhello\r\n0\r\n\r\n", "", "protocol"),
    "forgets_the_last_chunk": (HEAD + b"5\r\nhello\r\n", "", "disconnected"),
    "sends_two_answers": (HELLO + HELLO, "", ""),
    "sends_more_than_it_said": (HELLO + b"!", "", ""),
}
"""What the server sends, how the connection ends, and what kind of failure it is."""

APP = f"""{SOURCE}
import asyncio, gc, os, signal


async def app(scope, receive, send):
    async def start(length=None, *, status=200, headers=()):
        own = [] if length is None else [(b"content-length", b"%d" % length)]
        await send({{"type": "http.response.start", "status": status, "headers": [*own, *headers]}})

    async def body(data, more=False):
        await send({{"type": "http.response.body", "body": data, "more_body": more}})

    if scope["type"] == "lifespan":
        return await lifespan(receive, send)
"""


def _app() -> str:
    paths = (f'    if scope["path"] == "/{name}":\n        {done}\n' for name, (done, _) in APP_FAULTS.items())
    return APP + "".join(paths)


def _timeout(kind: str) -> str:
    """Returns how long a request may take: a busy machine takes its time for any other fault."""
    return "300ms" if kind == "timeout" else "10s"


def _tests(url: str) -> str:
    marked = f"import pytest\npytestmark = pytest.mark.fileperf({LOAD}, gate='none')\n"
    of_app = (
        f"def test_app_{name}(fileperf): fileperf.get('/{name}', timeout='{_timeout(kind)}')\n"
        for name, (_, kind) in APP_FAULTS.items()
    )
    of_wire = (
        f"def test_wire_{name}(fileperf): fileperf.get('/{name}', server='{url}', timeout='{_timeout(kind)}')\n"
        for name, (_, _, kind) in WIRE_FAULTS.items()
    )
    return marked + "".join((*of_app, *of_wire))


@contextmanager
def _scripted() -> Iterator[str]:
    """Yields the URL of a server that sends the bytes that a path asks for."""
    stays: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:

        def serve() -> None:
            while True:
                try:
                    sock, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=_answer, args=(sock, stays), daemon=True).start()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)
    for sock in stays:
        sock.close()


def _answer(sock: socket.socket, stays: list[socket.socket]) -> None:
    try:
        asked = sock.recv(4096).split()
        raw, end, _ = WIRE_FAULTS.get(asked[1].decode()[1:] if len(asked) > 1 else "", (HELLO, "", ""))
        sock.sendall(raw)
    except OSError:
        end = ""
    if end == "stay":
        stays.append(sock)
        return
    if end == "reset":
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A run that has all faults."""

    def make(directory: Path) -> Ran:
        with _scripted() as url:
            return ran(project_in(directory, _tests(url), app=_app()), "--fileperf")

    return once(tmp_path_factory, "answers", make)


PROMISED = [
    *(("app", name, kind) for name, (_, kind) in APP_FAULTS.items()),
    *(("wire", name, kind) for name, (_, _, kind) in WIRE_FAULTS.items()),
]


@pytest.mark.parametrize("whose,name,kind", PROMISED, ids=[f"{whose}_{name}" for whose, name, _ in PROMISED])
def test_a_fault_is_told_by_its_kind(served: Ran, whose: str, name: str, kind: str) -> None:
    outcome, said = served.tests[f"{whose}_{name}"]
    if kind.startswith("maybe "):
        assert outcome == "passed" or f"× {kind.removeprefix('maybe ')}\n" in said
        return
    assert outcome == ("failed" if kind else "passed"), said
    if kind:
        assert said.startswith(f"none of 4 requests succeeded: {kind}")
        assert "pytest_fileperf/" not in said.split("Last lines of its log", maxsplit=1)[0]  # a frame of ours
    assert "\x1b" not in said
