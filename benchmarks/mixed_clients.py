"""The clients that `mixes.py` compares: ours, vegeta and k6, each with many different requests on one server.

Each runs in a process of its own on core 1, and is watched as the clients of `peers.py` are. What the server has
counted is asked for after each of them.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import httpx
from clients import ours, replayed
from programs import k6_run, vegeta_attack
from watched import TIMEOUT_S, WARM_UP_S, Figures, finished

from pytest_fileperf.plan.work import turns

if TYPE_CHECKING:
    from pytest_fileperf.plan.work import Work

__all__ = ("CLIENTS", "WEIGHTS", "Load", "Seen", "seen_by", "write_files")

WEIGHTS = {"item": 6, "file": 3, "upload": 1}
TARGETS = 10_000
BODY_BYTES = 64 * 1024
_MIX = """const chance = Math.random() * 10;
  if (chance < 6) http.get("URL/item/1");
  else if (chance < 9) http.get("URL/file/1");
  else http.post("URL/upload/1", body);"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is asked of the server."""

    kind: str
    """A key of `WORKS`."""
    count: int = 1
    """How many different requests."""
    connections: int = 32
    rate: int | None = None
    """Open loop: requests per second."""
    files: str = ""
    """The directory with what `write_files` wrote."""
    warmup_s: float = WARM_UP_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen(Figures):
    """What one client saw in one run, and what the server counted of it."""

    server_rps: float = 0.0
    """Requests per second in the middle of the run."""
    kinds: Mapping[str, int] = field(default_factory=dict)
    """Requests of each kind."""
    paths: int = 0
    """Different paths."""
    digests: int = 0
    """Different bodies."""
    start_s: float = 0.0
    """From the verb to the first request; of our generator only."""


def write_files(directory: Path, url: str) -> None:
    """Writes a body, and a file of targets that have the kinds by their weights, evenly spread."""
    body = directory / "body"
    body.write_bytes(Random(0).randbytes(BODY_BYTES))
    names = tuple(WEIGHTS)
    kinds = [names[place] for place in islice(turns(tuple(WEIGHTS.values())), TARGETS)]
    targets = (
        f"{'POST' if kind == 'upload' else 'GET'} {url}/{kind}/{number}\n{'@body' if kind == 'upload' else ''}"
        for number, kind in enumerate(kinds)
    )
    (directory / "targets").write_text("\n\n".join(map(str.rstrip, targets)) + "\n", encoding="utf-8")


def seen_by(name: str, load: Load, url: str, seconds: int) -> Seen:
    """Loads the server with one client, and returns what both saw."""
    _counts(url)
    figures, asked_s = CLIENTS[name](load, url, seconds)
    told = _counts(url)
    first_s = told.pop("first_s")
    figures |= {"server_rps": told.pop("rps"), **told}
    return Seen(**figures, start_s=first_s - asked_s if asked_s else 0.0)


def _counts(url: str) -> dict[str, Any]:
    return dict(httpx.get(f"{url}/counts", timeout=TIMEOUT_S).json())


# --- peers


def vegeta(load: Load, url: str, seconds: int) -> tuple[dict[str, Any], float]:
    """Loads with vegeta, from the file of targets."""
    targets = Path(load.files) / "targets"
    return asdict(vegeta_attack(targets, seconds, connections=load.connections, rate=load.rate)), 0.0


def k6(load: Load, url: str, seconds: int) -> tuple[dict[str, Any], float]:
    """Loads with k6: one scenario, in which chance chooses among three requests by their weights."""
    directory = Path(load.files)
    code, before = _MIX.replace("URL", url), f'const body = open("{directory / "body"}", "b");'
    return asdict(k6_run(directory, code, seconds, before=before, connections=load.connections, rate=load.rate)), 0.0


# --- ours


def fileperf(load: Load, url: str, seconds: int) -> tuple[dict[str, Any], float]:
    """Loads with our generator, in a fresh Python."""
    job = json.dumps({"load": asdict(load), "url": url, "seconds": seconds})
    output, watch = finished([sys.executable, __file__, job], seconds + 2 * TIMEOUT_S)
    found = json.loads(output)
    return {**found["figures"], "peak_bytes": watch.peak_bytes}, float(found["asked_s"])


def work_of(load: Load) -> Work:
    """Returns what the verb makes of its arguments."""
    from pytest_fileperf import part, payload
    from pytest_fileperf.settings.keywords import mix_from
    from pytest_fileperf.settings.targets import many_from

    files = Path(load.files)
    match load.kind:
        case "one":
            call = part.get("/item/0").call
        case "feed":
            call = part.get("/item/{id}", feed=[f"{number:06}" for number in range(load.count)]).call
        case "list":
            call = many_from([("GET", f"/item/{number:06}") for number in range(load.count)], {})
        case "equal" | "unique":
            call = part.post("/upload/0", content=payload("256KiB", unique=load.kind == "unique")).call
        case "targets":
            call = many_from(files / "targets", {})
        case _:
            parts = {
                part.get("/item/1"): WEIGHTS["item"],
                part.get("/file/1"): WEIGHTS["file"],
                part.post("/upload/1", content=payload(files / "body")): WEIGHTS["upload"],
            }
            call = mix_from(parts, {})
    if call.work is None:
        raise SystemExit("\n".join(call.problems))
    return call.work


CLIENTS: dict[str, Callable[[Load, str, int], tuple[dict[str, Any], float]]] = {
    "fileperf": fileperf,
    "vegeta": vegeta,
    "k6": k6,
}
"""Every client by name. Each returns fields of figures, and when its verb was called, where that is known."""


def main() -> None:
    """Loads in this process, and prints the figures."""
    job = json.loads(sys.argv[1])
    load = Load(**job["load"])
    import pytest_fileperf.settings.keywords  # noqa: F401 - pytest has imported it before a test begins

    asked_s = time.monotonic()
    work = work_of(load)
    seen = replayed(
        work,
        job["url"],
        connections=load.connections,
        seconds=job["seconds"],
        rate=load.rate,
        warmup_s=load.warmup_s,
    )
    print(json.dumps({"figures": asdict(ours(seen)), "asked_s": asked_s}))


if __name__ == "__main__":
    main()
