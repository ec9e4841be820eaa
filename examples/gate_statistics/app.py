"""An app whose requests burn a known amount of CPU."""

from __future__ import annotations

import time

from fastapi import FastAPI

COST_US = 200
"""CPU that each request burns, in microseconds, beside what FastAPI and uvicorn cost."""

app = FastAPI()


@app.get("/work")
async def work() -> dict[str, int]:
    ends_s = time.thread_time() + COST_US / 1e6
    while time.thread_time() < ends_s:
        pass
    return {"cost_us": COST_US}
