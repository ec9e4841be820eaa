"""Every case of the table through httpx's own transport and through ours: the same, or a documented difference."""

from __future__ import annotations

import socket
import ssl
from importlib.metadata import version

import httpx
import pytest
import trustme
from wire import cases_connections, cases_requests, cases_responses
from wire.conformance import Case, Certificates, Difference, Expected, Seen, matches, run_case

from pytest_fileperf.wire.transport import LoadTransport

pytestmark = pytest.mark.anyio

CASES: tuple[Case, ...] = cases_responses.CASES + cases_connections.CASES + cases_requests.CASES


MENDED_SINCE = {
    "chunk that begins its line end wrongly": ("h11", (0, 16)),
    "HEAD with a length of 21 digits": ("h11", (0, 16)),
} | {case.name: ("uvloop", (0, 22)) for case in CASES if case.name.endswith("and a reset at once")}
"""Where httpx's own transport does otherwise on older versions of what it is built on: there only ours is looked at."""


def theirs(*, uds: str | None, verify: ssl.SSLContext | bool, max_connections: int | None) -> httpx.AsyncBaseTransport:
    limits = httpx.Limits(max_connections=max_connections, max_keepalive_connections=None)
    return httpx.AsyncHTTPTransport(uds=uds, verify=verify, trust_env=False, limits=limits)


def ours(*, uds: str | None, verify: ssl.SSLContext | bool, max_connections: int | None) -> httpx.AsyncBaseTransport:
    return LoadTransport(uds=uds, verify=verify, max_connections=max_connections)


@pytest.fixture(scope="session")
def certificates() -> Certificates:
    authority = trustme.CA()
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(server)
    client = ssl.create_default_context()
    authority.configure_trust(client)
    return Certificates(server=server, client=client)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_case(case: Case, family: str, certificates: Certificates) -> None:
    if case.over == "ipv6" and not _has_ipv6():
        pytest.skip("this machine has no IPv6")
    difference = case.difference or Difference(reason="none")
    outcome = await run_case(case, ours, certificates, family)
    expect = case.expect if difference.expect is None else difference.expect
    assert _all_match(outcome.answers, expect), f"ours gave {outcome.answers}"
    assert (case.served if difference.served is None else difference.served) in (None, outcome.served)
    if case.request is not None:
        assert outcome.requests[0].startswith(case.request)
    if family != "httpx" or _is_older(*MENDED_SINCE.get(case.name, ("h11", (0,)))):
        return

    reference = await run_case(case, theirs, certificates)
    assert _all_match(reference.answers, case.expect), f"httpx's own transport gave {reference.answers}"
    assert case.served in (None, reference.served), "httpx's own transport"
    if difference.expect is None:
        assert outcome.answers == reference.answers
    if case.difference is not None:
        assert (outcome.answers, outcome.served) != (reference.answers, reference.served), "no difference any more"
    if case.same_bytes and outcome.served == reference.served:
        assert outcome.requests == reference.requests


def _all_match(answers: tuple[Seen | str, ...], expect: tuple[Expected, ...]) -> bool:
    return len(answers) == len(expect) and all(map(matches, answers, expect))


def _is_older(distribution: str, than: tuple[int, ...]) -> bool:
    return tuple(int(number) for number in version(distribution).split(".")[: len(than)]) < than


def _has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def test_names_are_unique() -> None:
    names = [case.name for case in CASES]
    assert len(names) == len(set(names))
