"""What baselines hold of the values of requests: slow digests with a salt of the file, and nothing in clear."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from judge.test_baseline import ENTRY, HERE, MODULE

from pytest_fileperf.errors import BaselineError
from pytest_fileperf.judge.baseline import (
    BaselineStore,
    is_digest,
    new_salt,
    of_earlier_schema,
    sealed,
    work_differences,
)
from pytest_fileperf.plan.feed import Requests
from pytest_fileperf.plan.payload import payload
from pytest_fileperf.plan.request import Operation
from pytest_fileperf.plan.work import Mix, Part

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
    assert sealed(work(), salt) != sealed(work(), new_salt())
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
    assert said in found
    assert "s3cret" not in str(found)


def test_what_changed_in_a_part_of_a_load_is_told_by_its_name() -> None:
    def mix(token: str) -> Mapping[str, object]:
        named = Operation(method="GET", url="/", arguments={"headers": {"X-Token": token}})
        return {"work": Mix(parts=(Part(name="front", work=named), Part(name="a.b", work=OPERATION))).identity()}

    assert work_differences(mix("1"), mix("2")) == ("header 'X-Token' of front changed",)
    texts = [
        {"work": Operation(method="GET", url="/", arguments={"params": text}).identity()} for text in ("a=1", "a=2")
    ]
    assert work_differences(*texts) == ("parameters changed",)
    many = [{"work": Requests(recipes=(OPERATION, replace(OPERATION, url=url))).identity()} for url in ("/", "/?a=1")]
    assert "parameter 'a' of request 1 is new" in work_differences(*many)
    commands = [{"server": {"command": f"sha256:{number * 64}"}} for number in "01"]
    assert work_differences(*commands) == ("the server's command changed",)


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
    found = store.find(MODULE, "old", HERE)
    assert found is not None
    assert (found.salt, found.entry.identity) == ("", of_earlier_schema(EARLIER))
    store.write(MODULE, "new", ENTRY, HERE)
    assert "s3cret" not in path.read_text(encoding="utf-8")
    found = store.find(MODULE, "old", HERE)
    assert found is not None
    assert found.entry.identity == sealed(of_earlier_schema(EARLIER), found.salt)
    path.write_text(json.dumps({**content, "schema": 2}), encoding="utf-8")
    store.write(MODULE, "new", ENTRY, HERE)
    store.remove(["new"])
    assert "s3cret" not in path.read_text(encoding="utf-8")


def test_a_file_keeps_its_salt_and_others_have_others(tmp_path: Path) -> None:
    store = BaselineStore(tmp_path)
    salts = []
    for module in (MODULE, MODULE, "tests/test_other.py"):
        store.write(module, "a", replace(ENTRY, identity=work()), HERE)
        salts.append(store.salt_of(module, HERE))
    assert salts[0] == salts[1] != salts[2]
    assert store.salt_of(MODULE, replace(HERE, cores=64)) == salts[0]
    assert store.salt_of("tests/test_none.py", HERE) not in salts


def test_a_salt_that_is_none_is_damage(tmp_path: Path) -> None:
    store = BaselineStore(tmp_path)
    path = store.write(MODULE, "a", ENTRY, HERE)
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**content, "salt": "zz"}), encoding="utf-8")
    with pytest.raises(BaselineError, match="salt is not 32 hexadecimal digits"):
        store.find(MODULE, "a", HERE)


def test_a_generated_payload_stays_in_clear() -> None:
    body = payload("1KiB")
    identity = Operation(method="POST", url="/", arguments={"content": body}).identity()
    assert sealed(identity["arguments"], new_salt()) == {"content": body.identity()}
    assert not is_digest(body.sha256())
