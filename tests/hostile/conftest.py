"""Projects to do hostile things to are those of the plugin's own tests."""

from plugin.conftest import project, run, run_apart, run_load

__all__ = ("project", "run", "run_apart", "run_load")
