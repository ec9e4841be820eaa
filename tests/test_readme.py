"""What README.md says is so: its samples run as they are, and what it names is there."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from report.samples import result

from pytest_fileperf.errors import RegressionError
from pytest_fileperf.judge.record import Explanation
from pytest_fileperf.judge.verdict import MetricComparison, Outcome, Verdict
from pytest_fileperf.measure.blame import FunctionGrowth
from pytest_fileperf.measure.stacks import Frame, Profile
from pytest_fileperf.report.message import raise_for
from pytest_fileperf.report.profiled import growth_text

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
GUIDES = sorted((ROOT / "examples").glob("*/README.md"))
QUICKSTART = ROOT / "examples" / "quickstart" / "test_performance.py"
MOST_LINES = 150
FILES = {"app/main.py": "from fastapi", "tests/performance/test_files.py": "import pytest"}
"""The files that the first test is made of, each with how its sample begins."""

SLOWER_UPLOAD = (
    MetricComparison(
        metric="rps", outcome=Outcome.REGRESSED, tolerance=0.03, base=1095.83, now=906.018, change=-0.173213,
        low=-0.201942, high=-0.143451, confidence=0.9, detectable=0.1976, pairs=4,
    ),
    MetricComparison(
        metric="p99", outcome=Outcome.PASS, tolerance=0.15, base=0.0618518, now=0.0682885, change=0.104066,
        low=0.0030045, high=0.198415, confidence=0.9, detectable=0.4369, pairs=4,
    ),
)  # fmt: skip
"""What a run of the quickstart showed once its upload hashed what it took."""
HASHED = Profile(stacks={}, samples=665, requests=3590, cpu_per_request=894.894e-6)
UNHASHED = Profile(stacks={}, samples=621, requests=4202, cpu_per_request=702.925e-6)
UPLOAD = FunctionGrowth(
    frame=Frame(function="upload", file="app.py", line=88, own_code=True), growth_s=191.969e-6, share=1.0,
    base_s=361.084e-6, now_s=562.505e-6, base_self_s=90.5539e-6, now_self_s=286.635e-6,
)  # fmt: skip


def samples(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_it_is_read_in_one_sitting() -> None:
    assert len(README.splitlines()) <= MOST_LINES


def test_options_in_samples_are_there() -> None:
    command = [sys.executable, "-m", "pytest", "--help"]
    help_text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    there = set(re.findall(r"--fileperf[a-z-]*", help_text))
    for page in (ROOT / "README.md", *GUIDES):
        named = set(re.findall(r"--fileperf[a-z-]*", page.read_text(encoding="utf-8")))
        assert named <= there, page


def test_the_failure_that_is_shown_is_what_a_regression_says() -> None:
    """The sample is what a real run printed; its figures, told by the code that is here, read the same."""
    verdict = Verdict(comparisons=SLOWER_UPLOAD, since="its baseline (09a3381 of 2026-11-23)")
    grown = growth_text(UNHASHED, HASHED, [UPLOAD])
    slower = replace(result(), verdict=verdict, explanation=Explanation(text=grown))
    with pytest.raises(RegressionError) as raised:
        raise_for(slower, strict=False, ci=False)
    (sample,) = (text for text in samples("text") if text.startswith(">"))
    call, *error = sample.splitlines()
    assert call.removeprefix(">").strip() in QUICKSTART.read_text(encoding="utf-8")
    shown = "\n".join(line.removeprefix("E").removeprefix("       ") for line in error)
    assert shown == f"pytest_fileperf.errors.RegressionError: {raised.value}"


def test_the_quickstart_is_made_slower_by_one_line_of_its_code() -> None:
    text = (ROOT / "examples" / "quickstart" / "README.md").read_text(encoding="utf-8")
    (found,) = re.findall(r"^\$ sed -i\.bak 's/\^(.+)/(.+)/' (\S+)", text, re.MULTILINE)
    before, after, app = found
    lines = (ROOT / app).read_text(encoding="utf-8").splitlines()
    assert lines.count(before) == 1
    assert after == before.replace("0.0", "0.3")
    assert f"$ mv {app}.bak {app}" in text


def test_the_first_tests_run_as_they_are_pasted(pytester: pytest.Pytester) -> None:
    (config,) = samples("toml")
    pytester.makepyprojecttoml(config)
    for name, begin in FILES.items():
        assert f"`{name}`" in README
        (sample,) = (text for text in samples("python") if text.startswith(begin))
        path = pytester.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        # A busy machine may take longer; what is tested here is that it runs.
        path.write_text(sample.replace("< 0.2 ", "< 20 "), encoding="utf-8")
    first, *others = samples("python")
    assert first.strip() in (pytester.path / "tests" / "performance" / "test_files.py").read_text(encoding="utf-8")
    assert len(others) == len(FILES)
    pytester.runpytest_subprocess("tests/performance").assert_outcomes(skipped=3)
    result = pytester.runpytest_subprocess("--fileperf-smoke", "-p", "no:randomly", "tests/performance")
    result.assert_outcomes(passed=3)
