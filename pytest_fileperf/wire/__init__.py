"""HTTP/1.1 and ASGI transports for httpx, light enough to measure a server and not themselves."""
