"""What all tests share. The plugin under test is the installed one: pytest loads it through its entry point."""

from __future__ import annotations

pytest_plugins = ["pytester"]
