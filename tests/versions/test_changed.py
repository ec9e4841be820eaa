"""Whether a changed file may matter to a server of which certain files are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_fileperf.versions.changed import Change

SHOP = {"shop/__init__.py": "", "shop/main.py": "VALUE = 1\n"}
NAMING = {
    "a relative import": "def late():\n    from .users import get\n",
    "a dotted name": "import shop.users\n",
    "a text": "TASKS = ['shop.users:get']\n",
    "another module": "from shop import other\n",
    "a search for modules": "import_module('.' + name, __package__)\n",
    "a search from elsewhere in its package": "from .core import loader\n",
}


def touching(top: Path, files: dict[str, str], changed: dict[str, str], loaded: tuple[str, ...] = tuple(SHOP)) -> str:
    for name, text in files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    return Change("", changed, files, top.resolve()).touching(loaded, ("tests/test_it.py",))


@pytest.mark.parametrize("text", NAMING.values(), ids=NAMING)
def test_modules_that_are_named_count_although_they_were_not_loaded(tmp_path: Path, text: str) -> None:
    files = {**SHOP, "shop/main.py": text, "shop/other.py": "from shop import users\n", "shop/users.py": ""}
    files |= {"shop/core/__init__.py": "", "shop/core/loader.py": "import_module(f'shop.{name}')\n"}
    assert touching(tmp_path, files, {"shop/users.py": "M"}) == "shop/users.py"
    assert touching(tmp_path, {**files, "shop/main.py": "VALUE = 1\n"}, {"shop/users.py": "M"}) == ""


@pytest.mark.parametrize(
    "path,letter,matters",
    [
        ("shop/main.py", "D", True),
        ("shop/plugin.py", "A", True),  # a package may look for modules
        ("shop/templates/page.html", "M", True),
        (".env", "A", True),
        ("gunicorn.conf.py", "A", True),
        ("json.py", "A", True),  # it hides one of Python's own
        ("pytest/__init__.py", "A", True),  # it hides an installed one
        ("tools/json.py", "A", True),
        ("__init__.py", "A", False),
        ("web.py", "A", False),
        ("tools/jobs.py", "A", False),
        ("tools/users.py", "M", False),
        ("shop.html", "A", False),
        ("web/page.html", "M", False),
        ("README.md", "M", False),
        ("tests/test_it.py", "M", True),
        ("tests/test_other.py", "A", False),
    ],
)
def test_which_files_count(tmp_path: Path, path: str, letter: str, matters: bool) -> None:
    files = {**SHOP, "tests/test_it.py": ""}
    assert bool(touching(tmp_path, files | ({} if letter == "D" else {path: ""}), {path: letter})) is matters


def test_a_package_of_the_same_name_elsewhere_does_not_count(tmp_path: Path) -> None:
    services = ("a/app/__init__.py", "a/app/main.py", "a/app/models.py")
    files = dict.fromkeys((*services, *(name.replace("a/", "b/", 1) for name in services)), "from app import models\n")
    loaded = services[:2]
    assert touching(tmp_path, files, {"b/app/models.py": "M"}, loaded) == ""
    assert touching(tmp_path, files, {"a/app/models.py": "M"}, loaded) == "a/app/models.py"


@pytest.mark.parametrize(
    "text,path,matters",
    [
        ("app = FastAPI()\nusers = '/users'\n", "app/users.py", False),  # the first word is another thing
        ("TASK = 'python -m app.users'\n", "app/users.py", True),
        ("from app import (\n    shop,\n    users,\n)\n", "app/users.py", True),
        ("def app():\n    web = 1\n", "web/page.html", False),
        ("PAGES = f'{ROOT}/web'\n", "web/page.html", True),
        ("Path('web') / name", "web/page.html", True),
        ("open('page.html')", "web/page.html", True),
        ("open('page.txt')", "web/page.html", False),
        ("def one(name):\n    return open(f'{name}.json')\n", "data.json", True),
        ("def one(name):\n    return open(f'{name}.json')\n", "README.md", False),
    ],
)
def test_what_a_source_names(tmp_path: Path, text: str, path: str, matters: bool) -> None:
    files = {"main.py": text, "app/__init__.py": "", path: ""}
    assert bool(touching(tmp_path, files, {path: "M"}, ("main.py",))) is matters
