"""Which machines compare, and how a difference reads."""

from __future__ import annotations

import platform
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_fileperf.judge.environment import (
    Environment,
    condition_changes,
    cpu_limit,
    differences,
    package_changes,
    server_packages,
)
from pytest_fileperf.measure.codec import Placed

HERE = Environment(
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
    other = replace(HERE, **change)
    assert HERE.profile == "linux-x86_64-2-cpython3.11-b308b7c1"
    assert (other.profile == HERE.profile) is (difference is None)
    assert [*other.differences(HERE).values()] == ([] if difference is None else [difference])


def test_odd_words_make_a_safe_name_and_the_stored_form_has_no_packages() -> None:
    assert re.fullmatch(r"[a-z0-9_.-]+", replace(HERE, system="My/OS: ü", machine="a\\b").profile)
    assert Environment.from_json(Placed(HERE.to_json())) == replace(HERE, packages={})


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


def test_generations_of_one_name_have_profiles_of_their_own(tmp_path: Path) -> None:
    file, found = tmp_path / "cpuinfo", []
    for model in (1, 17):
        file.write_text(X86.format(0, model), encoding="utf-8")
        found.append(Environment.current(file))
    assert found[0].profile != found[1].profile
    stored = replace(found[0], cpu="AMD EPYC")  # as in a baseline of before the numbers were part of it
    assert found[1].differences(stored) == {"cpu": "cpu was AMD EPYC, is AMD EPYC (family 25, model 17, stepping 1)"}
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
