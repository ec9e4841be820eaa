"""Measures our load next to wrk's and plain httpx's, and prints the ratios as Markdown tables.

    python benchmarks/peers.py [--pairs 9] [--seconds 4] [--cases tiny,upload,nginx-1] [--clients wrk,k6]

One uvicorn or nginx with one worker runs on core 0, the client under test on core 1. Clients alternate, in turns of
reversed order, so that drift hits all alike. A ratio is taken within a turn; the table shows the median of the turns
and, in brackets, their quartiles. It takes about an hour as it stands.
"""

from __future__ import annotations

import os
import platform
import resource
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from bench import MIB, NGINX, chosen, client_cores, nginx, parser, table, uvicorn
from clients import CLIENTS, OURS, PROGRAMS, TWO_OF_OURS, Case, Figures

from pytest_fileperf import payload

MANY = 10_000
NOT_MANY = ("vegeta", "k6", "httpx")
"""vegeta binds connections to local ports, which then nobody else gets for a minute; k6 has an interpreter of its own
for each connection; httpx's pool looks through all of them at each request."""
SPARE_FILES = 200
"""Open files that a client or a server needs besides its connections."""
COST_S = "0.0004"
"""CPU time of each request of `counted`: so the server sets the pace, whoever loads it."""

Turn: TypeAlias = Mapping[str, Figures]
"""The figures of every client, by its name, from one turn."""
FIGURES: Mapping[str, tuple[Callable[[Figures], float], str]] = {
    "requests/s": (lambda figures: figures.rps, ",.0f"),
    "p50 ms": (lambda figures: figures.p50_s * 1e3, ".2f"),
    "p99 ms": (lambda figures: figures.p99_s * 1e3, ".2f"),
    "CPU µs/request": (lambda figures: figures.cpu_s * 1e6, ",.0f"),
    "peak MiB": (lambda figures: figures.peak_bytes / MIB, ",.0f"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A case, the server that it is for, and the clients that make it: ours first."""

    case: Case
    clients: tuple[str, ...] = (OURS, *PROGRAMS, "httpx")
    server: str = "files"
    """An app of `bench_apps`, or `nginx`."""

    @property
    def title(self) -> str:
        return f"{self.case.title}, {'nginx' if self.server == 'nginx' else 'uvicorn'}"

    def serve(self) -> AbstractContextManager[str]:
        if self.server == "nginx":
            return nginx()
        return uvicorn(f"bench_apps:{self.server}", COST_S=COST_S)


def cases_in(directory: Path) -> dict[str, Served]:
    """Returns the cases by their names; writes their bodies into the directory."""
    bodies = {}
    for name, size_bytes in (("body", 256 * 1024), ("large", 100_000_000), ("small", 64 * 1024)):
        bodies[name] = str(directory / name)
        with Path(bodies[name]).open("wb") as file:
            file.writelines(payload(size_bytes).blocks())
    tiny = Case(title="tiny GET")
    upload = Case(title="256 KiB upload", method="POST", path="/upload", body=bodies["body"])
    large = replace(upload, title="100 MB upload, 8 at once", body=bodies["large"], connections=8, times_longer=3)
    mix = Case(title="mix of three", path="mix", body=bodies["small"])
    return {
        "tiny": Served(case=tiny),
        "upload": Served(case=upload),
        "download": Served(case=Case(title="256 KiB download", path="/download")),
        "one": Served(case=replace(tiny, title="tiny GET, 1 connection", connections=1)),
        "journey": Served(
            case=replace(tiny, title="tiny GET through `httpx.AsyncClient.send`"),
            clients=("httpx on LoadTransport", "httpx"),
        ),
        "file": Served(case=large, clients=(OURS, "wrk")),
        "mix": Served(case=mix, clients=(OURS, "k6"), server="counted"),
        **{f"nginx-{connections}": _on_nginx(connections) for connections in (1, 32, 256, MANY)},
    }


def _on_nginx(connections: int) -> Served:
    """Returns the tiny GET on so many connections. Some clients cannot have many of them."""
    case = Case(
        title=f"tiny GET, {connections:,} connection{'' if connections == 1 else 's'}",
        connections=connections,
        times_longer=2 if connections == MANY else 1,
    )
    others = [name for name in (*PROGRAMS, "httpx") if connections < MANY or name not in NOT_MANY]
    ours = (OURS,) if connections == 1 else (OURS, TWO_OF_OURS)
    return Served(case=case, clients=(*ours, *others), server="nginx")


def turns_of(served: Served, names: Sequence[str], *, pairs: int, seconds: int) -> list[Turn]:
    """Returns the figures of each turn, of which every other one goes the other way round.

    All are on one server, or on one each if a port has no room for the connections of all.
    """
    turns: list[Turn] = []
    with served.serve() as url:
        CLIENTS[names[0]](served.case, url, 1)  # what a server does only once does not count
        for number in range(pairs):
            turn: dict[str, Figures] = {}
            for name in names[:: 1 if number % 2 == 0 else -1]:
                with nullcontext(url) if served.case.connections < MANY else served.serve() as own:
                    turn[name] = CLIENTS[name](served.case, own, seconds * served.case.times_longer)
            turns.append(turn)
            rates = ", ".join(f"{name} {turn[name].rps:,.0f}/s" for name in names)
            print(f"{served.title}, turn {number + 1} of {pairs}: {rates}", file=sys.stderr)
    return turns


def figures_table(results: Mapping[str, Sequence[Turn]]) -> str:
    def cells(turns: Sequence[Turn], name: str) -> list[str]:
        return [f"{statistics.median(of(turn[name]) for turn in turns):{form}}" for of, form in FIGURES.values()]

    rows = ([title, name, *cells(turns, name)] for title, turns in results.items() for name in turns[0])
    return table(("case", "client", *FIGURES), rows)


def ratios_table(results: Mapping[str, Sequence[Turn]]) -> str:
    """Returns our figures over each other client's."""
    rows = (
        [title, f"{ours} / {other}", *(ratio(turns, ours, other, of) for of, _ in FIGURES.values())]
        for title, turns in results.items()
        for ours, *others in [turns[0]]
        for other in others
    )
    return table(("case", "ratio", "requests/s", "p50", "p99", "CPU/request", "peak memory"), rows)


def ratio(turns: Sequence[Turn], name: str, other: str, value: Callable[[Figures], float]) -> str:
    """Returns `1.02 (1.01–1.03)`: the median and quartiles of the ratios within the turns."""
    ratios = [value(turn[name]) / value(turn[other]) for turn in turns]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
    return f"{middle:.2f} ({low:.2f}–{high:.2f})"


def why_not(served: Served) -> str:
    if served.server == "nginx" and NGINX is None:
        return "nginx is not installed (Debian and Ubuntu: apt install nginx-core)"
    needed, (_, allowed) = served.case.connections + SPARE_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed != resource.RLIM_INFINITY and allowed < needed:
        return f"{needed:,} open files are needed and {allowed:,} allowed (ulimit -Hn)"
    return ""


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--pairs", type=int, default=9, help="turns per case (default: 9)")
    options.add_argument("--seconds", type=int, default=4, help="length of one client's turn (default: 4)")
    options.add_argument("--cases", default="", help="which cases (default: all)")
    options.add_argument("--clients", default="", help="which clients beside ours (default: all)")
    asked = options.parse_args()
    client_cores()
    gone, results = {name for name in PROGRAMS if shutil.which(name) is None}, dict[str, list[Turn]]()
    left_out = dict.fromkeys(sorted(gone), "not on PATH")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # clients and servers open as many files as they may
    with tempfile.TemporaryDirectory(prefix="fileperf-peers-") as directory:
        cases = cases_in(Path(directory))
        for served in (cases[name] for name in chosen(options, asked.cases, cases)):
            if why := why_not(served):
                left_out[served.title] = why
                continue
            first, *others = served.clients
            wanted = set(asked.clients.split(",") if asked.clients else others) - gone
            present = [first, *(name for name in others if name in wanted)]
            try:
                results[served.title] = turns_of(served, present, pairs=asked.pairs, seconds=asked.seconds)
            except SystemExit as error:  # of a client that failed: what the others showed is worth a table
                left_out[served.title] = str(error)
    print(f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()};")
    print(f"medians of {asked.pairs} turns of {asked.seconds} s each.\n")
    print(figures_table(results), ratios_table(results), sep="\n\n")
    if left_out:
        print("\nLeft out:", *(f"- {name}: {why}" for name, why in left_out.items()), sep="\n")


if __name__ == "__main__":
    main()
