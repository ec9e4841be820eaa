"""A factory of an app that has no module of its own."""

from __future__ import annotations

import os


def make() -> object:
    from datasette.app import Datasette

    return Datasette([os.environ["DATABASE"]]).app()
