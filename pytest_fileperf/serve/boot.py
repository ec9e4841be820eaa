"""Stage two of a server's start: takes on the test run's `sys.path` and hands over to uvicorn or gunicorn.

Run as a script (`python -P boot.py RUN_DIRECTORY`), because before `sys.path` is set the package may not be importable.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

__all__ = ("main",)


def main(run_directory: Path) -> None:
    """Serves what the job in the run directory says, until it is told to end."""
    job = json.loads((run_directory / "job.json").read_text(encoding="utf-8"))
    sys.path[:] = job["sys_path"]
    if job["server"] == "gunicorn":
        from pytest_fileperf.serve.arbiter import serve
    else:
        from pytest_fileperf.serve.serving import serve
    serve(run_directory)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
