"""Sends the same burst as the tests, with the client the study used: one httpx.AsyncClient and its own pool.

    python httpx_pool.py http://127.0.0.1:8000/async_endpoint

Prints how long it took, and how much of that this process, the client, was computing.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

import httpx

CONNECTIONS = 200


async def burst(url: str, requests: int, delay_s: float) -> int:
    """Returns how many requests failed."""
    limits = httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
    async with httpx.AsyncClient(limits=limits, timeout=None) as client:  # noqa: S113 # none, as in the study
        sending = (client.get(url, params={"delay": delay_s}) for _ in range(requests))
        answers = await asyncio.gather(*sending, return_exceptions=True)
    return sum(isinstance(answer, BaseException) or answer.status_code != 200 for answer in answers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--delay", type=float, default=0.3, help="seconds")
    asked = parser.parse_args()
    begun_s, cpu_s = time.monotonic(), time.process_time()
    failed = asyncio.run(burst(asked.url, asked.requests, asked.delay))
    took_s, cpu_s = time.monotonic() - begun_s, time.process_time() - cpu_s
    sys.stdout.write(f"{took_s:.2f} s, of which {cpu_s:.2f} s of the client's CPU; {failed} failed\n")


if __name__ == "__main__":
    main()
