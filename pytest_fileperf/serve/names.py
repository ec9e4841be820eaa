"""The names in braces that are filled in when a server starts, such as `{port}`. Other braces stay."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

__all__ = ("BOOT", "HOST", "PORT", "PYTHON", "WORKER", "env_filled", "fill_environment", "filled", "has_names")

BOOT, HOST, PORT, WORKER = "{boot}", "{host}", "{port}", "{worker}"
PYTHON = "{python}"
"""Only in the words of a command: the Python that runs it."""
_MOST_WORKERS = 10_000


def filled(
    text: str,
    *,
    boot: int | None = None,
    host: str | None = None,
    port: int | None = None,
    worker: int | None = None,
) -> str:
    """Returns the text with the names whose values are known.

    `{boot}` has four digits at the least: the size of the environment moves the stack, and boots are to be alike.
    """
    values = {BOOT: None if boot is None else f"{boot:04}", HOST: host, PORT: port, WORKER: worker}
    for name, value in values.items():
        if value is not None:
            text = text.replace(name, str(value))
    return text


def has_names(text: str) -> bool:
    """Returns whether there is anything to fill in."""
    return any(name in text for name in (BOOT, HOST, PORT, WORKER))


def env_filled(
    env: Mapping[str, str],
    names: Iterable[str],
    *,
    boot: int,
    host: str | None = None,
    port: int | None = None,
    worker: int | None = None,
) -> dict[str, str]:
    """Returns the environment with what is known filled in in the variables of these names."""
    return {**env, **{name: filled(env[name], boot=boot, host=host, port=port, worker=worker) for name in names}}


def fill_environment(names: Iterable[str], *, port: int, run_directory: Path) -> None:
    """Fills in what is known only in the process of a worker, in these of its environment variables."""
    left = {name: value for name in names if has_names(value := os.environ.get(name, ""))}
    if left:
        worker = _claim_worker(run_directory) if any(WORKER in value for value in left.values()) else 0
        os.environ.update({name: filled(value, port=port, worker=worker) for name, value in left.items()})


def _claim_worker(run_directory: Path) -> int:
    """Returns the lowest number that no other worker of this boot has."""
    for number in range(_MOST_WORKERS):
        try:
            (run_directory / f"worker-{number}").touch(exist_ok=False)
        except FileExistsError:
            continue
        return number
    raise RuntimeError(f"no number is left for a worker in {run_directory}")
