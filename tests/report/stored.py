"""Sessions that were stored, and results of them: see `test_goldens`."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from pytest_fileperf.judge.groups import SessionRecord
from pytest_fileperf.judge.record import Result
from pytest_fileperf.report.record_file import read_record

GOLDEN = Path(__file__).parent / "golden"


@cache
def stored(session: str) -> SessionRecord:
    return read_record(GOLDEN / session / "run.json")


def one(session: str, name: str) -> Result:
    (result,) = (result for result in stored(session).results if result.test.name == name)
    return result
