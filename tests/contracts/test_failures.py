"""What fails a run, with which exit code, and where it is said: on the terminal, in files, and to CI."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from contracts.answers import answering
from contracts.project import Project, Ran, results

TESTS = """
import pytest

pytestmark = pytest.mark.fileperf(connections=1, requests=40, warmup=0, boots=1, gate="none")

def test_good(fileperf):
    rows = [*["good"] * 12, "wait"]
    fileperf.get("/{way}", feed=rows, min_rps=1, max_p50="10s", max_rss="2GiB", max_error_rate=0)

@pytest.mark.parametrize("size", ["a|b:c%"])
def test_limits(fileperf, size):
    fileperf.get("/", min_rps=1e9, max_p50="1ns", group="alike")

def test_some_fail(fileperf):
    fileperf.get("/{way}", feed=["good", "good", "good", "bad"])

def test_may_fail(fileperf):
    fileperf.get("/{way}", feed=["good", "good", "good", "bad"], max_error_rate="26%")

def test_all_fail(fileperf):
    fileperf.get("/bad")

def test_asserts(fileperf):
    assert fileperf.get("/", group="alike").errors == 1, "as I say"

def test_setup(fileperf):
    def fill(client):
        raise OSError("no such table")
    fileperf.get("/", setup=fill)

def test_teardown(fileperf):
    def empty(client):
        raise KeyError("left over")
    fileperf.get("/", teardown=empty)

def test_keys(fileperf):
    fileperf.get("/", conections=3, timeout="soon", rate=1, burst=2, pause="1s", gate="rsp", server="http://a:canary@127.0.0.1:9")

def test_nothing(fileperf):
    pass

def test_no_await(afileperf):
    afileperf.get("/")
"""
GROUPS = """
import pytest

def test_group(fileperf):
    try:
        fileperf.get("/bad")
    except AssertionError as error:
        raise ExceptionGroup("unhandled errors in a TaskGroup", [error])

def test_groups(fileperf):
    try:
        fileperf.get("/bad")
    except AssertionError as error:
        inner = ExceptionGroup("inner", [error, KeyError("lost")])
        raise ExceptionGroup("unhandled errors in a TaskGroup", [OSError("gone"), error, inner])

@pytest.fixture
def broken(fileperf):
    yield
    raise KeyError("left over")

def test_torn_down(broken, fileperf):
    fileperf.get("/")

@pytest.mark.fileperf(connections=0)
def test_zero(fileperf):
    fileperf.get("/")

@pytest.mark.xfail
def test_expected(fileperf):
    fileperf.get("/", conections=2)

def test_of_other_things():
    assert False
"""
"""Verdicts in groups are told by their results, and other errors by themselves."""
LINE = 1 + TESTS.lstrip().split("\n").index('@pytest.mark.parametrize("size", ["a|b:c%"])')
NOT_BY_FIGURES = {
    "test_asserts": "as I say",
    "test_setup": "no such table",
    "test_teardown": "left over",
    "test_keys": "did you mean connections",
    "test_nothing": "measured nothing",
    "test_no_await": "was called and not awaited",
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    made = Project(top=tmp_path_factory.mktemp("failures"))
    (made.top / "linked.md").symlink_to("target.md")
    (made.top / "tmp").mkdir()
    return made.write(
        {
            "app.py": answering(),
            "target.md": "",
            "summary": "of another step\n",
            "tests/test_it.py": TESTS,
            "tests/test_groups.py": GROUPS,
        }
    )


@pytest.fixture(scope="module")
def failed(project: Project) -> Ran:
    """One run of all of them, as in a step of GitHub's."""
    files = ("--fileperf-markdown=linked.md", "--fileperf-html=run.html", "--junitxml=run.xml")
    github = {"GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": str(project.top.parent)}
    paths = {"GITHUB_STEP_SUMMARY": str(project.top / "summary"), "TMPDIR": str(project.top / "tmp")}
    return project.run("tests/test_it.py", *files, "--tb=short", env={**github, **paths}, width=120)


def test_limits_are_told_with_what_was_measured(failed: Ran) -> None:
    assert (failed.status, "9 failed, 2 passed" in failed.said) == (1, True), failed.text
    by_name = {name.removeprefix("test_"): one for name, one in results(failed).items()}
    found = {name: (one["standing"], one["verdict"]["limits"]) for name, one in by_name.items()}
    standings = {name: standing for name, (standing, _) in found.items() if name != "asserts"}
    assert standings == {
        "good": "-",
        "limits[a|b:c%]": "LIMIT",
        "some_fail": "LIMIT",
        "may_fail": "-",
        "all_fail": "FAILED",
    }
    holds = {one["name"]: one["holds"] for one in found["limits[a|b:c%]"][1]}
    assert holds == {"min_rps": False, "max_p50": False, "max_error_rate": True}
    assert all(one["holds"] for one in found["good"][1])
    latency = by_name["good"]["summary"]["latency"]
    # 3 answers of 40 take 20 ms, and timers of event loops are good to a millisecond.
    assert latency["p90"] < latency["p95"] >= 0.019, latency
    assert [found[name][1][0]["value"] for name in ("some_fail", "may_fail")] == [0.25, 0.25]
    assert "10 of 40 requests failed (25 %, allowed 0 %): status 500" in failed.said, failed.text


def test_what_failed_otherwise_is_in_every_file(project: Project, failed: Ran) -> None:
    told = {one["name"]: one["message"] for one in failed.record["failed"]}
    assert set(told) == set(NOT_BY_FIGURES), told
    assert not [name for name, words in NOT_BY_FIGURES.items() if words not in told[name]], told
    at_once = (
        "burst and rate are different shapes of load",
        "pause delays users who wait for answers",
        "unknown metric 'rsp'",
    )
    assert not [words for words in at_once if words not in told["test_keys"]], told["test_keys"]
    assert "canary" not in told["test_keys"]
    markdown, page = (project.top / "target.md").read_text(), (project.top / "run.html").read_text()
    assert not [name for name in told if name not in markdown or name not in page], markdown
    assert f"fileperf: wrote {project.top / 'run.html'}" in failed.text.splitlines(), failed.text
    assert set(failed.record["versions"]) == {"pytest-fileperf", "pytest", "python"}
    assert failed.record["environment"]["packages"]
    test = results(failed)["test_limits[a|b:c%]"]["test"]
    assert (test["module"], test["params"]) == ("tests/test_it.py", {"size": "a|b:c%"})
    assert (project.top / "summary").read_text() == f"of another step\n\n{markdown}"
    cases = ElementTree.parse(project.top / "run.xml").iter("testcase")
    found = {case.get("name"): {one.get("name"): one.get("value") for one in case.iter("property")} for case in cases}
    assert found["test_limits[a|b:c%]"]["fileperf_outcome"] == "LIMIT"
    assert float(str(found["test_good"]["fileperf_rps"])) > 0


def test_annotations_stand_at_the_test(project: Project, failed: Ran) -> None:
    lines = [line for line in failed.text.splitlines() if line.startswith("::")]
    assert len(lines) == 3 + len(NOT_BY_FIGURES), failed.text
    place = f"file={project.top.name}/tests/test_it.py,line={LINE},title=LIMIT test_limits[a|b%3Ac%25]"
    assert f"::error {place}::min_rps 1,000,000,000/s, measured" in "\n".join(lines)


def test_nothing_is_left_behind(project: Project, failed: Ran) -> None:
    assert (project.top / "linked.md").is_symlink()
    assert not [*(project.top / "tmp").iterdir(), *project.top.rglob(".fileperf*")]


def test_a_file_that_cannot_be_written_fails_a_run_that_passed_and_no_other_file_is_replaced(project: Project) -> None:
    written = ("--fileperf-smoke", "--fileperf-markdown=target.md/it.md")
    ran = project.run("tests/test_it.py", *written, "-k", "test_good")
    assert (ran.status, "cannot write" in ran.said, "1 passed" in ran.said) == (1, True, True), ran.text

    notes = project.top / "notes.md"
    notes.write_text("# Mine", encoding="utf-8")
    ran = project.run("--fileperf-markdown=notes.md")
    assert (ran.status, "would replace an existing file" in ran.said) == (4, True), ran.text
    assert notes.read_text(encoding="utf-8") == "# Mine"


def test_a_smoke_run_in_several_processes_is_told_once(project: Project) -> None:
    """Also errors in groups and of a teardown, and bad markers. It leaves the summary of a step alone."""
    named = ["tests/test_groups.py", *(f"tests/test_it.py::test_{name}" for name in ("all_fail", "asserts", "limits"))]
    summary = project.top / "not written"
    github = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary)}
    options = ("--fileperf-smoke", "-p", "xdist", "-n2", "--tb=no", "--fileperf-markdown=smoke.md")
    ran = project.run(*named, *options, env=github)

    failed = {one["name"]: (one["phase"], one["message"]) for one in ran.record["failed"]}
    assert set(failed) == {"test_asserts", "test_groups", "test_torn_down", "test_zero"}, ran.text
    assert failed["test_groups"] == ("call", "OSError: gone\nKeyError: 'lost'")
    assert failed["test_torn_down"] == ("teardown", "KeyError: 'left over'")
    assert "connections: 0 isn't a whole number of 1 or more" in failed["test_zero"][1]
    for name in ("test_all_fail", "test_group"):
        assert ran.text.count(f"title=FAILED {name}::") == 1, ran.text
    assert ran.status == 1
    assert all(one["smoke"] for one in ran.record["results"])
    assert ran.record["rankings"] == []
    assert results(ran)["test_limits[a|b:c%]"]["standing"] == "-", "nothing is judged"
    markdown = (project.top / "smoke.md").read_text(encoding="utf-8")
    heading = "## Load tests: 6 measured, 3 FAILED; 4 tests failed for other reasons; smoke run: "
    assert markdown.startswith(heading), markdown
    assert not summary.exists()
    assert project.run("-p", "xdist", "-n2").status == 4
