"""The script that a server's process runs: sets the test run's `sys.path`, and starts uvicorn or gunicorn.

Used as `python -P stage2_server.py RUN_DIRECTORY [CHANNEL]`. Until `sys.path` is set, Python may be unable to
import this package. CHANNEL is the descriptor of a socket that receives orders to fork.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import shlex
import sys
from pathlib import Path
from typing import NoReturn


def main(run_directory: Path) -> None:
    job = json.loads((run_directory / "stage2.json").read_text(encoding="utf-8"))
    own = list(sys.path)
    sys.path[:] = [path for entry in job["sys_path"] for path in (own if entry is None else [entry])]
    missing = [package for module, package in job["needs"].items() if importlib.util.find_spec(module) is None]
    if missing:
        _end(run_directory, f"no {' and no '.join(missing)}", "install", *missing)
    gc.disable()  # our imports leave no garbage that is worth a search
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
        _end(run_directory, f"packages that are too old ({error})", "install", "--upgrade", *job["needs"].values())
    gc.enable()
    serve(run_directory)


def _end(run_directory: Path, problem: str, *advice: str) -> NoReturn:
    """Reports packages that this Python lacks, and raises SystemExit."""
    from pytest_fileperf.serve.job import Failed, leave

    message = f"{sys.prefix} has {problem}: `{shlex.join((sys.executable, '-m', 'pip', *advice))}`"
    leave(Failed(stage="packages", message=message), run_directory)
    raise SystemExit(3)  # `start._START_FAILED`. That module may not be importable here


if __name__ == "__main__":
    main(Path(sys.argv[1]))
