"""The highest rate that holds a limit: found for a server whose rate is known, or said why there is none."""

from __future__ import annotations

from contracts.answers import answering
from contracts.project import Project, results

TESTS = """
import pytest

pytestmark = pytest.mark.fileperf(boots=1, max_duration="4s", gate="none", connections=50)

def test_found(fileperf):
    found = fileperf.capacity.get("/", max_p90="100ms")
    assert 0 < found.low <= found.rate <= found.high

def test_long_limit(fileperf):
    fileperf.capacity.get("/", max_p90="500ms", max_duration="8s")

def test_too_low(fileperf):
    fileperf.capacity.get("/", max_p50="500ms", max_duration="2s", min_capacity=100_000)

def test_no_rate(fileperf):
    fileperf.capacity.get("/", max_p99="1ms", max_duration="1s")

def test_no_limit(fileperf):
    fileperf.capacity.get("/", rate=10)

def test_no_search(fileperf):
    fileperf.get("/", gate="capacity")
"""


def test_a_rate_that_is_known_is_found_and_told(project: Project) -> None:
    """The app blocks its event loop for 10 ms a request: no machine serves more than 100/s, and a busy one fewer."""
    project.write({"app.py": answering(0.01).replace("await asyncio.sleep(", "__import__('time').sleep(")})
    ran = project.write({"test_it.py": TESTS}).run("--junitxml=run.xml", "--tb=short")

    assert (ran.status, "4 failed, 2 passed" in ran.said) == (1, True), ran.text
    found, low = results(ran)["test_found"], results(ran)["test_too_low"]
    busy = "the machine was busy" in ran.said
    lowest = 10 if busy else 60
    assert lowest <= found["capacity"]["rate"] <= 125, ran.text
    assert found["capacity"]["low"] <= 105, ran.text
    assert found["identity"]["load"]["capacity"] == {"max_error_rate": 0.0, "max_p90": 0.1}
    # Its loads are shorter than the limit, so a queue can grow in all of them without breaking it.
    long = results(ran)["test_long_limit"]["capacity"]
    held = [rate for rate, holds in zip(long["tried"]["rate"], long["tried"]["holds"], strict=True) if holds]
    assert long["low"] <= (150 if busy else 110), ran.text
    assert max(held, default=0) <= 180, ran.text
    assert [one["name"] for one in low["verdict"]["limits"] if not one["holds"]] == ["min_capacity"]
    for words in (
        "every rate breaks max_p99",
        "rate: a capacity search chooses its own rates",
        "capacity needs a capacity search",
    ):
        assert words in ran.said, ran.text
    assert 'name="fileperf_capacity"' in (project.top / "run.xml").read_text()
