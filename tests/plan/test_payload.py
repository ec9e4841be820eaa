"""Request bodies are exactly as declared, and the same every time."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_fileperf import PlanError, payload

BLOCK = 1 << 20
KINDS = ("random", "text", "crlf")


@settings(max_examples=10)
@given(size_bytes=st.integers(0, 3000), kind=st.sampled_from(KINDS), seed=st.integers(0, 1 << 32))
def test_content_has_the_declared_size_and_digest_and_repeats(size_bytes: int, kind: str, seed: int) -> None:
    body = payload(size_bytes, kind=kind, seed=seed)
    content = b"".join(body.blocks())
    assert len(content) == body.size_bytes == size_bytes
    assert body.sha256() == hashlib.sha256(content).hexdigest()
    assert b"".join(payload(size_bytes, kind=kind, seed=seed).blocks()) == content


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_are_of_up_to_1_mib_and_a_shorter_payload_is_the_start_of_a_longer_one(kind: str) -> None:
    body = payload(BLOCK + 1, kind=kind)
    blocks = list(body.blocks())
    assert [len(block) for block in blocks] == [BLOCK, 1]
    assert body.sha256() == hashlib.sha256(b"".join(blocks)).hexdigest()
    assert blocks[0].startswith(b"".join(payload(100, kind=kind).blocks()))
    assert payload(1000, kind=kind).sha256() != payload(1000, kind=kind, seed=1).sha256()


# A change here makes every stored baseline one of something else.
@pytest.mark.parametrize(
    "kind,digest",
    [
        ("random", "fbdc0b37423e95a739359d6110c7791a5d3f063a5816fb184c8b624ee2b5a0ce"),
        ("text", "25f2416eda5146e81da2eebd4a3dea78edcd5e41af75e89cc40b1d6e7de907a9"),
        ("crlf", "42b40cc79d254b179dad5e2d1846697a8f5de08363633e22b91e3e9d0c6d10d3"),
    ],
)
def test_content_never_changes_between_versions(kind: str, digest: str) -> None:
    assert payload("256KiB", kind=kind).sha256() == digest


def test_text_is_lines_of_words_and_crlf_has_a_line_end_every_four_bytes() -> None:
    text, crlf = (b"".join(payload(10_000, kind=kind).blocks()) for kind in ("text", "crlf"))
    assert all(len(line.split(" ")) == 10 for line in text.decode("ascii").splitlines()[:-1])
    assert {crlf[position : position + 2] for position in range(0, len(crlf), 4)} == {b"\r\n"}


def test_a_path_gives_the_content_of_the_file_wherever_the_directory_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "photo.jpg"
    file.write_bytes(os.urandom(BLOCK + 7))
    content, digest = file.read_bytes(), hashlib.sha256(file.read_bytes()).hexdigest()
    monkeypatch.chdir(tmp_path)
    bodies = [payload(name, content_type="image/jpeg") for name in (file, str(file), "photo.jpg")]
    monkeypatch.chdir(tmp_path.parent)
    for body in bodies:
        assert b"".join(body.blocks()) == content
        facts = (body.size_bytes, body.kind, body.filename, body.content_type, body.sha256())
        assert facts == (BLOCK + 7, "file", "photo.jpg", "image/jpeg", digest)
        # Its identity does not say where it lies.
        assert body.identity() == {"size_bytes": BLOCK + 7, "kind": "file", "seed": 0, "sha256": digest}
    assert payload("1KiB", kind="text", seed=3).identity()["seed"] == 3


@pytest.mark.skipif(os.name != "posix", reason="it has no such files")
def test_a_file_that_does_not_say_its_size_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").touch()
    assert payload(tmp_path / "empty").size_bytes == 0
    with pytest.raises(PlanError, match=r"is a pipe or a device, which can be read only once. Copy it to a file"):
        payload(tmp_path / "pipe")
    with pytest.raises(PlanError, match="is a pipe or a device"):
        payload("/dev/zero")
    if Path("/proc/self/status").exists():
        with pytest.raises(PlanError, match=r"has no known size. Copy it to a plain file, and give that file"):
            payload("/proc/self/status")


@pytest.mark.parametrize(
    "what,message",
    [
        ("256QiB", r"'256QiB' is neither a size \(as in \"256KiB\"\) nor an existing file \(the working directory is "),
        ("missing.bin", r"'missing.bin' is neither a size"),
        (Path("missing.bin"), r"'missing.bin' is neither a size"),
        ("9" * 5000, r"neither a size"),
        (".", r"'.' is neither a size"),
        (-1, r"payload size: -1 isn't a size"),
        (True, r"payload size: True isn't a size"),
        (1.5, r"payload size: 1.5 isn't a size"),
        (None, r"payload size: None isn't a size"),
    ],
)
def test_what_is_neither_size_nor_file_is_refused(what: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        payload(what)


def test_every_problem_is_said_at_once() -> None:
    with pytest.raises(PlanError) as caught:
        payload("missing.bin", kind="zeros")
    assert len(caught.value.problems) == 2
    assert "payload kind 'zeros' is unknown. Use one of random, text, crlf" in str(caught.value)


def test_a_file_that_may_not_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "secret"
    file.write_bytes(b"x")
    # As root every file may be read, whatever its mode.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(PlanError, match="cannot be read: permission denied"):
        payload(file)


def test_a_file_that_is_gone_is_told(tmp_path: Path) -> None:
    file = tmp_path / "a.bin"
    file.write_bytes(b"x")
    body = payload(file)
    file.unlink()
    for use in (body.sha256, body.read):
        with pytest.raises(PlanError, match=r"payload file '.*a\.bin': No such file or directory. It must not change"):
            use()
