"""The CI files of `examples/ci`: their steps run in a clone of a project, with what GitHub and GitLab set.

Only the steps that install are left out: what they install is here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from versions.repositories import Repo, git, needs_git

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
SHORT = (
    "-k test_download -p fileperf -p no:cacheprovider --fileperf-duration=0.1s --fileperf-rounds=3 --fileperf-boots=1"
    " --fileperf-max-duration=1s"
)
"""What makes the steps short: options for every run of pytest, which loads no other plugin."""
HERE = "--fileperf-server=inprocess"
"""Where no other version is measured, the app needs no process of its own."""
APP = """
BODY = bytes(256 << 10)

async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    body, status = (BODY, 200) if scope["path"] == "/download" else (b"", 404)
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
"""
"""What the test that runs needs of the quickstart's app: to import FastAPI takes longer than all of its load."""

pytestmark = [
    needs_git,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.name != "posix", reason="the steps are for a shell"),
]


def jobs_of(path: Path, job: str, command: str) -> dict[str, list[str]]:
    """Returns the commands of each job, by patterns. It reads what these files need of YAML: one line a command."""
    text = path.read_text(encoding="utf-8")
    jobs = re.findall(rf"^{job}([^\s#][^:\n]*):\n((?:{job}  .*\n|\n)+)", text, re.MULTILINE)
    found = {name: re.findall(rf"^ +- {command}$", body, re.MULTILINE) for name, body in jobs}
    return {name: commands for name, commands in found.items() if commands}


GITHUB = jobs_of(EXAMPLES / "ci" / "performance.yml", "  ", "run: (.+)")
GITLAB = jobs_of(EXAMPLES / "ci" / "gitlab-ci.yml", "", "((?:pytest|pip) .+)")


def test_the_jobs_are_those_that_the_readme_names() -> None:
    assert list(GITHUB) == ["baselines", "base-branch"]
    assert list(GITLAB) == [".load tests", "baselines", "target branch"]
    readme = (EXAMPLES / "ci" / "README.md").read_text(encoding="utf-8")
    assert all(f"**{name}**" in readme for name in ("baselines", "base-branch", "target branch"))
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = set(tomllib.load(file)["project"]["optional-dependencies"])
    installs = [command for job in (*GITHUB.values(), *GITLAB.values()) for command in job if "pip" in command]
    assert len(installs) == 3
    for command in installs:
        (given,) = re.findall(r'^pip install -e \. "pytest-fileperf\[(.+)\]"$', command)
        assert set(given.split(",")) <= extras


@dataclass(frozen=True)
class Clone:
    """A clone of a project, as CI makes it, and what CI sets."""

    repo: Repo
    env: Mapping[str, str]

    def run(self, job: list[str], *, more: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        """Runs the step of a job that is no installation, in the shell that CI takes."""
        (command,) = (command for command in job if not command.startswith("pip "))
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", command],
            cwd=self.repo.top,
            env={
                **self.env,
                "CI": "true",
                "PYTEST_ADDOPTS": f"{SHORT} {more}",
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
                **env,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=250,
        )


@pytest.fixture
def project(tmp_path: Path) -> Repo:
    """The quickstart as a project of its own, not committed yet."""
    repo = Repo.make(tmp_path / "origin")
    shutil.copy(EXAMPLES / "quickstart" / "pytest.ini", repo.top)
    repo.write("app.py", APP)
    tests = repo.top / "tests" / "performance"
    tests.mkdir(parents=True)
    text = (EXAMPLES / "quickstart" / "test_performance.py").read_text(encoding="utf-8")
    # Nothing here is to depend on how fast the machine is.
    for fast, any_speed in (("connections=32", "connections=2"), (', min_rps=20, max_p99="2s"', ""), ("< 1.0", "< 60")):
        assert fast in text
        text = text.replace(fast, any_speed)
    (tests / "test_performance.py").write_text(text, encoding="utf-8")
    repo.write(".gitignore", "__pycache__/\n/fileperf.*\n/junit.xml\n")
    return repo


def clone_of(repo: Repo, tmp_path: Path) -> Clone:
    git(tmp_path, "clone", "--quiet", str(repo.top), "clone")
    own = ("CI", "GIT_", "GITHUB_", "GITLAB_", "PYTEST_", "PYTHON")
    env = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    env |= {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}", "TMPDIR": str(tmp_path)}
    return Clone(Repo(tmp_path / "clone"), env)


def test_the_baselines_gate_and_their_reports_are_there(project: Repo, tmp_path: Path) -> None:
    project.commit()
    stored = clone_of(project, tmp_path)
    done = stored.run(["pytest --fileperf-update=all tests/performance"], more=HERE, CI="")
    assert done.returncode == 0, done.stdout
    stored.repo.commit()
    made = {"GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": str(stored.repo.top)}
    summary = tmp_path / "summary.md"

    again = partial(stored.run, GITLAB["baselines"], more=HERE, GITLAB_CI="true", CI_PROJECT_DIR=str(stored.repo.top))
    unchanged = again()
    if unchanged.returncode:  # by stored figures alone, a machine that stands still for a moment is slower code
        unchanged = again()
    assert unchanged.returncode == 0, unchanged.stdout
    assert ET.parse(stored.repo.top / "junit.xml").getroot().findall(".//testcase")

    broken(stored.repo)
    worse = stored.run(GITHUB["baselines"], more=HERE, GITHUB_STEP_SUMMARY=str(summary), **made)
    assert_fails(worse)
    assert summary.read_text(encoding="utf-8").startswith("## Load tests: 1 measured: 1 FAILED\n")
    for name in ("fileperf.json", "fileperf.html"):
        assert (stored.repo.top / name).stat().st_size > 1000


def test_a_push_is_compared_with_the_branch_before_it(project: Repo, tmp_path: Path) -> None:
    before = project.commit()
    broken(project)
    project.commit()
    pushed = clone_of(project, tmp_path)
    title = f"{before[:7]} (the commit before origin/main)"
    on_main = {"GITHUB_ACTIONS": "true", "GITHUB_BASE_REF": "", "GITHUB_REF_NAME": "main"}

    worse = pushed.run(GITHUB["base-branch"], **on_main)
    assert_fails(worse)
    assert f"against {title}" in worse.stdout

    head = pushed.repo.git("rev-parse", "HEAD")
    of_gitlab = {"CI_COMMIT_BRANCH": "main", "CI_COMMIT_SHA": head, "CI_COMMIT_BEFORE_SHA": before}
    header = pushed.run(GITLAB["target branch"], more="--collect-only", **of_gitlab)
    assert f"against {before[:7]} (origin/main before this push)" in header.stdout
    of_request = {"CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main", "GITHUB_BASE_REF": "main"}
    pushed.repo.git("checkout", "--quiet", "-b", "change")
    pushed.repo.commit(other_py="")
    for job in (GITHUB["base-branch"], GITLAB["target branch"]):
        assert f"against origin/main ({head[:7]})" in pushed.run(job, more="--collect-only", **of_request).stdout


def assert_fails(done: subprocess.CompletedProcess[str]) -> None:
    """The exit code and an annotation at the line of the test say that it fails."""
    place = r"file=tests/performance/test_performance\.py,line=\d+"
    said = rf"^::error {place},title=FAILED test_download::.*failed requests: [\d,]+ × status 404$"
    assert done.returncode == 1, done.stdout
    assert re.search(said, done.stdout, re.MULTILINE), done.stdout


def broken(repo: Repo) -> None:
    """Moves what is downloaded: that fails the test however slow the machine is."""
    app = repo.top / "app.py"
    text = app.read_text(encoding="utf-8")
    assert text.count('"/download"') == 1
    app.write_text(text.replace('"/download"', '"/moved"'), encoding="utf-8")
