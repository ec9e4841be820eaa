"""Imports an app again, each time in a new process. The result shows the app without a test's changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

from pytest_fileperf.errors import AppLoadError, log_line
from pytest_fileperf.host import scratch
from pytest_fileperf.host.child import Child, Invocation
from pytest_fileperf.serve.app import AppSpec
from pytest_fileperf.serve.databases import SETTINGS, databases_here
from pytest_fileperf.serve.fitting import Imported
from pytest_fileperf.serve.job import Job, left, lend_package
from pytest_fileperf.serve.likeness import OUTLINE, Likeness, Part, is_item
from pytest_fileperf.serve.made import Cause, Made, cause_of, tell_difference
from pytest_fileperf.serve.process import STAGE_2
from pytest_fileperf.serve.spec import Command, Uvicorn, env_filled
from pytest_fileperf.serve.stability import base_env
from pytest_fileperf.units import exit_text
from pytest_fileperf.versions.tree import HERE

Imports: TypeAlias = dict[object, Imported]
"""Results by app and environment, so that an app is imported again only once or twice in a test run."""


def imports_of(
    app: AppSpec | None, count: int, imports: Imports, *, timeout_s: float, env: Mapping[str, str] | None = None
) -> Imported:
    """Returns the results of `count` imports of the app, each in a new process.

    Without an app, the result contains only the databases that Django would use.
    """
    env = base_env(Uvicorn()) if env is None else env
    key = (None if app is None else app.target, tuple(sorted(env.items())))
    known = imports.get(key, Imported())
    while key not in imports or not (known.problem or app is None or len(known.likenesses) >= count):
        found = _import(app, env, timeout_s)
        known = imports[key] = replace(found, likenesses=known.likenesses + found.likenesses)
    return replace(known, likenesses=known.likenesses[:count])


def _import(app: AppSpec | None, env: Mapping[str, str], timeout_s: float) -> Imported:
    """Imports must not overlap, because they may use the same files."""
    try:
        with Child("import") as child:
            lent = lend_package(child.directory)
            Job.of(Uvicorn(), app or AppSpec(""), lent=lent, server="import").write(child.directory)
            command = scratch.supervised((HERE.interpreter, "-P", STAGE_2, str(child.directory)), child.directory)
            returncode = child.run(Invocation(command=command, env=env), timeout_s=timeout_s)
            if returncode is None:
                return Imported(problem=f"it took longer than {timeout_s:g} s")
            last = " ".join(map(log_line, child.log[-1:]))
            found = next(iter(left(Imported, child.directory)), None)
            return found or Imported(problem=f"it {exit_text(returncode)}: {last}")
    except OSError as error:
        return Imported(problem=str(error))


# --- A command cannot get the test's app or database, so it must not use another one

_WAY_OUT_OF_COMMANDS = (
    "Use server=Uvicorn() or Gunicorn(). Or, if the command itself serves the app to measure, give the app by its "
    'name, as in app="package.module:app"'
)


def refuse_other_app(spec: Command, app: AppSpec | None, imports: Imports) -> None:
    """Raises AppLoadError if the test gives an app object, and importing the app again gives a different app."""
    if app is None or (isinstance(app.target, str) and app.made is None):
        return
    if app.made is None or not isinstance(app.target, str):
        raise AppLoadError(
            f"{spec.name} cannot get {app.name}, because it is an object in the test process. {_WAY_OUT_OF_COMMANDS}"
        )
    found = imports_of(app, 2, imports, timeout_s=spec.start_timeout_s)
    if problem := _difference(app.made, found):
        raise AppLoadError(f"{spec.name} cannot get {app.name} as the test made it: {problem}. {_WAY_OUT_OF_COMMANDS}")


def refuse_other_databases(spec: Command, imports: Imports) -> None:
    """Raises AppLoadError if tests may not use Django's real database, but the command would use it."""
    here = databases_here()
    if not here.names or SETTINGS in dict(spec.env):  # an explicit settings module is a choice
        return
    env = env_filled(base_env(spec), dict(spec.env), boot=0, port=0, worker=0)
    found = imports_of(None, 1, imports, timeout_s=spec.start_timeout_s, env=env)
    problem = here.refusal(found.databases, list(dict(spec.env).values()), server="Command([…], ")
    if not found.databases.names and (here.are_of_tests or here.guarded):
        why = found.problem or f"{SETTINGS} is not set"
        problem = f"the test process uses no real Django database, but the command's database is unknown ({why})"
    if problem:
        raise AppLoadError(
            f"{spec.name} is not started: {problem}\nIf the command uses no Django database, confirm that with "
            f'env={{"{SETTINGS}": ""}}'
        )


def _difference(made: Made, found: Imported) -> str:
    """Says how the test has changed its app (`made`) from fresh imports (`found`)."""
    if found.problem:
        return (
            f"the test's changes of the app are unknown, because the app could not be imported again ({found.problem})"
        )
    first, *others = found.likenesses
    for part in made.likeness.differing(first):
        cause = cause_of(part, made.likeness, first, others, env=False)
        if cause is Cause.TEST and not (made.has_run and _may_come_from_a_run(part, made.likeness, first)):
            return tell_difference(part, made.parts.get(part, ()), first.parts.get(part, ()), other="a fresh import")
    return ""


def _may_come_from_a_run(part: Part, mine: Likeness, imported: Likeness) -> bool:
    """Whether the app's lifespan, or a request, may have made this difference in the test's process."""
    is_new = imported.parts.get(part, ("None",)) == ("None",)
    return (is_item(part[1]) and is_new) or (part in imported.parts and mine.agrees(imported, part, OUTLINE))
