"""Reads a sampling profiler's stacks, and computes each function's cost. `blame` finds the cause of a growth."""

from __future__ import annotations

import math
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import lru_cache
from pathlib import Path, PurePath
from statistics import fmean
from typing import TypeAlias

from pytest_fileperf.host.profiler import RATE_HZ, CpuTime, Sampled

_FRAME = re.compile(r"(?P<function>.*) \((?P<file>.*?)(?::(?P<line>\d+))?\)")
_INSTALLED = re.compile(r".*/(?:site|dist)-packages/(.*)")
_LIBRARIES = (
    _INSTALLED,
    re.compile(r".*/lib/python3[^/]*/(.*)"),
    re.compile(r"[A-Za-z]:/.*/Lib/(.*)"),
    re.compile(r"(<.*)"),
    re.compile(r"(?:.*/)?(pytest_fileperf/serve/.*)"),  # around every app, and part of none
)
"""Patterns for files outside the project. The group is the file's name within its library."""
_THREAD = re.compile(r"thread \(\w+\)(?:: [^;]*)?(?:;|\Z)")
_FEW_SAMPLES = 10
"""Fewer samples do not show where threads spend their time. The sampler pauses the main thread first, so it hardly ever
sees other threads' short work."""
_POLLING = re.compile(r"(?:.*\.)?run .*/asyncio/runners\.py")
"""The innermost function of a main thread whose event loop is in C. Samples mostly catch such a thread while it waits
for a core or for Python's lock."""
_MOST_SEEN = 0.75
"""Samples suffice if they stand for at least this share of the threads' CPU time."""
SMALL_SHARE = 0.05
"""Threads and child processes with a smaller share of the CPU time may stay unknown."""
_WAITING = re.compile(
    r"(?:.*\.)?(?:wait|_wait_for_tstate_lock|join) .*/threading\.py"
    r"|_worker .*/concurrent/futures/thread\.py"
    r"|(?:.*\.)?select .*/selectors\.py"
    r"|(?:.*\.)?(?:wait|poll) .*/multiprocessing/\w+\.py"
    r"|(?:.*\.)?wait (?:.*/)?pytest_fileperf/host/supervisor\.py"
)
"""Innermost functions of threads without work. py-spy leaves out idle threads, but not a thread that it has just
paused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A function in a stack. Frames of both versions are equal even if their `line` differs."""

    function: str
    """The name with its class and outer functions, as in `Cart.total`. py-spy before 0.4.3 knows only `total`."""
    file: str
    """The path from py-spy. After `place_of`, it is relative to the project or the packages."""
    line: int = field(compare=False)
    """The function's first line; 0 if unknown."""
    apart: int = 0
    """The line again, which keeps functions with the same name apart. 0 after `place_of`."""
    own_code: bool = False
    """After `place_of`: whether the function belongs to the project, not to a package or the standard library."""
    package: str = ""
    """After `place_of`: the function's installed package; empty for the project and the standard library."""


Stack: TypeAlias = tuple[Frame, ...]
"""Functions that call each other, the outermost first."""


class Threads(Enum):
    """How well samples show the work of threads other than the main thread."""

    IDLE = auto()
    """These threads have next to no CPU time."""
    SEEN = auto()
    """Samples show these threads' functions."""
    UNSEEN = auto()
    """Samples do not show these threads' functions. So all their CPU time counts as one function."""


OTHER_THREADS = Frame(function="other threads (functions unknown)", file="", line=0)
CHILD_PROCESSES = Frame(function="child processes (functions unknown)", file="", line=0)
"""Programs that the server starts, such as `git` or `ffmpeg`. They end too soon for samples, or are not Python."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The samples of one version's worker processes under load."""

    stacks: Mapping[Stack, float]
    """Number of samples of each stack, weighted by the threads' CPU time."""
    samples: int
    requests: int
    """How many requests were answered while the profiler took samples."""
    cpu_per_request: float | None
    """CPU seconds, measured without a profiler. None if unknown: `cost` then uses the number of samples."""
    torn: bool = False
    """Whether a stack may mix functions of different moments, because the process kept running during a sample."""
    torn_stacks: frozenset[Stack] = frozenset()
    """Stacks that may mix functions of different moments, if only some stacks do."""
    notes: tuple[str, ...] = ()
    """Why some processes could not be sampled, one text for each reason."""

    @property
    def seconds(self) -> float:
        """The CPU time that the samples stand for."""
        return self.samples / RATE_HZ

    @property
    def cost(self) -> float:
        """CPU seconds per request."""
        if self.cpu_per_request is not None:
            return self.cpu_per_request
        return self.seconds / self.requests if self.requests else 0.0

    @property
    def per_sample_s(self) -> float:
        """CPU seconds per request that one sample stands for."""
        return self.cost / self.samples if self.samples else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCost:
    frame: Frame
    cost_s: float
    """CPU seconds per request, including called functions."""
    self_s: float
    """CPU seconds per request, without called Python functions."""


def profile_of(
    looks: Sequence[Sampled],
    *,
    requests: int,
    cpu_per_request: float | None = None,
    threads: Threads = Threads.SEEN,
    has_unseen: bool = False,
) -> Profile:
    """Returns a version's profile from its looks (runs of the sampler). `threads` is the result of `threads_of`.

    Samples are weighted by CPU time, because the sampler also sees threads that wait for a core. With `has_unseen`,
    child processes with unknown functions get their share of that time. Raises ValueError for a line that is not a
    stack.
    """
    stacks: dict[Stack, float] = defaultdict(float)
    torn_stacks = set[Stack]()
    samples = 0
    unseen_share = fmean(look.unseen_share for look in looks) if has_unseen else 0.0
    for look, text, spent in _texts(looks):
        main, others = _seen(text, threads)
        if look.by_lock:
            torn_stacks |= others.keys()
        counts, weights = (main.total(), others.total()), (1.0, 1.0)
        samples += sum(counts)
        if spent is not None:
            main_weight, others_weight = (sum(counts) * cpu_s / sum(spent) for cpu_s in spent)
            if threads is Threads.UNSEEN and counts[0]:
                others = Counter({(OTHER_THREADS,): 1})
                weights = main_weight / counts[0], others_weight
            elif min(counts) >= _FEW_SAMPLES:
                weights = main_weight / counts[0], others_weight / counts[1]
        for own, weight in zip((main, others), weights, strict=True):
            for stack, number in own.items():
                stacks[stack] += number * weight * (1 - unseen_share)
    if unseen_share:
        stacks[CHILD_PROCESSES,] = samples * unseen_share
    return Profile(
        stacks=dict(stacks),
        samples=samples,
        requests=requests,
        cpu_per_request=cpu_per_request,
        torn=any(look.torn for look in looks),
        torn_stacks=frozenset(torn_stacks),
        notes=tuple(dict.fromkeys(note for look in looks for note in look.notes)),
    )


def threads_of(looks: Iterable[Sampled]) -> Threads:
    working = [(text, spent) for _, text, spent in _texts(looks) if spent and _work(spent)]
    known = all(_are_known(_seen(text, Threads.SEEN)[1], spent[1] * RATE_HZ) for text, spent in working)
    return Threads.IDLE if not working else Threads.SEEN if known else Threads.UNSEEN


def threads_work(look: Sampled) -> bool:
    """Returns whether threads other than the main thread had a noticeable part of the CPU time."""
    return any(spent is not None and _work(spent) for spent in look.cpu_s)


def _work(spent: CpuTime) -> bool:
    return spent[1] >= SMALL_SHARE * sum(spent)


def _are_known(seen: Counter[Stack], expected: float) -> bool:
    """Returns whether samples show the threads' functions. By CPU time, there should be `expected` samples."""
    leaves: Counter[Frame] = Counter()
    for stack, count in seen.items():
        leaves[stack[-1]] += count
    # The other samples show threads that wait for a core.
    few_wait = _MOST_SEEN * seen.total() <= expected + 3 * math.sqrt(expected)
    # However many wait, the function seen most has most of the CPU time.
    one_works = seen.total() - max(leaves.values(), default=0) <= (1 - _MOST_SEEN) * expected
    return seen.total() >= _FEW_SAMPLES and (few_wait or one_works)


def threads_fit(look: Sampled) -> bool:
    """Returns whether the samples cover most CPU time of the threads other than the main thread."""
    for _, text, spent in _texts([look]):
        expected = spent[1] * RATE_HZ if spent is not None and _work(spent) else 0.0
        if _seen(text, Threads.SEEN)[1].total() < _MOST_SEEN * expected - 1.5 * math.sqrt(expected):
            return False
    return True


def with_threads(look: Sampled, held: Sampled) -> Sampled:
    """Returns `look` with the stacks of all but the main thread from `held`, if `threads_fit(held)`.

    `held` has only samples of threads that had Python's lock.
    """
    if not threads_fit(held) or len(held.collapsed) != len(look.collapsed):
        return look
    own = [
        [line for line in main.splitlines() if _main(line)] + [line for line in threads.splitlines() if not _main(line)]
        for main, threads in zip(look.collapsed, held.collapsed, strict=True)
    ]
    return replace(look, collapsed=tuple(map("\n".join, own)), by_lock=True)


def _main(line: str) -> bool:
    thread = _THREAD.match(line)
    return thread is None or "MainThread" in thread[0]


def _texts(looks: Iterable[Sampled]) -> Iterator[tuple[Sampled, str, CpuTime | None]]:
    for look in looks:
        for text, spent in zip(look.collapsed, look.cpu_s, strict=True):
            yield look, text, spent


def _seen(text: str, threads: Threads) -> tuple[Counter[Stack], Counter[Stack]]:
    """Returns samples by stack: (main thread's, all other threads'). Threads without work are left out."""
    seen: tuple[Counter[Stack], Counter[Stack]] = (Counter(), Counter())
    for is_main, stack, count in stacks_in(text):
        place = f"{stack[-1].function} {_with_slashes(stack[-1].file)}"
        polls = threads is not Threads.IDLE and _POLLING.fullmatch(place)
        if not polls and not _WAITING.fullmatch(place):
            seen[not is_main][stack] += count
    return seen


def stacks_in(text: str) -> Iterator[tuple[bool, Stack, int]]:
    """Yields (is main thread, stack, number of samples) per line from py-spy. Raises ValueError for other lines."""
    for line in text.splitlines():
        words, _, count = line.rpartition(" ")
        if not count.isdecimal():
            raise ValueError(f"{line[:80]!r} isn't a stack with a count of samples from py-spy")
        thread = _THREAD.match(words)
        words = words[thread.end() :] if thread else words
        if words:  # else the sample was torn: the thread ran without a stack
            yield _main(line), tuple(map(_frame, words.split(";"))), int(count)


def costs(profile: Profile, *, root: Path) -> tuple[FunctionCost, ...]:
    """Returns every function's cost, the largest first. `root` is the project's directory."""
    places = {frame: place_of(frame, root) for stack in profile.stacks for frame in stack}
    whole_s: dict[Frame, float] = defaultdict(float)
    own_s: dict[Frame, float] = defaultdict(float)
    for stack, count in profile.stacks.items():
        own_s[places[stack[-1]]] += count * profile.per_sample_s
        for frame in {places[frame] for frame in stack}:
            whole_s[frame] += count * profile.per_sample_s
    found = (FunctionCost(frame=frame, cost_s=cost_s, self_s=own_s[frame]) for frame, cost_s in whole_s.items())
    return tuple(sorted(found, key=lambda cost: (-cost.cost_s, -cost.self_s, cost.frame.file, cost.frame.function)))


def place_of(frame: Frame, root: Path) -> Frame:
    """Returns the frame with its path relative to the project (`root`) or its library, as in the other version."""
    file = _with_slashes(frame.file)
    for library in _LIBRARIES:
        match = library.fullmatch(file)
        if match is not None:
            package = match[1].partition("/")[0] if library is _INSTALLED else ""
            return replace(frame, file=match[1], package=package, apart=0)
    inner = _inside(file, str(root))
    if inner is None and PurePath(file).is_absolute():  # file or root may be a link
        inner = _inside(os.path.realpath(file), os.path.realpath(root))
    return replace(frame, file=file if inner is None else inner, own_code=inner is not None, apart=0)


def _inside(file: str, root: str) -> str | None:
    try:
        return PurePath(_with_slashes(file)).relative_to(_with_slashes(root)).as_posix()
    except ValueError:
        return None


@lru_cache(maxsize=4096)
def _frame(word: str) -> Frame:
    match = _FRAME.fullmatch(word)
    if match is None:
        return Frame(function=word, file="", line=0)
    line = int(match["line"] or 0)
    return Frame(function=match["function"], file=match["file"], line=line, apart=line)


def _with_slashes(path: str) -> str:
    return path.replace("\\", "/")
