"""What the types say is what the package does. That mypy and pyright agree, `tox -e types` shows."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from user_code import right, wrong

from pytest_fileperf.errors import PlanError
from pytest_fileperf.measure.capacity import Capacity
from pytest_fileperf.measure.limiting import Limit, LimitKind
from pytest_fileperf.measure.measurement import Measurement
from pytest_fileperf.plan.request import REQUEST_ARGUMENTS
from pytest_fileperf.plugin.measuring import Measuring
from pytest_fileperf.plugin.verbs import AsyncCapacityVerbs, AsyncFilePerf, CapacityVerbs, FilePerf
from pytest_fileperf.settings import keywords
from pytest_fileperf.settings.arguments import EXPECTATIONS, FEEDING, STEP_KEYS, STREAM_ARGUMENTS, VerbCall
from pytest_fileperf.settings.keys import KEYS
from pytest_fileperf.settings.keywords import (
    PART_KEYS,
    JourneyPartKeywords,
    MarkerKeys,
    PartKeywords,
    RequestKeywords,
    RunKeywords,
    StepKeywords,
    StreamKeywords,
)
from pytest_fileperf.settings.settings import Settings, for_capacity, for_one_load, resolve


class OnlyChecks:
    """Checks a call as a measurement does, and measures nothing."""

    def __init__(self) -> None:
        self.calls: list[VerbCall] = []

    def measure(self, call: VerbCall) -> Measurement:
        self._check(call, for_one_load)
        return cast(Measurement, None)

    def capacity(self, call: VerbCall) -> Capacity:
        self._check(call, for_capacity)
        limit = Limit(kind=LimitKind.SERVER_CPU, evidence="")
        return Capacity(rate=1.0, low=1.0, high=1.0, limits={}, limit=limit)

    def _check(self, call: VerbCall, fitting: Callable[[Settings], Settings]) -> None:
        if call.problems:
            raise PlanError(*call.problems)
        fitting(resolve(verb=call.keys))
        self.calls.append(call)


@pytest.fixture
def checks() -> OnlyChecks:
    return OnlyChecks()


@pytest.fixture
def verbs(checks: OnlyChecks) -> FilePerf:
    return FilePerf(cast(Measuring, checks))


def calls_in(*functions: Callable[..., object]) -> list[str]:
    """Returns every statement of functions that only call."""
    trees = (ast.parse(inspect.getsource(function)).body[0] for function in functions)
    return [ast.unparse(node) for tree in trees if isinstance(tree, ast.FunctionDef) for node in tree.body]


WRONG = calls_in(wrong.names, wrong.streams, wrong.values, wrong.capacities, wrong.journeys)


def test_keywords_of_the_marker_are_the_keys_that_it_takes() -> None:
    assert MarkerKeys.__required_keys__ == frozenset()
    assert MarkerKeys.__optional_keys__ == frozenset(KEYS)


def test_keywords_of_a_journey_are_those_of_the_marker_and_its_steps() -> None:
    assert RunKeywords.__optional_keys__ == {"steps", *KEYS}
    assert StepKeywords.__optional_keys__ == {*STEP_KEYS}


def test_keywords_of_a_request_are_those_that_verbs_take() -> None:
    assert RequestKeywords.__required_keys__ == frozenset()
    assert RequestKeywords.__optional_keys__ == frozenset((*REQUEST_ARGUMENTS, *EXPECTATIONS, *FEEDING, *KEYS))


def test_keywords_of_a_stream_are_those_that_it_takes() -> None:
    assert StreamKeywords.__required_keys__ == frozenset()
    assert StreamKeywords.__optional_keys__ == RequestKeywords.__optional_keys__ | {*STREAM_ARGUMENTS}


@pytest.mark.parametrize("fixture", [FilePerf, AsyncFilePerf, CapacityVerbs, AsyncCapacityVerbs])
@pytest.mark.parametrize("verb", ["get", "post", "put", "patch", "delete", "request", "stream", "run"])
def test_verbs_have_their_keywords(fixture: type[object], verb: str) -> None:
    *_, last = inspect.signature(getattr(fixture, verb)).parameters.values()
    assert last.kind is inspect.Parameter.VAR_KEYWORD
    own = {"run": "RunKeywords", "stream": "StreamKeywords"}
    assert last.annotation == f"Unpack[{own.get(verb, 'RequestKeywords')}]"
    assert last.annotation[7:-1] in (getattr(fixture, verb).__doc__ or "")


def test_keywords_of_a_part_are_those_of_a_request_and_what_judges_it() -> None:
    own = {"name", *PART_KEYS}
    assert JourneyPartKeywords.__optional_keys__ == own | {"steps"}
    assert PartKeywords.__optional_keys__ == own | {*REQUEST_ARGUMENTS, *EXPECTATIONS, *FEEDING}


def test_every_keyword_is_described_below_it() -> None:
    tree = ast.parse(Path(keywords.__file__).read_text(encoding="utf-8"))
    described = set()
    for block in tree.body:
        if isinstance(block, ast.ClassDef):
            for field, below in zip(block.body, [*block.body[1:], None], strict=True):
                if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
                    described.add(ast.unparse(field.target))
    assert described == StreamKeywords.__optional_keys__ | {"name", "steps"}


def test_the_package_takes_what_type_checkers_take(verbs: FilePerf, checks: OnlyChecks, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"bytes")
    right.requests(verbs)
    with (tmp_path / "file").open("rb") as file:
        right.bodies(verbs, file)
    right.feeds(verbs)
    right.many(verbs)
    right.mixes(verbs)
    right.loads(verbs)
    right.servers(verbs)
    right.limits(verbs)
    right.streams(verbs)
    right.journeys(verbs)
    right.capacities(verbs)
    right.wrapped(verbs, connections=2, json={})
    assert len(checks.calls) >= 40


@pytest.mark.parametrize("call", WRONG)
def test_the_package_refuses_what_type_checkers_refuse(call: str, verbs: FilePerf) -> None:
    with pytest.raises(PlanError):
        eval(call, {**vars(wrong), "fileperf": verbs})


def test_there_are_enough_wrong_calls() -> None:
    assert len(WRONG) >= 25
