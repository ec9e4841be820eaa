"""The line about load tests above all tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_fileperf.serve.spec import AsgiSpec, server_title, split_cores, worker_count
from pytest_fileperf.settings.settings import Options, Settings

if TYPE_CHECKING:
    from pytest_fileperf.versions.checkout import Against

__all__ = ("header_words",)


def header_words(config: pytest.Config, options: Options, settings: Settings, against: Against | None) -> list[str]:
    """Returns what the run is about to do, by options and ini alone."""
    said = ["smoke, a few requests each" if options.smoke else "measuring"]
    if options.update:
        which = {"new": "new baselines", "all": "all baselines, worse ones too"}
        said.append(f"storing {which.get(options.update, 'baselines')}")
    if options.prune:
        said.append("removing stale baselines")
    workers = worker_count(settings.server)
    said.append(server_title(settings.server))
    if isinstance(settings.server, AsgiSpec):
        said.append(f"access log {'on' if settings.server.access_log else 'off'}")
    if workers is not None:
        said.append(f"server and load on {'the same' if split_cores(workers) is None else 'separate'} cores")
    if options.cluster is not None:
        said.append(f"load from the Dask cluster at {options.cluster}")
    if against is not None:
        said.append(f"against {against.title}")
    elif options.aa:
        said.append("against itself")
    else:
        said.append(f"baselines in {_shown_baselines(config, options)}")
    return said


def _shown_baselines(config: pytest.Config, options: Options) -> str:
    directory, root = options.baselines, config.rootpath
    return str(directory.relative_to(root) if directory.is_relative_to(root) else directory)
