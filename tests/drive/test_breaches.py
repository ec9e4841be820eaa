"""What servers do to connections without saying so is counted beside good answers, and what was not sent is not."""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import replace

import pytest
from wire.conformance import http
from wire.scripted import Fin, Pause, Request, RequestHead, Script, ScriptedServer, Send

from pytest_fileperf.drive.preparation import Target
from pytest_fileperf.drive.run import Run, run_load
from pytest_fileperf.measure.recording import Round
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.request import Operation
from pytest_fileperf.wire.eventloop import new_event_loop
from pytest_fileperf.wire.payload_files import PayloadFiles

MS = 1_000_000
HELLO = http("Content-Length: 5", body=b"hello")
LARGE = bytes(16 << 20)
"""More than socket buffers on both sides take."""
THREE = LoadPlan(connections=1, warmup_ns=0, round_ns=20_000 * MS, rounds=1, timeout_ns=5000 * MS, requests=3)
UNHURRIED = LoadPlan(connections=1, warmup_ns=0, round_ns=200 * MS, rounds=1, timeout_ns=5000 * MS, rate=20)

THROUGH = pytest.mark.parametrize("client", [False, True], ids=["replay", "client"])


def play(script: Script, plan: LoadPlan, *, client: bool, content: bytes = b"") -> Round:
    """Returns all that a load saw of a server that follows the script on each connection."""
    arguments = {"content": content, "follow_redirects": client}
    operation = Operation(method="POST", url="/", arguments=arguments)

    async def run() -> Run:
        async with ScriptedServer((script,), tls=None) as server:
            target = Target(boot=0, url=server.url)
            with closing(PayloadFiles()) as files:
                (result,) = await run_load(
                    (operation,), plan, (target,), files=files, server_cpu=(lambda: None,), progress=lambda _: None
                )
        return result

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        result = runner.run(run())
    assert result.engine == ("client" if client else "replay")
    return Round.summed([replace(round_, index=0) for round_ in result.rounds])


@THROUGH
def test_an_upload_that_is_answered_early_counts_what_was_sent_of_it(client: bool) -> None:
    seen = play((RequestHead(), Send(HELLO)), THREE, client=client, content=LARGE)
    assert (seen.requests, seen.failed, seen.cut_off) == (3, 0, 3)
    assert seen.bytes_sent < 3 * len(LARGE)


@THROUGH
def test_an_upload_that_is_read_counts_whole(client: bool) -> None:
    seen = play((Request(), Send(HELLO)) * 3, THREE, client=client, content=LARGE)
    assert (seen.requests, seen.cut_off, seen.bytes_sent) == (3, 0, 3 * len(LARGE))


@THROUGH
def test_bytes_after_an_answer_count_as_a_connection_that_was_given_up(client: bool) -> None:
    seen = play((Request(), Send(HELLO + b"x")), THREE, client=client)
    assert (seen.requests, seen.failed, seen.out_of_step) == (3, 0, 3)


@THROUGH
def test_bytes_long_after_an_answer_count_too(client: bool) -> None:
    seen = play((Request(), Send(HELLO), Pause(0.005), Send(HELLO)), UNHURRIED, client=client)
    assert seen.failed == 0
    assert seen.out_of_step >= seen.requests - 1 > 0


@THROUGH
def test_a_connection_that_is_closed_without_announcement_is_counted(client: bool) -> None:
    seen = play((Request(), Send(HELLO), Fin()), UNHURRIED, client=client)
    assert seen.failed == 0
    assert seen.closed_unsaid >= seen.requests - 1 > 0


@THROUGH
def test_a_connection_that_is_closed_as_announced_is_not_counted(client: bool) -> None:
    closing_answer = http("Content-Length: 5", "Connection: close", body=b"hello")
    seen = play((Request(), Send(closing_answer), Fin()), UNHURRIED, client=client)
    assert seen.requests > 1
    assert (seen.failed, seen.closed_unsaid, seen.out_of_step, seen.cut_off) == (0, 0, 0, 0)
