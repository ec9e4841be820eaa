"""Cases about one response: where it ends, what is legal in it, and how it may arrive."""

from __future__ import annotations

from dataclasses import replace

import httpx
from wire.conformance import Answer, Ask, Case, Difference, Expected, chunked, http, in_chunks, once, pieces, twice
from wire.scripted import Fin, Reset

HELLO = http("Content-Length: 5", body=b"hello")
CHUNKED_HELLO = in_chunks(chunked(b"hel", b"lo"))
HEAD = Ask(method="HEAD")
LARGE = bytes(range(256)) * 4096  # 1 MiB
BROKEN = httpx.RemoteProtocolError

AS_SENT = Difference(
    reason="h11 puts the value of transfer-encoding in small letters; ours hands out what was sent",
    expect=(Answer(200, b"hi", headers=((b"TRANSFER-ENCODING", b"CHUNKED"),)),) * 2,
)
SWITCHED = Difference(
    reason="ours hands out any 101: that it is not the status asked for is for the one who asked to see",
    expect=(Answer(101),),
)


def leftover(name: str, raw: bytes, expect: Answer, *, ask: Ask | None = None, then: Expected = BROKEN) -> Case:
    """Returns a case of two requests where bytes follow the first answer: httpx takes them for the second answer."""
    difference = Difference(
        reason="bytes after the answer never become the next answer: the connection is closed",
        expect=(expect, expect),
        served=(1, 1),
    )
    case = twice(name, raw, expect, reused=True, ask=ask, difference=difference)
    # Whether the server sees httpx's second request before the connection ends is a matter of microseconds.
    return replace(case, expect=(expect, then), served=None)


LENGTHS = (
    twice("content-length", HELLO, Answer(200, b"hello", b"OK", "HTTP/1.1", ((b"Content-Length", b"5"),)), reused=True),
    twice("content-length 0", http("Content-Length: 0"), Answer(200), reused=True),
    once(
        "content-length twice the same",
        http("Content-Length: 5", "Content-Length: 5", body=b"hello"),
        Answer(200, b"hello"),
    ),
    once("content-length as a list of the same", http("Content-Length: 5, 5", body=b"hello"), Answer(200, b"hello")),
    once("content-length twice and different", http("Content-Length: 5", "Content-Length: 6", body=b"hello!"), BROKEN),
    once("content-length as a list of different", http("Content-Length: 5, 6", body=b"hello!"), BROKEN),
    once("content-length negative", http("Content-Length: -5", body=b"hello"), BROKEN),
    once("content-length with a plus", http("Content-Length: +5", body=b"hello"), BROKEN),
    once("content-length in hex", http("Content-Length: 0x5", body=b"hello"), BROKEN),
    once("content-length empty", http("Content-Length:", body=b"hello"), BROKEN),
    once("content-length with an underscore", http("Content-Length: 1_0", body=b"helloworld"), BROKEN),
    once("content-length with leading zeros", http("Content-Length: 005", body=b"hello"), Answer(200, b"hello")),
    once("content-length with spaces around", http("Content-Length:  5  ", body=b"hello"), Answer(200, b"hello")),
    once("content-length too short a body", http("Content-Length: 9", body=b"hello"), BROKEN, Fin()),
    leftover("content-length and bytes after it", HELLO + b"garbage", Answer(200, b"hello")),
    once(
        "content-length with chunked, chunked wins",
        http("Content-Length: 5", "Transfer-Encoding: chunked", body=chunked(b"hi")),
        Answer(200, b"hi"),
    ),
    once("body until the end", http(body=b"hello"), Answer(200, b"hello"), Fin()),
    once("body until the end, empty", http(), Answer(200), Fin()),
    twice("body until the end is not reused", http(body=b"hello"), Answer(200, b"hello"), Fin(), reused=False),
    twice("204", http(status="204 No Content"), Answer(204), reused=True),
    twice("204 with a content-length", http("Content-Length: 5", status="204 No Content"), Answer(204), reused=True),
    twice("304", http(status="304 Not Modified"), Answer(304), reused=True),
    twice("304 with a content-length", http("Content-Length: 5", status="304 Not Modified"), Answer(304), reused=True),
    twice("304 with chunked", http("Transfer-Encoding: chunked", status="304 Not Modified"), Answer(304), reused=True),
    twice("205 with content-length 0", http("Content-Length: 0", status="205 Reset Content"), Answer(205), reused=True),
    twice("HEAD with a content-length", http("Content-Length: 5"), Answer(200), reused=True, ask=HEAD),
    twice("HEAD with chunked", http("Transfer-Encoding: chunked"), Answer(200), reused=True, ask=HEAD),
    twice("HEAD without a length", http(), Answer(200), reused=True, ask=HEAD),
    leftover("HEAD answered with a body", HELLO, Answer(200), ask=HEAD),
    twice("HEAD with a length of 20 digits", http("Content-Length: " + "9" * 20), Answer(200), reused=True, ask=HEAD),
    once("HEAD with a length of 21 digits", http("Content-Length: " + "9" * 21), BROKEN, ask=HEAD),
    once("HEAD with a bad length", http("Content-Length: x"), BROKEN, ask=HEAD),
    once("204 with a bad length", http("Content-Length: x", status="204 No Content"), BROKEN),
    once("304 with an unknown coding", http("Transfer-Encoding: snail", status="304 Not Modified"), BROKEN),
    leftover(
        "a second response that nobody asked for",
        HELLO + HELLO.replace(b"hello", b"wrong"),
        Answer(200, b"hello"),
        then=Answer(200, b"wrong"),
    ),
)

CHUNKS = (
    twice(
        "chunked",
        CHUNKED_HELLO,
        Answer(200, b"hello", b"OK", "HTTP/1.1", ((b"Transfer-Encoding", b"chunked"),)),
        reused=True,
    ),
    twice("chunked and empty", in_chunks(chunked()), Answer(200), reused=True),
    twice(
        "chunked, name in capitals",
        http("TRANSFER-ENCODING: CHUNKED", body=chunked(b"hi")),
        Answer(200, b"hi"),
        reused=True,
        difference=AS_SENT,
    ),
    once("chunk size in capitals", in_chunks(b"1A\r\n" + b"x" * 26 + b"\r\n0\r\n\r\n"), Answer(200, b"x" * 26)),
    once("chunk size with leading zeros", in_chunks(b"0005\r\nhello\r\n000\r\n\r\n"), Answer(200, b"hello")),
    once("chunk extensions", in_chunks(b'5;a=b;c="d e"\r\nhello\r\n0;z\r\n\r\n'), Answer(200, b"hello")),
    once("chunk size with a space after it", in_chunks(b"5 \r\nhello\r\n0\r\n\r\n"), Answer(200, b"hello")),
    once("chunk size with a space before it", in_chunks(b" 5\r\nhello\r\n0\r\n\r\n"), BROKEN),
    once("chunk size that is none", in_chunks(b"xyz\r\nhello\r\n0\r\n\r\n"), BROKEN),
    once("chunk size negative", in_chunks(b"-5\r\nhello\r\n0\r\n\r\n"), BROKEN),
    once("chunk size as 0x5", in_chunks(b"0x5\r\nhello\r\n0\r\n\r\n"), BROKEN),
    once("chunk size missing", in_chunks(b"\r\nhello\r\n0\r\n\r\n"), BROKEN),
    once("chunk size of 30 digits", in_chunks(b"f" * 30 + b"\r\nhello"), BROKEN),
    once("chunk size huge and then the end", in_chunks(b"fffffffffffffff\r\nhello"), BROKEN, Fin()),
    once("chunk without its line end", in_chunks(b"5\r\nhelloworld\r\n0\r\n\r\n"), BROKEN),
    once("chunk longer than its size", in_chunks(b"3\r\nhello\r\n0\r\n\r\n"), BROKEN),
    twice(
        "chunked with trailers",
        in_chunks(chunked(b"hi", trailers=b"X-Sum: 1\r\nX-More: 2\r\n")),
        Answer(200, b"hi", None, None, ((b"Transfer-Encoding", b"chunked"),)),
        reused=True,
    ),
    *(
        once(f"trailers: {name}", in_chunks(chunked(b"hi", trailers=raw)), expect)
        for name, raw, expect in (
            ("ending in LF", b"X-Sum: 1\nX-More: 2\n", Answer(200, b"hi")),
            ("folded", b"X-Sum: 1\r\n  2\r\n", Answer(200, b"hi")),
            ("beginning folded", b"  2\r\n", BROKEN),
            ("a name with a space", b"X Sum: 1\r\n", BROKEN),
            ("a value with a NUL", b"X-Sum: 1\0\r\n", BROKEN),
            ("no name", b": 1\r\n", BROKEN),
            ("a bad content-length", b"Content-Length: x\r\n", BROKEN),
        )
    ),
    once("blank line after the last chunk is a bare LF", in_chunks(b"0\r\n\n"), Answer(200)),
    *(
        once(f"chunk size: {name}", in_chunks(raw + b"\r\nhello\r\n0\r\n\r\n"), expect)
        for name, raw, expect in (
            ("20 digits", b"0" * 19 + b"5", Answer(200, b"hello")),
            ("21 digits", b"0" * 20 + b"5", BROKEN),
            ("an extension with control characters", b"5;\x01\x7f\x00", Answer(200, b"hello")),
            ("a space before the extension", b"5 ;a", BROKEN),
        )
    ),
    once("chunk that begins its line end wrongly", in_chunks(b"2\r\nhix"), BROKEN),
    once("trailer without a colon", in_chunks(b"0\r\nnonsense\r\n\r\n"), BROKEN),
    once("chunked cut in a chunk", in_chunks(b"9\r\nhello"), BROKEN, Fin()),
    once("chunked cut after a chunk", in_chunks(b"5\r\nhello\r\n"), BROKEN, Fin()),
    once("chunked cut in a size", in_chunks(b"5\r\nhello\r\n1"), BROKEN, Fin()),
    once("chunked cut before the last line", in_chunks(b"5\r\nhello\r\n0\r\n"), BROKEN, Fin()),
    leftover("chunked and bytes after it", CHUNKED_HELLO + b"garbage", Answer(200, b"hello")),
    once("transfer-encoding gzip, chunked", http("Transfer-Encoding: gzip, chunked", body=chunked(b"hi")), BROKEN),
    once("transfer-encoding that is unknown", http("Transfer-Encoding: snail", body=b"hi"), BROKEN, Fin()),
    once(
        "chunked in HTTP/1.0",
        http("Transfer-Encoding: chunked", version="HTTP/1.0", body=chunked(b"hi")),
        Answer(200, b"hi"),
        Fin(),
    ),
)

HEADS = (
    once("reason phrase missing", http("Content-Length: 0", status="200"), Answer(200, reason=b"")),
    once("reason phrase empty", b"HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n", Answer(200, reason=b"")),
    once(
        "reason phrase of its own",
        http("Content-Length: 0", status="299 Très  bien"),
        Answer(299, reason="Très  bien".encode("latin-1")),
    ),
    *(
        once(f"status {code}", http("Content-Length: 0", status=f"{code} Odd"), BROKEN)
        for code in ("000", "007", "099")
    ),
    *(
        once(f"reason with {bad!a}", http("Content-Length: 0", status=f"200 O{bad}K"), BROKEN)
        for bad in ("\x00", "\x0b", "\x0c")
    ),
    once("reason with \\x01", http("Content-Length: 0", status="200 O\x01K"), Answer(200, reason=b"O\x01K")),
    once("status of 4 digits", http("Content-Length: 0", status="2000 OK"), BROKEN),
    once("status of 2 digits", http("Content-Length: 0", status="99 OK"), BROKEN),
    once("status that is no number", http("Content-Length: 0", status="abc OK"), BROKEN),
    once("status 600", http("Content-Length: 0", status="600 Odd"), Answer(600)),
    once("version 2.0", http("Content-Length: 0", version="HTTP/2.0"), Answer(200, version="HTTP/2.0")),
    once("version 1.7", http("Content-Length: 0", version="HTTP/1.7"), Answer(200, version="HTTP/1.7")),
    once("version in small letters", http("Content-Length: 0", version="http/1.1"), BROKEN),
    once("garbage", b"\x15\x03\x01\x00\x02\x02\x50 this is no HTTP\r\n\r\n", BROKEN),
    once("garbage without a line end, then the end", b"SSH-2.0-OpenSSH_9.7", BROKEN, Fin()),
    once("empty lines before the response", b"\r\n\r\n" + HELLO, BROKEN),
    once(
        "names keep their case",
        http("cOnTeNt-LeNgTh: 0", "X-y: 1"),
        Answer(200, headers=((b"cOnTeNt-LeNgTh", b"0"), (b"X-y", b"1"))),
    ),
    once(
        "same name several times, in order",
        http("Content-Length: 0", "A: 1", "B: 2", "a: 3"),
        Answer(200, headers=((b"Content-Length", b"0"), (b"A", b"1"), (b"B", b"2"), (b"a", b"3"))),
    ),
    once(
        "value empty",
        http("Content-Length: 0", "X-Empty:"),
        Answer(200, headers=((b"Content-Length", b"0"), (b"X-Empty", b""))),
    ),
    once(
        "value with spaces around",
        http("Content-Length: 0", "X:  \t a b \t "),
        Answer(200, headers=((b"Content-Length", b"0"), (b"X", b"a b"))),
    ),
    once(
        "value not ASCII",
        http("Content-Length: 0", "X: Grüße"),
        Answer(200, headers=((b"Content-Length", b"0"), (b"X", "Grüße".encode("latin-1")))),
    ),
    once("value with a NUL", http("Content-Length: 0", "X: a\x00b"), BROKEN),
    once("name with a space", http("Content-Length: 0", "X Y: 1"), BROKEN),
    once("name and space before the colon", http("Content-Length: 0", "X : 1"), BROKEN),
    once("name empty", http("Content-Length: 0", ": 1"), BROKEN),
    once("line without a colon", http("Content-Length: 0", "nonsense"), BROKEN),
    once(
        "folded header",
        http("Content-Length: 0", "X: a", "  b"),
        Answer(200, headers=((b"Content-Length", b"0"), (b"X", b"a b"))),
    ),
    once("lines ending in LF", HELLO.replace(b"\r\n", b"\n"), Answer(200, b"hello")),
    once(
        "lines ending in LF and a blank line in a body until the end",
        b"HTTP/1.0 200 OK\nContent-Type: text/plain\n\nab\r\n\r\ncdef",
        Answer(200, b"ab\r\n\r\ncdef"),
        Fin(),
    ),
    once(
        "lines ending in LF and blank lines in the body",
        b"HTTP/1.1 200 OK\nContent-Length: 8\n\na\r\n\r\nb\n\n",
        Answer(200, b"a\r\n\r\nb\n\n"),
    ),
    once("200 headers", http("Content-Length: 0", *(f"X-{number}: {number}" for number in range(200))), Answer(200)),
    once("header of 60 kB", http("Content-Length: 0", "X: " + "x" * 60_000), Answer(200)),
    once("head of 200 kB", http("Content-Length: 0", *(f"X-{number}: {'x' * 1000}" for number in range(200))), BROKEN),
    once("head that never ends", b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000, BROKEN),
)

INTERIM = (
    twice("100 first", http(status="100 Continue") + HELLO, Answer(200, b"hello"), reused=True),
    twice(
        "102 and several 103 first",
        http(status="102 Processing") + http("Link: </a>", status="103 Early Hints") * 3 + HELLO,
        Answer(200, b"hello", headers=((b"Content-Length", b"5"),)),
        reused=True,
    ),
    pieces("100, and later the answer", http(status="100 Continue"), HELLO, expect=Answer(200, b"hello")),
    pieces(
        "103, cut in the middle",
        http(status="103 Early Hints")[:9],
        http(status="103 Early Hints")[9:] + HELLO[:4],
        HELLO[4:],
        expect=Answer(200, b"hello"),
    ),
    once("1000 informational heads", http(status="100 Continue") * 1000 + HELLO, Answer(200, b"hello")),
    once(
        "1001 informational heads",
        http(status="100 Continue") * 1001 + HELLO,
        Answer(200, b"hello"),
        difference=Difference(reason="httpx takes any number of them; ours stops at 1000", expect=(BROKEN,)),
    ),
    once("100 and then the end", http(status="100 Continue"), BROKEN, Fin()),
    once(
        "101",
        http("Upgrade: websocket", "Connection: upgrade", status="101 Switching Protocols"),
        Answer(101),
        ask=Ask(more={"headers": {"Upgrade": "websocket", "Connection": "Upgrade"}}),
    ),
    once(
        "101 that nobody asked for",
        http("Upgrade: odd", "Connection: upgrade", status="101 Switching Protocols"),
        BROKEN,
        difference=SWITCHED,
    ),
)

ARRIVAL = (
    once("byte by byte, content-length", HELLO, Answer(200, b"hello"), step=1),
    once(
        "byte by byte, chunked with trailers",
        in_chunks(chunked(b"hel", b"lo", trailers=b"A: b\r\n")),
        Answer(200, b"hello"),
        step=1,
    ),
    once("byte by byte, until the end", http(body=b"hello"), Answer(200, b"hello"), Fin(), step=1),
    once("byte by byte, 103 first", http(status="103 Early Hints") + HELLO, Answer(200, b"hello"), step=1),
    pieces("head and body apart", http("Content-Length: 5"), b"hello", expect=Answer(200, b"hello")),
    pieces(
        "head and chunks apart",
        http("Transfer-Encoding: chunked"),
        b"5\r",
        b"\nhello\r",
        b"\n0\r\n",
        b"\r\n",
        expect=Answer(200, b"hello"),
    ),
    pieces("head cut between CR and LF", HELLO[:16], HELLO[16:], expect=Answer(200, b"hello")),
    once("1 MiB, content-length", http(f"Content-Length: {len(LARGE)}", body=LARGE), Answer(200, LARGE)),
    once("1 MiB, chunked", in_chunks(chunked(LARGE[:300_000], LARGE[300_000:])), Answer(200, LARGE)),
    once("1 MiB, many small chunks", in_chunks(chunked(*[LARGE[:257]] * 4096)), Answer(200, LARGE[:257] * 4096)),
    once("1 MiB, until the end", http(body=LARGE), Answer(200, LARGE), Fin()),
    once(
        "1 MiB in pieces of 7001 bytes",
        http(f"Content-Length: {len(LARGE)}", body=LARGE),
        Answer(200, LARGE),
        step=7001,
    ),
)

CUTS = (
    once("end before the response", b"", BROKEN, Fin()),
    once("end in the status line", b"HTTP/1.1 2", BROKEN, Fin()),
    once("end in the headers", b"HTTP/1.1 200 OK\r\nContent-Le", BROKEN, Fin()),
    once("end after the headers", http("Content-Length: 5"), BROKEN, Fin()),
    once("reset before the response", b"", httpx.ReadError, Reset()),
    pieces("reset in the headers", b"HTTP/1.1 200 OK\r\nContent-Le", expect=httpx.ReadError, ends=(Reset(),)),
    pieces("reset in the body", http("Content-Length: 9", body=b"hello"), expect=httpx.ReadError, ends=(Reset(),)),
    pieces("reset in a chunk", in_chunks(b"9\r\nhello"), expect=httpx.ReadError, ends=(Reset(),)),
    pieces("reset between chunks", in_chunks(b"5\r\nhello\r\n"), expect=httpx.ReadError, ends=(Reset(),)),
    pieces("reset in a body until the end", http(body=b"hello"), expect=httpx.ReadError, ends=(Reset(),)),
    *(
        once(f"{name} and a reset at once", b"", expect, Reset(raw))
        for name, raw, expect in (
            ("part of the head", b"HTTP/1.1 200 OK\r\nContent-Le", httpx.ReadError),
            ("head", http("Content-Length: 9"), httpx.ReadError),
            ("103", http(status="103 Early Hints"), httpx.ReadError),
            ("part of the body", http("Content-Length: 9", body=b"hello"), httpx.ReadError),
            ("100 kB of the body", http("Content-Length: 900000", body=LARGE[:100_000]), httpx.ReadError),
            ("part of a chunk", in_chunks(b"9\r\nhello"), httpx.ReadError),
            ("body until the end", http(body=b"hello"), httpx.ReadError),
            ("whole answer", HELLO, Answer(200, b"hello")),
        )
    ),
    twice("whole answer and a reset at once, then another", b"", Answer(200, b"hello"), Reset(HELLO), reused=False),
)

CASES: tuple[Case, ...] = LENGTHS + CHUNKS + HEADS + INTERIM + ARRIVAL + CUTS
