"""Every case of the table through httpx's own transport and through ours: the same, or a documented difference."""

from __future__ import annotations

import asyncio
import importlib.util
import socket
import ssl
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version

import httpx
import pytest
import trustme
from wire import cases_connections, cases_requests, cases_responses
from wire.conformance import (
    Case,
    Certificates,
    Difference,
    Expected,
    MakeTransport,
    Outcome,
    Seen,
    matches,
    run_case,
)

from pytest_fileperf import LoadTransport

CASES: tuple[Case, ...] = cases_responses.CASES + cases_connections.CASES + cases_requests.CASES


MENDED_SINCE = {"chunk that begins its line end wrongly": (0, 16), "HEAD with a length of 21 digits": (0, 16)}
"""Where httpx's own transport does otherwise on older versions of h11: there only ours is looked at."""


def _on_uvloop() -> asyncio.AbstractEventLoop:
    import uvloop

    return uvloop.new_event_loop()


LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    **({"uvloop": _on_uvloop} if sys.platform != "win32" else {}),
}


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


@pytest.fixture(scope="module", autouse=True)
def _without_sniffio() -> Iterator[None]:
    """httpx's own transport asks for it again and again: to look for what is not there takes as long as a case."""
    with pytest.MonkeyPatch.context() as patch:
        if importlib.util.find_spec("sniffio") is None:
            patch.setitem(sys.modules, "sniffio", None)
        yield


def played(case: Case, transport: MakeTransport, certificates: Certificates, loop: str, family: str) -> Outcome:
    """Returns what there was to see on an event loop of its own, which has caught nothing."""
    caught: list[dict[str, object]] = []
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.get_loop().set_exception_handler(lambda _, context: caught.append(context))
        # Not `runner.run`, which minds Ctrl-C, and to that end makes a text of all that was sent.
        outcome = runner.get_loop().run_until_complete(run_case(case, transport, certificates, family))
    # The server's own tasks are cancelled at its end, which asyncio's streams tell the loop of.
    assert [context for context in caught if not isinstance(context.get("exception"), asyncio.CancelledError)] == []
    return outcome


def each(*cases: Case) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


@each(*cases_responses.CASES)
def test_responses(case: Case, family: str, certificates: Certificates) -> None:
    check(case, family, certificates)


@each(*cases_connections.CASES)
def test_connections(case: Case, family: str, certificates: Certificates) -> None:
    check(case, family, certificates)


@each(*cases_requests.CASES)
def test_requests(case: Case, family: str, certificates: Certificates) -> None:
    check(case, family, certificates)


def check(case: Case, family: str, certificates: Certificates) -> None:
    """Compares ours on each event loop, and with the clients of httpx2 on one, with httpx's own on one."""
    if case.over == "ipv6" and not _has_ipv6():
        pytest.skip("this machine has no IPv6")
    difference = case.difference or Difference(reason="none")
    loops = tuple(LOOPS) if family == "httpx" else tuple(LOOPS)[-1:]
    outcomes = {loop: played(case, ours, certificates, loop, family) for loop in loops}
    for loop, outcome in outcomes.items():
        expect = case.expect if difference.expect is None else difference.expect
        assert _all_match(outcome.answers, expect), f"ours gave {outcome.answers} on {loop}"
        assert (case.served if difference.served is None else difference.served) in (None, outcome.served), loop
        if case.request is not None:
            assert outcome.requests[0].startswith(case.request)
    if family != "httpx" or _is_older_than(MENDED_SINCE.get(case.name, (0,))):
        return

    reference = played(case, theirs, certificates, "asyncio", "httpx")
    assert _all_match(reference.answers, case.expect), f"httpx's own transport gave {reference.answers}"
    assert case.served in (None, reference.served), "httpx's own transport"
    for loop, outcome in outcomes.items():
        if difference.expect is None:
            assert outcome.answers == reference.answers, loop
        if case.difference is not None:
            assert (outcome.answers, outcome.served) != (reference.answers, reference.served), "no difference any more"
        if case.same_bytes and outcome.served == reference.served:
            assert outcome.requests == reference.requests, loop


def _all_match(answers: tuple[Seen | str, ...], expect: tuple[Expected, ...]) -> bool:
    return len(answers) == len(expect) and all(map(matches, answers, expect))


def _is_older_than(release: tuple[int, ...]) -> bool:
    return tuple(int(number) for number in version("h11").split(".")[: len(release)]) < release


def _has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def test_names_are_unique() -> None:
    names = [case.name for case in CASES]
    assert len(names) == len(set(names))
