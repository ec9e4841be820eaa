"""The keywords of `fileperf.get` and the other methods: their types and meanings, for editors and the reference.

At run time, `settings.keys` and `settings.arguments` check the keywords.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from os import PathLike
from typing import TYPE_CHECKING, Literal, Never, TypeAlias, TypedDict, Unpack

from pytest_fileperf.errors import PlanError
from pytest_fileperf.plan.payload import Payload
from pytest_fileperf.plan.request import AnyRequest, AnyUrl, Auth, Content, Cookies, Files, Headers, Params
from pytest_fileperf.plan.work import Mix, PartWork, Pause, why_no_name
from pytest_fileperf.plan.work import Part as MixPart
from pytest_fileperf.serve.spec import ServerSpec
from pytest_fileperf.settings.arguments import VerbCall, journey_from, judged_by, request_from
from pytest_fileperf.settings.keys import KEYS, LIMITS, unknown_keys

if TYPE_CHECKING:
    import httpx

    from pytest_fileperf.drive.journey import Client

# `Never` stands for a parameter of any type: a setup's result, or a client of httpx2, which may not be installed.
Setup: TypeAlias = (
    "Callable[[httpx.AsyncClient], Awaitable[object]] | Callable[[httpx.Client], object] | Callable[[Never], object]"
)
_WithValue: TypeAlias = (
    "Callable[[httpx.AsyncClient, Never], Awaitable[object]] | Callable[[httpx.Client, Never], object]"
)
Teardown: TypeAlias = "_WithValue | Callable[[Never, Never], object] | Setup"
_OfAny: TypeAlias = "Callable[[Never], Awaitable[object]] | Callable[[Never, Never], Awaitable[object]]"
Journey: TypeAlias = "Callable[[Client], Awaitable[object]] | Callable[[Client, Never], Awaitable[object]] | _OfAny"
# A function makes the rows, from the setup's result or without it.
Feed: TypeAlias = "Iterable[object] | Callable[[Never], Iterable[object]] | Callable[[], Iterable[object]]"

Part: TypeAlias = "PartOfLoad | Journey"
_Request: TypeAlias = (
    "PartOfLoad | AnyRequest | tuple[str, str] | tuple[str, str, Mapping[str, object]] | Mapping[str, object]"
)
ManyRequests: TypeAlias = "str | PathLike[str] | Iterable[_Request]"


class StepKeywords(TypedDict, total=False):
    """Limits and a gate for a step of a journey. By default, a step isn't compared with the baseline."""

    min_rps: float | None
    """Fail if requests/s are below this."""
    min_throughput: float | str | None
    """Fail if bytes per second, both ways together, are below this: `"50MiB/s"`, or a number."""
    max_p50: float | str | None
    """Fail if p50, the median latency, exceeds this: `"80ms"`, or seconds."""
    max_p75: float | str | None
    """Fail if p75 exceeds this: `"80ms"`, or seconds."""
    max_p90: float | str | None
    """Fail if p90 exceeds this: `"80ms"`, or seconds."""
    max_p95: float | str | None
    """Fail if p95 exceeds this: `"80ms"`, or seconds."""
    max_p99: float | str | None
    """Fail if p99 exceeds this: `"80ms"`, or seconds."""
    max_p999: float | str | None
    """Fail if p99.9 exceeds this: `"80ms"`, or seconds."""
    max_mean: float | str | None
    """Fail if the mean latency exceeds this: `"80ms"`, or seconds."""
    max_latency: float | str | None
    """Fail if any request takes longer than this: `"80ms"`, or seconds."""
    max_error_rate: float | str | None
    """Fail if a greater share of requests fails: `"1%"`, or 0.01 (default 0)."""
    tolerance: float | str | Mapping[str, float | str] | None
    """Let this worsening pass: `"5%"` or 0.05 for all gated metrics, or a mapping by metric, `{"rps": "5%", "p99":
    "20%"}`. With two values, as in `{"p99": "15% and 2ms"}`, fail only if the worsening exceeds both."""
    gate: Literal[False] | str | Collection[str] | None
    """Compare these metrics with the baseline (default `("rps", "p99")`). `"none"` or False switches the gate off."""
    watch: str | Collection[str] | None
    """Compare and show these metrics, such as `"rss"`. They fail no test."""


class _Judged(StepKeywords, total=False):
    max_cpu_per_request: float | str | None
    """Fail if the server's CPU time per request exceeds this: `"400us"`, or seconds."""
    max_rss: int | str | None
    """Fail if the peak memory of all server processes together exceeds this: `"512MiB"`, or bytes."""
    min_event_rate: float | None
    """Fail if all streams together have fewer events per second than this."""
    max_first_event_p50: float | str | None
    """Fail if the median time to a stream's first event exceeds this: `"80ms"`, or seconds."""
    max_first_event_p99: float | str | None
    """Fail if p99 of the times to the first event exceeds this: `"80ms"`, or seconds."""
    max_event_gap_p50: float | str | None
    """Fail if the median time between two events of a stream exceeds this: `"80ms"`, or seconds."""
    max_event_gap_p99: float | str | None
    """Fail if p99 of the times between two events exceeds this: `"80ms"`, or seconds."""


class MarkerKeys(_Judged, total=False):
    """Every key of the marker `fileperf`. The fixture's methods take them as keywords. None stands for the default."""

    connections: int | str | None
    """Make requests on this many connections (default 32). Each connection sends its next request as soon as the last
    request is answered. With `rate`, `burst` or `fileperf.capacity`, open connections as needed, at most this many
    (default 1000)."""
    requests: int | str | None
    """Make this many requests. `duration` is their time limit. Requests that were not sent in this time have failed."""
    burst: int | str | None
    """Make this many requests, all at once."""
    rate: float | str | None
    """Make requests at this rate, however slow the server is (open loop): `10`, `"10/s"` or `"300/min"`."""
    ramp: str | Sequence[Sequence[float | str]] | None
    """Change the rate, or the number of connections, in stages: `"10s:100/s, 30s:100/s"`, `"10s:50"`, or a list such as
    `[("10s", "100/s"), (30, "100/s")]`."""
    duration: float | str | None
    """Measure for this time, over all start-ups of the server: `"10s"`, or seconds (default 4)."""
    max_duration: float | str | None
    """End a comparison of two versions after this time, start-ups included: `"30s"`, or seconds (default 30). With
    `fileperf.capacity`, end the search for each version after this time (default 60)."""
    rounds: int | str | None
    """Divide the duration into this many rounds (default 12). Their differences show how exact a figure is."""
    warmup: float | str | None
    """Load each start-up for this time before measuring it: `"1s"`, or seconds (default 0.3). Slow first requests,
    such as logins, make it longer, unless it is 0."""
    pause: float | str | Pause | None
    """Let each connection wait between its requests (think time): `"1s"`, seconds, `uniform("0.5s", "2s")` or
    `exponential("1s")`. Latencies do not include it. It does not go with `burst` or a rate."""
    timeout: float | str | None
    """Count a request as failed if it takes longer: `"5s"`, or seconds (default 30)."""
    boots: int | str | None
    """Start the server this many times, and divide the duration among these start-ups (default 3; 1 without a gate)."""
    generators: int | str | None
    """Make the load with this many processes on this machine (default 1). `"auto"` begins with one, and adds more if
    its core is used up and other cores are free."""
    app: object
    """Test this app: `"app.main:app"`, `"app.main:make()"`, or an app or factory object."""
    server: ServerSpec | str | None
    """Serve the app with `Uvicorn()`, `Gunicorn()`, `Granian()`, `InProcess()`, `Command([…])` or `Url("http://…")`, or
    a text such as `"uvicorn:workers=2"` (default uvicorn)."""
    workers: int | str | None
    """Start this many worker processes of uvicorn, gunicorn or granian (default 1)."""
    max_startup: float | str | None
    """Fail if the server takes longer to start: `"3s"`, or seconds. The time runs from the start of its process to its
    first answer, and includes the app's import and lifespan. The median of several starts counts."""
    max_queries: float | str | None
    """Fail if HTTP requests make more database queries than this on average: `3`. Only for uvicorn, gunicorn and
    `InProcess()`. The 5 % of requests with the most queries, and the 5 % with the fewest, are left out."""
    min_capacity: float | None
    """Fail if the capacity is below this, in requests per second. Only with `fileperf.capacity`."""
    setup: Setup | None
    """Run this function for each start-up before the load. An async function gets an `httpx.AsyncClient`, a plain
    function an `httpx.Client`, or the same client of httpx2. Its result goes to the teardown, and to a journey with a
    second argument."""
    teardown: Teardown | None
    """Run this function for each start-up after the load. It gets a client. A function with two arguments also gets the
    setup's result."""
    group: str | None
    """Rank this test among all tests with the same group."""
    label: str | None
    """Show the test under this name in tables."""


class _OfJourney(TypedDict, total=False):
    http2: bool | None
    """Speak HTTP/2, through the transport of httpx or httpx2 (default False). It needs `pip install h2`, and a server
    that speaks HTTP/2, such as Granian. An answer in HTTP/1.1 is a failure."""
    steps: Mapping[str, StepKeywords] | None
    """Judge these steps of the journey (`client.step(name)`) by limits and gates, as in
    `{"login": {"max_p99": "50ms"}, "download": {"gate": "p50"}}`. `{"login": {}}` only requires the step to be reached.
    Other steps have figures only."""


class RunKeywords(MarkerKeys, _OfJourney, total=False):
    """Every keyword of `run`. None stands for the default."""


class _Ordering(TypedDict, total=False):
    order: Literal["cycle", "shuffle", "zipf"] | None
    """Take the feed's rows one after the other (default), shuffled, or at random, with the first rows more often
    (`"zipf"`)."""
    seed: int | None
    """Choose the random order of `shuffle` and `zipf` (default 0)."""
    per_connection: bool | None
    """Let each connection go through all rows by itself. By default, all connections share the rows."""


class RequestsKeywords(MarkerKeys, _Ordering, total=False):
    """Every keyword of `requests`."""


class _Recipe(_Ordering, total=False):
    params: Params | None
    """The query, as httpx takes it: `{"page": 2}`."""
    headers: Headers | None
    """The headers, as httpx takes them."""
    cookies: Cookies | None
    """The cookies, as httpx takes them."""
    content: Content | None
    """The body: bytes, a text, `payload("256KiB")`, or a file that is open in binary mode."""
    data: Mapping[str, object] | None
    """The fields of a form, as httpx takes them."""
    files: Files | None
    """The files of a form, as httpx takes them: `{"file": payload("1MiB")}` or `{"file": ("name.txt", b"content")}`."""
    json: object
    """The body, as an object that becomes JSON."""
    auth: Auth | None
    """Name and password, or an auth object of httpx or httpx2."""
    follow_redirects: bool | None
    """Follow redirects."""
    extensions: Mapping[str, object] | None
    """Extensions of the request, as httpx takes them."""
    expect_status: int | Sequence[int] | AbstractSet[int] | None
    """Count a request as failed unless the answer has this status, or one of these: `201`, `(200, 404)` (default: any
    2xx)."""
    expect_bytes: int | str | None
    """Count a request as failed unless the answer's body has exactly this length on the wire: `"256KiB"`, or bytes."""
    expect_body: str | bytes | bytearray | memoryview | Payload | None
    """Count a request as failed unless the answer's body equals this. This check costs the load generator CPU time."""
    feed: Feed | None
    """Fill fields such as `{id}` in the URL, the query, headers, cookies and the body. Give a list of values, or of
    mappings such as `{"id": 7}`. Or give a generator (its first 100,000 rows count), or a function of the setup's
    result. `{unique}` needs no feed: it is a different text of 48 characters in each request."""


class RequestKeywords(MarkerKeys, _Recipe, total=False):
    """Every keyword of `get`, `post`, `put`, `patch`, `delete` and `request`. None stands for the default."""


class StreamKeywords(RequestKeywords, total=False):
    """Every keyword of `stream`. None stands for the default."""

    method: str | None
    """The method of the request (default `"GET"`)."""
    each: str | int | None
    """Count these pieces of the answer: server-sent events (`"event"`, the default), or lines that are not blank
    (`"line"`). A size, such as `"64KiB"`, counts pieces of that size."""
    events: int | None
    """End a stream after this many events, even if the server sends more. If the answer ends earlier, the request has
    failed."""
    listen_for: float | str | None
    """End a stream this long after its request: `"2s"`, or seconds. If the answer ends earlier, the request has
    failed."""


class _Part(_Judged, total=False):
    name: str | None
    """The part's name in all reports, and in `Measurement.parts`."""


class JourneyPartKeywords(_Part, _OfJourney, total=False):
    """All keywords of `part.run`, which makes a journey a part of a load."""


class PartKeywords(_Part, _Recipe, total=False):
    """Every keyword of a part that makes requests, not a journey."""


# --- Parts of a load: `part.get("/files/{id}", feed=ids)` describes one, and loads nothing

_NOT_OF_PARTS = ("min_capacity", "max_startup", "max_queries")
PART_KEYS = ("gate", "watch", "tolerance", *(name for name in LIMITS if name not in _NOT_OF_PARTS))
"""The keys that a part may have."""


class PartOfLoad(VerbCall):
    """One part of a load, made by `part` for `fileperf.mix`."""

    __slots__ = ()

    @property
    def title(self) -> str:
        """The part's name, else `GET /files/{id}` or the name of its journey."""
        return self.name or (self.where if self.work is None else self.work.name)


class _PartVerbs:
    """The methods return parts of a load, and measure nothing."""

    def get(self, url: AnyUrl, **arguments: Unpack[PartKeywords]) -> PartOfLoad:
        """Returns a part of a load: GET requests of `url`. `PartKeywords` describes the keywords."""
        return self.request("GET", url, **arguments)

    def post(self, url: AnyUrl, **arguments: Unpack[PartKeywords]) -> PartOfLoad:
        """Returns a part of a load: POST requests of `url`. `PartKeywords` describes the keywords."""
        return self.request("POST", url, **arguments)

    def put(self, url: AnyUrl, **arguments: Unpack[PartKeywords]) -> PartOfLoad:
        """Returns a part of a load: PUT requests of `url`. `PartKeywords` describes the keywords."""
        return self.request("PUT", url, **arguments)

    def patch(self, url: AnyUrl, **arguments: Unpack[PartKeywords]) -> PartOfLoad:
        """Returns a part of a load: PATCH requests of `url`. `PartKeywords` describes the keywords."""
        return self.request("PATCH", url, **arguments)

    def delete(self, url: AnyUrl, **arguments: Unpack[PartKeywords]) -> PartOfLoad:
        """Returns a part of a load: DELETE requests of `url`. `PartKeywords` describes the keywords."""
        return self.request("DELETE", url, **arguments)

    def request(self, method: str, url: AnyUrl, **arguments: Unpack[PartKeywords]) -> PartOfLoad:
        """Returns a part of a load: requests of any method. `PartKeywords` describes the keywords."""
        given: dict[str, object] = {**arguments}
        name = given.pop("name", None)
        return _checked(request_from(method, url, given), name)

    def run(self, journey: Journey, **arguments: Unpack[JourneyPartKeywords]) -> PartOfLoad:
        """Returns a part of a load that runs a journey. `JourneyPartKeywords` describes the keywords."""
        given: dict[str, object] = {**arguments}
        name = given.pop("name", None)
        return _checked(journey_from(journey, given), name)


part = _PartVerbs()


def _checked(call: VerbCall, name: object) -> PartOfLoad:
    """Returns the part, even with problems: `mix_from` reports them."""
    problems = list(call.problems)
    if name is not None and (problem := why_no_name(name)):
        problems.append(f"name: {problem}")
        name = None
    if others := [key for key in call.keys if key not in PART_KEYS]:
        problems.append(f"{', '.join(others)}: keys for the whole load only. A part takes {', '.join(PART_KEYS)}")
    name = None if name is None else str(name)
    return PartOfLoad(work=call.work, keys=call.keys, problems=tuple(problems), where=call.where, name=name)


def mix_from(weights: object, arguments: Mapping[str, object]) -> VerbCall:
    problems = [*unknown_keys(arguments, KEYS)]
    parts: list[MixPart] = []
    # Not requests/s, which depend on the other parts.
    default_gate = "none" if arguments.get("gate") in (False, "none") else "p50"
    if not isinstance(weights, Mapping) or not weights:
        problems.append("mix takes weights by parts, as in {part.get('/a'): 1, part.get('/b'): 9}")
        weights = {}
    for given, weight in weights.items():
        if isinstance(given, PartOfLoad):
            own = given
        elif callable(given) or inspect.iscoroutine(given):
            own = _checked(journey_from(given, {}), None)
        else:
            problems.append(f"{given!r} isn't a part. Write part.get(…), or an async function that takes a client")
            continue
        where = own.title
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < math.inf:
            problems.append(f"{where}: its weight is {weight!r}, not a number above 0. Leave out unused parts")
            weight = 1
        problems += (f"{where}: {problem}" for problem in own.problems)
        if isinstance(own.work, PartWork) and not own.problems:
            try:
                asked = judged_by(where.replace("#", ""), own.keys, default_gate)
            except PlanError as error:
                problems += (f"{where}: {problem}" for problem in error.problems)
                continue
            for metric in (name for name in asked.compared if name in ("startup", "queries")):
                key = "gate" if metric in asked.gate else "watch"
                problems.append(f"{where}: {key}: {metric} can be known only for the whole load, not for a part")
            own_fields = {name: getattr(asked, name) for name in ("name", "gate", "watch", "tolerances", "limits")}
            parts.append(MixPart(work=own.work, weight=float(weight), **own_fields))
    names = [one.name for one in parts]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        problems.append(f"two parts are called {twice[0]!r}. Give each its own name: part.get('/', name='front')")
    return VerbCall.of(Mix(parts=tuple(parts)), arguments, problems, "mix")
