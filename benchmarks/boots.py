"""Shows whether the plugin's own server costs what plain uvicorn costs, and how much start-ups of each differ.

    python benchmarks/boots.py [--results FILE] [--blocks 12] [--variants plain,ours] [--kinds KIND,…] [--seconds 50]
    python benchmarks/boots.py --table [--results FILE]

A block starts two servers of each variant and loads them one after another with wrk, in random order, kind of request
by kind of request. So what the machine does in that time comes to all alike. `plain` is `python -m uvicorn` as a user
starts it, `ours` the server that a load test starts. The deviation between start-ups is that of the two of a block,
less what windows of one server deviate by. A block is a line of JSON in the results file, so the script can be stopped
at any time and goes on where it was. It begins no block after `--seconds`. Needs Linux, two cores and wrk.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, cast

import psutil
from gate import read
from servers import uvicorn
from watched import SERVER_CORES, client_cores, on_cores

from pytest_fileperf.host.cpu import cpu_times_ns
from pytest_fileperf.serve.app import AppSpec
from pytest_fileperf.serve.command import Builds
from pytest_fileperf.serve.launch import prepare
from pytest_fileperf.serve.spec import Uvicorn

HERE = Path(__file__).parent
KIB, MIB = 1 << 10, 1 << 20
BOOTS, WINDOWS = 2, 2
"""Start-ups of each variant in a block, and windows of each of them."""
_FIXED = {"MALLOC_TRIM_THRESHOLD_": str(512 * MIB), "MALLOC_MMAP_THRESHOLD_": str(512 * MIB)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of request."""

    title: str
    path: str
    body_bytes: int = 0
    is_form: bool = False
    connections: int = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server that runs."""

    url: str
    pid: int

    @classmethod
    def at(cls, url: str) -> Server:
        """Returns the server that listens there."""
        port = int(url.rpartition(":")[2])
        listening = (one for one in psutil.net_connections("tcp") if one.status == psutil.CONN_LISTEN)
        return cls(url=url, pid=next(one.pid for one in listening if one.pid and tuple(one.laddr)[1:] == (port,)))

    def cpu_ns(self) -> int:
        """Returns the CPU time of all its threads so far."""
        return cpu_times_ns([self.pid])[self.pid]


KINDS = {
    "get": Kind(title="GET of 1 KiB", path="/down/1"),
    "down": Kind(title="GET of 256 KiB", path="/down/256"),
    "down20": Kind(title="GET of 20 MiB", path="/down/20480", connections=4),
    "up": Kind(title="POST of 256 KiB", path="/up", body_bytes=256 * KIB),
    "up20": Kind(title="POST of 20 MiB", path="/up", body_bytes=20 * MIB, connections=4),
    "form": Kind(title="form with 256 KiB of lines", path="/form", body_bytes=256 * KIB, is_form=True),
    "json": Kind(title="JSON, 70 kB", path="/json"),
    "stream": Kind(title="stream of 20 MiB, pieces made anew", path="/stream", connections=4),
    "held": Kind(title="stream of 20 MiB, one piece", path="/held", connections=4),
}
VARIANTS: Mapping[str, Uvicorn | None] = {
    "plain": None,
    "ours": Uvicorn(),
    "free": Uvicorn(stabilise=False),
    "arena": Uvicorn(env={"MALLOC_ARENA_MAX": "1"}),
    "fixed": Uvicorn(env={**_FIXED, "MALLOC_TOP_PAD_": str(64 * MIB), "MALLOC_ARENA_MAX": "1"}),
}
"""What starts: nothing held alike (`free`), one arena, or the allocator as it was held alike before (`fixed`)."""


def main() -> None:
    """Measures the blocks that are missing, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=HERE / "boots.jsonl")
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--variants", default="plain,ours", help=f"some of {','.join(VARIANTS)}")
    parser.add_argument("--kinds", default=",".join(KINDS), help="some of these")
    parser.add_argument("--seconds", type=float, default=3600.0, help="begin no block after so long")
    parser.add_argument("--table", action="store_true", help="print what is in the results file, and run nothing")
    arguments = parser.parse_args()
    variants, kinds = arguments.variants.split(","), arguments.kinds.split(",")
    ends_s = time.monotonic() + arguments.seconds
    done = len(read(arguments.results))
    while not arguments.table and done < arguments.blocks and time.monotonic() < ends_s:
        row = block(variants, kinds, done)
        with arguments.results.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(row) + "\n")
        done += 1
    print(table(read(arguments.results)))


def block(variants: Sequence[str], kinds: Sequence[str], number: int) -> dict[str, object]:
    """Returns requests/s and CPU seconds a request of each window, by kind and start-up."""
    with ExitStack() as stack:
        started = [
            (f"{variant}-{boot}", Server.at(stack.enter_context(booted(variant, number))))
            for boot in range(BOOTS)
            for variant in variants
        ]
        scripts = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fileperf-boots-")))
        found: dict[str, dict[str, list[tuple[float, float]]]] = {}
        for name in random.sample(kinds, len(kinds)):
            script = lua(KINDS[name], scripts / f"{name}.lua")
            of_kind = found.setdefault(name, {})
            for _ in range(WINDOWS):
                for title, server in random.sample(started, len(started)):
                    of_kind.setdefault(title, []).append(window(KINDS[name], server, script))
    return {"at": round(time.time()), "number": number, "kinds": found}


@contextmanager
def booted(variant: str, number: int) -> Iterator[str]:
    """Starts a server of this variant, and gives its URL."""
    spec = VARIANTS[variant]
    if spec is None:
        with uvicorn("boots_app:app", path="/down/1") as url:
            yield url
        return
    sys.path[:0] = [] if str(HERE) in sys.path else [str(HERE)]
    launch = prepare(spec, AppSpec("boots_app:app"), boot=number, cores=SERVER_CORES, builds=Builds())
    try:
        launch.start()
        yield launch.ready().url
    finally:
        launch.stop()


def lua(kind: Kind, path: Path) -> Path | None:
    """Writes what wrk has to send; None for a GET."""
    if not kind.body_bytes:
        return None
    line = "some text in a line\\r\\n" if kind.is_form else "x"
    lines = [
        f'local body = string.rep("{line}", {kind.body_bytes // (21 if kind.is_form else 1)})',
        'wrk.method = "POST"',
    ]
    if kind.is_form:
        head = '--b\\r\\nContent-Disposition: form-data; name=\\"file\\"; filename=\\"f\\"\\r\\n\\r\\n'
        lines.append(f'body = "{head}" .. body .. "\\r\\n--b--\\r\\n"')
        lines.append('wrk.headers["Content-Type"] = "multipart/form-data; boundary=b"')
    path.write_text("\n".join([*lines, "wrk.body = body\n"]), encoding="utf-8")
    return path


def window(kind: Kind, server: Server, script: Path | None) -> tuple[float, float]:
    """Loads for a second; returns requests/s and the server's CPU seconds for each."""
    before_ns = server.cpu_ns()
    command = ["wrk", "-t1", f"-c{kind.connections}", "-d1s", *(["-s", str(script)] if script else [])]
    with on_cores(client_cores()):
        said = subprocess.run([*command, server.url + kind.path], capture_output=True, text=True, check=True).stdout
    spent_ns = server.cpu_ns() - before_ns
    counted, rate = re.search(r"(\d+) requests in", said), re.search(r"Requests/sec:\s+([\d.]+)", said)
    if "Non-2xx" in said or not counted or not rate or counted[1] == "0":
        sys.exit(f"{kind.title}: {said}")
    return float(rate[1]), spent_ns / int(counted[1]) / 1e9


def table(rows: Sequence[Mapping[str, object]]) -> str:
    """Returns a row for each kind and variant: its level, its ratio to plain, and how much start-ups deviate."""
    lines = [
        "| kind | started | start-ups | requests/s | ratio to plain | CPU a request, ratio "
        "| requests/s: start-ups deviate by | CPU: by | noise |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, kind in KINDS.items():
        found = [cast("Windows", row["kinds"])[name] for row in rows if name in cast("Windows", row["kinds"])]
        plain = Levels.of(found, "plain")
        for variant in VARIANTS:
            own = Levels.of(found, variant)
            if own and plain:
                ratios = " | ".join(ratio(own.logs[place], plain.logs[place]) for place in (0, 1))
                spreads = " | ".join(f"{own.between(place):.1%}" for place in (0, 1))
                level = math.exp(statistics.fmean(value for pair in own.logs[0] for value in pair))
                noise = math.sqrt(own.noise(0))
                lines.append(
                    f"| {kind.title} | {variant} | {2 * len(own.logs[0])} | {level:,.0f} | {ratios} | {spreads} "
                    f"| {noise:.1%} |"
                )
    return "\n".join(lines)


Windows: TypeAlias = Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]


def ratio(own: Sequence[Pair], plain: Sequence[Pair]) -> str:
    """Returns a variant's level over plain's, and its standard error: by the blocks, which both share."""
    logs = [statistics.fmean(one) - statistics.fmean(other) for one, other in zip(own, plain, strict=True)]
    error = statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else math.nan
    return f"{math.exp(statistics.fmean(logs)):.2f} ± {error:.2f}"


Pair: TypeAlias = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """The start-ups of a variant, as logarithms of requests/s and of CPU a request."""

    logs: tuple[Sequence[Pair], Sequence[Pair]]
    """Those of each block."""
    noises: tuple[float, float]
    """Variance of a start-up's level that comes from its windows."""

    @classmethod
    def of(cls, found: Sequence[Mapping[str, Sequence[tuple[float, float]]]], variant: str) -> Levels | None:
        """Returns them; None where the variant was not measured."""
        names = [f"{variant}-{boot}" for boot in range(BOOTS)]
        blocks = [block for block in found if names[0] in block]
        if not blocks:
            return None
        logs: list[list[Pair]] = [[], []]
        noises: list[list[float]] = [[], []]
        for each in blocks:
            for place in (0, 1):
                windows = [[math.log(window[place]) for window in each[name]] for name in names]
                logs[place].append((statistics.fmean(windows[0]), statistics.fmean(windows[1])))
                noises[place] += [statistics.variance(own) / len(own) for own in windows]
        return cls(logs=(logs[0], logs[1]), noises=(statistics.fmean(noises[0]), statistics.fmean(noises[1])))

    def noise(self, place: int) -> float:
        """Returns the variance within a start-up, of its level."""
        return self.noises[place]

    def between(self, place: int) -> float:
        """Returns the deviation between start-ups."""
        observed = statistics.fmean((one - other) ** 2 / 2 for one, other in self.logs[place])
        return math.sqrt(max(0.0, observed - self.noises[place]))


if __name__ == "__main__":
    main()
