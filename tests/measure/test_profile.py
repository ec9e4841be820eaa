"""Profiles as they are read, what functions cost, and which functions a growth of CPU per request is put down to."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_fileperf.host.profiler import CpuTime, Sampled
from pytest_fileperf.measure.blame import FunctionGrowth, growth
from pytest_fileperf.measure.stacks import (
    CHILD_PROCESSES,
    Frame,
    Profile,
    Stack,
    Threads,
    costs,
    place_of,
    profile_of,
    threads_fit,
    threads_of,
    threads_work,
    with_threads,
)

ROOT = Path("/work/app")
ELSEWHERE = Path("/tmp/fileperf-base/app")
SITE = "/venv/lib/python3.12/site-packages"
FILES = {
    "boot": "/opt/pytest_fileperf/serve/stage2_server.py",
    "run_asgi": f"{SITE}/uvicorn/protocols/http/httptools_impl.py",
    "parse": f"{SITE}/uvicorn/protocols/http/httptools_impl.py",
    "route": f"{SITE}/starlette/routing.py",
    "render": f"{SITE}/starlette/responses.py",
    "gzip": f"{SITE}/starlette/middleware/gzip.py",
    "dumps": "/usr/lib/python3.12/json/__init__.py",
    "encode": "/usr/lib/python3.12/json/encoder.py",
    "bootstrap": "/usr/lib/python3.12/threading.py",
    "work": f"{SITE}/anyio/_backends/_asyncio.py",
    "wrapped": "/usr/lib/python3.12/functools.py",
}
"""What is not here is the project's own."""

BASE = {
    "boot": 50,
    "boot > parse": 100,
    "boot > run_asgi": 100,
    "boot > run_asgi > route": 150,
    "boot > run_asgi > route > handler": 100,
    "boot > run_asgi > route > handler > load": 150,
    "boot > run_asgi > route > handler > load > dumps > encode": 50,
    "boot > run_asgi > route > render": 150,
    "boot > run_asgi > route > render > dumps > encode": 150,
}
"""1,000 samples, 100 µs per request: 100 ns each."""
HANDLER = "boot > run_asgi > route > handler"
SAMPLE_S = 100e-9


def frame(name: str, root: Path) -> Frame:
    return Frame(function=name, file=FILES.get(name, f"{root}/main.py"), line=10)


def profile(counts: Mapping[str, int], *, root: Path = ROOT) -> Profile:
    """A profile with so many samples of each stack, of `SAMPLE_S` each."""
    stacks: Counter[Stack] = Counter()
    for names, count in counts.items():
        stacks[tuple(frame(name, root) for name in names.split(" > "))] += count
    samples = stacks.total()
    return Profile(stacks=stacks, samples=samples, requests=50_000, cpu_per_request=samples * SAMPLE_S)


def with_more(more: Mapping[str, int]) -> dict[str, int]:
    return dict(Counter(BASE) + Counter(more))


def beneath(wrapper: str, at: str, counts: Mapping[str, int]) -> dict[str, int]:
    """The same, with a function between `at` and what it calls."""
    return {names.replace(f"{at} > ", f"{at} > {wrapper} > "): count for names, count in counts.items()}


def blamed(now: Mapping[str, int], base: Mapping[str, int] = BASE) -> tuple[FunctionGrowth, ...]:
    return growth(profile(base), profile(now), base_root=ROOT, now_root=ROOT)


CASES = {
    "a function was added": (with_more({f"{HANDLER} > burn": 200}), ["burn"]),
    "a function got slower": (with_more({f"{HANDLER} > load": 200}), ["load"]),
    "the handler itself got slower": (with_more({HANDLER: 200}), ["handler"]),
    "what it does lies in a library": (with_more({f"{HANDLER} > audit > dumps > encode": 200}), ["dumps"]),
    "a library is called from a function that was there": (
        with_more({f"{HANDLER} > load > dumps > encode": 200}),
        ["dumps"],
    ),
    "a library got slower beneath everything": (with_more({"boot > run_asgi > route > render": 300}), ["render"]),
    "half of it in each of two functions": (
        with_more({f"{HANDLER} > slow > first": 100, f"{HANDLER} > slow > second": 100}),
        ["first", "second"],
    ),
    "nearly all of it one call further in": (
        with_more({f"{HANDLER} > slow": 5, f"{HANDLER} > slow > inner": 200}),
        ["inner"],
    ),
    "all of it some calls further in": (
        with_more({f"{HANDLER} > z_outer > y_middle > x_inner > dumps": 200}),
        ["dumps"],
    ),
    "all of it some calls further in, by another name": (
        with_more({f"{HANDLER} > a_outer > b_inner": 200}),
        ["b_inner"],
    ),
    "a decorator of a library around it": (with_more({f"{HANDLER} > wrapped > burn": 200}), ["burn"]),
    "it calls itself": (
        with_more({f"{HANDLER} > walk": 50, f"{HANDLER} > walk > walk": 50, f"{HANDLER} > walk > walk > walk": 100}),
        ["walk"],
    ),
    "two functions were added": (
        with_more({f"{HANDLER} > burn": 200, "boot > run_asgi > route > check": 100}),
        ["burn", "check"],
    ),
    "another one got faster": (
        {**with_more({f"{HANDLER} > burn": 300}), f"{HANDLER} > load": 50},
        ["burn"],
    ),
    "own middleware around everything": (
        Counter(beneath("middleware", "run_asgi", BASE)) + Counter({"boot > run_asgi > middleware": 200}),
        ["middleware"],
    ),
    "a library's middleware around everything": (
        Counter(beneath("gzip", "run_asgi", BASE)) + Counter({"boot > run_asgi > gzip": 200}),
        ["gzip"],
    ),
    "middleware that costs nothing, and a slow function": (
        beneath("middleware", "run_asgi", with_more({f"{HANDLER} > burn": 200})),
        ["burn"],
    ),
    "everything is slower by as much": ({names: count * 12 // 10 for names, count in BASE.items()}, []),
    "the loop around everything does less": (
        {
            names: count // 10 if names in ("boot", "boot > parse") else count * 27 // 20
            for names, count in BASE.items()
        },
        [],
    ),
    "a little more of a library's function": (with_more({"boot > parse": 90}), []),
    "a little more of a function of one's own": (with_more({f"{HANDLER} > load": 150}), ["load"]),
    "nothing changed": (BASE, []),
    "it got faster": ({**BASE, f"{HANDLER} > load": 50}, []),
    "less than the noise of sampling": (with_more({f"{HANDLER} > load": 20}), []),
}


@pytest.mark.parametrize("now,functions", CASES.values(), ids=CASES)
def test_the_cause_is_named(now: Mapping[str, int], functions: list[str]) -> None:
    assert [found.frame.function for found in blamed(now) if found.growth_s > 0] == functions


def test_what_is_said_of_a_function() -> None:
    (found,) = blamed(with_more({f"{HANDLER} > audit > dumps > encode": 200}))

    assert (found.frame.file, found.frame.line, found.frame.own_code) == ("json/__init__.py", 10, False)
    assert found.growth_s == pytest.approx(20e-6)
    assert found.share == pytest.approx(1)
    assert (found.base_s, found.now_s) == pytest.approx((20e-6, 40e-6))
    assert (found.base_self_s, found.now_self_s) == pytest.approx((20e-6, 40e-6))  # with the library's inner functions
    assert found.caller == Frame(function="audit", file="main.py", line=10, own_code=True)


def test_recursion_counts_once_and_what_was_moved_beneath_a_function_is_not_its_growth() -> None:
    (found,) = blamed(with_more({f"{HANDLER} > walk > walk > walk": 200}))
    assert found.now_s == pytest.approx(20e-6)
    (found,) = blamed(Counter(beneath("middleware", "run_asgi", BASE)) + Counter({"boot > run_asgi > middleware": 200}))
    assert (found.growth_s, found.now_s) == pytest.approx((20e-6, 95e-6))
    (found,) = blamed({**BASE, HANDLER: 0, f"{HANDLER} > helper": 300})
    assert found.frame.function == "helper"
    assert found.growth_s == pytest.approx(20e-6)


@pytest.mark.parametrize(
    "more, sizes",
    [
        pytest.param({f"{HANDLER} > burn": 200, f"{HANDLER} > load": 200}, {"burn": 20, "load": 20}, id="not twice"),
        *(
            pytest.param(
                {f"{HANDLER} > burn": first, "boot > run_asgi > route > check": 500 - first},
                {"burn": first / 10, "check": 50 - first / 10},
                id=f"{first} of 500",
            )
            for first in (300, 200)
        ),
        pytest.param({f"{HANDLER} > burn": 300, f"{HANDLER} > load": -100}, {"burn": 30, "load": -10}, id="one saved"),
    ],
)
def test_growths_have_their_own_sizes_and_what_was_saved_comes_last(
    more: Mapping[str, int], sizes: Mapping[str, float]
) -> None:
    counts = Counter(BASE)
    counts.update(more)
    found = blamed(counts)
    assert {one.frame.function: one.growth_s * 1e6 for one in found} == pytest.approx(sizes)
    assert [one.growth_s < 0 for one in found] == sorted(one.growth_s < 0 for one in found)


def test_a_function_is_the_same_in_another_directory() -> None:
    now = with_more({f"{HANDLER} > burn": 200})

    (found,) = growth(profile(BASE, root=ELSEWHERE), profile(now), base_root=ELSEWHERE, now_root=ROOT)

    assert (found.frame.function, found.frame.file) == ("burn", "main.py")
    assert found.growth_s == pytest.approx(20e-6)


def test_of_torn_stacks_only_the_project_s_own_functions_are_believed() -> None:
    now = profile(with_more({"boot > run_asgi > route > render": 300}))

    assert growth(profile(BASE), replace(now, torn=True), base_root=ROOT, now_root=ROOT) == ()


@pytest.mark.parametrize("more, growths", [(200, [20e-6]), (80, [])])
def test_samples_tell_where_cpu_was_not_measured_if_they_are_no_chance(more: int, growths: list[float]) -> None:
    base, now = (replace(profile(counts), cpu_per_request=None) for counts in (BASE, with_more({HANDLER: more})))
    found = growth(base, now, base_root=ROOT, now_root=ROOT)
    assert base.cost == pytest.approx(100e-6)
    assert [one.growth_s for one in found] == pytest.approx(growths)


@pytest.mark.parametrize("stacks", [{}, {(Frame(function="handler", file="/work/app/main.py", line=1),): 1}])
def test_few_samples_blame_nobody(stacks: dict[Stack, int]) -> None:
    few = Profile(stacks=stacks, samples=len(stacks), requests=10, cpu_per_request=1.0)

    assert growth(few, replace(few, cpu_per_request=2.0), base_root=ROOT, now_root=ROOT) == ()
    assert growth(profile(BASE), few, base_root=ROOT, now_root=ROOT) == ()
    assert growth(few, profile(BASE), base_root=ROOT, now_root=ROOT) == ()


def test_the_noise_of_sampling_blames_nobody() -> None:
    """Samples of equal sides, drawn by chance, where CPU per request is said to have grown."""
    draw = random.Random(1)
    named = 0
    for _ in range(100):
        base, now = (profile(Counter(draw.choices(list(BASE), list(BASE.values()), k=400))) for _ in range(2))
        named += bool(growth(base, replace(now, cpu_per_request=1.1 * base.cost), base_root=ROOT, now_root=ROOT))
    assert named <= 1


@pytest.mark.parametrize("samples,least", [(400, 95), (200, 90)])
def test_samples_drawn_by_chance_name_a_function_that_adds_a_fifth(samples: int, least: int) -> None:
    draw = random.Random(2)
    slow = with_more({f"{HANDLER} > burn": 200})
    first = []
    for _ in range(100):
        base, now = (
            replace(
                profile(Counter(draw.choices(list(counts), list(counts.values()), k=samples))), cpu_per_request=cost
            )
            for counts, cost in ((BASE, 100e-6), (slow, 120e-6))
        )
        found = growth(base, now, base_root=ROOT, now_root=ROOT)
        first.append(found[0].frame.function if found else None)
    assert first.count("burn") >= least


MORE_CALLS = f"{HANDLER} > load > dumps > encode"
MADE_UP: dict[str, tuple[Mapping[str, float], Mapping[str, float], Mapping[str, float]]] = {
    "a new function": ({}, {f"{HANDLER} > burn": 1}, {"burn": 1}),
    "a slower function": ({}, {f"{HANDLER} > load": 1}, {"load": 1}),
    "the handler itself": ({}, {HANDLER: 1}, {"handler": 1}),
    "a library's function by one's own": ({}, {f"{HANDLER} > audit > dumps": 1}, {"audit": 1}),
    "a library's function by none": ({}, {"boot > run_asgi > route > render": 1}, {"render": 1}),
    "10 calls for one": ({MORE_CALLS: 0.1}, {MORE_CALLS: 1}, {"load": 1}),
    "10 calls for one, which is nearly all": ({MORE_CALLS: 5}, {MORE_CALLS: 45}, {"load": 45}),
    "two causes": ({}, {f"{HANDLER} > burn": 0.6, MORE_CALLS: 0.4}, {"burn": 0.6, "load": 0.4}),
    "two causes, and one saved": (
        {"boot > run_asgi > route > render > parse": 0.5},
        {"boot > run_asgi > route > render > parse": -0.5, "boot > gzip": 1, "boot > check": 0.6},
        {"gzip": 1, "check": 0.6},
    ),
    "five callers": (
        {},
        {f"boot > run_asgi > route > handler_{number} > validate": 0.2 for number in range(5)},
        {"validate": 1},
    ),
}
"""What the old side has, in units; what the new one has more than that; and what that is put down to."""


def drawn(counts: Mapping[str, float], samples: int, draw: random.Random) -> Profile:
    """A profile as a profiler sees it that takes about so many samples; a count is 100 ns per request."""
    chosen = Counter(draw.choices(list(counts), list(counts.values()), k=samples))
    return replace(profile(chosen), cpu_per_request=sum(counts.values()) * SAMPLE_S)


@pytest.mark.parametrize("unit", [300, 3000])
@pytest.mark.parametrize("around", ["as before", "middleware around everything", "in another thread", "elsewhere less"])
def test_made_up_growths_are_put_down_to_their_causes(around: str, unit: int) -> None:
    """Of samples drawn by chance none is put down to another function, and nearly all have the right size."""
    draw = random.Random(unit)
    found: Counter[str] = Counter()
    for before, more, truth in MADE_UP.values():
        base = Counter(BASE) + Counter({names: round(units * unit) for names, units in before.items()})
        now = Counter(base)
        now.update({names: round(units * unit) for names, units in more.items()})
        if around == "middleware around everything":
            now = Counter(beneath("middleware", "boot", now))
        elif around == "in another thread":
            now = Counter(
                {names.replace("boot > run_asgi > route", "bootstrap > work > route"): n for names, n in now.items()}
            )
        elif around == "elsewhere less":
            base["boot > parse"] += 50
        blamed = growth(drawn(base, 900, draw), drawn(now, 900, draw), base_root=ROOT, now_root=ROOT)
        sizes: dict[str, float] = dict.fromkeys(truth, 0.0)
        for one in (one for one in blamed if one.growth_s > 0):
            caller = one.caller.function if one.caller is not None else ""
            name = caller if caller in truth else one.frame.function
            sizes[name] = sizes.get(name, 0.0) + one.growth_s / SAMPLE_S / unit
        close = all(abs(sizes[name] - size) <= 0.2 * sum(truth.values()) for name, size in truth.items())
        found["wrong" if sizes.keys() - truth.keys() else "right" if close else "small"] += 1
    assert found["wrong"] == 0
    assert found["right"] >= 8


@pytest.mark.parametrize("factor", [1.2, 2, 5])
def test_what_grew_evenly_blames_nobody(factor: float) -> None:
    draw = random.Random(3)
    counts = {names: count * factor for names, count in BASE.items()}
    for _ in range(20):
        assert growth(drawn(BASE, 900, draw), drawn(counts, 900, draw), base_root=ROOT, now_root=ROOT) == ()


def looked(*texts: str, cpu_s: Sequence[CpuTime | None] = (), unseen: float = 0.0) -> Sampled:
    """A look in which each process has such stacks and CPU time."""
    return Sampled(collapsed=texts, cpu_s=tuple(cpu_s) or (None,) * len(texts), torn=False, unseen_share=unseen)


def test_reading() -> None:
    text = (
        "<module> (/work/app/a b.py:1);Cart.total (/work/app/main.py:7) 3\n"
        "<module> (/work/app/a b.py:1) 2\n"
        "f (<frozen os>:9);native 1\n"
    )
    again = "<module> (/work/app/a b.py:1) 4\n"

    read = profile_of([looked(text, again)], requests=20)

    module = Frame(function="<module>", file="/work/app/a b.py", line=1, apart=1)
    assert read.stacks == {
        (module, Frame(function="Cart.total", file="/work/app/main.py", line=7, apart=7)): 3,
        (module,): 6,
        (Frame(function="f", file="<frozen os>", line=9, apart=9), Frame(function="native", file="", line=0)): 1,
    }
    assert (read.samples, read.seconds, read.requests) == (10, 0.05, 20)
    assert read.cost == pytest.approx(0.0025)
    assert read.per_sample_s == pytest.approx(0.00025)


@pytest.mark.parametrize(
    "innermost",
    [
        "wait (/usr/lib/python3.11/threading.py:295)",
        "Condition.wait (/usr/lib/python3.12/threading.py:320)",
        "_worker (/usr/lib/python3.12/concurrent/futures/thread.py:70)",
        "EpollSelector.select (/usr/lib/python3.12/selectors.py:451)",
        "Popen.poll (/usr/lib/python3.12/multiprocessing/popen_fork.py:24)",
        r"Condition.wait (C:\Python312\Lib\threading.py:320)",
        "follow_starter.<locals>.wait (/venv/pytest_fileperf/host/supervisor.py:31)",
        "wait (/venv/pytest_fileperf/host/supervisor.py:31)",
        "select (/usr/lib/python3.12/selectors.py:451)",
    ],
)
def test_threads_that_wait_for_something_to_do_do_not_count(innermost: str) -> None:
    text = f"run (/work/app/main.py:1);{innermost} 7\nrun (/work/app/main.py:1) 2\n"

    assert profile_of([looked(text)], requests=1).samples == 2


def test_threads_have_the_weight_of_their_cpu_time() -> None:
    """A thread that waits for the core is seen as often as one that has it."""
    lines = ("thread (1): MainThread;f (a.py:1) 60", *(f"thread ({n}): asyncio_{n};g (a.py:5) 10" for n in (2, 3)))
    text = "\n".join((*lines, ""))

    read = profile_of([looked(text, cpu_s=[(0.25, 0.75)])], requests=1)

    seen = {stack[-1].function: count for stack, count in read.stacks.items()}
    assert seen == pytest.approx({"f": 20, "g": 60})
    assert read.samples == 80
    unknown = profile_of([looked(text)], requests=1)
    assert {stack[-1].function: count for stack, count in unknown.stacks.items()} == {"f": 60, "g": 20}


@pytest.mark.parametrize(
    "pool,cpu_s,threads,fit",
    [
        # Of 200 samples 120 had no CPU time: they may be most of one function's.
        ({"g": 140, "h": 60}, 0.4, Threads.UNSEEN, True),
        ({"g": 185, "h": 15}, 0.4, Threads.SEEN, True),
        ({"g": 100, "h": 100}, 1.0, Threads.SEEN, True),
        # Calls that are too short for the profiler, or code that lets go of the lock.
        ({"g": 40, "h": 40}, 0.8, Threads.SEEN, False),
        ({"g": 4}, 0.4, Threads.UNSEEN, False),
        ({"g": 4}, 0.005, Threads.IDLE, True),
    ],
)
def test_threads_are_known_if_their_samples_tell_their_cpu_time(
    pool: Mapping[str, int], cpu_s: float, threads: Threads, fit: bool
) -> None:
    own = "".join(f"thread (2): pool;{name} (a.py:5) {count}\n" for name, count in pool.items())
    look = looked(f"thread (1): MainThread;f (a.py:1) 60\n{own}", cpu_s=[(0.3, cpu_s)])
    assert threads_of([look]) is threads
    assert threads_fit(look) == fit
    assert threads_work(look) == (cpu_s > 0.01)
    assert with_threads(look, look).by_lock == fit


def test_stacks_of_threads_are_those_of_a_look_by_the_lock() -> None:
    paused = looked("thread (1): MainThread;f (a.py:1) 60\nthread (2): pool;waits (a.py:5) 50\n", cpu_s=[(0.3, 0.2)])
    held = looked("thread (1): MainThread;g (a.py:1) 9\nthread (2): pool;h (a.py:7) 40\n", cpu_s=[(0.3, 0.2)])
    read = profile_of([with_threads(paused, held)], requests=1)
    assert {stack[-1].function for stack in read.stacks} == {"f", "h"}
    assert {stack[-1].function for stack in read.torn_stacks} == {"h"}


def test_threads_that_were_hardly_seen_are_one_function_with_their_cpu_time() -> None:
    """Their calls are shorter than a pause takes, which begins with the main thread."""
    text = "thread (1): MainThread;f (a.py:1) 60\nthread (2): asyncio_2;g (a.py:5) 4\n"
    working, idle = looked(text, cpu_s=[(0.1, 0.3)]), looked(text, text, cpu_s=[(0.97, 0.03), None])
    assert threads_of([working, idle]) is Threads.UNSEEN
    assert threads_of([idle, idle]) is Threads.IDLE

    read = profile_of([working], requests=1, threads=Threads.UNSEEN)

    seen = {stack[-1].function: count for stack, count in read.stacks.items()}
    assert seen == pytest.approx({"f": 16, "other threads (functions unknown)": 48})


def test_work_that_moved_to_a_new_function_in_a_thread_is_no_cause() -> None:
    """Threads that are seen on both sides are compared as the main thread is."""
    alike = {f"thread (1): MainThread;f ({ROOT}/a.py:1)": 200}
    endpoint = f"thread (2): pool;endpoint ({ROOT}/a.py:5)"
    dump, helper = (f"{endpoint};{name} ({ROOT}/a.py:{line})" for name, line in (("dump", 7), ("helper", 9)))
    base, now = (
        profile_of([looked(text, cpu_s=[(200 * 1e-5, cpu_s - 200 * 1e-5)])], requests=1, cpu_per_request=cpu_s)
        for own, cpu_s in (({endpoint: 320, dump: 200}, 7.2e-3), ({helper: 320, dump: 400}, 9.2e-3))
        for text in ["".join(f"{stack} {count}\n" for stack, count in {**alike, **own}.items())]
    )
    assert [each.frame.function for each in growth(base, now, base_root=ROOT, now_root=ROOT)] == ["dump"]


def test_a_loop_that_polls_is_not_seen_to_work_beside_other_threads() -> None:
    text = "thread (1): MainThread;run (/lib/python3.13/asyncio/runners.py:9) 7\nthread (1): MainThread;f (a.py:1) 2\n"
    found = {threads: profile_of([looked(text)], requests=1, threads=threads).samples for threads in Threads}
    assert found == {Threads.IDLE: 9, Threads.SEEN: 2, Threads.UNSEEN: 2}


def test_functions_of_the_project_may_be_called_wait_and_samples_without_a_function_do_not_count() -> None:
    assert profile_of([looked("wait (/work/app/main.py:1) 7\n 8\n")], requests=1).samples == 7


@pytest.mark.parametrize("line", ["f (a.py:1)", "f (a.py:1) many", "py-spy> Sampling"])
def test_other_texts_are_no_profiles(line: str) -> None:
    with pytest.raises(ValueError, match="isn't a stack with a count of samples"):
        profile_of([looked(line)], requests=1)


def test_nothing_seen_costs_nothing() -> None:
    nothing = profile_of([], requests=0)

    assert (nothing.samples, nothing.cost, nothing.per_sample_s) == (0, 0, 0)
    assert costs(nothing, root=ROOT) == ()


@pytest.mark.parametrize(
    "file,root,where,own_code",
    [
        ("/work/app/main.py", ROOT, "main.py", True),
        ("/work/app/core/cart.py", ROOT, "core/cart.py", True),
        ("/work/app/.venv/lib/python3.12/site-packages/jinja2/x.py", ROOT, "jinja2/x.py", False),
        ("/usr/lib/python3/dist-packages/yaml/x.py", ROOT, "yaml/x.py", False),
        ("/opt/python/lib/python3.12/json/encoder.py", ROOT, "json/encoder.py", False),
        (r"C:\Python312\Lib\json\encoder.py", ROOT, "json/encoder.py", False),
        (r"C:\work\app\main.py", Path(r"C:\work\app"), "main.py", True),
        ("/elsewhere/main.py", ROOT, "/elsewhere/main.py", False),
        ("<frozen os>", ROOT, "<frozen os>", False),
        ("<string>", ROOT, "<string>", False),
        ("", ROOT, "", False),
        (
            "/work/app/lent/pytest_fileperf/serve/stage2_server.py",
            ROOT,
            "pytest_fileperf/serve/stage2_server.py",
            False,
        ),
    ],
)
def test_whose_a_function_is(file: str, root: Path, where: str, own_code: bool) -> None:
    place = place_of(Frame(function="f", file=file, line=1), root)

    assert (place.file, place.own_code) == (where, own_code)
    assert place.package == (where.partition("/")[0] if "-packages/" in file else "")


def test_code_that_is_reached_by_way_of_a_link_is_the_project_s_own(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    for root, file in (("real", "link/main.py"), ("link", "real/main.py")):
        found = place_of(Frame(function="f", file=f"{tmp_path}/{file}", line=1), tmp_path / root)
        assert (found.file, found.own_code) == ("main.py", True)


def test_costs_are_those_of_each_function_with_and_without_what_it_calls() -> None:
    counts = {"boot > handler": 10, "boot > handler > walk > walk": 20, "boot > handler > walk > dumps": 30, "boot": 40}

    found = {
        one.frame.function: (one.cost_s / SAMPLE_S, one.self_s / SAMPLE_S) for one in costs(profile(counts), root=ROOT)
    }

    assert list(found) == ["boot", "handler", "walk", "dumps"]
    assert found == {
        "boot": pytest.approx((100, 40)),
        "handler": pytest.approx((60, 10)),
        "walk": pytest.approx((50, 20)),
        "dumps": pytest.approx((30, 30)),
    }


def test_what_no_sample_is_of_has_its_share_of_the_cost() -> None:
    look = looked("f (a.py:1) 20\n", unseen=0.75)
    read = profile_of([look], requests=1, cpu_per_request=0.010, has_unseen=True)

    assert {cost.frame.function: cost.cost_s for cost in costs(read, root=ROOT)} == pytest.approx(
        {CHILD_PROCESSES.function: 0.0075, "f": 0.0025}
    )


@pytest.mark.parametrize("more,named", [(40, ["burn"]), (300, ["burn", "parse"])])
def test_a_server_s_function_that_costs_a_little_more_where_it_is_called_is_no_cause(
    more: int, named: list[str]
) -> None:
    """Caches are colder after other work; called more often, it is a cause."""
    base = with_more({f"{HANDLER} > parse": 100})
    now = Counter(base) + Counter({f"{HANDLER} > burn": 400, f"{HANDLER} > parse": more})
    assert sorted(one.frame.function for one in blamed(now, base)) == named


@pytest.mark.parametrize("more,functions", [(200, ["burn"]), (300, ["burn", "handler"])])
def test_a_caller_of_the_greatest_cause_that_grew_by_little_itself_is_no_cause(more: int, functions: list[str]) -> None:
    """Its caches and its garbage may be those of the cause."""
    assert [each.frame.function for each in blamed(with_more({f"{HANDLER} > burn": 1000, HANDLER: more}))] == functions


def test_what_only_one_look_shows_is_no_cause() -> None:
    """A profiler that had to wait for its core takes many samples of one moment."""
    burst = {"boot > run_asgi > gzip": 200}
    grown = with_more({f"{HANDLER} > burn": 400})
    looks = [profile(grown), profile(Counter(grown) + Counter(burst))]
    both = profile(Counter(grown) + Counter(grown) + Counter(burst))
    base = profile(Counter(BASE) + Counter(BASE))
    found = growth(base, both, base_root=ROOT, now_root=ROOT)

    assert {one.frame.function for one in found} == {"burn", "gzip"}
    pairs = [(profile(BASE), look) for look in looks]
    kept = growth(base, both, base_root=ROOT, now_root=ROOT, looks=pairs)
    assert [one.frame.function for one in kept] == ["burn"]
