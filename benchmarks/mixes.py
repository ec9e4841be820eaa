"""Shows loads of many different requests by figures: what they cost, next to vegeta and k6, and what the gate says.

    python benchmarks/mixes.py cost  [--results FILE] [--turns 7] [--minutes 3]
    python benchmarks/mixes.py peers [--results FILE] [--turns 5] [--minutes 3]
    python benchmarks/mixes.py gate  [--results FILE] [--runs 4] [--minutes 60]
    python benchmarks/mixes.py table [--results FILE]

- `cost`: CPU of our generator per request, for different requests next to equal ones, and for 100,000 of them its
  memory and the time until the first one comes.
- `peers`: ours next to vegeta with the same file of 10,000 targets, and next to k6 with a scenario of three weighted
  requests, on a server that burns 0.4 ms for each; as fast as it goes, and at a fixed rate.
- `gate`: comparisons of a mix of three, of which one part's work is 15 % more on one side.

Each turn loads one server with all clients of a case, in every other turn in reverse order; a comparison is a pytest of
its own. What was seen is added to the results file as a line of JSON at once, so the script can be stopped at any time
and goes on where it was. Needs Linux and two cores: the server runs on core 0, the client on core 1. vegeta and k6 are
taken from PATH; what is not there is left out.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from gate import OUTCOMES, read, reported
from mixed_clients import CLIENTS, WEIGHTS, Load, Seen, seen_by, write_files
from peers import ratio
from peers import table as markdown
from programs import absent
from servers import uvicorn
from watched import MIB

HERE = Path(__file__).parent
MANY, LOTS = 10_000, 100_000
SLOWER = {"item": 0.19, "file": 0.16, "upload": 0.17}
"""So much more work makes the median of a part's latency 15 % longer: the rest of it is the framework's."""
TESTS = """
from pytest_fileperf import part, payload

NUMBERS = [f"{number:05}" for number in range(10_000)]
ITEM = part.get("/item/{id}", feed=NUMBERS, name="item", gate="p50")
FILE = part.get("/file/{id}", feed=NUMBERS, name="file", gate="p50")
UPLOAD = part.post("/upload", content=payload("64KiB", unique=True), name="upload", gate="p50")

def test_mix(fileperf):
    fileperf.mix({ITEM: 2, FILE: 1, UPLOAD: 1}, connections=1, gate="none")
"""
"""On one connection no request waits for another, so that a slower part makes no other part slower."""
PARTS = ("item", "file", "upload")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Clients that load one server in turn: ours first, then what it is compared with."""

    clients: Mapping[str, tuple[str, Load]]
    """By what they are called in the table: which client, and what it is asked for."""
    seconds: int
    cost_s: float = 0.0
    """CPU time that the server burns for each request."""


def _next_to(peer: str, kind: str, rate: int | None) -> Case:
    load = Load(kind=kind, rate=rate)
    return Case(clients={name: (name, load) for name in ("fileperf", peer)}, seconds=8, cost_s=0.0004)


COST = {
    "tiny GET": Case(
        clients={
            f"{MANY:,} from a feed": ("fileperf", Load(kind="feed", count=MANY)),
            f"{MANY:,} in a list": ("fileperf", Load(kind="list", count=MANY)),
            "one": ("fileperf", Load(kind="one")),
        },
        seconds=3,
    ),
    "upload of 256 KiB": Case(
        clients={"unique": ("fileperf", Load(kind="unique")), "equal": ("fileperf", Load(kind="equal"))}, seconds=3
    ),
    "start": Case(
        clients={
            f"{LOTS:,} from a feed": ("fileperf", Load(kind="feed", count=LOTS, warmup_s=0)),
            f"{LOTS:,} in a list": ("fileperf", Load(kind="list", count=LOTS, warmup_s=0)),
            "one": ("fileperf", Load(kind="one", warmup_s=0)),
        },
        seconds=10,
    ),
}
PEERS = {
    "10,000 targets, closed loop": _next_to("vegeta", "targets", None),
    "10,000 targets, 1,000/s": _next_to("vegeta", "targets", 1_000),
    "mix of three, closed loop": _next_to("k6", "mix", None),
    "mix of three, 1,000/s": _next_to("k6", "mix", 1_000),
}


def main() -> None:
    """Runs what is missing of one of the three, and prints the tables of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("cost", "peers", "gate", "table"))
    parser.add_argument("--results", type=Path, default=HERE / "mixes.jsonl")
    parser.add_argument("--turns", type=int, default=7, help="turns of each case (default: 7)")
    parser.add_argument("--runs", type=int, default=4, help="comparisons for each slower part (default: 4)")
    parser.add_argument("--minutes", type=float, default=600.0, help="begin nothing more after so long")
    asked = parser.parse_args()
    ends_s = time.monotonic() + 60 * asked.minutes
    if asked.what in ("cost", "peers"):
        take_turns(asked.results, COST if asked.what == "cost" else PEERS, asked.turns, ends_s)
    elif asked.what == "gate":
        run_missing(asked.results, tuple(f"slower {name}" for name in PARTS), asked.runs, ends_s, compare)
    print(tables(read(asked.results)))


def run_missing(
    results: Path, names: Sequence[str], enough: int, ends_s: float, run: Callable[[str, int], dict[str, object]]
) -> None:
    """Makes runs until each of these has enough of them, or the time is over."""
    while time.monotonic() < ends_s:
        counts = Counter(row["case"] for row in read(results))
        missing = [name for name in names if counts[name] < enough]
        if not missing:
            return
        fewest = min(counts[name] for name in missing)
        name = random.choice([name for name in missing if counts[name] == fewest])
        row = {"case": name, "at": round(time.time()), **run(name, counts[name])}
        with results.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(row) + "\n")
        print(f"{name} {counts[name] + 1}/{enough}", file=sys.stderr, flush=True)


# --- cost and peers


def take_turns(results: Path, cases: Mapping[str, Case], turns: int, ends_s: float) -> None:
    """Makes the turns that are missing; a case without its peer is left out."""
    missing = absent() & set(CLIENTS)
    present = {
        name: case for name, case in cases.items() if not missing & {client for client, _ in case.clients.values()}
    }
    for name in sorted(missing):
        print(f"{name} is not on PATH: absent", file=sys.stderr)

    def turn(name: str, number: int) -> dict[str, object]:
        case = present[name]
        ordered = list(case.clients.items())[:: 1 if number % 2 == 0 else -1]
        seen = {}
        with (
            tempfile.TemporaryDirectory(prefix="fileperf-mixes-") as directory,
            uvicorn("mixed_app:app", MIXED_COST_S=str(case.cost_s)) as url,
        ):
            write_files(Path(directory), url)
            seen_by("fileperf", Load(kind="one"), url, 1)  # what a server does only once does not count
            for title, (client, load) in ordered:
                seen[title] = asdict(seen_by(client, replace(load, files=directory), url, case.seconds))
        return {"seen": seen}

    run_missing(results, tuple(present), turns, ends_s, turn)


def cost_table(cases: Mapping[str, Sequence[Mapping[str, Seen]]]) -> str:
    """Returns the medians of each client, and its CPU over that of the last one of the case."""
    heading = ("case", "client", "turns", "requests/s", "the server's", "mix off by", "CPU µs/request", "peak MiB")
    rows = []
    for case, turns in cases.items():
        names = list({**COST, **PEERS}[case].clients)
        for name in names:
            own = [turn[name] for turn in turns]
            middle = {field: median(getattr(seen, field) for seen in own) for field in ("rps", "cpu_s", "peak_bytes")}
            off = median(seen.rps / seen.server_rps - 1 for seen in own)
            weighted = {**COST, **PEERS}[case].clients[name][1].kind in ("targets", "mix")
            rows.append(
                [
                    *(case, name, str(len(own)), f"{middle['rps']:,.0f}", f"{off:+.1%}"),
                    f"{max(map(mix_error, own)):.2%}" if weighted else "",
                    f"{middle['cpu_s'] * 1e6:,.1f}",
                    f"{middle['peak_bytes'] / MIB:,.0f}",
                ]
            )
    return markdown(heading, rows)


def mix_error(seen: Seen) -> float:
    """Returns by how much of itself the share of any kind differs from what was asked for, as the server counted."""
    total, weights = sum(seen.kinds.values()), sum(WEIGHTS.values())
    return max(abs(seen.kinds.get(kind, 0) / total * weights / weight - 1) for kind, weight in WEIGHTS.items())


def ratio_table(cases: Mapping[str, Sequence[Mapping[str, Seen]]]) -> str:
    """Returns each client's figures over those of the last one of its case."""
    rows = []
    for case, turns in cases.items():
        *others, last = {**COST, **PEERS}[case].clients
        rows += [
            [
                *(case, f"{name} / {last}"),
                ratio(turns, name, last, lambda figures: figures.cpu_s),
                ratio(turns, name, last, lambda figures: figures.rps),
            ]
            for name in others
        ]
    return markdown(("case", "ratio", "CPU/request", "requests/s"), rows)


def start_table(turns: Sequence[Mapping[str, Seen]]) -> str:
    """Returns for each client how long it took until the first request, and what memory all took."""
    heading = ("URLs", "turns", "first request after s (median, longest)", "peak MiB (highest)", "different paths seen")
    rows = []
    for name in COST["start"].clients if turns else ():
        own = [turn[name] for turn in turns]
        starts = [seen.start_s for seen in own]
        rows.append(
            [
                *(name, str(len(own)), f"{median(starts):.2f}, {max(starts):.2f}"),
                f"{max(seen.peak_bytes for seen in own) / MIB:,.0f}",
                f"{min(seen.paths for seen in own):,}",
            ]
        )
    return markdown(heading, rows)


# --- the gate


def compare(name: str, number: int) -> dict[str, object]:
    """Returns what one comparison said, with default settings, of a mix of which one part is slower on one side."""
    with tempfile.TemporaryDirectory(prefix="fileperf-mixes-") as directory:
        base, now = Path(directory) / "base", Path(directory) / "work"
        part = name.removeprefix("slower ")
        slower = {part: SLOWER[part]}
        for path, changed in ((base, {}), (now, slower)):
            path.mkdir()
            (path / "changes.py").write_text(f"SLOWER_PARTS = {changed}\n", encoding="utf-8")
            shutil.copy(HERE / "mixed_gate_app.py", path)
        (now / "test_mixes.py").write_text(TESTS, encoding="utf-8")
        (now / "pytest.ini").write_text(
            "[pytest]\nfileperf_app = mixed_gate_app:app\npythonpath = .\n", encoding="utf-8"
        )
        status, results = reported(now, f"--fileperf-against={base}")
    comparisons = {result["test"]["part"] or "whole": result["verdict"]["comparisons"] for result in results}
    return {
        "status": status,
        "seconds": round(results[0]["base"]["seconds"], 1),
        "outcomes": {part: {item["metric"]: item["outcome"] for item in found} for part, found in comparisons.items()},
        "changes": {part: {item["metric"]: item["change"] for item in found} for part, found in comparisons.items()},
        "pairs": len(results[0]["base"]["boots"]),
    }


def gate_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns how often each outcome came, for the slower part and for the others, and what the p50 changed by."""
    named = ", ".join(outcome.lower() for outcome in OUTCOMES)
    heading = ("case", "runs", f"its p50: {named}", "p50 of the others", "its p50 changed by")
    lines = []
    for name in PARTS:
        own = [row for row in rows if row["case"] == f"slower {name}"]
        if not own:
            continue
        counts = [Counter[str]() for _ in range(2)]
        for row in own:
            for part, outcomes in row["outcomes"].items():
                counts[part != name].update(outcomes.values())
        changes = sorted(row["changes"][name]["p50"] for row in own)
        found = (" / ".join(str(count[outcome]) for outcome in OUTCOMES) for count in counts)
        changed = f"{median(changes):+.1%} ({changes[0]:+.1%} to {changes[-1]:+.1%})"
        seconds = [row["seconds"] for row in own]
        lines.append([f"slower {name}", str(len(own)), *found, changed, f"{median(seconds):.0f}"])
    return markdown((*heading, "median s"), lines)


def tables(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns all tables there are rows for."""
    seen: dict[str, list[Mapping[str, Seen]]] = {
        case: [] for case in (*COST, *PEERS) if any(row["case"] == case for row in rows)
    }
    for row in rows:
        if "seen" in row:
            turn = {name: Seen(**figures) for name, figures in row["seen"].items()}
            seen[row["case"]].append(turn)
    start = seen.pop("start", [])
    found = [cost_table(seen), ratio_table(seen)] if seen else []
    if start:
        found.append(start_table(start))
    if compared := [row for row in rows if "outcomes" in row]:
        found.append(gate_table(compared))
    if unique := [turn["unique"] for turn in seen.get("upload of 256 KiB", ()) if "unique" in turn]:
        uploads, digests = sum(one.kinds["upload"] for one in unique), sum(one.digests for one in unique)
        found.append(f"Of {uploads:,} unique uploads the server saw {digests:,} different digests.")
    return "\n\n".join(found)


if __name__ == "__main__":
    main()
