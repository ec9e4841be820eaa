"""Server specs: what is written, what is refused, and that a refusal names what is valid."""

from __future__ import annotations

import pytest

from pytest_fileperf.errors import PlanError
from pytest_fileperf.serve.spec import InProcess, ServerSpec, Url, Uvicorn, parse_server

PARSED = {
    "uvicorn": Uvicorn(),
    " uvicorn ": Uvicorn(),
    "uvicorn:": Uvicorn(),
    "inprocess": InProcess(),
    "uvicorn:workers=2,loop=asyncio,stabilise=no": Uvicorn(workers=2, loop="asyncio", stabilise=False),
    "uvicorn: workers = 2 , http = h11": Uvicorn(workers=2, http="h11"),
    "uvicorn:port=8000,stabilise=YES": Uvicorn(port=8000),
    "uvicorn:start_timeout=2m,stop_timeout=500ms": Uvicorn(start_timeout_s=120, stop_timeout_s=0.5),
    "http://127.0.0.1:8000": Url("http://127.0.0.1:8000"),
    "https://localhost:8443/api/": Url("https://localhost:8443/api/"),
    "http://[::1]:80": Url("http://[::1]:80"),
    "http://127.9.9.9": Url("http://127.9.9.9"),
}

REFUSED = {
    "": ["unknown server ''", "uvicorn, inprocess or an http:// URL"],
    "gunicorn": ["unknown server 'gunicorn'", "uvicorn, inprocess or an http:// URL"],
    "inprocess:workers=2": ["inprocess takes no settings"],
    "uvicorn:worker=2": ["'worker'", "workers, loop, http, port, stabilise, start_timeout, stop_timeout"],
    "uvicorn:workers=two": ["workers=two", "whole number"],
    "uvicorn:workers": ["workers=", "whole number"],
    "uvicorn:workers=0": ["workers=0", "1 or more"],
    "uvicorn:workers=1,workers=2": ["workers is given twice"],
    "uvicorn:loop=trio": ["loop='trio'", "auto, uvloop, asyncio"],
    "uvicorn:http=h2": ["http='h2'", "auto, httptools, h11"],
    "uvicorn:port=70000": ["port=70000", "65535"],
    "uvicorn:stabilise=maybe": ["stabilise=maybe", "yes or no"],
    "uvicorn:start_timeout=10x": ["start_timeout=10x", "not a duration"],
    "uvicorn:start_timeout=0": ["start_timeout=0", "not a duration"],
    "uvicorn:stop_timeout=0s": ["stop_timeout_s=0.0", "above 0"],
    "uvicorn:loop=trio,colour=red,workers=x": ["3 problems", "loop='trio'", "'colour'", "workers=x"],
    "http://10.0.0.1:8000": ["load only goes to this machine"],
    "http://example.com": ["load only goes to this machine"],
    "http://127.0.0.1.example.com": ["load only goes to this machine"],
    "http://localhost@example.com": ["http://localhost@example.com"],
    "http://": ["http://127.0.0.1:8000"],
    "http://127.0.0.1:0": ["0 is no port"],
    "http://127.0.0.1:99999": ["http://127.0.0.1:99999"],
    "http://127.0.0.1/?a=1": ["no user name, query or fragment"],
}


@pytest.mark.parametrize("text,spec", PARSED.items())
def test_parsed(text: str, spec: ServerSpec) -> None:
    assert parse_server(text) == spec


@pytest.mark.parametrize("text,parts", REFUSED.items())
def test_refused_with_what_is_valid(text: str, parts: list[str]) -> None:
    with pytest.raises(PlanError) as caught:
        parse_server(text)
    assert [part for part in parts if part not in str(caught.value)] == []


def test_every_problem_of_a_spec_is_named() -> None:
    with pytest.raises(PlanError) as caught:
        Uvicorn(workers=True, loop="x", http="y", port=-1, start_timeout_s=0, stop_timeout_s=float("inf"))
    assert len(caught.value.problems) == 6


def test_specs_are_keys() -> None:
    assert len({Uvicorn(), Uvicorn(workers=1), Uvicorn(env=(("A", "1"),)), InProcess(), Url("http://localhost:1")}) == 4
