"""One file of 256 KiB in the three forms in which the studies upload it."""

from __future__ import annotations

import base64
from collections.abc import Mapping

from pytest_fileperf import payload

__all__ = ("FILE", "STORED", "body_of_kind")

FILE = payload("256KiB", filename="photo.jpg", content_type="image/jpeg")
"""Seeded bytes that do not compress, as those of the studies' photograph."""
STORED = b'{"size_bytes":262144}'
"""The answer to an upload that is stored whole."""


def body_of_kind(kind: str) -> Mapping[str, object]:
    """Returns httpx's argument for a request with the file as its body (`binary`), in a form, or as base64 in JSON."""
    match kind:
        case "binary":
            return {"content": FILE}
        case "form":
            return {"files": {"file": FILE}}
        case "json":
            return {"json": {"base64": base64.b64encode(b"".join(FILE.blocks())).decode("ascii")}}
        case _:
            raise ValueError(f"{kind!r} is no kind of body")
