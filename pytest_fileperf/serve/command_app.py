"""Keeps a command from loading another app, or another database, than the test holds: it cannot be handed either."""

from __future__ import annotations

from pytest_fileperf.errors import AppLoadError
from pytest_fileperf.serve.app import AppSpec
from pytest_fileperf.serve.databases import SETTINGS, databases_here
from pytest_fileperf.serve.differences import Cause, cause_of, tell_difference
from pytest_fileperf.serve.imported import Imported
from pytest_fileperf.serve.imports import Imports
from pytest_fileperf.serve.likeness import OUTLINE, Likeness, Part, is_item
from pytest_fileperf.serve.made import Made
from pytest_fileperf.serve.names import env_filled
from pytest_fileperf.serve.process import base_env
from pytest_fileperf.serve.spec import Command

__all__ = ("refuse_other_app", "refuse_other_databases")

_WAY_OUT = (
    "Serve it by Uvicorn() or Gunicorn(); or, where the command serves what is to be measured, give the app by its "
    'name, as in app="package.module:app"'
)


def refuse_other_app(spec: Command, app: AppSpec | None, imports: Imports) -> None:
    """Raises AppLoadError where the test has an app object that is not as its import makes it."""
    if app is None or (isinstance(app.target, str) and app.made is None):
        return
    if app.made is None or not isinstance(app.target, str):
        raise AppLoadError(f"{spec.name} cannot be handed {app.name}, which is an object of this test run. {_WAY_OUT}")
    found = imports.of(app, 2, timeout_s=spec.start_timeout_s)
    if problem := _difference(app.made, found):
        raise AppLoadError(f"{spec.name} cannot be handed {app.name} as the test made it: {problem}. {_WAY_OUT}")


def refuse_other_databases(spec: Command, imports: Imports) -> None:
    """Raises AppLoadError where tests are kept from Django's real database, and the command would use that.

    A command that is given settings of Django has chosen.
    """
    here = databases_here()
    if not here.names or SETTINGS in dict(spec.env):
        return
    env = env_filled(base_env(spec), dict(spec.env), boot=0, port=0, worker=0)
    found = imports.of(None, 1, timeout_s=spec.start_timeout_s, env=env)[0]
    problem = here.refusal(found.databases, list(dict(spec.env).values()), server="Command([…], ")
    if not found.databases.names and (here.are_of_tests or here.guarded):
        why = found.problem or f"{SETTINGS} is not set"
        problem = f"the test process is kept from Django's real database, and that of the command is not known ({why})"
    if problem:
        raise AppLoadError(
            f"{spec.name} is not started: {problem}. If the command has nothing to do with it, "
            f'say so: env={{"{SETTINGS}": ""}}'
        )


def _difference(made: Made, found: tuple[Imported, ...]) -> str:
    """Returns how the test's app differs from what its code alone makes of it; empty where it does not."""
    problem = next((one.problem for one in found if one.problem), "")
    if problem:
        return f"whether the test has set something cannot be known, as an import failed ({problem})"
    first, *others = [one.likeness for one in found if one.likeness is not None]
    for part in made.likeness.differing(first):
        cause = cause_of(part, made.likeness, first, others, env=False)
        if cause is Cause.TEST and not (made.has_run and _is_of_a_run(part, made.likeness, first)):
            return tell_difference(part, made.parts.get(part, ()), first.parts.get(part, ()), other="a fresh import")
    return ""


def _is_of_a_run(part: Part, mine: Likeness, imported: Likeness) -> bool:
    """Returns whether the app's lifespan, or a request, may have set it in the test's process."""
    is_new = imported.parts.get(part, ("None",)) == ("None",)
    return (is_item(part[1]) and is_new) or (part in imported.parts and mine.agrees(imported, part, OUTLINE))
