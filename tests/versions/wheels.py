"""Tiny packages as wheels, for tests that install some."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

__all__ = ("install_at", "wheel")


def wheel(directory: Path, name: str, version: str, *, program: str | None = None) -> Path:
    """Writes a wheel of a package with one module, whose `VERSION` is its version, and perhaps a program."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"VERSION = {version!r}\n\ndef main():\n    print(VERSION)\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if program is not None:
        files[f"{info}/entry_points.txt"] = f"[console_scripts]\n{program} = {name}:main\n"
    files[f"{info}/RECORD"] = "".join(f"{file},,\n" for file in (*files, f"{info}/RECORD"))
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, content in files.items():
            archive.writestr(file, content)
    return path


def install_at(
    directory: Path, name: str, version: str, *, direct_url: dict[str, object] | None = None, installer: str = "pip"
) -> None:
    """Installs such a package into a directory, as an installer does; `direct_url` is what PEP 610 has it write."""
    with zipfile.ZipFile(wheel(directory / "wheels", name, version)) as archive:
        archive.extractall(directory)
    info = directory / f"{name}-{version}.dist-info"
    (info / "INSTALLER").write_text(f"{installer}\n", encoding="utf-8")
    if direct_url is not None:
        (info / "direct_url.json").write_text(json.dumps(direct_url), encoding="utf-8")
