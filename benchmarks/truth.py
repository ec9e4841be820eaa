"""Holds our sums against what the server itself counted, and against times that are known.

    python benchmarks/truth.py sums    [--requests 40000] [--generators 1,2,4]
    python benchmarks/truth.py rate    [--seconds 5] [--turns 5] [--generators 1,2,4]
    python benchmarks/truth.py streams
    python benchmarks/truth.py steps   [--seconds 5]

- `sums`: a fixed number of requests, of which every tenth fails, on a server that burns 0.2 ms for each.
- `rate`: an open loop of 1,000/s on nginx: how many requests were sent in which time, and how late they were.
- `streams`: 100 clients, 20 events a second each, next to the server's own log. One client after the other comes, 50 in
  a second: of requests that come all at once, some wait before the app, and its log, know of them.
- `steps`: a user who logs in (30 ms), thinks for 20 ms, and downloads twice (5 ms). The server keeps a core busy, so
  that it answers within a few microseconds of the exact time.

It needs Linux and two cores: the server runs on core 0, generators on the others.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from statistics import median
from time import perf_counter

import httpx
from bench import SERVER_CORES, Row, measured, nginx, parser, spread, table, uvicorn

from pytest_fileperf.measure.histogram import Histogram

CONNECTIONS, RATE = 32, 1_000
REQUESTS = ("item", "item", "file", "item", "item", "file", "item", "item", "file", "bad")
BYTES = {"item": 100, "file": 64 * 1024}
CLIENTS, EVENTS, COMING_PER_S = 100, 100, 50
TAKES_S = {"login": 0.030, "download": 0.005}
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
JOURNEY = """run(visit, {load})

async def visit(client):
    async with client.step("login"):
        await client.get("/login")
    await client.pause("20ms")
    for _ in range(2):
        async with client.step("download"):
            await client.get("/download")
"""


def main() -> None:
    options = parser(__doc__)
    options.add_argument("what", choices=("sums", "rate", "streams", "steps"))
    options.add_argument("--requests", type=int, default=40_000)
    options.add_argument("--seconds", type=int, default=5)
    options.add_argument("--turns", type=int, default=5)
    options.add_argument("--generators", default="1,2,4", help="how many, in turn (default: 1,2,4)")
    asked = options.parse_args()
    counts = [int(word) for word in asked.generators.split(",")]
    if asked.what == "sums":
        print(sums(counts, asked.requests))
    elif asked.what == "rate":
        print(rates(counts, asked.seconds, asked.turns))
    else:
        print(streams() if asked.what == "streams" else steps(asked.seconds))


def load(url: str, **keys: object) -> str:
    """Returns the keywords of a load on that server without comparison and warm-up."""
    usual: dict[str, object] = {"connections": CONNECTIONS, "boots": 1, "gate": "none", "warmup": 0}
    return f"server=Url({url!r}), " + ", ".join(f"{key}={value!r}" for key, value in {**usual, **keys}.items())


def sums(counts: Sequence[int], requests: int) -> str:
    """Returns what so many generators have seen of a fixed number of requests, and what else says how many it were."""
    asked = [REQUESTS[number % len(REQUESTS)] for number in range(requests)]
    # So many different ones have no figures of their own, of which those that always fail would fail the test.
    given = [("GET", f"/{name}/{number}") for number, name in enumerate(REQUESTS * 3)]
    good = [name for name in asked if name in BYTES]
    rows = []
    with uvicorn("bench_apps:counted", COST_S="0.0002") as url:
        for count in counts:
            httpx.get(f"{url}/log")
            keys = load(url, requests=requests, rounds=1, generators=count, max_error_rate=1)
            result = measured(f"requests({given}, {keys})", generators=count)[0]
            seen, kinds = result["summary"], httpx.get(f"{url}/log").json()["kinds"]
            samples = Histogram.decode(result["histogram"]).count
            answers = sum(kinds[name] for name in BYTES)
            in_bytes = sum(kinds[name] * size for name, size in BYTES.items())
            figures = (
                ("answers", len(good), seen["requests"], answers),
                ("errors", requests - len(good), seen["errors"], kinds["bad"]),
                ("bytes", sum(BYTES[name] for name in good), seen["bytes_received"], in_bytes),
                ("samples", len(good), samples, answers),
            )
            rows += [[what, str(count), *(f"{value:,}" for value in values)] for what, *values in figures]
    return table(("what", "generators", "asked for", "generators saw", "the server counted"), rows)


def rates(counts: Sequence[int], seconds: int, turns: int) -> str:
    """Returns how an open loop was kept by so many generators, which take turns."""
    seen: dict[int, list[Row]] = {count: [] for count in counts}
    with nginx() as url:
        for number in range(turns):
            for count in counts[:: 1 if number % 2 == 0 else -1]:
                keys = load(url, rate=RATE, duration=seconds, rounds=seconds, generators=count, warmup=0.3)
                (result,) = measured(f"get('/tiny', {keys})", generators=count)
                seen[count].append(result["summary"])
                print(f"turn {number + 1} of {turns}, {count}: {seen[count][-1]['send_delay']}", file=sys.stderr)
    percentiles = ("p50", "p99", "p99.9", "max")
    rows = []
    for count, own in seen.items():
        # From the first due time to the last one is one interval less than there are requests.
        rate = spread(((one["due"] - 1) / one["attack"] for one in own), ",.2f")
        late = (spread((1e3 * one["send_delay"][name] for one in own), ".2f") for name in percentiles)
        rows.append([f"{RATE:,}/s over {count}", rate, *late])
    return table(("load", "requests/s", *(f"late ms, {name}" for name in percentiles)), rows)


def streams() -> str:
    """Returns the figures of streams, next to those that the server's log has."""
    with uvicorn("bench_apps:counted") as url:
        keys = load(url, connections=CLIENTS, rate=COMING_PER_S, duration=CLIENTS / COMING_PER_S, rounds=1)
        found = measured(f"stream('/events', events={EVENTS}, {keys})")[0]["summary"]["events"]
        log = [times[: EVENTS + 1] for times in httpx.get(f"{url}/log").json()["streams"]]
    sent = [at for times in log for at in times[1:]]
    gaps = [later - earlier for times in log for earlier, later in pairwise(times[1:])]
    seconds = max(sent) - min(times[0] for times in log)
    figures = {
        "events": (found["count"], len(sent)),
        "events/s": (found["rate"], len(sent) / seconds),
        "first event p50, ms": (1e3 * found["first"]["p50"], 1e3 * median(times[1] - times[0] for times in log)),
        "gap p50, ms": (1e3 * found["gap"]["p50"], 1e3 * median(gaps)),
        "gap p99, ms": (1e3 * found["gap"]["p99"], 1e3 * sorted(gaps)[int(0.99 * len(gaps))]),
    }
    rows = ([name, f"{seen:,.2f}", f"{log:,.2f}", _off(seen, log)] for name, (seen, log) in figures.items())
    return table(("figure", "seen", "the server's log", "differs by"), rows)


def _off(seen: float, true: float) -> str:
    return f"{100 * (seen / true - 1):+.2f} %"


def steps(seconds: float) -> str:
    """Returns how long steps took, next to what the server takes."""
    with _exact_server() as port:
        keys = load(f"http://127.0.0.1:{port}", connections=1, duration=seconds, warmup=0.3)
        whole, *parts = measured(JOURNEY.format(load=keys))
    seen = {result["test"]["step"]: result["summary"]["latency"] for result in parts}
    seen["journey"] = whole["summary"]["latency"]
    takes_s = {**TAKES_S, "journey": TAKES_S["login"] + 2 * TAKES_S["download"]}
    rows = []
    for name, true_s in takes_s.items():
        times = (f"{1e3 * time_s:.2f} ms" for time_s in (true_s, seen[name]["p50"]))
        rows.append([name, *times, *(_off(seen[name][figure], true_s) for figure in ("p50", "mean"))])
    return table(("step", "the server's time", "the step, p50", "off by", "mean off by"), rows)


@contextmanager
def _exact_server() -> Iterator[int]:
    listening = socket.create_server(("127.0.0.1", 0))
    server = multiprocessing.get_context("fork").Process(target=_serve, args=(listening,), daemon=True)
    server.start()
    try:
        yield listening.getsockname()[1]
    finally:
        listening.close()
        server.kill()


def _serve(listening: socket.socket) -> None:
    """Answers each request at the exact time; it never sleeps, so nothing has to wake it up."""
    os.sched_setaffinity(0, SERVER_CORES)
    listening.setblocking(False)
    connections: list[socket.socket] = []
    due: list[tuple[float, socket.socket]] = []
    while True:
        with suppress(BlockingIOError):
            connections.append(listening.accept()[0])
            connections[-1].setblocking(False)
            connections[-1].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for connection in tuple(connections):
            with suppress(BlockingIOError):
                if request := connection.recv(65536):
                    due.append((perf_counter() + TAKES_S["login" if b" /login" in request else "download"], connection))
                else:
                    connections.remove(connection)
        for answer in tuple(due):
            if perf_counter() >= answer[0]:
                due.remove(answer)
                with suppress(OSError):  # the client may have gone
                    answer[1].sendall(ANSWER)


if __name__ == "__main__":
    main()
