"""Repeats a test's changes to its app on the app that a server imported, or refuses to serve. Runs in the server."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pytest_fileperf.errors import AppLoadError
from pytest_fileperf.host.supervisor import follow_starter
from pytest_fileperf.serve.app import AppSpec
from pytest_fileperf.serve.databases import Databases, databases_here
from pytest_fileperf.serve.job import ASKED, Job, leave, left, note
from pytest_fileperf.serve.likeness import (
    KIND,
    MISSING,
    OUTLINE,
    Likeness,
    Part,
    is_item,
    likeness_of,
    places,
    set_part,
    state_of,
)
from pytest_fileperf.serve.made import Cause, Made, cause_of, in_words, loaded, tell_difference

# --- The results of importing an app again, in separate processes


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    likenesses: tuple[Likeness, ...] = ()
    databases: Databases = field(default_factory=Databases)
    """The databases that Django would use."""
    problem: str = ""


def report_import(run_directory: Path) -> None:
    follow_starter(str(run_directory))
    job = Job.read(run_directory)
    try:
        likenesses = (likeness_of(AppSpec(job.target).load()),) if job.target else ()
        found = Imported(likenesses=likenesses, databases=databases_here(by_settings=True))
    except AppLoadError as error:
        found = Imported(problem=str(error).splitlines()[0])
    leave(found, run_directory)


def await_imports(run_directory: Path, *, timeout_s: float) -> Imported:
    """Asks the test process to import the app in other processes, and returns the results."""
    note(ASKED, run_directory)
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        for found in left(Imported, run_directory):
            return found
        time.sleep(0.05)
    return Imported(problem="the import did not end in time")


# --- Sets the test's changes on this process's app before its lifespan starts, and checks them after the start


@dataclass(slots=True, kw_only=True)
class Fitting:
    """Sets the test's changes on a server's app. Call `fit` before the lifespan starts, and `started` once it has.

    A part is a place and a name in the app, such as `state.db` (see `likeness`).
    """

    made: Made | None = None
    nodes: Mapping[str, object] = field(default_factory=dict)
    """The app and the apps in it, by place."""
    found: Likeness | None = None
    """The description of the server's app as it was imported."""
    set: tuple[Part, ...] = ()
    left: Mapping[Part, str] = field(default_factory=dict)
    """Parts that stay as imported although they differ from the test's app, with the reason."""
    awaited: Mapping[Part, str] = field(default_factory=dict)
    """Parts that cannot be set, with the reason. The app's lifespan may set them."""
    watched: list[_Noting] = field(default_factory=list)
    """Replacements for the mappings in apps' `state`. They note the items that the lifespan sets."""

    def fit(self, app: object, run_directory: Path, imports: Callable[[], Imported], *, env: bool) -> None:
        """Raises AppLoadError for a change that cannot be set.

        `imports` imports the app again, to see what differs by chance. `env` says whether the user gave this server
        environment variables.
        """
        self.made = made = next(iter(left(Made, run_directory)), None)
        if made is None:
            return
        self.found = found = likeness_of(app)
        differing = found.differing(made.likeness)
        if not differing:
            return
        self.nodes = dict(places(app))
        imported = imports()
        causes = {part: cause_of(part, made.likeness, found, imported.likenesses, env=env) for part in differing}
        for part, cause in causes.items():
            if cause is Cause.TEST_AND_ENV or (env and imported.problem):
                failed = f"the server's env may have set it, and an import without that env failed ({imported.problem})"
                raise self._refused(part, made, found, failed if imported.problem else cause.value)
        self.left = {part: cause.value for part, cause in causes.items() if cause is not Cause.TEST}
        # Setting an attribute may have no effect. So the app is described again afterwards.
        to_set, values = [part for part in differing if part not in self.left], loaded(made)
        for part in to_set:
            may_remove = not made.parts.get(part) and part[1].startswith(("config.", "state."))
            if part[0] not in self.nodes or not (part in values or may_remove):
                self._await_or_refuse(part, made.unsent.get(part, ""), made, found)
        for where, name in (part for part in to_set if part not in self.awaited):
            set_part(self.nodes[where], name, values.get((where, name), MISSING))
        now = likeness_of(app)
        for part in now.differing(made.likeness):
            if part not in self.awaited and part not in self.left:
                self._await_or_refuse(part, "the server's app ignores a value that is set there", made, now)
        self.set = tuple(part for part in to_set if part not in self.awaited)
        for where in {part[0] for part in (*self.set, *self.awaited) if part[1].startswith("state.")}:
            node = self.nodes.get(where)
            if (held := state_of(node)) is not None:
                self.watched.append(_Noting(held, where, getattr(node, "state", None)))

    def started(self) -> None:
        """Raises AppLoadError if an `awaited` part still differs after the lifespan has started."""
        written = {part for noting in self.watched for part in noting.end()}
        made, found = self.made, self.found
        if made is None or found is None or not (self.set or self.awaited):
            return
        now = likeness_of(next(iter(self.nodes.values())))
        for part, why in self.awaited.items():
            if not _is_as_in_the_test(part, made.likeness, found, now, was_set=part in written):
                raise self._refused(part, made, now, why)
        self.set = tuple(part for part in self.set if part not in written and now.agrees(made.likeness, part))

    # `changed` and `own` are described in `RunningServer`.

    def changed(self) -> tuple[tuple[str, str], ...]:
        parts = {} if self.made is None else self.made.parts
        return tuple((_title(part), in_words(part, parts.get(part, ())) or "none") for part in self.set)

    def own(self) -> tuple[tuple[str, str], ...]:
        return tuple((_title(part), why) for part, why in self.left.items())

    def _await_or_refuse(self, part: Part, why: str, made: Made, now: Likeness) -> None:
        """Adds the part to `awaited`. Raises AppLoadError if no lifespan has run on the test's app.

        `why` says why the part cannot be set.
        """
        if not made.has_run:
            raise self._refused(part, made, now, why)
        self.awaited = {**self.awaited, part: why}

    def _refused(self, part: Part, made: Made, theirs: Likeness, why: str) -> AppLoadError:
        difference = tell_difference(part, made.parts.get(part, ()), theirs.parts.get(part, ()))
        reason = f" It cannot be set in the server: {why}." if why else ""
        give = "Give"
        if why and part in made.unsent:
            give = (
                "Put it into a module that the server can import, not a test module or conftest.py. Then it is sent by "
                "name. Or give"
            )
        return AppLoadError(
            f'{difference}.{reason} {give} a factory in a module that the server can import ("package.module:make()"), '
            "functools.partial(make, …), or a lambda. Or give the app by its name, to serve it as it is imported"
        )


def _is_as_in_the_test(part: Part, mine: Likeness, found: Likeness, now: Likeness, *, was_set: bool) -> bool:
    """Whether a part is now about as in the test's app (`mine`). `found` is the app before its lifespan."""
    if was_set or not now.agrees(found, part):
        # Use changes items, so only their types must agree.
        return mine.agrees(now, part, KIND if is_item(part[1]) else OUTLINE)
    return bool(found.parts.get(part)) and mine.agrees(found, part, OUTLINE)


class _Noting(dict[str, object]):
    """Replaces the mapping in an app's `state` while the lifespan starts, and notes each item that is set."""

    def __init__(self, held: dict[str, object], where: str, state: object) -> None:
        super().__init__(held)
        self._held, self._where, self._state = held, where, state
        self._set: set[str] = set()
        object.__setattr__(state, "_state", self)

    def __setitem__(self, key: str, value: object) -> None:
        self._set.add(key)
        super().__setitem__(key, value)

    def end(self) -> frozenset[Part]:
        self._held.clear()
        self._held.update(self)
        object.__setattr__(self._state, "_state", self._held)
        return frozenset((self._where, f"state.{key}") for key in self._set)


def _title(part: Part) -> str:
    return f"{part[1]}{f' of {part[0]}' if part[0] else ''}"
