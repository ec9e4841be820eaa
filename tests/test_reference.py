"""The reference says what the code says."""

from __future__ import annotations

import re

from reference import PAGE, reference_text

TEXT = reference_text()


def test_the_reference_is_made_from_the_code_as_it_is() -> None:
    assert PAGE.read_text(encoding="utf-8") == TEXT, "run `python tests/reference.py`"


def test_every_row_says_something() -> None:
    rows = re.findall(r"^\| (.*) \|$", TEXT, re.MULTILINE)
    assert len(rows) > 100
    assert [row for row in rows if not row.rpartition(" | ")[2].strip()] == []
