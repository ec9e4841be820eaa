"""Programs of somebody else, servers and builds: where they are found, and how our supervisor is put above them."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_fileperf.errors import PlanError
from pytest_fileperf.serve.process import STAGES, Invocation, staged
from pytest_fileperf.serve.spec import PYTHON, Command
from pytest_fileperf.versions.tree import HERE, Home

__all__ = ("require_difference", "require_posix", "supervised")


def require_posix() -> None:
    """Raises PlanError on Windows: without process groups and signals nothing would end them for sure."""
    if os.name != "posix":
        raise PlanError(
            'a Command does not run on this system: start the server yourself, and give server=Url("http://127.0.0.1:…")',
            where="Command",
        )


def supervised(
    words: Sequence[str],
    spec: Command,
    *,
    run_directory: Path,
    env: Mapping[str, str],
    cores: frozenset[int] | None = None,
    stabilise: bool = False,
    home: Home = HERE,
) -> Invocation:
    """Returns what runs the command of a spec in a way that it cannot outlive the test run.

    Its working directory, and the paths in its words, are those of its home. Raises PlanError where its program or its
    working directory is not there.
    """
    words = [home.word(word).replace(PYTHON, home.interpreter) for word in words]
    directory = _working_directory(spec, home)
    program = _find_program(words[0], directory, env.get("PATH"))
    supervisor = (sys.executable, "-I", "-S", str(STAGES / "supervise.py"), str(run_directory))
    command = staged((*supervisor, program, *words), cores=cores, stabilise=stabilise)
    return Invocation(command=command, env=env, cwd=directory)


def require_difference(spec: Command, *, env: Mapping[str, str], home: Home) -> None:
    """Raises PlanError where nothing that is seen of the command depends on its home: both sides would be the same.

    For a tree that is its working directory, a path in a word or variable, its program; for an interpreter `{python}`.
    """
    if home.is_here:
        return
    words = [home.word(word) for word in spec.command]
    directory = _working_directory(spec, home)
    program = Path(_find_program(words[0].replace(PYTHON, home.interpreter), directory, env.get("PATH")))
    if home.base is not None:
        asked = dict(spec.env)
        mapped = (*words, *(home.word(value) for value in asked.values())) != (*spec.command, *asked.values())
        if mapped or home.holds(directory) or home.holds(program):
            return
        advice = f"let it run in the tree (cwd is {directory}), or name the paths of its code in full"
    elif any(PYTHON in word for word in words) or program.parent == Path(home.interpreter).parent:
        return
    else:
        advice = f"start it with {PYTHON}, as in {PYTHON} -m {program.name}"
    raise PlanError(f"{spec.name} would be the same on both sides, here and in {home.title}: {advice}", where="Command")


def _working_directory(spec: Command, home: Home) -> Path:
    directory = home.path(home.cwd() / (spec.cwd or ""))
    if not directory.is_dir():
        raise PlanError(f"cwd={str(spec.cwd)!r} is no directory in {home.cwd()}", where="Command")
    return directory


def _find_program(name: str, directory: Path, search_path: str | None) -> str:
    """Returns the program's path, found as a shell would in this directory."""
    if os.sep not in name:
        found = shutil.which(name, path=search_path)
        if found is None:
            raise PlanError(
                f"no program {name!r} on the PATH: install it, or write where it is "
                f"({PYTHON} is the Python that runs the tests)",
                where="Command",
            )
        return str(Path(found).absolute())
    path = directory / name
    if not path.is_file():
        raise PlanError(f"there is no program {path}: is it built, and is cwd right?", where="Command")
    if not os.access(path, os.X_OK):
        raise PlanError(f"{path} is not executable: `chmod +x` it, or name what runs it", where="Command")
    return str(path)
