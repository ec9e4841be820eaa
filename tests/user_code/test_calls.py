"""What the types say is what the package does. That mypy and pyright agree, `tox -e types` shows."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from families import module_of
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


def test_keywords_are_those_that_the_package_takes() -> None:
    of_request = {*REQUEST_ARGUMENTS, *EXPECTATIONS, *FEEDING}
    of_part = {"name", *PART_KEYS}
    taken: dict[Any, set[str]] = {
        MarkerKeys: {*KEYS},
        RunKeywords: {"steps", "http2", *KEYS},
        StepKeywords: {*STEP_KEYS},
        RequestKeywords: {*of_request, *KEYS},
        StreamKeywords: {*of_request, *KEYS, *STREAM_ARGUMENTS},
        JourneyPartKeywords: {*of_part, "steps", "http2"},
        PartKeywords: of_part | of_request,
    }
    assert {kind: set(kind.__optional_keys__) for kind in taken} == taken
    for kind in (MarkerKeys, RequestKeywords, StreamKeywords):
        assert kind.__required_keys__ == frozenset()


def test_verbs_have_their_keywords() -> None:
    own = {"run": "RunKeywords", "stream": "StreamKeywords"}
    for fixture in (FilePerf, AsyncFilePerf, CapacityVerbs, AsyncCapacityVerbs):
        for verb in ("get", "post", "put", "patch", "delete", "request", "stream", "run"):
            *_, last = inspect.signature(getattr(fixture, verb)).parameters.values()
            assert last.kind is inspect.Parameter.VAR_KEYWORD
            assert last.annotation == f"Unpack[{own.get(verb, 'RequestKeywords')}]"
            assert last.annotation[7:-1] in (getattr(fixture, verb).__doc__ or "")


def test_every_keyword_is_described_below_it() -> None:
    tree = ast.parse(Path(keywords.__file__).read_text(encoding="utf-8"))
    described = set()
    for block in tree.body:
        if isinstance(block, ast.ClassDef):
            for field, below in zip(block.body, [*block.body[1:], None], strict=True):
                if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
                    described.add(ast.unparse(field.target))
    assert described == StreamKeywords.__optional_keys__ | {"name", "steps", "http2"}


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


def test_the_package_takes_what_type_checkers_take_of_httpx2(verbs: FilePerf, checks: OnlyChecks) -> None:
    module_of("httpx2")
    from user_code import right_httpx2

    right_httpx2.verbs(verbs)
    right_httpx2.journeys(verbs)
    assert len(checks.calls) == 9


def test_the_package_refuses_what_type_checkers_refuse(verbs: FilePerf) -> None:
    assert len(WRONG) >= 25
    taken = []
    for call in WRONG:
        try:
            eval(call, {**vars(wrong), "fileperf": verbs})
            taken.append(call)
        except PlanError:
            pass
    assert taken == []
