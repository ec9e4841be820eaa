"""The names in braces that a server's start fills in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_fileperf.serve.spec import env_filled, fill_environment, filled, has_names


@pytest.mark.parametrize(
    "text,result",
    [
        ("sqlite:///data-{boot}.db", "sqlite:///data-0007.db"),
        ("{boot}:{port}/{worker}", "0007:8000/1"),
        ('{"port": {"boot": 1}}', '{"port": {"boot": 1}}'),
        ("{other} {Boot} {boot!r} {{boot}}", "{other} {Boot} {boot!r} {0007}"),
        ("", ""),
    ],
)
def test_known_names_are_filled_in_and_all_else_stays(text: str, result: str) -> None:
    assert filled(text, boot=7, port=8000, worker=1) == result


def test_what_is_not_known_yet_stays() -> None:
    assert filled("{boot} {port} {worker}", boot=12345) == "12345 {port} {worker}"
    assert has_names("{worker}")
    assert not has_names("{python}")


def test_only_variables_of_the_user_are_filled_in() -> None:
    env = {"OURS": "{boot}", "PS1": "{boot}"}
    assert env_filled(env, ["OURS"], boot=1) == {"OURS": "0001", "PS1": "{boot}"}


def test_workers_of_a_boot_have_numbers_from_0_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for worker in range(3):
        monkeypatch.setenv("AT", "{port}/{worker}")
        fill_environment(["AT", "GONE"], port=80, run_directory=tmp_path)
        assert os.environ["AT"] == f"80/{worker}"
