"""Starts a generator, `python -m pytest_fileperf.drive OWNER MARKED DIRECTORY`, below a supervisor.

The supervisor is forked first and stays small, because nothing else is imported before. The first arguments are the
supervisor's. The last one is a directory for files.
"""

from __future__ import annotations

import sys

from pytest_fileperf.host.supervisor import supervise

if __name__ == "__main__":
    supervise(int(sys.argv[1]), sys.argv[2])
    from pytest_fileperf.drive.generator import main

    main(sys.argv[3])
