"""Which machines compare, and how a difference reads."""

from __future__ import annotations

import platform
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_fileperf.judge.environment import PACKAGES, Environment, differences

HERE = Environment(
    system="Linux",
    machine="x86_64",
    cpu="Some CPU @ 2.60GHz",
    cores=2,
    python="CPython 3.11",
    packages={"uvicorn": "0.34.0"},
)


def test_the_profile_is_readable_safe_and_the_same_everywhere() -> None:
    assert HERE.profile == "linux-x86_64-2-cpython3.11-b308b7c1"


@pytest.mark.parametrize(
    "other,difference",
    [
        (replace(HERE, system="Darwin"), "system was Linux, is Darwin"),
        (replace(HERE, machine="arm64"), "machine was x86_64, is arm64"),
        (replace(HERE, cpu="Other CPU"), "cpu was Some CPU @ 2.60GHz, is Other CPU"),
        (replace(HERE, cores=4), "cores was 2, is 4"),
        (replace(HERE, python="CPython 3.14"), "python was CPython 3.11, is CPython 3.14"),
    ],
)
def test_whatever_must_agree_makes_a_profile_of_its_own(other: Environment, difference: str) -> None:
    assert other.profile != HERE.profile
    assert other.differences(HERE) == (difference,)


def test_packages_make_no_profile() -> None:
    newer = replace(HERE, packages={"uvicorn": "0.54.0"})
    assert newer.profile == HERE.profile
    assert newer.differences(HERE) == ()


def test_odd_words_make_a_safe_name() -> None:
    odd = replace(HERE, system="My/OS: ü", machine="a\\b")
    assert re.fullmatch(r"[a-z0-9_.-]+", odd.profile)


def test_the_stored_form_comes_back_without_packages() -> None:
    assert Environment.from_json(HERE.to_json()) == replace(HERE, packages={})


def test_where_this_runs() -> None:
    here = Environment.current()
    assert here.system == platform.system()
    assert here.cores >= 1
    assert here.cpu
    assert here.python == f"{platform.python_implementation()} {sys.version_info.major}.{sys.version_info.minor}"
    assert set(here.packages) <= set(PACKAGES)
    assert "uvicorn" in here.packages


def test_finding_out_starts_no_process() -> None:
    """tests/marking.py fails an unmarked test that starts one."""
    assert Environment.current().cpu


@pytest.mark.parametrize(
    "cpuinfo,model",
    [
        ("processor\t: 0\nmodel name\t: Some  CPU @ 2.60GHz\n\nmodel name\t: Second\n", "Some CPU @ 2.60GHz"),
        ("processor: 0\ncpu\t\t: POWER9, altivec supported\n", "POWER9, altivec supported"),
        ("CPU implementer\t: 0x41\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\n", "ARM 0x41 0xd0c 0x3"),
        ("nothing to see", platform.machine()),
    ],
)
def test_the_model_of_the_processor(cpuinfo: str, model: str, tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text(cpuinfo, encoding="utf-8")
    assert Environment.current(file).cpu == model


def test_where_no_file_names_the_processor_it_is_the_architecture(tmp_path: Path) -> None:
    assert Environment.current(tmp_path / "none").cpu == platform.machine()


def test_changes_name_nested_keys_and_both_values() -> None:
    was = {
        "load": {"connections": 32, "rate": None},
        "server": {"kind": "uvicorn", "stabilised": ["addresses"]},
        "x": 1,
    }
    now = {"load": {"connections": 64, "rate": 5}, "server": {"kind": "uvicorn", "stabilised": ()}, "y": {}}
    assert differences(was, now) == (
        "load.connections was 32, is 64",
        "load.rate was none, is 5",
        "server.stabilised was addresses, is none",
        "x was 1, is not set",
        "y was not set, is {}",
    )
    assert differences(was, was) == ()
