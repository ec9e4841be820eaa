"""The budget of a session: it is kept, its rest goes to what is undecided, and each test is reported once."""

from __future__ import annotations

import re
from pathlib import Path

from contracts.answers import answering
from contracts.project import Project, results

TESTS = """
import pytest
from pytest_fileperf import part

pytestmark = pytest.mark.fileperf(connections=2, warmup=0, gate="p50")

@pytest.fixture(scope="module")
def numbers():
    with open("numbers.txt", "a") as file:
        file.write("made ")
    yield iter((1, 2))
    with open("numbers.txt", "a") as file:
        file.write("ended ")

def test_hard(fileperf, numbers):
    fileperf.mix({part.get("/", name="one"): 1, part.get("/2", name="two"): 1}, gate="none", duration="0.2s", boots=1)
    found = fileperf.get("/", gate="p999")
    assert found.requests > 0
    with open("numbers.txt", "a") as file:
        file.write(f"{next(numbers)} ")

def test_easy(fileperf, numbers):
    fileperf.get("/", gate="none", duration="0.2s", boots=1)

def test_without():
    pass
"""


def test_undecided_tests_run_once_more_while_time_is_left(tmp_path: Path) -> None:
    project = Project(top=tmp_path)
    project.write({"app.py": answering(0.01), "test_it.py": TESTS}).commit()
    project.write({"app.py": answering(0.01) + "# a comment\n"})
    ran = project.run("--fileperf-against=HEAD", "--fileperf-budget=24s", "-v")
    assert ran.status == 0, ran.text
    found = [(of["test"]["name"], of["test"]["part"], of["standing"]) for of in ran.record["results"]]
    assert found == [
        ("test_easy", "", "-"),
        ("test_hard", "", "-"),  # of two calls, this one was decided, and is not measured again
        ("test_hard", "one", "-"),
        ("test_hard", "two", "-"),
        ("test_hard", "", "INCONCLUSIVE"),
    ]
    # The undecided one comes last, and has its module's fixtures anew, as pytest had ended them.
    ended = re.findall(r"test_it.py::(\w+) (\w+)", ran.text)
    assert ended == [("test_easy", "PASSED"), ("test_without", "PASSED"), ("test_hard", "INCONCLUSIVE")]
    assert (tmp_path / "numbers.txt").read_text() == "made 1 ended made 1 ended "
    assert "24.0 s for all comparisons" in ran.said
    assert "1 INCONCLUSIVE" in ran.said
    assert "Give it more time with --fileperf-budget" in ran.said


STOPPED = """
import pytest

times = []

@pytest.mark.fileperf(connections=2, warmup=0, gate="p999")
def test_hard(fileperf, record_property):
    record_property("time", len(times))
    times.append(1)
    if len(times) == 2:
        raise KeyboardInterrupt
    fileperf.get("/")
"""


def test_a_test_that_is_interrupted_the_second_time_has_the_outcome_of_the_first(tmp_path: Path) -> None:
    project = Project(top=tmp_path)
    project.write({"app.py": answering(0.01), "test_it.py": STOPPED}).commit()
    project.write({"app.py": answering(0.01) + "# a comment\n"})
    # A quarter is left for the second time, also where other programs have the cores and start-ups take seconds.
    ran = project.run("--fileperf-against=HEAD", "--fileperf-budget=24s", "--junitxml=junit.xml")
    assert ran.status == 2, ran.text
    assert "1 inconclusive in" in ran.said
    assert {name: result["standing"] for name, result in results(ran).items()} == {"test_hard": "INCONCLUSIVE"}
    junit = (tmp_path / "junit.xml").read_text(encoding="utf-8")
    assert 'tests="1"' in junit
    assert junit.count('<property name="time" value="0" />') == 1


FAILING = """
import pytest

@pytest.fixture(scope="module")
def broken():
    yield
    raise RuntimeError("its end")

def test_fails(fileperf, broken):
    raise ValueError("before anything is measured")

def test_after(broken):
    pass
"""


def test_fixtures_end_with_the_test_that_stops_the_run(tmp_path: Path) -> None:
    project = Project(top=tmp_path).write({"app.py": answering(0.0), "test_it.py": FAILING})
    ran = project.run("--fileperf-budget=9s", "-x", "--junitxml=junit.xml")
    assert ran.status == 1, ran.text
    assert "1 failed, 1 error in" in ran.said
    assert "RuntimeError: its end" in ran.said
    junit = (tmp_path / "junit.xml").read_text(encoding="utf-8")
    assert 'errors="1" failures="1"' in junit


def test_a_budget_that_ends_nothing_is_refused(tmp_path: Path) -> None:
    project = Project(top=tmp_path).write({"app.py": answering(0.0), "test_it.py": TESTS})
    for given, said in (
        (("--fileperf-budget=soon",), "--fileperf-budget: 'soon' isn't a duration"),
        (("--fileperf-budget=0",), "--fileperf-budget: '0' is too short: it must be above 0"),
        (
            ("--fileperf-budget=9s", "--fileperf-update"),
            "--fileperf-budget only works for comparisons. Leave out --fileperf-budget or",
        ),
    ):
        ran = project.run(*given)
        assert ran.status == 4
        assert said in ran.said, ran.text


def test_what_has_no_time_is_skipped_and_fails_a_strict_run(tmp_path: Path) -> None:
    project = Project(top=tmp_path)
    tests = """
        import pytest

        @pytest.mark.parametrize("number", range(3))
        def test_each(fileperf, number):
            fileperf.get("/", connections=2, warmup=0, gate="p50")

        def test_limited(fileperf):
            fileperf.get("/", gate="none", min_rps=1, duration="0.2s", boots=1)
    """
    project.write({"app.py": answering(0.01), "test_it.py": tests}).commit()
    project.write({"app.py": answering(0.01) + "# a comment\n"})
    ran = project.run("--fileperf-against=HEAD", "--fileperf-budget=2s", "-rs")
    assert ran.status == 0, ran.text
    assert "not measured, because no time was left of --fileperf-budget=2.00 s" in ran.said, ran.text
    assert "2 skipped" in ran.said
    assert results(ran)["test_limited"]["standing"] == "-"  # it compares nothing
    strict = project.run("--fileperf-against=HEAD", "--fileperf-budget=2s", "--fileperf-strict")
    assert "3 failed" in strict.said  # the first one was measured, and is undecided
