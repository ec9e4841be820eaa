"""Damaged answers through real sockets: ours sees what h11 sees. `fuzz_wire.py` plays a million of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ANSWERS = 2000


@pytest.mark.parametrize("loop", ["asyncio", *(["uvloop"] if sys.platform != "win32" else [])])
def test_damaged_answers_are_seen_as_h11_sees_them(loop: str) -> None:
    command = [sys.executable, "tests/wire/fuzz_wire.py", "--answers", str(ANSWERS), "--loop", loop]
    played = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert played.returncode == 0, played.stdout[-5000:] + played.stderr
    assert f"{ANSWERS:,} (" in played.stdout
    assert ", 0 wrong" in played.stdout
