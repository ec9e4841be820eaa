"""Starts a generator, `python -m pytest_fileperf.drive OWNER DIRECTORY`, below a supervisor that is forked off first.

Nothing else is imported before that, so that the supervisor is small. The arguments are those of `supervisor`.
"""

from __future__ import annotations

import sys

from pytest_fileperf.host.supervisor import supervise

if __name__ == "__main__":
    supervise(int(sys.argv[1]), sys.argv[2])
    from pytest_fileperf.drive.generator import main

    main()
