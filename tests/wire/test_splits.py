"""The same bytes, however they arrive: cut at any points, and damaged."""

from __future__ import annotations

import itertools
import ssl

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire.conformance import Answer, Case, Certificates, Expected, chunked, http, matches, run_case
from wire.scripted import Fin, Request, Script, Send

from pytest_fileperf.wire.transport import LoadTransport

pytestmark = pytest.mark.anyio

EXAMPLES = settings(max_examples=60, deadline=None, database=None)
BODIES = st.lists(st.binary(min_size=1, max_size=150), max_size=5)
FRAMINGS = st.sampled_from(["content-length", "chunked", "chunked with trailers", "until the end"])
CUTS = st.lists(st.integers(0, 400), max_size=12)


def ours(*, uds: str | None, verify: ssl.SSLContext | bool, max_connections: int | None) -> httpx.AsyncBaseTransport:
    return LoadTransport(uds=uds, verify=verify, max_connections=max_connections)


def framed(framing: str, blocks: list[bytes]) -> bytes:
    body = b"".join(blocks)
    if framing == "content-length":
        return http(f"Content-Length: {len(body)}", body=body)
    if framing == "until the end":
        return http(body=body)
    trailers = b"X-Trailer: 1\r\nX-More: 2\r\n" if framing.endswith("trailers") else b""
    return http("Transfer-Encoding: chunked", body=chunked(*blocks, trailers=trailers))


def cut(raw: bytes, points: list[int]) -> tuple[Send, ...]:
    """Returns the steps that send the bytes in pieces; each piece is read by itself."""
    edges = sorted({0, *(point for point in points if point < len(raw)), len(raw)})
    return tuple(Send(raw[start:stop], step=stop - start) for start, stop in itertools.pairwise(edges))


def asked_once(script: Script, *expect: Expected) -> Case:
    return Case(name="generated", scripts=(script,), expect=expect)


@EXAMPLES
@given(framing=FRAMINGS, blocks=BODIES, hints=st.integers(0, 2), points=CUTS)
async def test_cuts_do_not_matter(framing: str, blocks: list[bytes], hints: int, points: list[int]) -> None:
    raw = http("Link: </a>", status="103 Early Hints") * hints + framed(framing, blocks)
    expected = Answer(200, b"".join(blocks), b"OK", "HTTP/1.1")
    outcome = await run_case(asked_once((Request(), *cut(raw, points), Fin()), expected), ours, NO_CERTIFICATES)
    assert matches(outcome.answers[0], expected)


@EXAMPLES
@given(framing=FRAMINGS, blocks=BODIES, points=CUTS, place=st.integers(0, 400), byte=st.binary(min_size=1, max_size=1))
async def test_damage_gives_an_answer_or_a_transport_error(
    framing: str, blocks: list[bytes], points: list[int], place: int, byte: bytes
) -> None:
    raw = framed(framing, blocks)
    damaged = raw[:place] + byte + raw[place + 1 :]
    outcome = await run_case(asked_once((Request(), *cut(damaged, points), Fin())), ours, NO_CERTIFICATES)
    [answer] = outcome.answers
    assert not isinstance(answer, str) or issubclass(getattr(httpx, answer), httpx.TransportError)


@EXAMPLES
@given(framing=FRAMINGS, blocks=BODIES, points=CUTS, left=st.integers(0, 400))
async def test_answer_cut_short_is_an_error_unless_it_ends_with_the_connection(
    framing: str, blocks: list[bytes], points: list[int], left: int
) -> None:
    raw = framed(framing, blocks)
    head = raw.index(b"\r\n\r\n") + 4
    short = raw[: min(left, len(raw) - 1)]
    expected: Expected = httpx.RemoteProtocolError
    if framing == "until the end" and len(short) >= head:
        expected = Answer(200, short[head:])
    outcome = await run_case(asked_once((Request(), *cut(short, points), Fin()), expected), ours, NO_CERTIFICATES)
    assert matches(outcome.answers[0], expected)


NO_CERTIFICATES = Certificates(server=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), client=ssl.create_default_context())
