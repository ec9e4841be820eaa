"""Reads what a verb says about a feed: which requests are made of its URL and body, and in which order."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from pytest_fileperf.errors import PlanError
from pytest_fileperf.plan.feed import columns_of
from pytest_fileperf.plan.fields import NAME_RULE, UNIQUE, fields_in_url, fields_of
from pytest_fileperf.plan.hidden import shown_url
from pytest_fileperf.plan.operation import Operation
from pytest_fileperf.plan.order import ORDERS, Order
from pytest_fileperf.plan.requests import Requests
from pytest_fileperf.serve.loading import takes

__all__ = ("FEEDING", "NO_SETUP_FOR_FEED", "fed", "order_from")

FEEDING = ("feed", "order", "seed", "per_connection")
"""The keywords that say which requests there are, and in which order."""
NO_SETUP_FOR_FEED = (
    "the feed is a function of what a setup returned, and there is no setup: give one (setup=…, or the fixture "
    "fileperf_setup), or give the rows themselves"
)


def fed(operation: Operation, arguments: Mapping[str, object]) -> Operation | Requests:
    """Returns the operation, or the requests that are made of it and a feed. Raises PlanError."""
    feed, used = arguments.get("feed"), fields_of(operation)
    needed = used - {UNIQUE}
    if feed is None:
        if named := sorted(fields_in_url(operation) - {UNIQUE}):
            raise PlanError(
                f"{shown_url(operation.url)!r} has a field, {{{named[0]}}}, and there is no feed: give its values, "
                f"feed=['a', 'b'], or write %7B{named[0]}%7D for the text itself"
            )
        if given := [name for name in FEEDING[1:] if arguments.get(name) is not None]:
            raise PlanError(f"{given[0]} is about the rows of a feed, and there is no feed")
        return Requests(recipes=(operation,)) if UNIQUE in used else operation
    if not needed:
        raise PlanError(_no_field(operation.url))
    requests = Requests(recipes=(operation,), order=order_from(arguments))
    if not callable(feed):
        return replace(requests, columns=columns_of(feed, needed))
    if takes(feed, 0):
        return replace(requests, columns=columns_of(feed(), needed))
    if takes(feed, 1) is False:
        raise PlanError("feed: a function takes what the setup returned, or nothing, and returns the rows")
    return replace(requests, make=feed)


def _no_field(url: str) -> str:
    """Returns why there is no field in a request that has a feed."""
    if (like := re.search(r"\{[^{}/?]*\}|%7B[^{}/?]*?%7D", url, re.IGNORECASE)) is None:
        why = f"write one, as in '{url.partition('?')[0]}/{{id}}'"
    elif like[0].startswith("{"):
        why = f"{like[0]} is none: {NAME_RULE}"
    else:
        why = f"{like[0]} is none: give the URL as a text, as httpx.URL quotes braces"
    return f"there is a feed, and the request has no field for its values: {why}"


def order_from(arguments: Mapping[str, object]) -> Order:
    """Returns the order that the keywords ask for; raises PlanError that names everything wrong with them."""
    kind, seed, each = (
        default if arguments.get(name) is None else arguments[name]
        for name, default in (("order", "cycle"), ("seed", 0), ("per_connection", False))
    )
    problems = []
    if kind not in ORDERS:
        problems.append(f"order: {kind!r} is not one of {', '.join(ORDERS)}")
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        problems.append(f"seed: {seed!r} is not a whole number of 0 or more")
    if not isinstance(each, bool):
        problems.append(f"per_connection: {each!r} is neither True nor False")
    if problems:
        raise PlanError(*problems)
    assert isinstance(seed, int)
    return Order(kind=str(kind), seed=seed, each=bool(each))
