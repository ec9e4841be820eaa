"""Imports an app in this process, and forks for each start-up that the test process orders.

    supervisor ── this process ─┬─ supervisor of a fork ── fork: socket, app from here, lifespan, uvicorn
                                └─ …

A fork equals a fresh process after its import. But threads, sockets and shared memory cannot be copied. If the import
makes these, this process does not fork, and may serve once itself.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import socket
import stat
import sys
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from uvicorn import Config

from pytest_fileperf.host.supervisor import supervise
from pytest_fileperf.serve import start
from pytest_fileperf.serve.app import FilesRead
from pytest_fileperf.serve.job import MOST_BYTES, Job, Preloaded, leave, stamps_of
from pytest_fileperf.serve.stability import move_heap


def serve(run_directory: Path) -> None:
    channel = socket.socket(fileno=int(sys.argv[2]))
    channel.set_inheritable(False)
    job, read, before, owner = Job.read(run_directory), FilesRead(), _open_files(), os.getpid()
    move_heap()
    with read.noting():
        job.import_module()

    async def no_app(scope: object, receive: object, send: object) -> None: ...

    # This imports uvicorn's event loop and protocols.
    Config(no_app, interface="asgi3", loop=job.spec.loop, http=job.spec.http, log_config=None).load()
    if job.spec.loop != "asyncio":
        with suppress(ImportError):
            importlib.import_module("uvloop")
    modules, installed = start.loaded_files()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()  # otherwise each fork would write it again
    why = _why_no_forks(before)
    leave(Preloaded(why_fresh=why, stamps=stamps_of((*modules, *installed, *read.paths))), run_directory)
    order = channel.recv(MOST_BYTES) if why else _forked(channel)
    if not order:  # the test process has closed the channel
        os._exit(0)
    channel.close()
    directory, env = json.loads(order)
    log = os.open(Path(directory, "log.txt"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    if not why:  # a fork gets a supervisor of its own
        supervise(owner, directory)
    os.environ.update(env)
    start.serve(Path(directory), read)


def _forked(channel: socket.socket) -> bytes:
    """Forks this process for each order. Returns the order in the fork, never in this process. Reports forks' ends."""
    poller, forks = select.poll(), dict[int, int]()
    ended = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # this process ends with the channel, after its forks
    poller.register(channel, select.POLLIN)
    while True:
        for descriptor, _ in poller.poll():
            if descriptor in forks:
                pid = forks.pop(descriptor)
                poller.unregister(descriptor)
                os.close(descriptor)
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)  # before `waitpid`, as no other group has the number until then
                _tell(channel, ended=pid, status=os.waitpid(pid, 0)[1])
                continue
            message = channel.recv(MOST_BYTES)
            if not message:  # the test process has closed the channel
                _end(forks.values())
            pid = os.fork()
            if pid == 0:
                signal.signal(signal.SIGTERM, ended)
                for held in forks:
                    os.close(held)
                os.setsid()
                return message
            watched = os.pidfd_open(pid)
            forks[watched] = pid
            poller.register(watched, select.POLLIN)
            _tell(channel, forked=pid)


def _tell(channel: socket.socket, **what: int) -> None:
    with suppress(OSError):  # the test process is gone
        channel.send(json.dumps(what).encode())


def _end(forks: Collection[int]) -> NoReturn:
    """Asks forks to end. Ends this process when they have ended, or after 3 s."""
    for pid in forks:
        os.kill(pid, signal.SIGTERM)
    until_s, left = time.monotonic() + 3.0, set(forks)
    while left and time.monotonic() < until_s:
        left = {pid for pid in left if os.waitpid(pid, os.WNOHANG)[0] == 0}
        time.sleep(0.01)
    os._exit(0)


# --- Why a process cannot be forked


def _why_no_forks(before: dict[int, str]) -> str:
    """Returns why this process cannot be forked, or `""`. `before` has the files that were open before the import."""
    names = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    if names:
        return f"its import starts a thread ({', '.join(names)})"
    if len(os.listdir("/proc/self/task")) > 1:  # noqa: PTH208 # names
        return "a library that it imports starts threads"
    for pid in Path("/proc/self/task", str(os.getpid()), "children").read_text(encoding="ascii").split():
        return f"its import starts a process ({pid})"
    for descriptor, held in _open_files().items():
        if held and before.get(descriptor) != held:
            return f"its import opens {held}"
    if "grpc._cython.cygrpc" in sys.modules:
        return "it imports gRPC"
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
        if "/libcuda.so" in line:
            return "it loads CUDA"
        if line.split(maxsplit=2)[1].startswith("rw-s"):
            return "its import shares memory with other processes"
    return ""


def _open_files() -> dict[int, str]:
    """Returns a description of each open file by its descriptor. A description is empty if forks may share the file."""
    found = {}
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 # names
        try:
            target, about = os.readlink(f"/proc/self/fd/{name}"), os.fstat(int(name))  # noqa: PTH115
            flags = Path(f"/proc/self/fdinfo/{name}").read_text(encoding="ascii").split("flags:")[1].split()[0]
        except OSError:  # the directory that lists them
            continue
        found[int(name)] = _in_words(target, about.st_mode, int(flags, 8))
    return found


def _in_words(target: str, mode: int, flags: int) -> str:
    if stat.S_ISCHR(mode) or stat.S_ISDIR(mode):
        return ""
    if stat.S_ISREG(mode):
        # Forks share the file's position, which does not matter for appending. libffi only maps its file.
        is_harmless = flags & os.O_APPEND or Path(target).name.startswith("libffi.so")
        return "" if is_harmless else f"{Path(target).name} and keeps it open"
    kind, _, what = target.partition(":")
    return {"socket": "a socket", "pipe": "a pipe"}.get(
        kind, f"an {what.strip('[]')}" if kind == "anon_inode" else kind
    )
