"""The answers that came while something ran: a journey, a step of it, or a request that is not replayed."""

from __future__ import annotations

import httpx

__all__ = ("Answers",)


class Answers:
    """What came back, and when the first of it did."""

    __slots__ = ("_responses", "first_ns", "first_uncounted_ns", "status")

    def __init__(self) -> None:
        self._responses: list[httpx.Response] = []
        self.status: int | None = None
        """The status of the last answer, or the first status from 500 on."""
        self.first_ns: int | None = None
        """When the first answer's head was there."""
        self.first_uncounted_ns = 0
        """What of the time until then does not count."""

    def take(self, response: httpx.Response, now_ns: int, uncounted_ns: int) -> None:
        """Takes an answer whose head is there now, and how much of the time before it does not count."""
        if self.first_ns is None:
            self.first_ns, self.first_uncounted_ns = now_ns, uncounted_ns
        if self.status is None or self.status < 500:
            self.status = response.status_code
        self._responses.append(response)

    @property
    def count(self) -> int:
        """How many came."""
        return len(self._responses)

    def bytes_both_ways(self) -> tuple[int, int]:
        """Returns the length of all bodies sent, and of those received."""
        sent = sum(int(response.request.headers.get("Content-Length", 0)) for response in self._responses)
        return sent, sum(response.num_bytes_downloaded for response in self._responses)
