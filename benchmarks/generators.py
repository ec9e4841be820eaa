"""Do several generators make exactly one load? Prints Markdown tables of their sums, and of when they send.

    python benchmarks/generators.py sums  [--requests 40000] [--generators 1,2,4,7]
    python benchmarks/generators.py rate  [--rate 1000] [--seconds 5] [--turns 5] [--generators 1,2,4]
    python benchmarks/generators.py limit [--seconds 4] [--turns 5]

- `sums`: a fixed number of requests, of which every tenth fails, on a server that burns 0.2 ms for each and so sets the
  pace. What the generators have seen together stands next to what was asked for and what the server has counted.
- `rate`: an open loop on nginx. How many requests were sent and in which time, how late they were, and how many of them
  were due at the same instant as another.
- `limit`: how much two generators make where one is the limit. That takes two cores for nginx and two for them.

The server runs on core 0 (for `limit` on two cores), generators on the others: on one each where there are enough, else
they share them. Loopback only; needs Linux and two cores.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from statistics import median

import httpx
from clients import recorded, replayed
from peers import table
from servers import nginx, uvicorn
from watched import client_cores

from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.plan.feed import Requests
from pytest_fileperf.plan.load import LoadPlan, split
from pytest_fileperf.plan.request import Operation

CONNECTIONS = 32
COST_S = "0.0002"
KINDS = ("item", "file", "bad")
USES = (0, 0, 1, 0, 0, 1, 0, 0, 1, 2)
"""The places of kinds in a row of requests that is repeated."""
BYTES = {"item": 100, "file": 64 * 1024}
SECOND_NS = 1_000_000_000
WARM_UP_NS = 300_000_000
TINY = Operation(method="GET", url="/tiny")


def main() -> None:
    """Runs what the command line asks for, and prints its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("sums", "rate", "limit"))
    parser.add_argument("--requests", type=int, default=40_000)
    parser.add_argument("--rate", type=int, default=1_000, help="requests per second of all generators")
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--generators", default="1,2,4", help="how many, in turn (default: 1,2,4)")
    asked = parser.parse_args()
    counts = [int(word) for word in asked.generators.split(",")]
    if len(os.sched_getaffinity(0)) < 2:
        raise SystemExit("two cores are needed: one for the server, one for the generators")
    if asked.what == "sums":
        print(sums(counts, asked.requests))
    elif asked.what == "rate":
        print(rates(counts, asked.rate, asked.seconds, asked.turns))
    else:
        print(limit(asked.seconds, asked.turns))


# --- sums


def sums(counts: Sequence[int], requests: int) -> str:
    """Returns what so many generators have seen of a fixed number of requests, and what else says how many it were."""
    rows = []
    with uvicorn("mixed_app:app", MIXED_COST_S=COST_S) as url:
        for count in counts:
            rows += sums_of(count, requests, url)
            print(f"{count} of {counts}", file=sys.stderr)
    return table(("what", "generators", "asked for", "generators saw", "the server counted"), rows)


def sums_of(generators: int, requests: int, url: str) -> list[list[str]]:
    """Returns the rows of one load: answers, errors, bytes, and samples in the histogram."""
    httpx.get(f"{url}/counts")
    plan = LoadPlan(
        connections=CONNECTIONS,
        warmup_ns=0,
        round_ns=600 * SECOND_NS,
        rounds=1,
        timeout_ns=30 * SECOND_NS,
        requests=requests,
        generators=generators,
    )
    recipes = tuple(Operation(method="GET", url=f"/{kind}/1") for kind in KINDS)
    rounds = recorded(Requests(recipes=recipes, uses=USES), url, plan).rounds
    kinds = httpx.get(f"{url}/counts").json()["kinds"]
    named = [KINDS[USES[place % len(USES)]] for place in range(requests)]
    good = [name for name in named if name in BYTES]
    answers = sum(kinds[name] for name in BYTES)
    figures = {
        "answers": (len(good), sum(round_.requests for round_ in rounds), answers),
        "errors": (requests - len(good), sum(round_.failed for round_ in rounds), kinds["bad"]),
        "bytes": (
            sum(BYTES[name] for name in good),
            sum(round_.bytes_received for round_ in rounds),
            sum(kinds[name] * size for name, size in BYTES.items()),
        ),
        "samples": (len(good), sum(round_.latency.count for round_ in rounds), answers),
    }
    return [[what, str(generators), *(f"{value:,}" for value in values)] for what, values in figures.items()]


# --- rate


def rates(counts: Sequence[int], rate: int, seconds: int, turns: int) -> str:
    """Returns how an open loop was kept by so many generators, which take turns."""
    delays: dict[int, list[Histogram]] = {count: [] for count in counts}
    made: dict[int, list[float]] = {count: [] for count in counts}
    with nginx() as url:
        for number in range(turns):
            for count in counts[:: 1 if number % 2 == 0 else -1]:
                recording = recorded(TINY, url, open_loop(rate, seconds, count))
                delays[count].append(Histogram.merged(round_.send_delay for round_ in recording.rounds))
                # From the first due time to the last one is one interval less than there are requests.
                made[count].append((delays[count][-1].count - 1) / (recording.attack_ns / SECOND_NS))
                p99 = delays[count][-1].percentile_ns(99) / 1e6
                print(f"turn {number + 1} of {turns}, {count}: {made[count][-1]:,.2f}/s, {p99:.3f} ms", file=sys.stderr)
    rows = [
        [
            f"{rate:,}/s over {count}",
            f"{min(made[count]):,.2f}–{max(made[count]):,.2f}",
            *(percentiles(delays[count], percent) for percent in (50, 99, 99.9)),
            f"{max(histogram.max_ns for histogram in delays[count]) / 1e6:.2f}",
            "{} of {:,}".format(*at_one_instant(open_loop(rate, seconds, count))),
        ]
        for count in counts
    ]
    late = [f"late ms, {name}" for name in ("p50", "p99", "p99.9", "most")]
    print(f"generators have {len(client_cores(max(counts)))} core(s)", file=sys.stderr)
    return table(("load", "requests/s", *late, "due at one instant"), rows)


def open_loop(rate: int, seconds: int, generators: int) -> LoadPlan:
    """Returns the plan of an open loop."""
    return LoadPlan(
        connections=CONNECTIONS,
        rate=rate,
        warmup_ns=WARM_UP_NS,
        round_ns=SECOND_NS,
        rounds=seconds,
        timeout_ns=10 * SECOND_NS,
        generators=generators,
    )


def percentiles(histograms: Sequence[Histogram], percent: float) -> str:
    """Returns `0.12 (0.10–0.15)`: the median of the turns in ms, the least and the greatest."""
    values = [histogram.percentile_ns(percent) / 1e6 for histogram in histograms]
    return f"{median(values):.2f} ({min(values):.2f}–{max(values):.2f})"


def at_one_instant(plan: LoadPlan) -> tuple[int, int]:
    """Returns how many requests are due at an instant at which another one is, too, and how many are due."""
    dues: list[int] = []
    for share in split(plan):
        assert isinstance(share, LoadPlan)
        due, number = share.pacing().due, 0
        while (at_ns := due(0, number, 0)) is not None and at_ns < plan.duration_ns:
            dues.append(at_ns)
            number += 1
    return len(dues) - len(set(dues)), len(dues)


# --- limit


def limit(seconds: int, turns: int) -> str:
    """Returns what one and two generators make where the server could do more, which take turns."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 4:
        raise SystemExit(f"skipped: it takes 4 cores, two for nginx and two for generators, and here are {len(cores)}")
    found: dict[int, list[float]] = {1: [], 2: []}
    with nginx(workers=2, cores=frozenset(cores[:2])) as url:
        for number in range(turns):
            for count in (1, 2) if number % 2 == 0 else (2, 1):
                seen = replayed(TINY, url, connections=CONNECTIONS, seconds=seconds, generators=count)
                found[count].append(seen.rps)
    ratios = [two / one for one, two in zip(found[1], found[2], strict=True)]
    rows = [[str(count), f"{median(rates):,.0f}"] for count, rates in found.items()]
    return table(("generators", "requests/s"), [*rows, ["2 / 1", f"{median(ratios):.2f}"]])


if __name__ == "__main__":
    main()
