"""The load generator's program: `python -m pytest_fileperf.drive OWNER MARKED DIRECTORY`.

First, the process forks: the parent becomes a supervisor, and the child the generator. `OWNER` and `MARKED` are for the
supervisor. `DIRECTORY` is for the generator's files.
"""

from __future__ import annotations

import gc
import sys
from typing import Any

from pytest_fileperf.host.supervisor import supervise

if __name__ == "__main__":
    supervise(int(sys.argv[1]), sys.argv[2])  # before the imports below, so that the supervisor stays small
    # Each of these two steps saves a tenth of the start's CPU time.
    gc.disable()  # imports leave no garbage that is worth a search
    modules: dict[str, Any] = sys.modules
    modules["httpx._main"] = None  # httpx's command line program, which imports click and pygments: not to be imported
    from pytest_fileperf.drive.generator import main

    del modules["httpx._main"]
    gc.enable()

    main(sys.argv[3])
