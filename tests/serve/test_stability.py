"""What a boot asks for to be stable, and what it says it got."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

import pytest
from serve.processes import linux

from pytest_fileperf.serve import stability


def test_the_seed_is_a_function_of_the_boot() -> None:
    assert [stability.stabilising_env(boot)["PYTHONHASHSEED"] for boot in range(3)] == ["1", "2", "3"]


def test_the_allocator_keeps_its_thresholds_and_what_the_user_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    assert "GLIBC_TUNABLES" not in stability.stabilising_env(0)
    assert stability.stabilising_env(0, in_turn=True)["GLIBC_TUNABLES"] == "glibc.malloc.tcache_count=0"
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=7")
    assert stability.stabilising_env(0, in_turn=True)["GLIBC_TUNABLES"].endswith(":glibc.malloc.tcache_count=7")


def test_memory_is_moved_by_the_number_of_the_boot_and_by_nothing_else() -> None:
    moved = [moved_by(number) for number in (0, 0, 1, 2)]
    assert moved[0] == moved[1]
    assert len(set(moved)) == 3
    assert all(0 < total < 2 << 20 for _, total in moved)


def moved_by(boot: int) -> tuple[int, int]:
    """Returns by how many bytes a boot moves the stack, and how many its process holds to move the heap."""
    code = "from pytest_fileperf.serve import stability; stability.move_heap();print(sum(map(len, stability._BALLAST)))"
    layout = {"PYTEST_FILEPERF_LAYOUT": stability.stabilising_env(boot)["PYTEST_FILEPERF_LAYOUT"]}
    command = (sys.executable, "-c", code)
    done = subprocess.run(command, env=os.environ | layout, capture_output=True, text=True, check=True, timeout=30)
    return len(*layout.values()), int(done.stdout)


def test_what_holds_in_this_process_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "random")
    assert "hash seed" not in stability.stabilised_now()
    monkeypatch.setenv("PYTHONHASHSEED", "1")
    assert "hash seed" in stability.stabilised_now()


PROGRAMS: dict[str, tuple[Sequence[str], set[str]]] = {
    "python": ((sys.executable, "-c", "print(flush=True); input()"), {"hash seed"}),
    "no python": (("sh", "-c", "echo; read line"), set()),
}


@linux
@pytest.mark.parametrize("command,held", PROGRAMS.values(), ids=PROGRAMS)
@pytest.mark.parametrize("fixed", [True, False])
def test_what_holds_in_another_program_is_seen_from_outside(
    fixed: bool, command: Sequence[str], held: set[str]
) -> None:
    setarch = shutil.which("setarch")
    if fixed and (setarch is None or subprocess.run([setarch, "-R", "true"], check=False).returncode != 0):
        pytest.skip("addresses cannot be fixed here")
    prefix = (str(setarch), "-R") if fixed else ()
    with subprocess.Popen(
        [*prefix, *command],
        env=os.environ | stability.stabilising_env(0),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert set(stability.stabilised_in(process.pid)) - {"addresses"} == held
        assert ("addresses" in stability.stabilised_in(process.pid)) >= fixed
        process.communicate(b"\n")


def test_nothing_is_known_of_a_process_that_is_gone() -> None:
    assert stability.stabilised_in(2**22 + 1) == ()
