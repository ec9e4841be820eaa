"""Whatever a user writes, and whatever a file holds, is read, or refused in our own words.

`--hypothesis-profile=many --timeout=0` tries 100,000 inputs of each, and others in every run.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judge.test_baseline import ENTRY, HERE, MODULE, OLDEST
from report.samples import recording, result
from report.test_record_file import whole_record
from texts import texts

from pytest_fileperf.errors import BaselineError, PlanError, RecordError
from pytest_fileperf.judge.baseline import BaselineStore, entry_to_json
from pytest_fileperf.judge.environment import differences
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.plan.work import parse_pause
from pytest_fileperf.report.record_file import read_record, results_json
from pytest_fileperf.settings.keys import KEYS
from pytest_fileperf.settings.settings import resolve
from pytest_fileperf.settings.targets import many_from
from pytest_fileperf.units import parse_duration_ns, parse_share, parse_size_bytes

Place: TypeAlias = tuple[str | int, ...]
Damage: TypeAlias = list[tuple[int, object]]

# Drawn from lists: it is the combinations that matter, and 100,000 of them take minutes so.
LONG = ("9" * 30, "9" * 400, "9" * 5000)
PIECES = (
    "", "0", "1", "00", "1.5", *LONG, "1e9", "-1", ".5", "٣", "²", "1_0", "nan", "inf", " ", ",", ":", "=", "ns", "µs",
    "ms", "s", "h", "B", "kB", "KiB", "GiB", "%", "x", "/s", "/min", "/x", "rps", "p99", "none", "auto", "uvicorn:",
    "gunicorn:", "inprocess", "command:", "http://", "https://[", "workers=", "port=", "'", "\0", "\n",
    "\ud800", "{id}", "..", "/", "@", "#",
)  # fmt: skip
TEXTS = st.builds("".join, st.lists(st.sampled_from(PIECES), max_size=4)) | texts(max_size=8)
PLAIN: tuple[object, ...] = (
    None, True, False, 0, 1, -1, 2, 200, 1.5, -0.5, 1e300, 10**400, -(10**400), 2**63, math.nan, math.inf, "", "1s",
    [], {}, [None], [[]], [1, 2], ["a", 1], [["a", "b"]], [["a"]], {"a": None}, {"a": [1]}, {"": {"a": {}}}, {"rps": 5},
)  # fmt: skip
JSON = st.sampled_from(PLAIN) | TEXTS
ODD: tuple[object, ...] = (b"x", (), ("a",), ("10s", "5/s"), (("10s", 5),), {"rps"}, frozenset({1}), 1j, print)
VALUES = JSON | st.sampled_from(ODD)
GONE = object()
DAMAGE = st.lists(st.tuples(st.integers(0, 10_000), JSON | st.just(GONE)), min_size=1, max_size=3)
CUTS = st.tuples(st.integers(0, 10_000), st.integers(0, 40), TEXTS | st.just("[" * 100_000))


# --- what a user writes


@pytest.mark.parametrize("parse", [parse_size_bytes, parse_duration_ns, parse_share, parse_pause])
@given(value=VALUES)
def test_a_quantity_is_a_number_or_refused(parse: Callable[[Any], object], value: object) -> None:
    try:
        parse(value)
    except ValueError:
        return


KEYWORDS = st.lists(st.tuples(st.sampled_from((*KEYS, "conections", "")), VALUES), max_size=5).map(dict)


@given(near=KEYWORDS, far=KEYWORDS)
def test_keywords_are_settings_or_refused(near: dict[str, object], far: dict[str, object]) -> None:
    try:
        resolve(marker=near, options=far)
    except PlanError:
        return


URLS = st.sampled_from(("/", "/a?b={c}", "http://[", "http://h/a?b=c", "//", "x:y", "http://[::1", "")) | TEXTS
FIELDS = (
    "method", "url", "header", "headers", "body", "json", "data", "files", "params", "name", "expect_status", "rate",
    "cookies", "auth", "content", "expect_bytes", "expect_body", "timeout", "feed", "order",
)  # fmt: skip
OBJECTS = st.lists(st.tuples(st.sampled_from(FIELDS), JSON), max_size=3).map(dict)
LINES = st.builds(
    "{}{}".format, st.sampled_from(("GET ", "POST ", "get ", "X: ", "Ä: ", "@", "@body.txt", "#", "")), URLS
)
TARGETS = st.lists(LINES, max_size=6) | st.lists(OBJECTS.map(json.dumps), min_size=1, max_size=3)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all inputs."""
    made = tmp_path_factory.mktemp("read")
    (made / "body.txt").write_text("hello")
    return made


@given(lines=TARGETS)
def test_a_file_of_targets_is_requests_or_refused(directory: Path, lines: list[str]) -> None:
    path = directory / "targets.txt"
    path.write_text("\n".join(lines), encoding="utf-8", errors="surrogatepass")
    call = many_from(path, {})
    assert (call.work is None) == bool(call.problems)


@given(
    items=st.lists(OBJECTS | VALUES | st.tuples(VALUES, URLS, OBJECTS) | st.tuples(st.just("GET"), URLS), max_size=3)
)
def test_a_list_of_requests_is_requests_or_refused(items: list[object]) -> None:
    call = many_from(items, {})
    assert (call.work is None) == bool(call.problems)


# --- what files hold


def damaged(text: str, damage: Damage) -> str:
    """Returns JSON with some of its values replaced, or taken away."""
    document: Any = json.loads(text)
    for number, value in damage:
        places = list(_places(document))
        if not places:
            break
        *above, last = places[number % len(places)]
        at = document
        for key in above:
            at = at[key]
        if value is GONE:
            del at[last]
        else:
            at[last] = copy.deepcopy(value)  # a later damage may be to it
    return json.dumps(document)


def _places(held: object, above: Place = ()) -> Iterator[Place]:
    items = held.items() if isinstance(held, Mapping) else enumerate(held) if isinstance(held, list) else ()
    for key, item in items:
        yield (*above, key)
        yield from _places(item, (*above, key))


OLD_WORK = {
    "method": "POST",
    "url": "/a?b=c",
    "arguments": {"json": {"a": [1]}, "headers": [["X", "1"]], "params": {"b": "c"}, "files": {"f": ["a", "b"]}},
    "mix": [{"name": "a", "url": "/a", "arguments": {"cookies": {"a": "b"}}}],
    "requests": [{"url": "/{a}", "arguments": {"data": {"a": "b"}}}],
    "names": ["/a"],
    "rows": {"count": 3, "sha256": "00"},
}
OLD = OLDEST % Histogram.of([5_000_000]).encode()
OLD = json.dumps({**json.loads(OLD), "tests": {"a": {**json.loads(OLD)["tests"]["a"], "identity": {"work": OLD_WORK}}}})


@pytest.fixture(scope="module")
def baselines(directory: Path) -> Mapping[str, str]:
    """The text of a baseline file, by its schema."""
    path = BaselineStore(directory / "new").write(MODULE, "a", ENTRY, HERE, summary_of=METRICS)
    return {"schema 3": path.read_text(encoding="utf-8"), "schema 1": OLD}


@pytest.fixture(scope="module", autouse=True)
def _quick_digests() -> Iterator[None]:
    """Digests that take 50 ms each by intent take none, so that baselines can be written for each input."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            "pytest_fileperf.judge.baseline.slow_digest", lambda plain, salt: f"scrypt:{hash((plain, salt)):016x}"
        )
        yield


def use(store: BaselineStore, raw: bytes) -> None:
    """Does all that runs do with a file of baselines, one that cannot be read included."""
    path = store.path_of(MODULE, HERE)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw)
    try:
        for key in sorted(store.keys()):
            found = store.find(MODULE, key, HERE)
            assert found is not None
            differences(found.identity, ENTRY.identity)
            entry_to_json(found, METRICS)
        store.trees()
        store.write(MODULE, "b", ENTRY, HERE)
        assert store.find(MODULE, "b", HERE) is not None
        store.remove(["b"])
    except BaselineError:
        return


@pytest.mark.parametrize("schema", ["schema 1", "schema 3"])
@given(damage=DAMAGE)
def test_a_baseline_is_read_or_refused(
    directory: Path, baselines: Mapping[str, str], schema: str, damage: Damage
) -> None:
    use(BaselineStore(directory / schema), damaged(baselines[schema], damage).encode())


@given(cut=CUTS)
def test_a_baseline_of_other_bytes_is_read_or_refused(
    directory: Path, baselines: Mapping[str, str], cut: tuple[int, int, str]
) -> None:
    raw, (place, length, put) = baselines["schema 3"].encode(), cut
    at = place % len(raw)
    use(BaselineStore(directory / "bytes"), raw[:at] + put.encode("utf-8", "surrogatepass") + raw[at + length :])


RECORD = results_json(whole_record([result(recorded=recording(boots=1, rounds=1))]))


@given(damage=DAMAGE)
def test_a_record_is_read_or_refused(directory: Path, damage: Damage) -> None:
    path = directory / "run.json"
    path.write_text(damaged(RECORD, damage), encoding="utf-8")
    try:
        read_record(path)
    except RecordError:
        return
