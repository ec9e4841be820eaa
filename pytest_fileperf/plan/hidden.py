"""What is told of a request without its values: names in clear, and of each value a digest.

A digest here is `sha256:` and the SHA-256 of the value. It never leaves the process so: of a short value it could be
guessed from a list. Before anything is written `judge.sealed` makes a slow digest with a salt of it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from itertools import count
from typing import cast

from pytest_fileperf.plan.payload import Payload

__all__ = (
    "PLAIN",
    "described_argument",
    "described_recipes",
    "described_url",
    "digest",
    "distinct",
    "shown_url",
    "without_queries",
)

PLAIN = "sha256:"
"""How a digest begins that was not sealed."""
HIDDEN = "hidden"
"""Stands for the value of a credential: it may be another one in each run, so it is not compared."""
_CREDENTIAL_HEADERS = frozenset(("authorization", "cookie", "proxy-authorization", "x-api-key", "x-auth-token"))
_PAIRS = ("cookies", "files", "headers", "params")
_MOST_VALUES = 50
"""An argument of more values has one digest: sealing takes a while for each of them."""
_MOST_RECIPES = 20
"""More of them have one digest, for the same reason."""
_FIELDS = re.compile(r"(?:\{[A-Za-z_][A-Za-z0-9_]*\})+")
_URL = re.compile(r"https?://[^\s'\"<>]+", re.IGNORECASE)
_LOGIN = re.compile(r"(?<=://)[^/?#]*@")


def digest(value: str | bytes | bool | float | None) -> str:
    """Returns the digest of a value; a number has another one than its text."""
    raw = value.encode(errors="surrogatepass") if isinstance(value, str) else value
    if not isinstance(raw, bytes):
        raw = f"json {json.dumps(raw)}".encode()
    return PLAIN + hashlib.sha256(raw).hexdigest()


def shown_url(url: str) -> str:
    """Returns the URL with `…` for the values of its query: `/files?token=…`. Fields, `{id}`, stay."""
    path, mark, query = url.partition("?")
    return path + mark + "&".join(map(_shown_part, query.split("&"))) if query else url


def _shown_part(part: str) -> str:
    name, mark, value = part.partition("=")
    if not mark:
        return part if not part or _FIELDS.fullmatch(part) else "…"
    return f"{name}={value if not value or _FIELDS.fullmatch(value) else '…'}"


def without_queries(text: str) -> str:
    """Returns a text whose URLs have `…` for logins and for the values of queries, as errors of httpx name them."""
    if "://" not in text:
        return text
    return _URL.sub(lambda found: _LOGIN.sub("…@", shown_url(found[0])), text)


def distinct(names: Iterable[str]) -> list[str]:
    """Returns the names, those that were there before with a number: `GET /a?id=…`, `GET /a?id=… (2)`."""
    found: dict[str, None] = {}
    for name in names:
        numbered = (f"{name} ({number})" if number > 1 else name for number in count(1))
        found[next(one for one in numbered if one not in found)] = None
    return list(found)


def described_url(url: str) -> dict[str, object]:
    """Returns the path, and the digest of each value of the query by its name."""
    path, _, query = url.partition("?")
    pairs = [part.partition("=") for part in query.split("&")] if query else []
    if not pairs:
        return {"url": path}
    named = [(name, value) if mark else ("", name) for name, mark, value in pairs]
    return {"url": path, "query": _by_name((name, _text(value)) for name, value in named)}


def described_argument(key: str, value: object, *, is_stored: bool = False) -> object:
    """Returns an argument of a request as JSON values.

    `is_stored` is for what a baseline of schema 1 or 2 has of it: long texts by size and digest, and payloads.
    """
    if key == "auth":
        return value if is_stored else type(value).__qualname__
    if key == "follow_redirects":
        return value
    found = _described_pairs(key, value, is_stored) if key in _PAIRS else _described(key, value, is_stored)
    if _count(found) > _MOST_VALUES:
        return digest(json.dumps(found, sort_keys=True))
    return found


def described_recipes(recipes: list[dict[str, object]]) -> object:
    """Returns the identities of these recipes; where there are many, how many there are and the digest of all."""
    if len(recipes) <= _MOST_RECIPES:
        return recipes
    return {"count": len(recipes), "digest": digest(json.dumps(recipes, sort_keys=True))}


def _described_pairs(key: str, value: object, is_stored: bool) -> object:
    """Returns names and digests of what is a mapping or pairs; of text, as params may be, the digest."""
    if isinstance(value, str | bytes):
        return digest(value)
    multi = getattr(value, "multi_items", None)
    pairs = multi() if multi else value.items() if isinstance(value, Mapping) else value
    if not isinstance(pairs, Iterable):
        return type(value).__qualname__
    return _by_name((name, _of_pair(key, name, item, is_stored)) for name, item in map(_pair, pairs))


def _pair(pair: object) -> tuple[str, object]:
    raw_name, item = cast("tuple[object, object]", pair)
    return raw_name.decode("latin-1") if isinstance(raw_name, bytes) else str(raw_name), item


def _of_pair(key: str, name: str, item: object, is_stored: bool) -> object:
    if key == "cookies" or (key == "headers" and name.lower() in _CREDENTIAL_HEADERS):
        return HIDDEN
    return _described(key, item, is_stored)


def _by_name(pairs: Iterable[tuple[str, object]]) -> dict[str, object]:
    """Returns values by name; a name that is there several times has a list."""
    found: dict[str, list[object]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


def _described(key: str, value: object, is_stored: bool) -> object:
    if isinstance(value, Payload):
        return _of_payload(value.identity())
    if isinstance(value, Mapping):
        if is_stored and set(value) == {"size_bytes", "sha256"}:
            return f"{PLAIN}{value['sha256']}"
        if is_stored and {"size_bytes", "kind", "seed", "sha256"} <= set(value):
            return _of_payload(value)
        return {str(name): _described(key, item, is_stored) for name, item in value.items()}
    if isinstance(value, list | tuple):
        items = [_described(key, item, is_stored) for item in value]
        return items if key == "files" else digest(json.dumps(items, sort_keys=True))
    if isinstance(value, str | bytes | bool | int | float | None):
        return _text(value) if isinstance(value, str) else digest(value)
    return type(value).__qualname__


def _of_payload(known: Mapping[str, object]) -> dict[str, object]:
    """Returns what is known of a payload; of a file, which may hold a secret, with a digest that is sealed."""
    if known["kind"] != "file":
        return dict(known)
    return {**known, "sha256": f"{PLAIN}{known['sha256']}"}


def _text(value: str) -> str:
    return value if _FIELDS.fullmatch(value) else digest(value)


def _count(value: object) -> int:
    if isinstance(value, Mapping):
        return sum(map(_count, value.values()))
    return sum(map(_count, value)) if isinstance(value, list) else 1
