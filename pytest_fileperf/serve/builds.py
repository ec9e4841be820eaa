"""What has to be built before a command can serve. Each build runs once in a test run, for each side."""

from __future__ import annotations

import time
from collections.abc import Sequence

from pytest_fileperf.errors import ServerStartError
from pytest_fileperf.serve.command_invocation import invoked
from pytest_fileperf.serve.names import has_names
from pytest_fileperf.serve.process import ServerProcess, base_env
from pytest_fileperf.serve.spec import Command
from pytest_fileperf.units import exit_text
from pytest_fileperf.versions.tree import CodeTree

__all__ = ("Builds",)

_POLL_S = 0.25
_PATIENCE_S = 1.0


class Builds:
    """Knows which builds were made, and how that went.

    A build may take 10 minutes: long enough for a large project, and an end for a build that waits for an answer.
    """

    def __init__(self, *, timeout_s: float = 600.0) -> None:
        self._timeout_s = timeout_s
        self._outcomes: dict[tuple[object, ...], ServerStartError | None] = {}

    def ensure(self, spec: Command, code_tree: CodeTree) -> None:
        """Runs the build of the spec to its end, the first time that it is asked for in this tree.

        Raises ServerStartError with its last lines when it fails, then and each time after, and PlanError where its
        program is not there.
        """
        if spec.build is None:
            return
        key = (spec.build, spec.cwd, spec.env, code_tree)
        if key not in self._outcomes:
            self._outcomes[key] = _build(spec, spec.build, code_tree, self._timeout_s)
        failure = self._outcomes[key]
        if failure is not None:
            raise failure.with_traceback(None)


def _build(spec: Command, words: Sequence[str], code_tree: CodeTree, timeout_s: float) -> ServerStartError | None:
    """Returns why the build failed, or None."""
    process = ServerProcess()
    title = f"the build of {spec.name} (`{words[0]}{' …' if len(words) > 1 else ''}`)"
    title += "" if code_tree.is_here else f" in {code_tree.title}"
    try:
        directory = process.make_directory()
        given = dict(spec.env)
        whole = code_tree.env(base_env(spec), given=given)
        # There is no boot and no port yet.
        env = {name: value for name, value in whole.items() if not (name in given and has_names(value))}
        process.start(invoked(words, spec, run_directory=directory, env=env, code_tree=code_tree))
        returncode = _wait(process, timeout_s)
        if returncode is None:
            return ServerStartError(f"{title} did not end within {timeout_s:g} s", log=process.log)
        if returncode != 0:
            return ServerStartError(f"{title} failed with {exit_text(returncode)}", log=process.log)
    except OSError as error:
        return ServerStartError(f"{title} cannot be started: {error}")
    finally:
        process.stop(patience_s=_PATIENCE_S)
    return None


def _wait(process: ServerProcess, timeout_s: float) -> int | None:
    """Returns how the process ended, or None when it takes too long."""
    deadline_s = time.monotonic() + timeout_s
    returncode = None
    while returncode is None and time.monotonic() < deadline_s:
        returncode = process.ended(wait_s=_POLL_S)
        process.shorten_log()
    return returncode
