"""The files that a run writes: where they go, and what looking for their facts leaves alone."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from versions.repositories import Repo, needs_git

Run = Callable[..., pytest.RunResult]


@needs_git
@pytest.mark.skipif(os.name == "nt", reason="the hook is a shell script")
def test_facts_about_the_commit_run_no_hook_and_leave_the_index(repo: Repo, run_load: Run) -> None:
    hook = repo.write(".git/hooks/fsmonitor", "#!/bin/sh\necho called >> .git/called\nexit 1\n")
    hook.chmod(0o755)
    repo.git("config", "core.fsmonitor", str(hook))
    os.utime(repo.top / "server_app.py", (1e9, 1e9))  # Git would note it in the index
    (repo.top / ".git" / "called").unlink(missing_ok=True)
    before = (repo.top / ".git" / "index").read_bytes()
    run_load("--fileperf-smoke", "--fileperf-save", "--fileperf-html=out.html").assert_outcomes(passed=1)
    assert not (repo.top / ".git" / "called").exists()
    assert (repo.top / ".git" / "index").read_bytes() == before
