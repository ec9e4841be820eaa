"""The objects that the fixtures `fileperf` and `afileperf` return."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, TypeVar, Unpack

from anyio import CancelScope, get_cancelled_exc_class, to_thread

from pytest_fileperf.settings.arguments import VerbCall, journey_from, request_from, stream_from
from pytest_fileperf.settings.keywords import mix_from
from pytest_fileperf.settings.targets import many_from

if TYPE_CHECKING:
    from pytest_fileperf.measure.capacity import Capacity
    from pytest_fileperf.measure.measurement import Measurement
    from pytest_fileperf.plan.request import AnyUrl
    from pytest_fileperf.plugin.measuring import Measuring, Turn
    from pytest_fileperf.settings.keywords import (
        Journey,
        ManyRequests,
        MarkerKeys,
        Part,
        RequestKeywords,
        RequestsKeywords,
        RunKeywords,
        StreamKeywords,
    )

_Found = TypeVar("_Found")


class _Verbs(ABC, Generic[_Found]):
    """The methods that measure, for both fixtures."""

    def __init__(self, measuring: Measuring) -> None:
        self._measuring = measuring

    def get(self, url: AnyUrl, **arguments: Unpack[RequestKeywords]) -> _Found:
        """Measures GET requests. `url` is a path on the server. `RequestKeywords` describes the keywords."""
        __tracebackhide__ = True
        return self.request("GET", url, **arguments)

    def post(self, url: AnyUrl, **arguments: Unpack[RequestKeywords]) -> _Found:
        """Measures POST requests. `url` is a path on the server. `RequestKeywords` describes the keywords."""
        __tracebackhide__ = True
        return self.request("POST", url, **arguments)

    def put(self, url: AnyUrl, **arguments: Unpack[RequestKeywords]) -> _Found:
        """Measures PUT requests. `url` is a path on the server. `RequestKeywords` describes the keywords."""
        __tracebackhide__ = True
        return self.request("PUT", url, **arguments)

    def patch(self, url: AnyUrl, **arguments: Unpack[RequestKeywords]) -> _Found:
        """Measures PATCH requests. `url` is a path on the server. `RequestKeywords` describes the keywords."""
        __tracebackhide__ = True
        return self.request("PATCH", url, **arguments)

    def delete(self, url: AnyUrl, **arguments: Unpack[RequestKeywords]) -> _Found:
        """Measures DELETE requests. `url` is a path on the server. `RequestKeywords` describes the keywords."""
        __tracebackhide__ = True
        return self.request("DELETE", url, **arguments)

    def request(self, method: str, url: AnyUrl, **arguments: Unpack[RequestKeywords]) -> _Found:
        """Measures requests of any method.

        `url` is a path on the server under test. Most keywords are httpx's own request arguments: `params`, `headers`,
        `cookies`, `content`, `data`, `files`, `json`, `auth`, `follow_redirects`, `extensions`. `feed`, `order`, `seed`
        and `per_connection` choose requests. `expect_status`, `expect_bytes` and `expect_body` are the expected answer.
        Every key of the marker is also a keyword. `RequestKeywords` describes each.
        """
        __tracebackhide__ = True
        return self._measure(request_from(method, url, arguments))

    def stream(self, url: AnyUrl, **arguments: Unpack[StreamKeywords]) -> _Found:
        """Measures answers that come in pieces, such as server-sent events or long downloads.

        A stream ends after a number of `events`, after the time `listen_for`, or with the answer. `each` defines the
        pieces. `Measurement.events` has the pieces' rate, the time to the first piece and the gaps between pieces. One
        stream is one sample. `StreamKeywords` describes the keywords.
        """
        __tracebackhide__ = True
        return self._measure(stream_from(url, arguments))

    def run(self, journey: Journey, **arguments: Unpack[RunKeywords]) -> _Found:
        """Measures a journey: an async function that takes an `httpx.AsyncClient`. Each connection calls it repeatedly.

        If the parameter's annotation is `httpx2.AsyncClient`, the function gets this client. A second parameter gets
        the result of `setup`. One call is one sample, and an exception is a failure. The keywords are the marker's keys
        and `steps`. A step is a part of the journey, as in `async with client.step("login"):`, and can have its own
        limits. `RunKeywords` describes each keyword.
        """
        __tracebackhide__ = True
        return self._measure(journey_from(journey, arguments))

    def requests(self, given: ManyRequests, **arguments: Unpack[RequestsKeywords]) -> _Found:
        """Measures many requests in one load. `given` is a list of requests, or a file's path.

        A request is `(method, url)` or `(method, url, options)`. The dict `options` has keywords of `get`, and maybe
        `name`. A request can also be a dict with `url`, an `httpx.Request` or `httpx2.Request`, or `part.get(…)`. A
        file has one such dict as JSON per line, or targets in vegeta's format. Requests with a name have their own
        figures in `Measurement.parts`. `RequestsKeywords` describes the keywords.
        """
        __tracebackhide__ = True
        return self._measure(many_from(given, arguments))

    def mix(self, weights: Mapping[Part, float], **keys: Unpack[MarkerKeys]) -> _Found:
        """Measures several parts in one load: `{part.post("/upload", content=…): 1, part.get("/download"): 9}`.

        Make each part with `part`, or use a journey. In this example, 9 of 10 requests are downloads. Each part has
        its own figures in `Measurement.parts`, and its own gate. The keywords are the marker's keys, for the whole
        load.
        """
        __tracebackhide__ = True
        return self._measure(mix_from(weights, keys))

    @abstractmethod
    def _measure(self, call: VerbCall) -> _Found: ...


class CapacityVerbs(_Verbs["Capacity"]):
    """The methods of `fileperf.capacity`: each finds the highest request rate that meets the test's limits.

    Give at least one limit of latency, `max_p50` to `max_p999`. Raises the same errors as `FilePerf`.
    """

    def _measure(self, call: VerbCall) -> Capacity:
        __tracebackhide__ = True
        return self._measuring.capacity(_of_capacity(call))


class AsyncCapacityVerbs(_Verbs[Coroutine[object, None, "Capacity"]]):
    """The methods of `afileperf.capacity`: as `CapacityVerbs`, but awaitable."""

    def _measure(self, call: VerbCall) -> Coroutine[object, None, Capacity]:
        __tracebackhide__ = True
        return _awaited(self._measuring, self._measuring.capacity, _of_capacity(call))


def _of_capacity(call: VerbCall) -> VerbCall:
    return replace(call, where=f"capacity {call.where}")


class FilePerf(_Verbs["Measurement"]):
    """Makes load from a test, judges the figures, and returns them as a `Measurement`.

    Raises PlanError for wrong arguments, and another FilePerfError if nothing could be measured. Raises
    PerformanceError (an AssertionError) if the figures fail the test.
    """

    @property
    def capacity(self) -> CapacityVerbs:
        """The same methods, to find the highest rate that meets limits: `capacity.get("/", max_p99="100ms")`."""
        return CapacityVerbs(self._measuring)

    def _measure(self, call: VerbCall) -> Measurement:
        __tracebackhide__ = True
        return self._measuring.measure(call)


class AsyncFilePerf(_Verbs[Coroutine[object, None, "Measurement"]]):
    """`FilePerf` for async tests: every method is awaitable, and the test's own event loop goes on.

    Only one measurement runs at a time, so gathered calls wait for each other. A cancelled call returns only after its
    load has ended.
    """

    def _measure(self, call: VerbCall) -> Coroutine[object, None, Measurement]:
        __tracebackhide__ = True
        return _awaited(self._measuring, self._measuring.measure, call)

    @property
    def capacity(self) -> AsyncCapacityVerbs:
        """The same methods, to find the highest rate that meets limits: `await capacity.get("/", max_p99="100ms")`."""
        return AsyncCapacityVerbs(self._measuring)


def _awaited(
    measuring: Measuring, measure: Callable[[VerbCall, Turn], _Found], call: VerbCall
) -> Coroutine[object, None, _Found]:
    """Returns a coroutine that runs `measure` in another thread. The test fails if nobody awaits the coroutine."""
    given_up = threading.Event()
    return measuring.to_be_awaited(call, _in_thread(measuring, measure, call, given_up), given_up)


async def _in_thread(
    measuring: Measuring, measure: Callable[[VerbCall, Turn], _Found], call: VerbCall, given_up: threading.Event
) -> _Found:
    __tracebackhide__ = True
    turn = measuring.in_line(call, given_up)  # entered here, because threads begin in any order
    working = threading.Lock()
    found: list[_Found] = []
    failed: list[Exception] = []

    def work() -> None:
        __tracebackhide__ = True
        with working:
            if not given_up.is_set():
                try:
                    found.append(measure(call, turn))
                except Exception as error:  # goes to the test
                    failed.append(error)

    try:
        await to_thread.run_sync(work, abandon_on_cancel=True)
    except get_cancelled_exc_class():
        given_up.set()  # a thread that has not begun does nothing; one that has begun stops soon
        with CancelScope(shield=True):
            await to_thread.run_sync(working.acquire)
        raise
    finally:
        measuring.leave_line(turn)
    if failed:
        raise failed[0]
    return found[0]
