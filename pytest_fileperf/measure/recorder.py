"""Divides a load's time into rounds, and counts each round's requests."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from time import process_time_ns
from typing import Any, TypeAlias

from pytest_fileperf.measure.recording import (
    NOTHING_CARRIED,
    GeneratorRound,
    LeadTimes,
    Phase,
    Round,
    WarmUp,
    without_samples,
)
from pytest_fileperf.measure.tally import Leads, Tally, typical_rps
from pytest_fileperf.plan.work import MOST_PATHS
from pytest_fileperf.units import format_duration
from pytest_fileperf.wire.exchange import Sockets

MOST_STEPS = 100
"""The most steps of one journey: each step has its own histograms in every round."""


class Recorder:
    """The clock of one load. Its `tallies` count finished requests, and `finish` returns the rounds.

    Times are nanoseconds on one monotonic clock. The warm-up ends at the instant given to `begin`. From then on,
    `stretches` follow each other. Each one is (its end in ns after that instant, its phase). The time after the last
    stretch is the drain. Without stretches, there is one round up to `finish`.

    `server_cpu` returns the server's CPU time so far, in ns. With `connections`, rounds get a typical rate (see
    `typical_rps`). With `keeps_ends`, the answers' end times are kept, for several generators' joint typical rate.
    """

    def __init__(
        self,
        *,
        boot: int,
        stretches: Sequence[tuple[int, Phase]],
        server_cpu: Callable[[], int | None],
        connections: int = 0,
        keeps_ends: bool = False,
        parts: Sequence[str] = (),
    ) -> None:
        self._boot = boot
        self._stretches = stretches
        self._server_cpu = server_cpu
        self._connections = connections
        self._keeps_ends = keeps_ends
        self.ends: list[tuple[array[int], ...]] = []
        """With `keeps_ends`: for each round, the instants at which answers ended, by tally. Handovers and drains have
        an empty tuple."""
        self._done: list[Round] = []
        self.tallies = tuple(Tally(self, name) for name in parts or ("",))
        self._steps: dict[tuple[str, str], Tally] = {}
        """Tallies of journeys' steps, by (part, step). Rounds do not include them, because `tallies` count whole
        journeys."""
        self.next_tally: Callable[[], Tally] = lambda: self.tallies[0]
        """Chooses the tally that counts a request that cannot be sent."""
        self.paces = connections > 0 or keeps_ends
        """Whether tallies keep the instants at which answers end."""
        self.index = -1
        """The current stretch's index. -1 in the warm-up, and the number of stretches in the drain."""
        self.opened_ns = 0
        """When the current round began; 0 in the warm-up."""
        self.boundary_ns = _NEVER_NS
        self.leads = Leads()
        self.measured_from_ns = _NEVER_NS
        self._server_cpu_mark: int | None = None
        self._client_cpu_mark = self._code_mark = 0
        self.sockets = Sockets()
        self._opened_mark = self._closed_mark = 0
        self.finished_requests = 0
        self.due_count = 0
        """Open loop: requests that were due since the warm-up, including dropped ones."""
        self.first_due_ns = self.last_due_ns = 0
        """Open loop: when the first and the last of the requests in `due_count` were due."""
        self.uncounted_ns = 0
        """Journeys' time that does not count, such as pauses."""
        self.code_ns = 0
        """How long journeys' code occupied the event loop."""
        self.paths: set[tuple[str, str]] = set()
        """Methods and paths of requests through an httpx client."""
        self.paths_left = MOST_PATHS

    def begin(self, first_round_ns: int) -> None:
        self.boundary_ns = self.measured_from_ns = first_round_ns
        self.leads = Leads(first_round_ns, self._stretches[-1][0] if self._stretches else 0)

    def due(self, due_ns: int, now_ns: int, patience_ns: int) -> bool:
        """Counts an open loop's due request, and returns whether to send it.

        A request that is more than `patience_ns` late is not sent, and fails as dropped.
        """
        if due_ns >= self.measured_from_ns:
            self.due_count += 1
            self.first_due_ns = self.first_due_ns or due_ns
            self.last_due_ns = due_ns
        if now_ns - due_ns <= patience_ns:
            return True
        example = f"no connection was free within {format_duration(patience_ns)} after the request was due"
        self.next_tally().failure("dropped", example, now_ns, due_ns=due_ns)
        return False

    def not_sent(self, example: str, ended_ns: int, *, count: int) -> None:
        for tally, number in Counter(self.next_tally() for _ in range(count)).items():
            tally.failure("not sent", example, ended_ns, count=number)

    def advance(self, now_ns: int) -> None:
        """Closes the rounds that are over at `now_ns`."""
        while now_ns >= self.boundary_ns:
            if self.index >= 0:
                self._close(self.boundary_ns, self._stretches[self.index][1])
            else:
                for tally in self.tallies:
                    tally.end_warm_up()
            self.index += 1
            self._open(self.boundary_ns)

    def finish(self, now_ns: int) -> tuple[Round, ...]:
        self.advance(now_ns)
        if self.index >= 0 and not self._stretches:
            self._close(now_ns, Phase.ROUND)
        elif self.index >= len(self._stretches):
            self._close(now_ns, Phase.DRAIN)
        for tally in (*self.tallies, *self._steps.values()):
            tally.settle()
        for index, round_ in enumerate(self._done):
            carried = sum((tally.rounds[index].carried for tally in self.tallies), NOTHING_CARRIED)
            self._done[index] = replace(round_, carried=carried)
        return tuple(self._done)

    def overlaps(self, started_ns: int, ended_ns: int) -> Iterator[tuple[int, int]]:
        """Yields (a round's index, ns for which the request was under way in it), the newest round first."""
        index, opened_ns, until_ns = self.index, self.opened_ns, max(ended_ns, self.opened_ns)
        while index >= 0:
            yield index, until_ns - max(opened_ns, started_ns)
            if started_ns >= opened_ns:
                return
            index, until_ns = index - 1, opened_ns
            opened_ns = self.measured_from_ns + (self._stretches[index - 1][0] if index > 0 else 0)

    def subjects(self) -> dict[tuple[str, str], tuple[Round, ...]]:
        """Returns rounds by (part, step). An empty text stands for the whole load or part."""
        parts = {(tally.name, ""): tally for tally in self.tallies if tally.name}
        return {subject: tuple(tally.rounds) for subject, tally in (parts | self._steps).items()}

    def warm_ups(self) -> dict[str, WarmUp]:
        return {tally.name: tally.warm_up() for tally in self.tallies}

    def step(self, part: str, name: str) -> Tally:
        """Returns a step's tally, which the first call makes. Raises ValueError for too many steps."""
        found = self._steps.get((part, name))
        if found is None:
            if sum(of == part for of, _ in self._steps) >= MOST_STEPS:
                raise ValueError(
                    f"a journey has at most {MOST_STEPS} steps, and {name!r} would be one more. Name each step by its "
                    "action, without data such as ids"
                )
            found = self._steps[part, name] = Tally(self, name)
            found.rounds += map(without_samples, self._done)
        return found

    @property
    def requests(self) -> int:
        """Successful requests in the current round."""
        return sum(tally.requests for tally in self.tallies)

    @property
    def failed(self) -> int:
        """Failed requests since the warm-up ended."""
        return sum(tally.failed for tally in self.tallies)

    @property
    def last_end_ns(self) -> int:
        return max(tally.last_end_ns for tally in self.tallies)

    @property
    def last_round(self) -> Round | None:
        """The newest finished round that is neither a handover nor a drain."""
        return next((round_ for round_ in reversed(self._done) if round_.phase is Phase.ROUND), None)

    @property
    def phase(self) -> str:
        """`warm-up`, `round` or `drain`."""
        if self.index < 0:
            return "warm-up"
        return "drain" if self._stretches and self.index >= len(self._stretches) else "round"

    def _open(self, start_ns: int) -> None:
        for tally in (*self.tallies, *self._steps.values()):
            tally.begin()
        self.opened_ns = start_ns
        ends = self.index < len(self._stretches)
        self.boundary_ns = self.measured_from_ns + self._stretches[self.index][0] if ends else _NEVER_NS
        self._server_cpu_mark = self._server_cpu()
        self._client_cpu_mark, self._code_mark = process_time_ns(), self.code_ns
        sockets = self.sockets
        self._opened_mark, self._closed_mark, sockets.most_open = sockets.opened, sockets.closed_said, sockets.open

    def _typical_rps(self, tallies: Sequence[Tally], phase: Phase) -> float | None:
        if phase is not Phase.ROUND or self._keeps_ends or not self.paces:
            return None
        return typical_rps([tally.ends for tally in tallies], self._connections)

    def _close(self, end_ns: int, phase: Phase) -> None:
        typical = self._typical_rps(self.tallies, phase)  # before the server's CPU time is read, as it takes a moment
        if self._keeps_ends:
            self.ends.append(tuple(tally.ends for tally in self.tallies) if phase is Phase.ROUND else ())
        ended = [
            tally.end(
                boot=self._boot,
                index=self.index,
                phase=phase,
                started_ns=self.opened_ns,
                ended_ns=end_ns,
                typical_rps=self._typical_rps((tally,), phase),
            )
            for tally in (*self.tallies, *self._steps.values())
        ]
        before_ns, after_ns = self._server_cpu_mark, self._server_cpu()
        whole = Round.summed(
            ended[: len(self.tallies)],
            typical_rps=typical,
            server_cpu_ns=None if before_ns is None or after_ns is None else max(0, after_ns - before_ns),
            client_cpu_ns=process_time_ns() - self._client_cpu_mark,
            code_ns=self.code_ns - self._code_mark,
            most_open=self.sockets.most_open,
            opened=self.sockets.opened - self._opened_mark,
            closed_said=self.sockets.closed_said - self._closed_mark,
        )
        self._done.append(whole)
        self.finished_requests += whole.requests


_NEVER_NS = 1 << 62


# --- Merges the rounds of several generators, as if one generator had made the whole load; pure

Ends: TypeAlias = "Sequence[Sequence[array[int]]]"
"""For each round, the instants at which answers ended, by tally."""


def merged_rounds(
    shares: Mapping[int, Sequence[Round]],
    *,
    is_whole: bool = True,
    ends: Sequence[Ends] | None = None,
    connections: int = 0,
) -> tuple[Round, ...]:
    """Returns a load's rounds, joined from its generators' rounds. `shares` has these rounds by generator number.

    With `is_whole` (false for parts and steps), each round also keeps what each generator did. With `ends`, which has
    one item per generator, rounds get a typical rate. `connections` is then the number of all generators' connections.
    """
    at: dict[int, dict[int, Round]] = {}
    for number, rounds in sorted(shares.items()):
        for round_ in rounds:
            at.setdefault(round_.index, {})[number] = round_
    merged = []
    for place, (_, each) in enumerate(sorted(at.items())):
        own: dict[str, Any] = {}
        if is_whole:
            own["generators"] = tuple(
                GeneratorRound(number=number, requests=part.requests, failed=part.failed, cpu_ns=part.client_cpu_ns)
                for number, part in each.items()
            )
        if ends is not None and next(iter(each.values())).phase is Phase.ROUND:
            ended = [tally for of_one in ends if place < len(of_one) for tally in of_one[place]]
            own["typical_rps"] = typical_rps(ended, connections)
        merged.append(Round.summed(tuple(each.values()), **own))
    return tuple(merged)


def merged_leads(leads: Sequence[LeadTimes], *, span_ns: int) -> LeadTimes | None:
    """Returns all generators' latencies over time. None if no request was due."""
    whole = Leads(0, span_ns)
    for part in leads:  # all generators have the same stretches
        whole.add(part)
    return whole.taken()
