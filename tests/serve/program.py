"""A small HTTP server that knows nothing of the package: what the tests of commands start, as a script."""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import time

ANSWER = b"HTTP/1.1 %d Whatever\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"


def facts() -> bytes:
    seen = {
        "pid": os.getpid(),
        "hash": hash("a word"),
        "cores": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [],
        "cwd": os.getcwd(),  # noqa: PTH109 # as JSON
        "session": os.getsid(0),
        "env": dict(os.environ),
    }
    return json.dumps(seen).encode()


def serve(listener: socket.socket, status: int, garbage: bool) -> None:
    while True:
        connection, _ = listener.accept()
        with connection:
            request = connection.recv(4096)
            if b"/die" in request:
                os.kill(os.getpid(), signal.SIGKILL)
            body = facts()
            if request:
                connection.sendall(b"garbage\n" if garbage else ANSWER % (status, len(body), body))


def serve_in_workers(listener: socket.socket, workers: int) -> None:
    for _ in range(workers):
        if os.fork() == 0:
            serve(listener, 200, garbage=False)
    os.wait()


def leave_a_child(*_: object) -> None:
    """Starts a process with a session of its own, and does not end."""
    if os.fork() == 0:
        os.setsid()
        time.sleep(60)
        os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=int(os.environ.get("APP_PORT", "0")))
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--status", type=int, default=200)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--exit", type=int)
    parser.add_argument("--child", choices=["beside", "apart", "late"])
    for flag in ("--garbage", "--deaf", "--stubborn", "--elsewhere", "--share"):
        parser.add_argument(flag, action="store_true")
    options = parser.parse_args()
    print("the program's own words", file=sys.stderr)
    if options.exit is not None:
        raise SystemExit(options.exit)
    if options.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if options.child == "late":
        signal.signal(signal.SIGTERM, leave_a_child)
    elif options.child is not None and os.fork() == 0:
        if options.child == "apart":
            os.setsid()
        time.sleep(60)
        raise SystemExit
    if options.deaf:
        time.sleep(60)
    port = 0 if options.elsewhere else options.port
    with socket.create_server((options.host, port), backlog=128, reuse_port=options.share) as listener:
        if options.workers:
            serve_in_workers(listener, options.workers)
        serve(listener, options.status, options.garbage)


if __name__ == "__main__":
    main()
