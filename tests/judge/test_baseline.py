"""Stored baselines: written whole, found for their machine alone, not trusted if damaged. Which machines compare."""

from __future__ import annotations

import json
import os
import pickle
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judge.sides import known
from measure.recordings import in_ms
from serve.processes import posix
from texts import texts

from pytest_fileperf.errors import BaselineError
from pytest_fileperf.host.scratch import locked
from pytest_fileperf.judge import baseline
from pytest_fileperf.judge.baseline import (
    SCHEMA,
    BaselineStore,
    Entry,
    LongFile,
    Why,
    is_digest,
    laid_out,
    new_salt,
    of_earlier_schema,
    sealed,
    stale_among,
    work_differences,
)
from pytest_fileperf.judge.environment import (
    Environment,
    condition_changes,
    cpu_limit,
    differences,
    package_changes,
    server_packages,
)
from pytest_fileperf.judge.evidence import BootEvidence, Evidence
from pytest_fileperf.measure.codec import Placed
from pytest_fileperf.measure.usage import Busy
from pytest_fileperf.plan.feed import Requests
from pytest_fileperf.plan.payload import payload
from pytest_fileperf.plan.request import Operation
from pytest_fileperf.plan.work import Mix, Part

HERE = Environment(
    system="Linux",
    machine="x86_64",
    cpu="Some CPU",
    cores=2,
    python="CPython 3.11",
)
TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
MODULE = "tests/api/test_upload.py"
ENTRY = Entry(
    identity={"load": {"connections": 32}, "work": {"method": "GET", "url": "/ünïcode"}},
    evidence=Evidence(
        boots=(
            BootEvidence(
                turns=({"rps": 2000.12345, "p99": 0.0123456}, {"rps": 2010.0}),
                latency=in_ms(5, 6),
                runs={"rss": 52_428_800.0},
            ),
        ),
        stabilised=("hash seed", "addresses"),
    ),
    captured="2026-01-02T03:04:05+00:00",
    tree=TREE,
    commit={"id": "abc123", "dirty": False},
    packages={"uvicorn": "0.34.0", "uvloop": "0.21.0"},
    precision={"rps": 0.0104},
    busy=Busy(server=0.01234),
)
GOLDEN = """\
{
 "environment": {
  "system": "Linux",
  "machine": "x86_64",
  "cpu": "Some CPU",
  "cores": 2,
  "python": "CPython 3.11"
 },
 "module": "tests/api/test_upload.py",
 "salt": "%s",
 "schema": 3,
 "tests": {
  "test_upload[1]": {
   "captured": "2026-01-02T03:04:05+00:00",
   "tree": "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
   "commit": {"id": "abc123", "dirty": false},
   "reason": "uploads are checked for viruses now",
   "summary": {
    "rps": 2005.1,
    "p50 ms": 5.0012,
    "rss MiB": 50.0,
    "throughput MiB/s": null
   },
   "precision": {"rps": 0.01},
   "busy": {"server": 0.012, "generator": 0.0, "host": 0.0},
   "packages": {"uvicorn": "0.34.0", "uvloop": "0.21.0"},
   "identity": {
    "load": {
     "connections": 32
    },
    "work": {
     "method": "GET",
     "url": "/ünïcode"
    }
   },
   "evidence": {
    "boots": [
     {"latency": "%s", "requests": 2, "rounds": {"p99": [0.012346, null], "rps": [2000.1, 2010.0]}, "runs": {"rss": 52429000.0}}
    ],
    "stabilised": ["hash seed", "addresses"]
   }
  }
 }
}
"""  # noqa: E501 - a line for each boot
OLDEST = json.dumps(
    {
        "environment": HERE.to_json(),
        "module": MODULE,
        "schema": 1,
        "tests": {
            "a": {
                **{key: getattr(ENTRY, key) for key in ("captured", "commit", "identity", "packages")},
                "evidence": {
                    "boots": [
                        {
                            "latency": "%s",
                            "requests": 2,
                            "rounds": {"p99": [0.012346, None], "rps": [2000.1, 2010.0]},
                            "runs": {"rss": 52429000.0},
                        }
                    ],
                    "stabilised": ["hash seed", "addresses"],
                },
            }
        },
    }
)
"""As it was before entries had reason and summary."""


@pytest.fixture
def store(tmp_path: Path) -> BaselineStore:
    return BaselineStore(tmp_path / "baselines")


def entry(store: BaselineStore, key: str = "a") -> Entry:
    """Returns what the store has for this machine."""
    found = known(store.find(MODULE, key, HERE))
    assert found.differences == {}
    return found


def test_the_file(store: BaselineStore) -> None:
    reasoned = replace(ENTRY, reason="uploads are checked for viruses now")
    path = store.write(MODULE, "test_upload[1]", reasoned, HERE, summary_of=("rps", "p50", "rss", "throughput"))
    assert path == store.directory / HERE.profile / "tests__api__test_upload.py.json"
    text = path.read_text(encoding="utf-8")
    assert text == GOLDEN % (json.loads(text)["salt"], ENTRY.evidence.boots[0].latency.encode())
    assert [file.name for file in path.parent.iterdir()] == [path.name], "a temporary file is left"


def test_what_is_stored_is_found(store: BaselineStore) -> None:
    odd = replace(ENTRY, reason='für "alle"', identity={"text": "[\n 1\n]", "list": [[1, 2], []]}, commit=None)
    odd = replace(odd, files=("app.py", "shop/__init__.py", "shop/api/main.py", "shop/main.py"))
    store.write(MODULE, "odd", odd, HERE)
    store.write(MODULE, "a", replace(ENTRY, captured="first", packages={}), HERE)
    store.write(MODULE, "a", ENTRY, HERE)
    for key, stored in (("a", ENTRY), ("odd", odd)):
        found = entry(store, key)
        assert found.evidence.to_json() == ENTRY.evidence.to_json()
        as_stored = replace(stored, precision={"rps": 0.01}, busy=Busy(server=0.012), evidence=found.evidence)
        assert found == as_stored
    assert store.find(MODULE, "b", HERE) is None
    assert store.find("tests/test_other.py", "a", HERE) is None


def test_the_oldest_files_are_read_and_made_new_ones(store: BaselineStore) -> None:
    path = store.write(MODULE, "a", ENTRY, HERE)
    path.write_text(OLDEST % ENTRY.evidence.boots[0].latency.encode(), encoding="utf-8")
    old = entry(store)
    assert old == replace(ENTRY, tree=None, precision={}, busy=None, evidence=old.evidence)
    store.write(MODULE, "b", ENTRY, HERE)
    assert json.loads(path.read_text(encoding="utf-8"))["schema"] == SCHEMA
    again = entry(store)
    assert again == replace(old, evidence=again.evidence)
    assert again.evidence.to_json() == old.evidence.to_json() == ENTRY.evidence.to_json()
    assert entry(store, "b").tree == TREE


def test_entries_of_all_profiles_are_known_and_removed_and_nothing_empty_is_left(store: BaselineStore) -> None:
    assert (store.keys(), store.trees()) == ({}, set())
    kept = store.write(MODULE, "kept", ENTRY, HERE)
    store.write(MODULE, "gone", replace(ENTRY, tree=None), HERE)
    store.write("tests/test_other.py", "gone", ENTRY, HERE)
    store.write(MODULE, "gone", replace(ENTRY, tree="1" * 40), replace(HERE, cores=4))
    other = store.directory / "data" / "test_upload.py.json"
    other.parent.mkdir(parents=True)
    other.write_text("[]", encoding="utf-8")  # a file of others near them
    assert (store.keys(), store.trees()) == ({"kept": 1, "gone": 3}, {TREE, "1" * 40})
    assert store.remove({"gone", "never stored"}) == 3
    assert set(store.directory.rglob("*.json")) == {kept, other}
    assert set(store.directory.iterdir()) == {store.directory / ".local", kept.parent, other.parent}
    assert (store.keys(), store.remove({"gone"})) == ({"kept": 1}, 0)


def test_nothing_is_written_or_removed_beside_a_damaged_file(store: BaselineStore) -> None:
    store.write(MODULE, "a", ENTRY, HERE)
    elsewhere = replace(HERE, cores=4)
    damaged = store.write(MODULE, "a", ENTRY, elsewhere)
    damaged.write_text("{", encoding="utf-8")
    for act in (store.keys, lambda: store.remove({"a"}), lambda: store.write(MODULE, "b", ENTRY, elsewhere)):
        with pytest.raises(BaselineError, match="is damaged"):
            act()
    assert (damaged.read_text(encoding="utf-8"), entry(store).captured) == ("{", ENTRY.captured)


def test_of_other_machines_one_with_a_tree_comes_first_then_the_nearest_then_the_newest(store: BaselineStore) -> None:
    found = []
    for tree, captured, environment in (
        (None, "2026-06-01T00:00:00+00:00", replace(HERE, cores=4)),
        ("1" * 40, "2026-05-01T00:00:00+00:00", replace(HERE, cores=8, system="Darwin")),
        ("2" * 40, "2026-01-01T00:00:00+00:00", replace(HERE, cores=8)),
        ("3" * 64, "2026-02-01T00:00:00+00:00", replace(HERE, cores=16)),
        (None, "2025-01-01T00:00:00+00:00", HERE),  # this machine's own, whatever others have
    ):
        store.write(MODULE, "a", replace(ENTRY, tree=tree, captured=captured), environment)
        best = known(store.find(MODULE, "a", HERE))
        found.append((best.tree, list(best.differences.items())))
    assert [tree for tree, _ in found] == [None, "1" * 40, "2" * 40, "3" * 64, None]
    assert [differences for _, differences in found[2:]] == [
        [("cores", f"cores was {cores}, is 2")] for cores in (8, 16)
    ] + [[]]


def changed(text: str, *keys: str | int, to: object = None) -> str:
    """Returns the JSON text with the value under these keys changed, or taken away for None."""
    content = json.loads(text)
    holder = content
    for key in keys[:-1]:
        holder = holder[key]
    if to is None:
        del holder[keys[-1]]
    else:
        holder[keys[-1]] = to
    return json.dumps(content)


BOOT = ("tests", "a", "evidence", "boots", 0)


ONE = ("tests", "a")


@pytest.mark.parametrize(
    "keys,to,reason",
    [
        ((), "", "not JSON: Expecting value: line 1 column 1 (char 0)"),
        ((), "[" * 100_000, "not JSON: "),
        ((), "[1]", "its content is not an object"),
        (("schema",), None, "it has no 'schema'"),
        (("schema",), True, "schema is True, not a whole number"),
        (("schema",), 0, "schema is 0, not a whole number of 1 or more"),
        (("salt",), "zz", "salt is not 32 hexadecimal digits"),
        (("environment", "cpu"), None, "environment has no 'cpu'"),
        (("tests",), [], "tests is [], not an object"),
        (ONE, 3, "tests['a'] is not an object"),
        ((*ONE, "captured"), 3, "tests['a'].captured is 3, not a text"),
        ((*ONE, "commit"), None, "tests['a'] has no 'commit'"),
        ((*ONE, "tree"), "--output=/tmp/x", "tests['a'].tree is '--output=/tmp/x', not a Git hash"),
        ((*ONE, "precision", "rps"), -1, "tests['a'].precision.rps is -1, not a finite number of 0 or more"),
        ((*ONE, "busy", "host"), None, "tests['a'].busy has no 'host'"),
        ((*ONE, "evidence", "stabilised"), [1], "tests['a'].evidence.stabilised is [1], not a list of texts"),
        ((*BOOT, "requests"), -1, "tests['a'].evidence.boots[0].requests is -1, not a whole number of 0 or more"),
        ((*BOOT, "latency"), "HISTFA", "tests['a'].evidence.boots[0].latency: not an HdrHistogram V2 text: "),
        ((*BOOT, "rounds", "rps"), [1], "tests['a'].evidence.boots[0].rounds has lists of different lengths: 1, 2"),
        ((*BOOT, "rounds", "rps", 1), float("nan"), "tests['a'].evidence.boots[0].rounds.rps[1] is nan, not a finite"),
        ((*BOOT, "runs", "rss"), 10**400, "tests['a'].evidence.boots[0].runs.rss is 1000"),
    ],
)
def test_a_damaged_file_is_an_error_with_path_reason_and_what_to_do(
    store: BaselineStore, keys: tuple[str | int, ...], to: object, reason: str
) -> None:
    path = store.write(MODULE, "a", ENTRY, HERE)
    text = changed(path.read_text(encoding="utf-8"), *keys, to=to) if keys else str(to)
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BaselineError) as caught:
        store.find(MODULE, "a", HERE)
    first, what_to_do = str(caught.value).splitlines()
    assert first.startswith(f"a baseline is damaged: {reason}")
    assert first.endswith(f" ({path})")
    assert what_to_do == "Restore it from version control, or delete it and store a new one with --fileperf-update"


def test_damage_in_the_oldest_files_is_told(store: BaselineStore) -> None:
    path = store.path_of(MODULE, HERE)
    path.parent.mkdir(parents=True)
    text = OLDEST % in_ms(5).encode()
    path.write_text(changed(text, "tests", "a", "identity", "work", "arguments", to={"headers": [None]}))
    for act in (lambda: store.find(MODULE, "a", HERE), lambda: store.write(MODULE, "b", ENTRY, HERE)):
        with pytest.raises(BaselineError, match=r"a baseline is damaged: identity\.work has a form that no version"):
            act()


def test_a_damaged_entry_of_a_long_file_is_damage(store: BaselineStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baseline, "_LONG", 0)
    store.write(MODULE, "a", ENTRY, HERE)
    path = store.write(MODULE, "b", ENTRY, HERE)
    begin, end = path.read_text(encoding="utf-8").rsplit('"captured": ', 1)
    path.write_text(f'{begin}"captured": ,{end}', encoding="utf-8")
    for act in (lambda: store.find(MODULE, "b", HERE), store.trees, lambda: store.remove(["a"])):
        with pytest.raises(BaselineError, match="a baseline is damaged: Expecting value"):
            act()


def test_a_newer_schema_asks_for_an_upgrade(store: BaselineStore) -> None:
    path = store.write(MODULE, "a", ENTRY, HERE)
    path.write_text(changed(path.read_text(encoding="utf-8"), "schema", to=SCHEMA + 1), encoding="utf-8")
    with pytest.raises(BaselineError) as caught:
        store.find(MODULE, "a", HERE)
    assert str(caught.value) == (
        f"baseline {path} was stored by a newer pytest-fileperf (its schema is 4, and this version reads up to 3). "
        "Upgrade pytest-fileperf"
    )


def test_conflict_markers_are_named_with_their_line(store: BaselineStore) -> None:
    path = store.write(MODULE, "a", ENTRY, HERE)
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[4:5] = ["<<<<<<< HEAD", lines[4], "=======", lines[4], ">>>>>>> other"]
    path.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(BaselineError, match=r"has conflict markers of a merge, from line 5 on .*\nKeep one version"):
        store.find(MODULE, "a", HERE)


@posix
@pytest.mark.hostile
def test_a_pipe_in_place_of_a_baseline_is_an_error_and_no_hang(store: BaselineStore) -> None:
    path = store.path_of(MODULE, HERE)
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    for act in (lambda: store.find(MODULE, "a", HERE), store.keys, lambda: store.write(MODULE, "a", ENTRY, HERE)):
        with pytest.raises(BaselineError, match=r"cannot be read, because it is a pipe"):
            act()


@pytest.mark.parametrize(
    "module",
    ["tests/test_[a].py", "tests/test_*?.py", "t/" * 150 + "test_a.py", "ü" * 120 + "/test_a.py", "a\udc80/test_b.py"],
    ids=["brackets", "stars", "long", "long in bytes", "no UTF-8"],
)
def test_a_module_finds_its_baselines_whatever_it_is_called(store: BaselineStore, module: str) -> None:
    store.write(module, "a", ENTRY, HERE)
    store.write(module.replace("test_", "test_other_"), "b", ENTRY, HERE)
    assert store.find(module, "a", HERE) is not None
    assert store.find(module, "b", HERE) is None
    assert store.keys() == {"a": 1, "b": 1}


# --- The layout of baseline files: the same JSON, on lines that a diff shows well


def test_a_number_that_json_lacks_is_refused() -> None:
    with pytest.raises(ValueError, match="Out of range"):
        laid_out({"a": [float("inf")]})


# --- One entry of a long file


SHORT = st.none() | st.integers() | texts(max_size=5)
SHORT_VALUES = SHORT | st.lists(SHORT, max_size=3) | st.dictionaries(texts(max_size=3), SHORT, max_size=3)
SHORT_ENTRY = st.dictionaries(texts(min_size=1, max_size=3), SHORT_VALUES, min_size=1, max_size=3)
SHORT_ENTRIES = st.dictionaries(texts(max_size=3), SHORT_ENTRY, min_size=1, max_size=5)


def written(tests: dict[str, object]) -> bytes:
    head = {"environment": {"cpu": "x"}, "module": "a.py", "schema": 3}
    text = laid_out({**head, "tests": dict(sorted(tests.items()))}) + "\n"
    return text.encode("utf-8", "backslashreplace")


@given(SHORT_ENTRIES)
def test_it_has_what_json_reads(tests: dict[str, object]) -> None:
    found = LongFile(written(tests))
    assert dict(found) == tests
    assert found.content == {"environment": {"cpu": "x"}, "module": "a.py", "schema": 3, "tests": {}}
    assert len(found) == len(tests)
    assert all(key in found and not found.has_twice(key) for key in tests)
    assert "no such key" not in found


@given(SHORT_ENTRIES, texts(max_size=3), SHORT_ENTRY)
def test_with_an_entry_it_is_as_if_all_were_written_anew(tests: dict[str, object], key: str, entry: object) -> None:
    assert LongFile(written(tests)).with_entry(key, entry) == written({**tests, key: entry})


def test_a_key_that_is_there_twice_is_seen() -> None:
    assert LongFile(written({"a": {"x": 1}, "b": {"x": 1}}).replace(b'"b"', b'"a"')).has_twice("a")


@pytest.mark.parametrize("text", ["", "{}", json.dumps({"tests": {"a": {}}}), '{\n "tests": {\n  "a": {}\n }'])
def test_what_is_laid_out_otherwise_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="another layout"):
        LongFile(text.encode())


def test_a_damaged_entry_is_an_error_once_it_is_read() -> None:
    found = LongFile(written({"a": {"x": 1}, "b": {"x": 1}}).replace(b'"x": 1', b'"x": ', 1))
    assert found["b"] == {"x": 1}
    with pytest.raises(ValueError, match="Expecting value"):
        found["a"]


# --- What baselines hold of the values of requests: slow digests with a salt of the file


ARGUMENTS: Mapping[str, object] = {
    "headers": {"X-Token": "s3cret-1", "Authorization": "Bearer s3cret-2"},
    "params": {"key": "s3cret-3", "page": 2},
    "json": {"user": {"password": "s3cret-4"}, "tags": ["s3cret-5"]},
    "data": {"pin": "1234"},
    "extensions": {"trace": "s3cret-6"},
}
OPERATION = Operation(method="POST", url="/a?token=s3cret-7", arguments=ARGUMENTS)
EARLIER_WORK: Mapping[str, object] = {
    "method": "POST",
    "url": "/a?token=s3cret-7",
    "arguments": {
        "headers": [["X-Token", "s3cret-1"], ["Authorization", "hidden"]],
        "params": {"key": "s3cret-3", "page": 2},
        "json": {"user": {"password": "s3cret-4"}, "tags": ["s3cret-5"]},
        "data": {"pin": "1234"},
        "extensions": {"trace": "s3cret-6"},
    },
}
EARLIER = {
    "work": EARLIER_WORK,
    "server": {"kind": "command", "command": "serve --key s3cret-8"},
}
"""As schema 2 had it."""


def work(**arguments: object) -> Mapping[str, object]:
    return {"work": replace(OPERATION, arguments={**ARGUMENTS, **arguments}).identity()}


def test_equal_values_are_equal_with_one_salt_and_not_with_another() -> None:
    salt = new_salt()
    assert sealed(work(), salt) == sealed(work(), salt)
    digest = f"sha256:{'0' * 64}"
    assert sealed(digest, salt) != sealed(digest, new_salt())
    text = json.dumps(sealed(work(), salt))
    assert "sha256:" not in text
    assert "s3cret" not in text
    assert "1234" not in re.sub("[0-9a-f]{16}", "", text)


@pytest.mark.parametrize(
    "changed,said",
    [
        ({"headers": {"X-Token": "other"}}, "header 'X-Token' changed"),
        ({"headers": {}}, "header 'X-Token' is gone"),
        ({"params": {"key": "s3cret-3", "page": 3}}, "parameter 'page' changed"),
        ({"json": {"user": {"password": "?"}, "tags": ["s3cret-5"]}}, "JSON field 'user.password' changed"),
        ({"data": {"pin": "1234", "b": ""}}, "form field 'b' is new"),
        ({"content": b"x"}, "content is new"),
    ],
)
def test_what_changed_is_told_without_values(changed: dict[str, object], said: str) -> None:
    found = work_differences(work(), work(**changed))
    assert said in found.values()
    assert "s3cret" not in str(found)


def test_what_changed_in_a_part_of_a_load_is_told_by_its_name() -> None:
    def mix(token: str) -> Mapping[str, object]:
        named = Operation(method="GET", url="/", arguments={"headers": {"X-Token": token}})
        return {"work": Mix(parts=(Part(name="front", work=named), Part(name="a.b", work=OPERATION))).identity()}

    assert [*work_differences(mix("1"), mix("2")).values()] == ["header 'X-Token' of front changed"]
    texts = [
        {"work": Operation(method="GET", url="/", arguments={"params": text}).identity()} for text in ("a=1", "a=2")
    ]
    assert [*work_differences(*texts).values()] == ["parameters changed"]
    many = [{"work": Requests(recipes=(OPERATION, replace(OPERATION, url=url))).identity()} for url in ("/", "/?a=1")]
    assert "parameter 'a' of request 1 is new" in work_differences(*many).values()
    commands = [{"server": {"command": f"sha256:{number * 64}"}} for number in "01"]
    assert work_differences(*commands) == {"server.command": "the server's command changed"}


def test_values_of_earlier_schemas_are_those_of_now() -> None:
    now = of_earlier_schema(EARLIER)
    assert now["work"] == OPERATION.identity()
    assert "s3cret" not in str(now)
    many = Requests(recipes=(replace(OPERATION, url=""),) * 21, names=("GET /a?x=1",), urls=("/",), uses=(0,))
    earlier = {"requests": [{**EARLIER_WORK, "url": ""}] * 21, "names": ["GET /a?x=1"], "rows": "of the setup"}
    described = of_earlier_schema({"work": earlier})["work"]
    assert isinstance(described, dict)
    assert described["requests"] == many.identity()["requests"]
    assert described["names"] == ["GET /a?x=…"]


def test_a_file_of_an_earlier_schema_is_read_and_loses_its_values_when_it_is_written(tmp_path: Path) -> None:
    store = BaselineStore(tmp_path)
    path = store.write(MODULE, "old", ENTRY, HERE)
    content = json.loads(path.read_text(encoding="utf-8"))
    content["tests"]["old"]["identity"] = EARLIER
    del content["salt"]
    path.write_text(json.dumps({**content, "schema": 2}), encoding="utf-8")
    found = known(store.find(MODULE, "old", HERE))
    assert (found.salt, found.identity) == ("", of_earlier_schema(EARLIER))
    store.write(MODULE, "new", ENTRY, HERE)
    assert "s3cret" not in path.read_text(encoding="utf-8")
    found = known(store.find(MODULE, "old", HERE))
    assert found.identity == sealed(of_earlier_schema(EARLIER), found.salt)
    content["tests"]["old"]["identity"] = {"server": EARLIER["server"]}  # few values, as each takes its time
    path.write_text(json.dumps({**content, "schema": 2}), encoding="utf-8")
    store.write(MODULE, "new", ENTRY, HERE)
    store.remove(["new"])
    assert "s3cret" not in path.read_text(encoding="utf-8")


def test_a_file_keeps_its_salt_and_others_have_others(tmp_path: Path) -> None:
    store = BaselineStore(tmp_path)
    salts = []
    for module in (MODULE, MODULE, "tests/test_other.py"):
        store.write(module, "a", ENTRY, HERE)
        salts.append(store.salt_of(module, HERE))
    assert salts[0] == salts[1] != salts[2]
    assert store.salt_of(MODULE, replace(HERE, cores=64)) == salts[0]
    assert store.salt_of("tests/test_none.py", HERE) not in salts


def test_a_generated_payload_stays_in_clear() -> None:
    body = payload("1KiB")
    identity = Operation(method="POST", url="/", arguments={"content": body}).identity()
    assert sealed(identity["arguments"], new_salt()) == {"content": body.identity()}
    assert not is_digest(body.sha256())


# --- Runs that store at once, as real processes


STORES = """
import pickle, sys
from pathlib import Path
from pytest_fileperf.judge.baseline import BaselineStore

store, name = BaselineStore(Path(sys.argv[1])), sys.argv[2]
print("ready", flush=True)
module, entry, here = pickle.load(sys.stdin.buffer)
for number in range(10):
    store.write(module, f"{name}-{number}", entry, here)
    store.write(module, f"{name}-passing", entry, here)
    store.remove([f"{name}-passing"])
"""


@pytest.mark.hostile
def test_no_entry_is_lost(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STORES, str(tmp_path)]
    runs = [subprocess.Popen([*command, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE) for name in "ab"]
    assert [known(run.stdout).readline() for run in runs] == [b"ready\n"] * 2
    for run in runs:
        pickle.dump((MODULE, ENTRY, HERE), known(run.stdin))
        known(run.stdin).flush()
    for run in runs:
        run.communicate(timeout=60)
    assert [run.returncode for run in runs] == [0, 0]
    (file,) = tmp_path.glob("*-*/*.json")
    assert set(json.loads(file.read_text())["tests"]) == {f"{name}-{number}" for name in "ab" for number in range(10)}


def test_a_run_that_holds_the_lock_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baseline, "_LOCK_S", 0.1)
    with (
        locked(tmp_path / ".local" / "lock", within_s=1.0),
        pytest.raises(BaselineError, match=r"another run has been storing baselines in .* for 0\.1 s\. End it"),
    ):
        BaselineStore(tmp_path).write(MODULE, "a", ENTRY, HERE)
    BaselineStore(tmp_path).write(MODULE, "a", ENTRY, HERE)
    assert (tmp_path / ".local" / ".gitignore").read_text() == "*\n"


# --- Which baselines are stale: only those of which nothing is in doubt


SEEN = partial(
    stale_among,
    whole=frozenset({"whole.py"}),
    tests=frozenset({"whole.py::test_passed", "whole.py::test_failed", "whole.py::test_p[a]", "part.py::test_one"}),
    passed=frozenset({"whole.py::test_passed", "whole.py::test_p[a]", "part.py::test_one"}),
    measured=frozenset({"whole.py::test_passed", "whole.py::test_passed#2"}),
)


STALE = {
    Why.FEWER: ("whole.py::test_passed#3", "whole.py::test_p[a]"),
    Why.NO_TEST: ("whole.py::test_p[b]", "whole.py::test_p", "whole.py::TestOld::test_passed", "whole.py::test_old#2"),
    Why.NO_MODULE: ("gone.py::test_one", "gone.py::test_one[x::y]#2"),
    None: (
        *("whole.py::test_passed", "whole.py::test_passed#2", "whole.py::test_failed", "whole.py::test_failed#2"),
        *("part.py::test_one", "part.py::test_one#2", "part.py::test_two", "not_collected.py::test_one"),
    ),
}


def test_only_what_no_test_can_measure_again_is_stale() -> None:
    keys = [key for own in STALE.values() for key in own]
    found = SEEN(keys, is_gone=lambda module: module == "gone.py")
    assert found == {key: why for why, own in STALE.items() if why is not None for key in own}
    assert list(found) == sorted(found)
    odd = "a.yaml::case #2"  # a number sign may be part of a test's own name
    assert stale_among([odd], whole={"a.yaml"}, tests={odd}, passed=(), measured=(), is_gone=lambda _: False) == {}


# --- Which machines compare, and how a difference reads


MACHINE = Environment(
    system="Linux",
    machine="x86_64",
    cpu="Some CPU @ 2.60GHz",
    cores=2,
    python="CPython 3.11",
    packages={"uvicorn": "0.34.0"},
)

X86 = "processor : {}\nvendor_id : AuthenticAMD\ncpu family : 25\nmodel : {}\nmodel name : AMD EPYC\nstepping : 1\n"
ARM = "processor : {}\nCPU implementer : 0x41\nCPU variant : 0x3\nCPU part : {}\nCPU revision : 1\n"


@pytest.mark.parametrize(
    "change,difference",
    [
        ({"system": "Darwin"}, "system was Linux, is Darwin"),
        ({"machine": "arm64"}, "machine was x86_64, is arm64"),
        ({"cpu": "Other CPU"}, "cpu was Some CPU @ 2.60GHz, is Other CPU"),
        ({"cores": 4}, "cores was 2, is 4"),
        ({"python": "CPython 3.14"}, "python was CPython 3.11, is CPython 3.14"),
        ({"packages": {"uvicorn": "0.54.0"}}, None),
        ({"conditions": {"CPU limit": "none"}}, None),
    ],
)
def test_whatever_must_agree_makes_a_profile_of_its_own(change: dict[str, Any], difference: str | None) -> None:
    other = replace(MACHINE, **change)
    assert MACHINE.profile == "linux-x86_64-2-cpython3.11-b308b7c1"
    assert (other.profile == MACHINE.profile) is (difference is None)
    assert [*other.differences(MACHINE).values()] == ([] if difference is None else [difference])


def test_odd_words_make_a_safe_name_and_the_stored_form_has_no_packages() -> None:
    assert re.fullmatch(r"[a-z0-9_.-]+", replace(MACHINE, system="My/OS: ü", machine="a\\b").profile)
    assert Environment.from_json(Placed(MACHINE.to_json())) == replace(MACHINE, packages={})


def test_where_this_runs() -> None:
    """No process is started to find out: tests/marking.py fails an unmarked test that starts one."""
    here = Environment.current()
    assert here.system == platform.system()
    assert here.cores >= 1
    assert here.cpu
    assert here.python == f"{platform.python_implementation()} {sys.version_info.major}.{sys.version_info.minor}"
    assert {"uvicorn", "pytest", "numpy"} <= set(here.packages)
    assert here.conditions["Python"].startswith(platform.python_version())
    assert set(here.conditions) == {"Python", "CPU limit"}


@pytest.mark.parametrize(
    "own,files,limit",
    [
        ("0::/a/b\n", {"a/cpu.max": "50000 100000", "a/b/cpu.max": "max 100000"}, "0.5 cores"),
        ("0::/a\n", {"cpu.max": "150000 100000"}, "1.5 cores"),
        (
            "1:cpu,cpuacct:/a\n0::/\n",
            {"cpu,cpuacct/a/cpu.cfs_quota_us": "25000", "cpu,cpuacct/a/cpu.cfs_period_us": "100000"},
            "0.25 cores",
        ),
        ("1:cpu:/a\n", {"cpu/a/cpu.cfs_quota_us": "-1", "cpu/a/cpu.cfs_period_us": "100000"}, "none"),
        ("0::/a\n", {}, "none"),
        (None, {}, "none"),
    ],
)
def test_the_limit_of_cpu_is_the_least_of_all_groups(
    own: str | None, files: dict[str, str], limit: str, tmp_path: Path
) -> None:
    for name, text in files.items():
        path = tmp_path / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    if own is not None:
        (tmp_path / "own").write_text(own)
    assert cpu_limit(tmp_path / "groups", tmp_path / "own") == limit


@pytest.mark.parametrize(
    "cpuinfo,model",
    [
        ("processor\t: 0\nmodel name\t: Some  CPU @ 2.60GHz\n\nmodel name\t: Second\n", "Some CPU @ 2.60GHz + Second"),
        ("processor: 0\ncpu\t\t: POWER9, altivec supported\n", "POWER9, altivec supported"),
        (f"{X86.format(0, 17)}\n{X86.format(1, 17)}\n", "AMD EPYC (family 25, model 17, stepping 1)"),
        (ARM.format(0, "0xd0c"), "ARM 0x41 0xd0c (variant 0x3, revision 1)"),
        (
            "\n".join(ARM.format(core, part) for core, part in enumerate(("0xd05", "0xd05", "0xd0b"))),
            "ARM 0x41 0xd05 (variant 0x3, revision 1) + ARM 0x41 0xd0b (variant 0x3, revision 1)",
        ),
        ("model name\t: ARMv8 Processor rev 3\nCPU implementer\t: 0x41\n", "ARMv8 Processor rev 3 0x41"),
        ("nothing to see", platform.machine()),
    ],
)
def test_the_model_of_the_processor(cpuinfo: str, model: str, tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text(cpuinfo, encoding="utf-8")
    assert Environment.current(file).cpu == model
    assert Environment.current(tmp_path / "none").cpu == platform.machine()


def test_changes_name_nested_keys_and_both_values() -> None:
    was = {
        "load": {"connections": 32, "rate": None},
        "server": {"kind": "uvicorn", "stabilised": ["addresses"]},
        "x": 1,
    }
    now = {"load": {"connections": 64, "rate": 5}, "server": {"kind": "uvicorn", "stabilised": ()}, "y": {}}
    assert tuple(differences(was, now).values()) == (
        "load.connections was 32, is 64",
        "load.rate was none, is 5",
        "server.stabilised was addresses, is none",
        "x was 1, is not set",
        "y was not set, is {}",
    )
    assert differences(was, was) == {}
    assert condition_changes({"a": "1", "b": "1"}, {"b": "2", "c": "2"}) == ("b 1 → 2",)


MANY = {f"p{number:02}": "1" for number in range(20)}
CHANGES: dict[str, tuple[dict[str, str], dict[str, str], tuple[str, ...]]] = {
    "each kind": (
        {"a": "1", "gone": "2", "same": "3"},
        {"a": "1.1", "new": "4", "same": "3"},
        ("a 1 → 1.1", "removed gone 2", "added new 4"),
    ),
    "those of the server first": (
        {"a": "1", "starlette": "1.0", "uvicorn": "2"},
        {"a": "2", "starlette": "1.1", "uvicorn": "3"},
        ("starlette 1.0 → 1.1", "uvicorn 2 → 3", "a 1 → 2"),
    ),
    "many": (
        {"a": "1"},
        {"a": "1", "uvicorn": "2"} | MANY,
        ("added uvicorn 2", *(f"added p{number:02} 1" for number in range(7)), "and 13 more"),
    ),
    "one more than shown is shown": (
        {"a": "1"},
        {"a": "1"} | dict(sorted(MANY.items())[:9]),
        tuple(f"added p{number:02} 1" for number in range(9)),
    ),
    "a first baseline knew only those of the server": (
        {"uvicorn": "1", "h11": "2"},
        {"uvicorn": "1", "h11": "3"} | MANY,
        ("h11 2 → 3",),
    ),
}


@pytest.mark.parametrize("was,now,said", CHANGES.values(), ids=CHANGES)
def test_changes_of_packages_in_words(was: dict[str, str], now: dict[str, str], said: tuple[str, ...]) -> None:
    assert package_changes(was, now) == said
    assert server_packages({"a": "1", "uvicorn": "2", "fastapi": "3"}) == {"fastapi": "3", "uvicorn": "2"}
