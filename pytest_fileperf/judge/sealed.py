"""Digests that can be committed: of a value's digest (`plan.hidden`) a slow one, with the salt of the file it goes to.

Whoever has the file can compare equal values in it, and test a guess at the cost of some 50 ms and 16 MiB: a password
from a short list can still be found so, a random token cannot. Other files have other salts, so nothing can be worked
out for many of them at once.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping
from functools import lru_cache

from pytest_fileperf.plan.hidden import PLAIN, described_argument, described_recipes, described_url, digest, shown_url

__all__ = ("SALT", "is_digest", "new_salt", "of_earlier_schema", "sealed")

SALT = re.compile(r"[0-9a-f]{32}")
_SEALED = "scrypt:"
_DIGEST = re.compile(rf"(?:{_SEALED}[0-9a-f]{{16}}|{PLAIN}[0-9a-f]{{64}})")


def new_salt() -> str:
    """Returns a salt that no other file has."""
    return secrets.token_hex(16)


def sealed(value: object, salt: str) -> object:
    """Returns JSON values with a slow digest in place of each plain one."""
    if isinstance(value, Mapping):
        return {key: sealed(item, salt) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [sealed(item, salt) for item in value]
    is_plain = isinstance(value, str) and value.startswith(PLAIN) and is_digest(value)
    return _slow(str(value), salt) if is_plain else value


@lru_cache(maxsize=4096)
def _slow(plain: str, salt: str) -> str:
    return _SEALED + hashlib.scrypt(plain.encode(), salt=bytes.fromhex(salt), n=1 << 14, r=8, p=1, dklen=8).hex()


def is_digest(value: object) -> bool:
    """Returns whether a JSON value is a digest, or a list of them."""
    if isinstance(value, list):
        return bool(value) and all(map(is_digest, value))
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def of_earlier_schema(identity: Mapping[str, object]) -> dict[str, object]:
    """Returns an identity as schemas 1 and 2 have it, with values in clear, as it would be made now.

    Raises ValueError where it is not as they have it.
    """
    found = dict(identity)
    if isinstance(work := found.get("work"), dict):
        try:
            found["work"] = _work(work)
        except (AttributeError, TypeError, ValueError) as error:  # what a value that does not fit leads to
            raise ValueError(f"identity.work is not as an earlier version has stored it: {error}") from error
    if isinstance(server := found.get("server"), dict) and isinstance(command := server.get("command"), str):
        found["server"] = {**server, "command": digest(command)}
    return found


def _work(work: Mapping[str, object]) -> dict[str, object]:
    found = dict(work)
    if isinstance(parts := work.get("mix"), list):
        found["mix"] = [_named(_work(part)) if isinstance(part, dict) else part for part in parts]
    if isinstance(recipes := work.get("requests"), list) and all(isinstance(recipe, dict) for recipe in recipes):
        found["requests"] = described_recipes([_work(recipe) for recipe in recipes])
    if isinstance(names := work.get("names"), list):
        found["names"] = [shown_url(str(name)) for name in names]
    if isinstance(rows := work.get("rows"), dict) and "sha256" in rows:
        found["rows"] = {"count": rows.get("count"), "digest": f"{PLAIN}{rows['sha256']}"}
    if isinstance(url := work.get("url"), str) and isinstance(given := work.get("arguments"), dict):
        described = {key: described_argument(key, value, is_stored=True) for key, value in given.items()}
        found.update(described_url(url), arguments=described)
    return found


def _named(part: dict[str, object]) -> dict[str, object]:
    return {**part, "name": shown_url(str(part.get("name")))}
