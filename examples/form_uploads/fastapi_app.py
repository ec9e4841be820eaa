"""The FastAPI side: takes the file of a form as an `UploadFile`, reads it to its end, and answers with its size."""

from __future__ import annotations

from fastapi import FastAPI, UploadFile

BLOCK_BYTES = 1 << 20
"""What is over 1 MiB lies in a temporary file by now, and each read is a trip to a thread: small blocks cost more."""

app = FastAPI()


@app.post("/upload")
async def upload(file: UploadFile) -> dict[str, int]:
    """Gets the form when all of it has arrived; its temporary file has no name, and ends with the request."""
    size_bytes = 0
    while block := await file.read(BLOCK_BYTES):
        size_bytes += len(block)
    return {"size": size_bytes}
