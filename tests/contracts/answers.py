"""The app that most contracts load: its paths say how it answers, and it keeps what it was asked."""

from __future__ import annotations

__all__ = ("answering",)

_APP = """
import asyncio, hashlib, json, os, subprocess, sys

SECONDS = 0.0
seen = []
if os.environ.get("BREAK") == "import":
    raise RuntimeError("no settings, says the app")


async def app(scope, receive, send):
    if scope["type"] == "lifespan" and os.environ.get("BREAK") == "shutdown":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        raise RuntimeError("it cannot end, says the app")
    if scope["type"] == "lifespan" and os.environ.get("BREAK") == "start":
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no database, says the app"})
    if scope["type"] == "lifespan" and os.environ.get("BREAK") == "late":
        await asyncio.sleep(60)
    if scope["type"] == "lifespan" and os.environ.get("BREAK") == "exit":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        os._exit(3)
    if scope["type"] != "http":
        return
    method, path, body, more = scope["method"], scope["path"], b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    status, headers, answer = 200, [], b"ok"
    if path == "/seen":
        answer = json.dumps(seen).encode()
    elif path == "/about":
        answer = json.dumps({**os.environ, "pid": os.getpid()}).encode()
    else:
        given = {name.decode(): value.decode() for name, value in scope["headers"]}
        query, digest = scope["query_string"].decode(), hashlib.sha256(body).hexdigest()
        seen.append([method, path, query, given, len(body), digest, body[:300].decode("latin-1")])
        await asyncio.sleep(0.02 if path.startswith("/wait") else SECONDS)
    if path.startswith("/size/"):
        answer = b"x" * int(path.rpartition("/")[2])
    if path.startswith("/bad"):
        status = 500
    if path == "/end":
        detached = subprocess.Popen(["sleep", "120"], start_new_session=True)
        with open("detached.txt", "a") as file:
            file.write(f"{detached.pid}\\n")
        print("a line\\n" * 500 + "it ends now", file=sys.stderr, flush=True)
        os._exit(9)
    if path.startswith("/moved"):
        status, headers = 302, [(b"location", b"/new")]
    if path == "/elsewhere":
        status, headers = 302, [(b"location", b"http://192.0.2.1:9/")]
    if path == "/never":
        await asyncio.sleep(60)
    if path in ("/nothing", "/same"):
        status, answer = 204 if path == "/nothing" else 304, b""
    elif path == "/cut":  # the server closes the connection
        headers = [(b"content-length", b"10")]
    elif path == "/events":
        headers = [(b"content-type", b"text/event-stream")]
    else:
        headers.append((b"content-length", b"%d" % len(answer)))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    for number in range(4 if path == "/events" else 0):
        await send({"type": "http.response.body", "body": b"data: %d\\n\\n" % number, "more_body": True})
        await asyncio.sleep(0.02)
    await send({"type": "http.response.body", "body": b"" if method == "HEAD" or path == "/events" else answer})
"""


def answering(seconds: float = 0.0) -> str:
    """Returns its source; most answers take so long."""
    return _APP.replace("SECONDS = 0.0", f"SECONDS = {seconds}")
