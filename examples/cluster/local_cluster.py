"""A Dask cluster on this machine: a scheduler at port 8786, and two workers. Ctrl-C ends it, and so does `kill`."""

from __future__ import annotations

import signal
from contextlib import suppress
from threading import Event

from distributed import LocalCluster


def main() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        suppress(KeyboardInterrupt),
        LocalCluster(n_workers=2, threads_per_worker=1, scheduler_port=8786, dashboard_address="127.0.0.1:0"),
    ):
        Event().wait()


if __name__ == "__main__":
    main()
