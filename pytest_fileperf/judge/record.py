"""A finished test's figures and verdict in one value, from which all reports are made."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from pytest_fileperf.judge.evidence import OtherAnswers, Pair
from pytest_fileperf.judge.grouping import FURTHER
from pytest_fileperf.judge.paired import NoiseFloor
from pytest_fileperf.judge.verdict import Note, Outcome, Verdict
from pytest_fileperf.measure.capacity import Capacity
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.limiting import LimitKind
from pytest_fileperf.measure.measurement import Background, Measurement, background_of
from pytest_fileperf.measure.recording import Recording
from pytest_fileperf.plan.request import SubjectName

_BUSY_RUN = "a run on a busy machine"
_LEFT_WORK = "a run with unfinished work on the server"


class Standing(StrEnum):
    """A measurement's result in one word: the outcome of its comparisons, unless another problem matters more."""

    PASS = "PASS"  # noqa: S105 - an outcome, not a password
    """Not worse than the baseline by more than the tolerance. The test passes."""
    IMPROVED = "IMPROVED"
    """Better than the baseline, beyond doubt. The test passes."""
    REGRESSED = "REGRESSED"
    """Worse than the baseline by more than the tolerance, beyond doubt. The test fails."""
    ACCEPTED = "ACCEPTED"
    """The code is worse than the baseline, and `--fileperf-update=all` stored this result as the new baseline. The test
    passes."""
    LIMIT = "LIMIT"
    """A limit such as `min_rps` or `max_p99` is broken. The test fails."""
    FAILED = "FAILED"
    """No request succeeded, or a request failed in a smoke run. The test fails."""
    INCONCLUSIVE = "INCONCLUSIVE"
    """The evidence does not decide; the message says why. pytest counts the test as `inconclusive`, with the letter
    `I`. The test fails with `--fileperf-strict`."""
    SATURATED = "SATURATED"
    """Nothing was found wrong, but the load generator used up its CPU core. So the figures show the generator's speed
    and not the server's. Replaces PASS, IMPROVED and `-`."""
    NEW = "NEW"
    """There is no baseline. The test passes. The test fails with `--fileperf-strict`, or if the environment variable
    `CI` is set and no limit judges the test."""
    UNGATED = "-"
    """Nothing was compared. The test passes."""

    @property
    def fails(self) -> bool:
        """Whether the test fails with this result, whatever the options are."""
        return self in (Standing.FAILED, Standing.REGRESSED, Standing.LIMIT)

    @property
    def is_undecided(self) -> bool:
        """Whether the result leaves open if the code is fast enough."""
        return self in (Standing.INCONCLUSIVE, Standing.SATURATED)


@dataclass(frozen=True, slots=True, kw_only=True)
class TestId:
    """The test that a measurement belongs to."""

    __test__ = False

    nodeid: str
    """pytest's node id. A test's second measurement adds `#2`. A part of a load adds its name, such as `#upload`, and
    so does a step. A step of a part adds both: `#visit#login`."""
    module: str
    """Path of the test module relative to the root directory, with `/`."""
    name: str
    """Name of the test function with its parameters."""
    line: int | None = None
    """Line in the module where the function begins, from 1 on. None if the function comes from elsewhere."""
    params: Mapping[str, object] = field(default_factory=dict)
    group: str | None = None
    label: str | None = None
    part: str = ""
    """The part of the load, such as `upload`; empty for the whole load."""
    step: str = ""
    """The step of a journey, such as `login`; empty for the whole journey."""

    @property
    def title(self) -> str:
        return self.label or self.name

    @property
    def subject(self) -> SubjectName:
        return self.part, self.step

    @property
    def own(self) -> str:
        """The part and step: `upload` for a part, `login` for a step, `visit#login` for both. Else empty."""
        return "#".join(filter(None, self.subject))

    def of(self, subject: SubjectName) -> TestId:
        part, step = subject
        nodeid = "#".join(filter(None, (self.nodeid, part, step)))
        return replace(self, nodeid=nodeid, part=part, step=step, group=None)

    @property
    def further(self) -> str:
        """The end of `nodeid` that pytest does not know, such as `#2`, `#upload` or `#2#upload`. Else empty."""
        own = f"#{self.own}" if self.own else ""
        match = FURTHER.search(self.nodeid.removesuffix(own))
        return (match[0] if match else "") + own

    @property
    def item(self) -> str:
        """The test's node id in pytest, without a further measurement's number, part or step."""
        return self.nodeid.removesuffix(self.further)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedTest:
    """A load test that failed because of its server, its setup or its own assertion, and not its figures."""

    nodeid: str
    module: str
    """Path of the test module relative to the root directory, with `/`."""
    name: str
    line: int | None = None
    """Line in the module where the test begins, from 1 on, or None."""
    phase: str = "call"
    """pytest's word for the time of the failure: `setup` (fixtures), `call` or `teardown`."""
    message: str = ""
    """The error's message: at most a few lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The functions that explain a test's CPU time, as a profiler found them."""

    text: str
    """A few lines for reports, or one line that says why there is no profile."""
    details: Mapping[str, object] | None = None
    """The profile of every function, as JSON values. None if there is no profile."""
    limit: LimitKind | None = None
    """The server's limit, if `text` says that requests waited for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    test: TestId
    work: str
    """The requests: `POST /upload`, or the journey's name."""
    server: str
    """A text such as `uvicorn ×1 (uvloop, httptools)`."""
    load: str
    """A text such as `32 connections, 6 s`."""
    identity: Mapping[str, object]
    """The requests, the server and the load, as JSON values. Figures only compare with a baseline of equal identity."""
    recording: Recording
    measurement: Measurement
    verdict: Verdict
    base: Recording | None = None
    """The old version's recording, if two versions were measured alternately."""
    pairs: tuple[Pair, ...] = ()
    """If two versions were measured alternately: pairs of an old and a new start-up."""
    base_seconds: float | None = None
    """The duration of the comparison and its start-ups, if two versions were measured alternately."""
    stored_latency: Histogram | None = None
    """The stored baseline's latencies, if only its figures were compared."""
    noise: tuple[NoiseFloor, ...] = ()
    """If the same code was compared with itself: the smallest change of each metric that would show here."""
    explanation: Explanation | None = None
    """Functions that cost CPU time, or that cost more than in the old version. None if no profiler ran."""
    capacity: Capacity | None = None
    """The highest rate that meets the limits, if it was searched for. The other figures were measured at this rate."""
    base_capacity: Capacity | None = None
    """The old version's capacity, if two versions were measured alternately."""
    other_answers: tuple[OtherAnswers, ...] = ()
    """How the new version's answers differ from the old version's, by part of the load and step."""
    baseline_written: bool = False
    not_stored: str = ""
    """Why the result did not become a baseline although the user asked for it, without a full stop. Else empty."""
    smoke: bool = False
    notes: tuple[Note, ...] = ()
    """Facts that a reader must know about the served app, then about the load."""

    def having(self, **facts: Any) -> Result:
        """Returns a copy with new values for fields of the result or of its verdict. No field name is in both."""
        own = {name: facts.pop(name) for name in Result.__dataclass_fields__ if name in facts}
        return replace(self, verdict=replace(self.verdict, **facts), **own)

    @property
    def lost(self) -> str:
        """Why load generators failed, so that parts of the load are missing. Empty if no part is missing."""
        sides = (self.recording, self.base)
        return "; ".join(dict.fromkeys(why for side in sides if side is not None for why in side.lost))

    @property
    def background(self) -> Background | None:
        """How much CPU time each version used while the other was loaded.

        None if versions were not measured alternately.
        """
        return None if self.base is None else background_of(self.base, self.recording)

    @property
    def standing(self) -> Standing:
        outcome = self.verdict.outcome
        if self.measurement.requests == 0 or (self.smoke and self.measurement.errors and not self.test.step):
            return Standing.FAILED
        if outcome is Outcome.REGRESSED:
            return Standing.ACCEPTED if self.baseline_written else Standing.REGRESSED
        if self.verdict.broken:
            return Standing.LIMIT
        if self.lost and not self.smoke:
            return Standing.INCONCLUSIVE
        if self.measurement.saturated and not self.smoke and outcome in (None, Outcome.PASS, Outcome.IMPROVED):
            return Standing.SATURATED
        return Standing(outcome.value) if outcome else Standing.UNGATED

    @property
    def unfit(self) -> str:
        """Why the result cannot become a baseline, as a noun (`a run with broken limits`). Empty if it can."""
        if not self.measurement.requests:
            return "a run without a successful request"
        if self.verdict.broken:
            return "a run with broken limits"
        if self.lost:
            return "a run with a part of the load missing"
        if self.measurement.saturated:
            return "a run with a saturated load generator"
        if any(boot.left_share or boot.was_at_work for boot in self.recording.boots):
            return _LEFT_WORK
        # It would be a slow baseline, and hide later losses.
        return _BUSY_RUN if self.measurement.busy.is_busy else ""

    @property
    def is_provisional(self) -> bool:
        """Whether the figures are only rough, because the machine was busy. As a baseline, only their code counts."""
        return self.unfit == _BUSY_RUN

    @property
    def least_capacity(self) -> float | None:
        """If no load of a capacity search broke a limit: the highest rate. The capacity may be higher. Else None."""
        return self.capacity.rate if self.capacity is not None and math.isinf(self.capacity.high) else None

    @property
    def never_fit(self) -> bool:
        """Whether even `--fileperf-update=all` does not store the result as a baseline."""
        return self.unfit not in ("", _BUSY_RUN, _LEFT_WORK)
