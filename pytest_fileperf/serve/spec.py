"""The kinds of servers and their settings, as values. `launch` starts them."""

from __future__ import annotations

import os
import re
import shlex
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path, PurePath
from typing import ClassVar, TypeAlias, cast
from urllib.parse import urlsplit

from pytest_fileperf.errors import PlanError
from pytest_fileperf.plan.network import URL_STARTS, unix_socket, url_problem
from pytest_fileperf.units import parse_duration_ns

# --- Placeholders such as `{port}`, which get their values when a server starts. Other braces stay

BOOT, HOST, PORT, WORKER = "{boot}", "{host}", "{port}", "{worker}"
UDS, CERTFILE, KEYFILE = "{uds}", "{certfile}", "{keyfile}"  # only for a Command
PYTHON = "{python}"  # only in a command's words


def filled(text: str, **values: object) -> str:
    """Fills placeholders: `filled("--port={port}", port=80)` gives `--port=80`. A value None keeps the placeholder."""
    for name, value in values.items():  # `{boot}` has four digits: the size of the environment moves the stack
        if value is not None:
            text = text.replace(f"{{{name}}}", str(value).zfill(4) if name == "boot" else str(value))
    return text


def has_names(text: str) -> bool:
    return any(name in text for name in (BOOT, HOST, PORT, WORKER, UDS, CERTFILE, KEYFILE))


def env_filled(env: Mapping[str, str], names: Iterable[str], **values: object) -> dict[str, str]:
    """Returns `env`, with placeholders filled in the values of the variables `names`."""
    return {**env, **{name: filled(env[name], **values) for name in names}}


def fill_environment(names: Iterable[str], *, port: int, run_directory: Path) -> None:
    """Fills in `{port}` and `{worker}` in this process's environment variables (`names`)."""
    left = {name: value for name in names if has_names(value := os.environ.get(name, ""))}
    worker = 0
    while any(WORKER in value for value in left.values()):
        try:
            (run_directory / f"worker-{worker}").touch(exist_ok=False)
            break
        except FileExistsError:  # another worker of this start-up has the number
            worker += 1
    os.environ.update({name: filled(value, port=port, worker=worker) for name, value in left.items()})


# --- The kinds of servers

# With this name, pytest shows the test's line, and not the arguments of a generated `__init__`, which may be secret.
__tracebackhide__ = True

LOOPS = ("auto", "uvloop", "asyncio")
HTTP_IMPLEMENTATIONS = ("auto", "httptools", "h11")

EnvironmentVariables: TypeAlias = Mapping[str, str] | Sequence[tuple[str, str]]
FilePath: TypeAlias = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class InProcess:
    """Runs the app in the test process, with its lifespan, but without sockets and HTTP parsing.

    So figures show the cost of the app alone. They are never compared with figures of a real server.
    """


@dataclass(frozen=True, slots=True)
class AsgiSpec:
    """Serves an ASGI app, in processes on a port of the loopback interface."""

    name: ClassVar[str]
    workers: int = 1
    loop: str = "auto"
    """`uvloop` or `asyncio`; `auto` is uvloop if it is installed."""
    http: str = "auto"
    """`httptools` or `h11`; `auto` is httptools if it is installed."""
    _: KW_ONLY
    access_log: bool = False
    """Log each request, as uvicorn does by default."""
    stabilise: bool = True
    """Use a fixed hash seed and fixed memory addresses, so that two start-ups behave alike."""
    start_timeout_s: float = 30.0
    stop_timeout_s: float = 10.0
    env: EnvironmentVariables = field(default=(), repr=False)
    """Environment variables for the server. Their values may contain placeholders:

    - `{boot}` becomes a number that is unique in the test run.
    - `{host}` and `{port}` become the server's address and port.
    - `{worker}` becomes the worker process's number in its start-up, from 0.
    """
    uds: bool = False
    """Listen on a Unix socket instead of a port. Each start-up has its own socket, in a temporary directory."""
    tls: bool = False
    """Speak TLS, with a certificate that is made for the test run. Needs `pip install "pytest-fileperf[tls]"`."""
    ssl_certfile: FilePath | None = None
    """Speak TLS with the certificate in this PEM file. Clients trust it for any host name."""
    ssl_keyfile: FilePath | None = field(default=None, repr=False)
    """The PEM file of the private key, without a password. None if `ssl_certfile` contains the key."""

    def __post_init__(self) -> None:
        _check(self)

    @property
    def is_tls(self) -> bool:
        """Whether the server speaks TLS."""
        return self.tls or self.ssl_certfile is not None


@dataclass(frozen=True, slots=True)
class Uvicorn(AsgiSpec):
    """Real uvicorn processes on a free port of the loopback interface. Raises PlanError that lists all wrong values."""

    name = "uvicorn"
    port: int = 0
    """0 takes a free port. A fixed port allows only one start-up in a test run."""


@dataclass(frozen=True, slots=True)
class Gunicorn(AsgiSpec):
    """A real gunicorn with workers from the package `uvicorn-worker`, on a free port of the loopback interface.

    It does not read gunicorn.conf.py. To use that file, start gunicorn with a `Command`. Raises PlanError that lists
    all wrong values.
    """

    name = "gunicorn"


@dataclass(frozen=True, slots=True)
class Granian(AsgiSpec):
    """A real granian. It imports the app by its name, so a test cannot set anything on the served app.

    It has its own HTTP parser, so it takes no `http`. Raises PlanError that lists all wrong values.
    """

    name = "granian"


@dataclass(frozen=True, slots=True)
class Command:
    """Any program that serves HTTP/1.1 on a given port of 127.0.0.1, or on a given Unix socket.

    The program's arguments and environment variables may contain placeholders:

    - `{port}` is a free port, and `{host}` the address to listen at (127.0.0.1, or `--fileperf-host`).
    - `{uds}`, in place of `{port}`, is the path of a Unix socket to listen on.
    - `{certfile}` and `{keyfile}` are the files of a certificate and its key, for TLS.
    - `{boot}` is a number that is unique in the test run.
    - `{python}`, in arguments only, is the Python that runs the tests.

    The program has to stay in the foreground. fileperf ends it with SIGTERM, and then kills its remaining processes.
    Raises PlanError that lists all wrong values.
    """

    command: Sequence[str] = field(repr=False)
    """The program and its arguments. A single text is split into words as a shell does, but no shell runs."""
    _: KW_ONLY
    env: EnvironmentVariables = field(default=(), repr=False)
    """Environment variables for the program and its build. `{worker}` in a value is 0."""
    cwd: str | os.PathLike[str] | None = None
    """The working directory of program and build. A relative path starts at the current directory."""
    build: Sequence[str] | None = field(default=None, repr=False)
    """A command that runs to its end once in a test run, before the first start-up."""
    ready: str | None = "/"
    """The server is ready when this path gets any HTTP answer, even 404. If None, a connection is enough."""
    workers: int = 1
    """How many of the program's processes serve, and how many cores it gets. Put this number into `command`."""
    stabilise: bool = True
    """Use fixed memory addresses and, for Python, a fixed hash seed."""
    start_timeout_s: float = 30.0
    stop_timeout_s: float = 10.0
    title: str | None = None
    """The command's name in reports, test ids and baselines.

    If None, reports and test ids name the program or Python module, and baselines contain the command.
    """
    ssl_certfile: FilePath | None = None
    """The PEM file of its TLS certificate. If None, fileperf makes a certificate for `{certfile}`."""
    ssl_keyfile: FilePath | None = field(default=None, repr=False)
    """The PEM file of the private key for `ssl_certfile`, as the value of `{keyfile}`."""

    def __post_init__(self) -> None:
        _check(self)
        object.__setattr__(self, "command", _words(self.command))
        object.__setattr__(self, "build", None if self.build is None else _words(self.build))
        object.__setattr__(self, "cwd", None if self.cwd is None else os.fspath(self.cwd))
        if problems := list(self._problems_of_names()):
            raise PlanError(*problems, where="Command")

    def _problems_of_names(self) -> Iterator[str]:
        certfile, keyfile = self._has(CERTFILE), self._has(KEYFILE)
        if not (self._has(PORT) or self.uds):
            yield (
                f"{self.name} does not get its port. Write {PORT} in an argument or an environment variable, "
                f'as in Command(["./server", "--port", "{PORT}"]) or env={{"PORT": "{PORT}"}} (or {UDS} for a '
                "Unix socket)"
            )
        if self._has(PORT) and self.uds:
            yield f"{self.name} gets {PORT} and {UDS}, two places to listen at. Give one of them"
        if self.ssl_certfile is None and certfile is not keyfile:
            yield f"a certificate needs its key. Write both {CERTFILE} and {KEYFILE}"
        if self.ssl_certfile is not None and keyfile and self.ssl_keyfile is None:
            yield f"{self.name} uses {KEYFILE}, which needs a file. Give the key's file as ssl_keyfile"

    def _has(self, name: str) -> bool:
        return any(name in text for text in (*self.command, *dict(self.env).values()))

    @property
    def uds(self) -> bool:
        """Whether the program listens on a Unix socket."""
        return self._has(UDS)

    @property
    def is_tls(self) -> bool:
        """Whether the program speaks TLS."""
        return self.ssl_certfile is not None or self._has(CERTFILE)

    @property
    def name(self) -> str:
        """The title. Without a title, the name of the program, or of the module after `python -m`."""
        if self.title:
            return self.title
        program = PurePath(self.command[0].replace(PYTHON, "python")).name
        runs_module = program.startswith("python") and self.command[1:2] == ("-m",) and len(self.command) > 2
        return self.command[2] if runs_module else program


@dataclass(frozen=True, slots=True)
class Url:
    """A server that already runs, on this machine or an allowed host. Raises PlanError for an invalid address."""

    url: str
    """The server's address, such as `http://127.0.0.1:8000`. A path in it is put in front of each request's path.

    `http+unix://%2Frun%2Fapp.sock` is the Unix socket `/run/app.sock`.
    """
    _: KW_ONLY
    verify: bool | FilePath = True
    """Which certificates to trust. True trusts the authorities that httpx trusts, and False any certificate.

    A path names the PEM file of the server's certificate, or of the authority that has signed the certificate.
    """

    def __post_init__(self) -> None:
        if problem := url_problem(self.url):
            raise PlanError(problem, where="Url")
        verify: object = self.verify
        if not isinstance(verify, bool | str | os.PathLike):
            raise PlanError(f"verify={verify!r} must be the path of a PEM file, True or False", where="Url")
        if not isinstance(verify, bool):
            object.__setattr__(self, "verify", os.path.abspath(verify))  # noqa: PTH100 # `..` stays


ProcessSpec: TypeAlias = AsgiSpec | Command
ServerSpec: TypeAlias = InProcess | ProcessSpec | Url


def worker_count(spec: ServerSpec) -> int | None:
    """None for a server in the test process, and for a URL, whose workers nobody knows."""
    return None if isinstance(spec, InProcess | Url) else spec.workers


def needs_app(spec: ServerSpec) -> bool:
    """False for commands and URLs, which have an app of their own."""
    return not isinstance(spec, Command | Url)


def is_only_once(spec: ServerSpec) -> bool:
    """Whether a test run can have only one start-up of the server."""
    return isinstance(spec, InProcess | Url) or (isinstance(spec, Uvicorn) and spec.port != 0)


def server_title(spec: ServerSpec) -> str:
    """Returns the server's name in messages: `uvicorn ×2`."""
    if isinstance(spec, InProcess):
        return "in-process"
    return spec.url if isinstance(spec, Url) else f"{spec.name} ×{spec.workers}"


def server_id(spec: ServerSpec) -> str:
    """Returns the server's part of a test's id: `uvicorn-1`, a command's name, or a URL's host and port."""
    if isinstance(spec, InProcess):
        return "inprocess"
    if isinstance(spec, Url):
        return PurePath(unix_socket(spec.url) or urlsplit(spec.url).netloc).name
    if isinstance(spec, Command):
        return spec.name
    chosen = (choice for choice in (spec.loop, spec.http) if choice != "auto")
    said = {"access_log": spec.access_log, "tls": spec.is_tls, "uds": spec.uds}
    return "-".join((spec.name, str(spec.workers), *chosen, *(name for name, is_said in said.items() if is_said)))


def tls_files(spec: ProcessSpec, run_directory: Path) -> tuple[str | None, str | None]:
    """Returns the paths of a start-up's certificate and key. Both are None without TLS."""
    if spec.is_tls and spec.ssl_certfile is None:
        return str(run_directory / "cert.pem"), str(run_directory / "key.pem")
    return cast("str | None", spec.ssl_certfile), cast("str | None", spec.ssl_keyfile)


def socket_file(spec: ProcessSpec, run_directory: Path) -> str | None:
    """Returns the path of a start-up's Unix socket; None for a server on a port."""
    return str(run_directory / "uds") if spec.uds else None


def _check(spec: ProcessSpec) -> None:
    """Raises PlanError that lists all wrong values."""
    if problems := list(_problems(spec)):
        raise PlanError(*problems, where=type(spec).__name__)
    object.__setattr__(spec, "env", _pairs(spec.env))
    for name in ("ssl_certfile", "ssl_keyfile"):
        given = getattr(spec, name)
        object.__setattr__(spec, name, None if given is None else os.path.abspath(given))  # noqa: PTH100 # `..` stays


def _problems(spec: ProcessSpec) -> Iterator[str]:
    if isinstance(spec, AsgiSpec) and spec.loop not in LOOPS:
        yield f"loop={spec.loop!r} is unknown. Use one of {', '.join(LOOPS)}"
    if isinstance(spec, AsgiSpec) and spec.http not in HTTP_IMPLEMENTATIONS:
        yield f"http={spec.http!r} is unknown. Use one of {', '.join(HTTP_IMPLEMENTATIONS)}"
    if isinstance(spec, Granian) and spec.http != "auto":
        yield f"http={spec.http!r} does not work with granian, which has its own HTTP parser. Leave http out"
    if isinstance(spec, Uvicorn) and not (_is_whole(spec.port) and 0 <= spec.port <= 65535):
        yield f"port={spec.port!r} must be a whole number from 0 (any free one) to 65535"
    for name in ("uds", "tls") if isinstance(spec, AsgiSpec) else ():
        if not isinstance(said := getattr(spec, name), bool):
            yield f"{name}={said!r} must be True or False" + (". Give your own file as ssl_certfile" * (name == "tls"))
    if not _is_whole(spec.workers) or spec.workers < 1:
        yield f"workers={spec.workers!r} must be a whole number, 1 or more"
    for name in ("start_timeout_s", "stop_timeout_s"):
        value = getattr(spec, name)
        if not isinstance(value, int | float) or not 0 < value < float("inf"):
            yield f"{name}={value!r} must be a number of seconds above 0"
    if _pairs(spec.env) is None:
        yield 'env must be names and values, both text, as in {"COLOUR": "red"}'
    elif isinstance(spec, AsgiSpec) and spec.uds and any(PORT in value for _, value in _pairs(spec.env) or ()):
        yield f"env has {PORT} with uds=True, but a Unix socket has no port. Leave out one of them"
    for name in ("ssl_certfile", "ssl_keyfile"):
        given: object = getattr(spec, name)
        if given is not None and not isinstance(given, str | os.PathLike):
            yield f"{name}={given!r} must be the path of a PEM file"
    if spec.ssl_keyfile is not None and spec.ssl_certfile is None:
        yield "ssl_keyfile is the key of a certificate. Give the certificate as ssl_certfile"
    if isinstance(spec, Uvicorn) and spec.uds and spec.port:
        yield f"uds=True and port={spec.port} are two places to listen at. Give one of them"
    if isinstance(spec, AsgiSpec) and spec.uds and not hasattr(socket, "AF_UNIX"):
        yield "uds=True needs Unix sockets, which Python lacks on this system. Use a port"
    numbers_workers = isinstance(spec, Command | Granian) and spec.workers != 1
    if numbers_workers and any(WORKER in value for _, value in _pairs(spec.env) or ()):
        yield f"env has {WORKER}, but the program itself starts its workers, with the same env. Leave {WORKER} out"
    if not isinstance(spec, Command):
        return
    yield from _words_problems("command", spec.command)
    if spec.build is not None:
        yield from _words_problems("build", spec.build)
    cwd: object = spec.cwd
    if cwd is not None and not isinstance(cwd, str | os.PathLike):
        yield f"cwd={cwd!r} must be the path of a directory"
    if spec.ready is not None and not re.fullmatch(r"/[!-~]*", str(spec.ready)):  # as in a request's first line
        yield f'ready={spec.ready!r} must be a path, as in "/", or None for a TCP connection only'
    title: object = spec.title
    if title is not None and not (isinstance(title, str) and title.strip()):
        yield f"title={title!r} must be a text and not empty"


def _words_problems(name: str, value: object) -> Iterator[str]:
    words: tuple[str, ...] = ()
    if isinstance(value, Sequence) and all(isinstance(word, str) for word in value):
        try:
            words = _words(value)
        except ValueError as error:
            yield f"{name} cannot be split into words: {error}"
            return
    if not words or not words[0]:
        yield f'{name} must be a program and its arguments, as in ["./server", "--port", "{PORT}"]'


def _words(value: Sequence[str]) -> tuple[str, ...]:
    """Raises ValueError for a text with an open quote."""
    return tuple(shlex.split(value) if isinstance(value, str) else value)


def _pairs(env: EnvironmentVariables) -> tuple[tuple[str, str], ...] | None:
    """Returns None if any name or value isn't a text."""
    try:
        pairs = tuple(dict(env).items())
    except (TypeError, ValueError):
        return None
    return pairs if all(isinstance(text, str) for pair in pairs for text in pair) else None


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


# --- Servers as text, in options and ini values

_KEYS = (
    "workers", "loop", "http", "access_log", "stabilise", "start_timeout", "stop_timeout",
    "uds", "tls", "ssl_certfile", "ssl_keyfile",
)  # fmt: skip
_YES_OR_NO = {"yes": True, "true": True, "on": True, "1": True, "no": False, "false": False, "off": False, "0": False}


def parse_server(text: str) -> ServerSpec:
    """Returns the server in `"uvicorn"`, `"gunicorn:workers=2,loop=asyncio"`, `"command:…"` or a URL.

    Raises PlanError that lists all problems.
    """
    where = f"server {text!r}"
    if text.strip().startswith(URL_STARTS):
        return Url(text.strip())
    name, _, rest = text.strip().partition(":")
    match name:
        case "uvicorn":
            return _parse_settings(Uvicorn, (*_KEYS, "port"), rest, where)
        case "gunicorn":
            return _parse_settings(Gunicorn, _KEYS, rest, where)
        case "granian":
            return _parse_settings(Granian, tuple(key for key in _KEYS if key != "http"), rest, where)
        case "inprocess" if rest:
            raise PlanError(f"inprocess takes no settings. Leave out {rest!r}", where=where)
        case "inprocess":
            return InProcess()
        case "command" if not rest.strip():
            raise PlanError(
                f"A command is missing. Write it, as in command:python server.py --port {PORT}", where=where
            )
        case "command":
            return Command(rest)
    valid = "uvicorn, gunicorn, granian, inprocess, command or an http:// URL on this machine"
    raise PlanError(f"unknown server {name!r}. Use {valid}", where=where)


def _parse_settings(make: Callable[..., AsgiSpec], keys: Sequence[str], text: str, where: str) -> AsgiSpec:
    problems, changes = [], dict[str, object]()
    for item in filter(None, map(str.strip, text.split(","))):
        key, _, value = map(str.strip, item.partition("="))
        if key not in keys:
            problems.append(f"unknown setting {key!r}. Use {', '.join(keys)}")
            continue
        field_name = f"{key}_s" if key.endswith("_timeout") else key
        if field_name in changes:
            problems.append(f"{key} is given twice")
        try:
            changes[field_name] = _parsed(key, value)
        except ValueError as error:
            problems.append(f"{key}={value}: {error}")
    try:
        spec = make(**changes)
    except PlanError as error:
        raise PlanError(*problems, *error.problems, where=where) from None
    if problems:
        raise PlanError(*problems, where=where)
    return spec


def _parsed(key: str, text: str) -> object:
    match key:
        case "workers" | "port":
            if not text.isdecimal():
                raise ValueError("write a whole number")
            return int(text)
        case "access_log" | "stabilise" | "uds" | "tls":
            if text.lower() not in _YES_OR_NO:
                raise ValueError("write yes or no")
            return _YES_OR_NO[text.lower()]
        case "start_timeout" | "stop_timeout":
            return parse_duration_ns(text) / 1e9
    return text
