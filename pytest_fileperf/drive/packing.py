"""Makes a pickle of what a load is made of: journeys of test modules travel by value to a generator process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pytest_fileperf.errors import PlanError
from pytest_fileperf.plan.mix import Mix
from pytest_fileperf.plan.operation import Journey
from pytest_fileperf.plan.work import Work

__all__ = ("packed",)


def packed(works: tuple[Work, ...]) -> bytes:
    """Returns the works as a pickle; journeys and their values travel by value, so a test module may define them."""
    import cloudpickle

    with _test_modules_by_value(works):
        for journey in (journey for journey in _journeys(works) if journey.has_value):
            try:
                cloudpickle.dumps(journey.value)
            except Exception as error:  # an object's own `__reduce__` may raise anything
                raise PlanError(
                    f"what the setup returned cannot be carried to the generator process, for {journey.name} "
                    f"({type(error).__name__}: {error}): return plain data, such as ids, texts and numbers"
                ) from error
        try:
            raw: bytes = cloudpickle.dumps(works)
        except Exception as error:  # as above
            raise PlanError(
                f"{works[0].name} cannot be carried to the generator process ({type(error).__name__}: {error}); "
                "a journey and a request's arguments must not hold open files, sockets, locks, or fixtures with them"
            ) from error
    return raw


def _journeys(works: tuple[Work, ...]) -> list[Journey]:
    """Returns the journeys in the works, those in mixes too."""
    each = [part.work for work in works if isinstance(work, Mix) for part in work.parts]
    return [work for work in (*works, *each) if isinstance(work, Journey)]


@contextmanager
def _test_modules_by_value(works: tuple[Work, ...]) -> Iterator[None]:
    """Within the block, what these modules define is pickled by value: another process may be unable to import them."""
    import cloudpickle

    journeys = _journeys(works)
    owners = [owner for journey in journeys for owner in (journey.function, type(journey.value))]
    names = {name for owner in owners if (name := getattr(owner, "__module__", None)) and _is_test_module(name)}
    modules = [sys.modules[name] for name in sorted(names) if name in sys.modules]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def _is_test_module(name: str) -> bool:
    """Returns whether another process may be unable to import the module: test modules and conftest files."""
    last = name.rpartition(".")[2]
    return last == "conftest" or last.startswith("test_") or last.endswith("_test") or name == "__main__"
