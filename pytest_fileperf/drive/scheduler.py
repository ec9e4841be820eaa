"""Finds a Dask scheduler's address, which may be in a file that the scheduler wrote."""

from __future__ import annotations

import json
import re
from pathlib import Path

from pytest_fileperf.errors import GeneratorError

_ADDRESS = re.compile(r"([a-z]+://)?[^\s/]*:[0-9]+(/\S*)?|inproc://\S+")
"""An address with a port, or `inproc://` for a scheduler in this process."""
_AS_IN = "as in tcp://127.0.0.1:8786"


def scheduler_address(scheduler: str) -> str:
    """Returns `scheduler` if it is an address, else the address in this scheduler file. Raises GeneratorError."""
    if _ADDRESS.fullmatch(scheduler):
        return scheduler
    try:
        address = json.loads(Path(scheduler).read_text(encoding="utf-8"))["address"]
    except (PermissionError, IsADirectoryError) as error:
        raise _no_file(scheduler, str(error.strerror)) from error
    except OSError as error:  # no such file, or an impossible name
        raise GeneratorError(
            f"{scheduler} is neither an address with a port, {_AS_IN}, nor an existing file"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise _no_file(scheduler, "it isn't JSON with an address") from error
    if not isinstance(address, str) or not _ADDRESS.fullmatch(address):
        raise _no_file(scheduler, f"{address!r} isn't an address with a port")
    return address


def _no_file(scheduler: str, why: str) -> GeneratorError:
    return GeneratorError(
        f"{scheduler} isn't a scheduler file ({why}). Give the file that `dask scheduler --scheduler-file` "
        f"wrote, or an address {_AS_IN}"
    )
