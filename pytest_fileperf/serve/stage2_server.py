"""Stage 2 of a server's start: sets the test run's `sys.path` and hands over to uvicorn or gunicorn.

Run as a script, `python -P stage2_server.py RUN_DIRECTORY [CHANNEL]`: before `sys.path` is set, the package may not be
importable. CHANNEL is a socket for orders to fork, if the app is to be imported once for many start-ups.
"""

from __future__ import annotations

import importlib.util
import json
import shlex
import sys
from pathlib import Path
from typing import NoReturn

_START_FAILED = 3
"""Equal to the one in `start`, whose import needs uvicorn."""


def main(run_directory: Path) -> None:
    """Serves the job in the run directory, until a signal ends it."""
    job = json.loads((run_directory / "stage2.json").read_text(encoding="utf-8"))
    own = list(sys.path)
    sys.path[:] = [path for entry in job["sys_path"] for path in (own if entry is None else [entry])]
    missing = [package for module, package in job["needs"].items() if importlib.util.find_spec(module) is None]
    if missing:
        _end(run_directory, f"no {' and no '.join(missing)}", "install", *missing)
    try:
        if job["server"] == "gunicorn":
            from pytest_fileperf.serve.gunicorn_worker import serve
        elif job["server"] == "import":
            from pytest_fileperf.serve.fitting import report_import as serve
        elif len(sys.argv) > 2:
            from pytest_fileperf.serve.preload_server import serve
        else:
            from pytest_fileperf.serve.start import serve
    except ImportError as error:
        if not job["needs"]:
            raise
        _end(run_directory, f"packages are too old ({error})", "install", "--upgrade", *job["needs"].values())
    serve(run_directory)


def _end(run_directory: Path, problem: str, *advice: str) -> NoReturn:
    """Reports what this Python lacks, with the command that installs it; ends the process."""
    from pytest_fileperf.serve.job import Failed, leave

    message = f"{sys.prefix} has {problem}: `{shlex.join((sys.executable, '-m', 'pip', *advice))}`"
    leave(Failed(stage="packages", message=message), run_directory)
    raise SystemExit(_START_FAILED)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
