"""Which tests stand together, as pytest-benchmark's own hook groups them."""

from __future__ import annotations

import pytest
from pytest_benchmark.plugin import pytest_benchmark_group_stats
from report.samples import result

from pytest_fileperf.judge.grouping import DEFAULT_GROUP_BY, grouped, parse_group_by, unknown_params
from pytest_fileperf.judge.groups import session_record
from pytest_fileperf.judge.record import Result
from pytest_fileperf.report.benchmark_json import benchmarks_of


def results() -> list[Result]:
    return [
        result("test_upload[1KiB-uvicorn-2]", params={"size": "1KiB", "server": "uvicorn-2"}, group="uploads"),
        result("test_upload[1MiB-uvicorn-2]", params={"size": "1MiB", "server": "uvicorn-2"}, group="uploads"),
        result("test_download[1KiB-inprocess]", params={"size": "1KiB", "server": "inprocess"}, group="downloads"),
        result(
            "test_upload[1KiB-uvicorn-2]", module="tests/test_more.py", params={"size": "1KiB", "server": "uvicorn-2"}
        ),
        result("test_list", module="tests/test_more.py"),
    ]


def titles(labels: str) -> dict[str, list[str]]:
    found = grouped(results(), parse_group_by(labels))
    return {
        title: [each.test.nodeid.removeprefix("tests/test_") for each in members] for title, members in found.items()
    }


FILES = ["files.py::test_upload[1KiB-uvicorn-2]", "files.py::test_upload[1MiB-uvicorn-2]"]
DOWNLOAD = "files.py::test_download[1KiB-inprocess]"
MORE = "more.py::test_upload[1KiB-uvicorn-2]"
LIST = "more.py::test_list"


@pytest.mark.parametrize(
    "labels,expected",
    [
        ("group", {"uploads": FILES, "downloads": [DOWNLOAD], "": [MORE, LIST]}),
        ("func", {"test_upload": [*FILES, MORE], "test_download": [DOWNLOAD], "test_list": [LIST]}),
        (
            "fullfunc",
            {
                "tests/test_files.py::test_upload": FILES,
                "tests/test_files.py::test_download": [DOWNLOAD],
                "tests/test_more.py::test_upload": [MORE],
                "tests/test_more.py::test_list": [LIST],
            },
        ),
        (
            "name",
            {
                "test_upload[1KiB-uvicorn-2]": [FILES[0], MORE],
                "test_upload[1MiB-uvicorn-2]": [FILES[1]],
                "test_download[1KiB-inprocess]": [DOWNLOAD],
                "test_list": [LIST],
            },
        ),
        (
            "param",
            {
                "1KiB-uvicorn-2": [FILES[0], MORE],
                "1MiB-uvicorn-2": [FILES[1]],
                "1KiB-inprocess": [DOWNLOAD],
                "": [LIST],
            },
        ),
        ("param:size", {"size=1KiB": [FILES[0], DOWNLOAD, MORE], "size=1MiB": [FILES[1]], "": [LIST]}),
        (
            " group , param:size",
            {
                "uploads size=1KiB": [FILES[0]],
                "uploads size=1MiB": [FILES[1]],
                "downloads size=1KiB": [DOWNLOAD],
                "size=1KiB": [MORE],
                "": [LIST],
            },
        ),
    ],
)
def test_groups(labels: str, expected: dict[str, list[str]]) -> None:
    assert titles(labels) == expected


@pytest.mark.parametrize("labels", ["group", "name", "func", "fullname", "fullfunc", "param", "func,param"])
def test_the_groups_are_pytest_benchmark_s(labels: str) -> None:
    theirs = pytest_benchmark_group_stats(  # type: ignore[no-untyped-call]
        None, benchmarks_of(session_record(results())), labels
    )
    assert {title or "": len(members) for title, members in theirs} == {
        title: len(members) for title, members in titles(labels).items()
    }


def test_measurements_of_one_test_stand_together() -> None:
    nodeid = "tests/test_files.py::test_upload"
    runs = [result("test_upload", nodeid=nodeid), result("test_upload", nodeid=f"{nodeid}#2")]
    assert grouped(runs, ["fullname"]) == {nodeid: runs}


@pytest.mark.parametrize("text", ["", "size", "param:", "group,,func", "group;func", "param :size"])
def test_what_is_no_label_is_told_with_those_there_are(text: str) -> None:
    with pytest.raises(ValueError, match="use group, name, func, fullname, fullfunc, param or param:NAME"):
        parse_group_by(text)


def test_a_parameter_that_no_test_has_is_told() -> None:
    assert unknown_params(results(), ["func", "param:size", "param:sise"]) == ("sise",)
    assert unknown_params(results(), DEFAULT_GROUP_BY) == ()
