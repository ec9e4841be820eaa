"""Texts for properties, of all characters that UTF-8 has; hypothesis needs 2 s to work out which, once a process."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

__all__ = ("CHARACTERS", "texts")

CHARACTERS = st.characters(exclude_categories=["Cs"])


def texts(**sizes: Any) -> st.SearchStrategy[str]:
    """Takes `min_size` and `max_size`."""
    return st.text(CHARACTERS, **sizes)
