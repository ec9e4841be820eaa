"""HTTP/1.1 and ASGI transports for httpx that are light enough to measure a server and not themselves."""
