"""How the programs of a `Command` are run: where they are found, and with our supervisor above them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from pytest_fileperf import scratch
from pytest_fileperf.errors import PlanError
from pytest_fileperf.serve.names import PYTHON
from pytest_fileperf.serve.process import Invocation
from pytest_fileperf.serve.spec import Command
from pytest_fileperf.versions.loaded import is_among_packages
from pytest_fileperf.versions.tree import HERE, CodeTree

__all__ = ("code_places", "installed_places", "invoked", "require_difference", "require_posix")

_ASK_S = 20.0
_LONGEST_LINE = 4096
_ASK = """
import importlib.util, sys
for name in sys.argv[1:]:
    try:
        found = importlib.util.find_spec(name)
    except Exception:
        continue
    if found is not None and found.origin:
        print(found.origin)
"""
"""Where a Python would find these modules; it imports none of them."""


def require_posix() -> None:
    """Raises PlanError on Windows: without process groups and signals nothing would end them for sure."""
    if os.name != "posix":
        raise PlanError(
            'a Command does not run on this system: start the server yourself, and give server=Url("http://127.0.0.1:…")',
            where="Command",
        )


def invoked(
    words: Sequence[str],
    spec: Command,
    *,
    run_directory: Path,
    env: Mapping[str, str],
    cores: frozenset[int] | None = None,
    stabilise: bool = False,
    code_tree: CodeTree = HERE,
) -> Invocation:
    """Returns what runs these words of a spec, so that they cannot outlive the test run.

    The working directory, and the paths in the words, are those of the tree. Raises PlanError where there is no such
    program or directory.
    """
    words = [code_tree.word(word).replace(PYTHON, code_tree.interpreter) for word in words]
    directory = _working_directory(spec, code_tree)
    program = _find_program(words[0], directory, env.get("PATH"))
    command = scratch.supervised(words, run_directory, program=program, cores=cores, stabilise=stabilise)
    return Invocation(command=command, env=env, cwd=directory)


def require_difference(spec: Command, *, env: Mapping[str, str], code_tree: CodeTree) -> None:
    """Raises PlanError where no part of the command depends on its side: both sides would be the same.

    On a tree its working directory may depend, a path in a word or variable, or its program; on an interpreter
    `{python}`, or its program.
    """
    if code_tree.is_here:
        return
    words = [code_tree.word(word) for word in spec.command]
    directory = _working_directory(spec, code_tree)
    program = Path(_find_program(words[0].replace(PYTHON, code_tree.interpreter), directory, env.get("PATH")))
    if code_tree.there is not None:
        given = dict(spec.env)
        mapped = (*words, *(code_tree.word(value) for value in given.values())) != (*spec.command, *given.values())
        if mapped or code_tree.holds(directory) or code_tree.holds(program):
            return
        advice = f"let it run in the tree (cwd is {directory}), or name the paths of its code in full"
    elif any(PYTHON in word for word in words) or program.parent == Path(code_tree.interpreter).parent:
        return
    else:
        advice = f"start it with {PYTHON}, as in {PYTHON} -m {program.name}"
    raise PlanError(
        f"{spec.name} would be the same on both sides, here and in {code_tree.title}: {advice}", where="Command"
    )


def code_places(spec: Command, *, env: Mapping[str, str], code_tree: CodeTree) -> tuple[str, ...]:
    """Returns where the code is that a command runs, as far as that is known: its directory, program and named files.

    Programs beside the interpreter are left out: they belong to its packages.
    """
    words = [code_tree.word(word).replace(PYTHON, code_tree.interpreter) for word in spec.command]
    directory = _working_directory(spec, code_tree)
    program = Path(_find_program(words[0], directory, env.get("PATH")))
    named = [path for path in map(Path, words[1:]) if path.is_absolute() and path.is_file()]
    programs = Path(code_tree.interpreter).parent
    return (str(directory), *(str(path) for path in (program, *named) if path.parent != programs))


def installed_places(spec: Command, *, env: Mapping[str, str], code_tree: CodeTree) -> tuple[str, ...]:
    """Returns the installed files in whose place the tree has code of the same name, as the command's Python finds it.

    Empty for a program that does not run in Python.
    """
    words = [code_tree.word(word).replace(PYTHON, code_tree.interpreter) for word in spec.command]
    directory = _working_directory(spec, code_tree)
    python = _python_of(Path(_find_program(words[0], directory, env.get("PATH"))))
    if python is None or code_tree.there is None:
        return ()
    packages = {path.parent for path in code_tree.there.rglob("__init__.py")}
    names = sorted({path.name for path in packages if path.parent not in packages and path.name.isidentifier()})
    return _found_by(python, str(directory), env.get("PYTHONPATH", ""), tuple(names))


@cache
def _found_by(python: str, directory: str, search_path: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the files of the packages that are found outside the directory; it asks once."""
    env = {**os.environ, **({"PYTHONPATH": search_path} if search_path else {})}
    try:
        done = subprocess.run(
            [python, "-c", _ASK, *names],
            cwd=directory,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_ASK_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    tops = (Path(line).parent for line in done.stdout.splitlines() if Path(line).name == "__init__.py")
    return tuple(str(file) for top in tops if is_among_packages(top) for file in sorted(top.rglob("*.py")))


def _python_of(program: Path) -> str | None:
    """Returns the Python that runs a program: itself, or what its first line names; None for none."""
    if program.name.startswith("python"):
        return str(program)
    try:
        with program.open("rb") as file:
            first = file.readline(_LONGEST_LINE).decode(errors="replace")
    except OSError:
        return None
    named = first[2:].strip().split(" ")[0] if first.startswith("#!") else ""
    return named if Path(named).name.startswith("python") else None


def _working_directory(spec: Command, code_tree: CodeTree) -> Path:
    directory = code_tree.path(code_tree.cwd() / (spec.cwd or ""))
    if not directory.is_dir():
        raise PlanError(f"cwd={str(spec.cwd)!r} is no directory in {code_tree.cwd()}", where="Command")
    return directory


def _find_program(name: str, directory: Path, search_path: str | None) -> str:
    """Returns the program's path, found as a shell in this directory finds it."""
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
