"""What the guides under examples/ show is what their tests run, and what they link to is there."""

from __future__ import annotations

import ast
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import command

ROOT = Path(__file__).parents[1]
GUIDES = sorted((ROOT / "examples").glob("*/README.md"))
PAGES = [ROOT / "README.md", *GUIDES]


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def code_of(guide: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", guide.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("guide", GUIDES, ids=named)
def test_the_code_that_a_guide_shows_is_in_its_files(guide: Path) -> None:
    """The files are run by `pytest --fileperf-smoke examples`."""
    files = [path.read_text(encoding="utf-8") for path in sorted(guide.parent.glob("*.py"))]
    for sample in code_of(guide):
        parts = [part.strip("\n") for part in re.split(r"\n\n\n+", sample)]
        for part in parts:
            assert any(part in text for text in files), f"in no file of {guide.parent.name}:\n{part}"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_to_what_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#][^)]*)\)", text):
        path, _, heading = target.partition("#")
        if "://" in path:
            continue
        found = (page.parent / path).resolve()
        assert found.exists(), target
        if heading:
            assert heading in _anchors(found / "README.md" if found.is_dir() else found), target
    for heading in re.findall(r"\]\(#([^)]*)\)", text):
        assert heading in _anchors(page), heading


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("guide", GUIDES, ids=named)
def test_the_readme_leads_to_every_guide(guide: Path) -> None:
    assert f"(examples/{guide.parent.name})" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_troubleshooting_quotes_messages_as_they_are() -> None:
    """What stands in backticks in the first column is a part of one text in the package."""
    guide = (ROOT / "examples" / "troubleshooting" / "README.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| ([^|]*`[^|]*) \|", guide, re.MULTILINE)
    quoted = [quote for cell in cells for quote in re.findall(r"`([^`]+)`", cell)]
    assert len(quoted) > 30
    texts = "\n".join(_texts_of_the_package())
    assert [quote for quote in quoted if quote not in texts] == []


def _texts_of_the_package() -> Iterator[str]:
    """Yields each text in the package's code, but no docstring: texts that are written in several pieces are joined."""
    for path in sorted((ROOT / "pytest_fileperf").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        described = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in described:
                yield node.value


def test_the_quickstart_shows_what_new_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    guide = ROOT / "examples" / "quickstart"
    text = (guide / "README.md").read_text(encoding="utf-8")
    monkeypatch.chdir(shutil.copytree(guide, tmp_path, dirs_exist_ok=True))
    monkeypatch.syspath_prepend(str(guide))
    monkeypatch.delitem(sys.modules, "app", raising=False)
    assert command("new", "app:app") == 0
    monkeypatch.delitem(sys.modules, "app", raising=False)
    assert f"$ python -m pytest_fileperf new app:app\n{capsys.readouterr().out}$ " in text
    (shown,) = re.findall(r"^```text\n(def .*?)^```", text, re.MULTILINE | re.DOTALL)
    written = (tmp_path / "tests" / "performance" / "test_endpoints.py").read_text(encoding="utf-8")
    for part in shown.strip("\n").split("\n\n"):
        assert part in written, part
    line = written.partition("@pytest.mark.skip")[0].count("\n") + 1
    assert f"test_endpoints.py:{line}: fill in number in the path\n" in text
