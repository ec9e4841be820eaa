"""What README.md says is so: its samples run as they are, and what it names is there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
GUIDES = sorted((ROOT / "examples").glob("*/README.md"))
MOST_LINES = 200
FILES = {"app/main.py": "from fastapi", "tests/performance/test_files.py": "import pytest"}
"""The files that the first test is made of, each with how its sample begins."""


def samples(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_it_is_read_in_one_sitting() -> None:
    assert len(README.splitlines()) <= MOST_LINES


@pytest.mark.once
def test_options_in_samples_are_there() -> None:
    command = [sys.executable, "-m", "pytest", "--help"]
    help_text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    there = set(re.findall(r"--fileperf[a-z-]*", help_text))
    for page in (ROOT / "README.md", *GUIDES):
        named = set(re.findall(r"--fileperf[a-z-]*", page.read_text(encoding="utf-8")))
        assert named <= there, page


@pytest.mark.parametrize("readme", ["README.md", "examples/quickstart/README.md"])
def test_the_quickstart_is_made_slower_by_one_line_of_its_code(readme: str) -> None:
    text = (ROOT / readme).read_text(encoding="utf-8")
    (found,) = re.findall(r"^\$ sed -i\.bak 's/\^(.+)/(.+)/' (\S+)", text, re.MULTILINE)
    before, after, app = found
    lines = (ROOT / app).read_text(encoding="utf-8").splitlines()
    assert lines.count(before) == 1
    assert after == before.replace("0.0", "0.3")
    assert f"$ mv {app}.bak {app}" in text


@pytest.mark.once
def test_the_first_tests_run_as_they_are_pasted(pytester: pytest.Pytester) -> None:
    (config,) = samples("toml")
    pytester.makepyprojecttoml(config)
    for name, begin in FILES.items():
        assert f"`{name}`" in README
        (sample,) = (text for text in samples("python") if text.startswith(begin))
        path = pytester.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        # A busy machine may take longer; what is tested here is that it runs.
        path.write_text(sample.replace("< 0.020", "< 20"), encoding="utf-8")
    assert len(samples("python")) == len(FILES)
    pytester.runpytest_subprocess("tests/performance").assert_outcomes(skipped=3)
    result = pytester.runpytest_subprocess("--fileperf-smoke", "-p", "no:randomly", "tests/performance")
    result.assert_outcomes(passed=3)
