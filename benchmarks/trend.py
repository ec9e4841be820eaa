"""How often does a trend cry wolf, and after how many runs does it find a change? Simulated with known truth.

A series is one metric of one test: level + stated error × noise + error of the session. A user looks after each run. An
alarm is a step more than 6 runs away from each that was shown before. Takes a minute on a quiet machine.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping

import numpy as np

from pytest_fileperf.judge.rules import TREND
from pytest_fileperf.judge.trend import Floats, Observed, courses_of

NEAR = 6
NOISES: Mapping[str, Mapping[str, float]] = {
    "usual": {},
    "long tails": {"tails": 1},
    "wrong errors": {"unsure": 1},
    "sessions like their neighbours": {"memory": 0.7},
    "wander by 0.5 %": {"wander": 0.005},
    "another kind of machine": {"fleet": 0.007},
    "a new baseline each 25 runs": {"anchors": 25},
}
CHANGES: Mapping[str, Mapping[str, float]] = {
    "1 %": {"step": 0.01},
    "2 %": {"step": 0.02},
    "5 %": {"step": 0.05},
    "4 % in 20 runs": {"creep": 0.002},
}


def series(
    rng: np.random.Generator, rows: int, given: Mapping[str, float], *, low: float = 0.01, high: float = 0.03
) -> tuple[Floats, Floats, Floats]:
    """Returns log ratios, stated errors, and variances of the links that end before each run."""

    def noise(shape: tuple[int, ...]) -> Floats:
        return rng.standard_t(3, shape) / 3**0.5 if "tails" in given else rng.standard_normal(shape)

    runs = 100
    errors, sessions, at = rng.uniform(low, high, (rows, runs)), noise((rows, runs)), np.arange(runs)
    links, memory, kept = np.zeros((rows, runs)), given.get("memory", 0.0), given.get("anchors", 0)
    for i in range(1, runs if memory else 0):
        sessions[:, i] = memory * sessions[:, i - 1] + (1 - memory**2) ** 0.5 * sessions[:, i]
    wander = given.get("wander", 0.0) * np.sin(2 * np.pi * (at / 100 + rng.random((rows, 1))))
    ratios = errors * noise((rows, runs)) + 0.006 * sessions + wander
    ratios[:, runs // 2 :] += given.get("fleet", 0.0) * rng.standard_normal((rows, 1))
    for begin in range(int(kept), runs, int(kept)) if kept else ():
        links[:, begin] = 0.015**2
        ratios[:, begin:] += 0.015 * rng.standard_normal((rows, 1))
    ratios -= given.get("step", 0.0) * (at >= 60) + given.get("creep", 0.0) * np.clip(at - 39, 0, 20)
    stated = errors * np.sqrt(rng.chisquare(8, errors.shape) / 8) if "unsure" in given else errors
    return ratios, stated, links


def alarms(ratios: Floats, errors: Floats, links: Floats) -> list[list[tuple[int, int]]]:
    """Returns after how many runs, and where, each series has its alarms."""
    told: list[list[tuple[int, int]]] = [[] for _ in ratios]
    for runs in range(TREND.first, ratios.shape[1] + 1):
        seen = [
            Observed(ratios=y[:runs], errors=s[:runs], links=link[:runs], session_sd=TREND.session_sd)
            for y, s, link in zip(ratios, errors, links, strict=True)
        ]
        for own, course in zip(told, courses_of(seen), strict=True):
            own += [(runs, step.at) for step in course.steps if all(abs(step.at - at) > NEAR for _, at in own)]
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=int, default=100, help="how many of each kind")
    given = parser.parse_args()
    rng = np.random.default_rng(1)
    print("| noise | false alarms in 1,000 runs |\n| --- | ---: |")
    for name, noise in NOISES.items():
        found = alarms(*series(rng, given.series, noise))
        print(f"| {name} | {sum(map(len, found)) / given.series / 100 * 1000:.2f} |", flush=True)
    print("\n| change | found after 10, 20, 40 runs | median runs |\n| --- | ---: | ---: |")
    for errors, (low, high) in {"1 to 3 %": (0.01, 0.03), "0.5 to 1.5 %": (0.005, 0.015)}.items():
        for name, change in CHANGES.items():
            begun, near = (40, 99) if "creep" in change else (60, 10)
            found = alarms(*series(rng, given.series, change, low=low, high=high))
            own = [[at for at, place in one if at > begun and abs(place - begun) <= near] for one in found]
            late = np.array([one[0] - begun if one else math.inf for one in own])
            shares = ", ".join(f"{np.mean(late <= runs):.0%}" for runs in (10, 20, 40))
            print(f"| {name}, errors of {errors} | {shares} | {np.median(late):.0f} |", flush=True)


if __name__ == "__main__":
    main()
