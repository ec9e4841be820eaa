"""A running server, for the rest of the package, and for tests as `fileperf_server`."""

from __future__ import annotations

import os
import re
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypedDict, Unpack, cast
from urllib.parse import urlsplit

import psutil

from pytest_fileperf.errors import PlanError, ServerDiedError, ServerStartError
from pytest_fileperf.host.child import process_tree
from pytest_fileperf.host.sockets import having_unix_socket, listeners
from pytest_fileperf.plan.network import LOCAL, Network, Reach, refusal, unix_socket
from pytest_fileperf.plan.request import Auth, Cookies, Headers, Timeout
from pytest_fileperf.serve.databases import Queries
from pytest_fileperf.serve.spec import Url
from pytest_fileperf.versions.loaded import LoadedFiles

if TYPE_CHECKING:
    import httpx


class ClientOptions(TypedDict, total=False):
    """The keywords of `httpx.AsyncClient` that make sense for a client of this server, and `family`."""

    family: str
    """The client's package, `"httpx"` or `"httpx2"`; by default the package of `fileperf_client`."""
    auth: Auth
    params: Mapping[str, str | int | float | bool | None] | list[tuple[str, str | int | float | bool | None]]
    headers: Headers
    cookies: Cookies
    timeout: Timeout
    follow_redirects: bool
    max_redirects: int
    event_hooks: Mapping[str, list[Callable[..., object]]]


class RunningServer(ABC):
    """A running server, from one start-up of an app."""

    url: str
    """The base URL, without a slash at its end."""
    kind: str
    """`uvicorn`, `gunicorn`, `in-process`, `command` or `url`."""
    workers: int | None = None
    loop: str | None = None
    http: str | None = None
    """The server's HTTP parser. `http`, `loop` and `workers` are None if unknown."""
    access_log: bool = False
    """Whether uvicorn logs each request. False for servers that do not report it."""
    title: str
    """The server's name in reports: `uvicorn ×1 (uvloop, httptools)`."""
    stabilised: tuple[str, ...] = ()
    """Which are the same in each start-up: `hash seed`, `addresses` (in memory), both or neither."""
    tracer: str = ""
    """The tracer in the server, such as `coverage`. Empty if there is none, or if the server does not report it."""
    loaded: LoadedFiles = LoadedFiles()
    """The files that the server had loaded when it was ready."""
    supervisor: int | None = None
    """The id of fileperf's process above the server, else None. It collects ended processes' CPU time."""
    changed: tuple[tuple[str, str], ...] = ()
    """The test's changes to the app: each changed part, such as `routes`, and its content."""
    is_forked: bool = False
    """Whether the server is a fork of a process that had imported the app."""
    startup_ns: int | None = None
    """The time from the start of the server's process until the server answered. None if this was not measured."""
    counts_queries: bool = False
    """Whether the server counts the database queries of its requests."""
    why_fresh: str = ""
    """Why each start-up imports the app anew. Empty if start-ups share an import, or if sharing was not tried."""
    family: str = "httpx"
    """The default package of the server's clients, `httpx` or `httpx2`."""
    reach: Reach = Reach()
    """How clients reach the server, besides its URL."""
    own: tuple[tuple[str, str], ...] = ()
    """Parts of the app, such as `routes`, that stay different from the test's app, each with the reason."""

    @property
    @abstractmethod
    def processes(self) -> tuple[psutil.Process, ...]:
        """The server's live processes: supervisor and workers. Empty on systems that do not report them."""

    @property
    def uds(self) -> str | None:
        """The path of the server's Unix socket. None if the server listens on a port."""
        return self.reach.uds

    @property
    def ways(self) -> tuple[str, ...]:
        """How connections to the server differ from plain TCP: `TLS`, `Unix socket`, both or neither."""
        return (*(("TLS",) if self.is_tls else ()), *(("Unix socket",) if self.uds else ()))

    @property
    def is_tls(self) -> bool:
        """Whether the server speaks TLS. Its `url` then begins with `https`."""
        return self.url.startswith("https://")

    def ssl_context(self) -> ssl.SSLContext:
        """Returns a TLS context for clients of your own. The context trusts only this server's certificate.

        For a `Url`, its setting `verify` says which certificates the context trusts.
        """
        from pytest_fileperf.wire.connect import tls_context

        return tls_context(self.reach)

    @property
    def pids(self) -> tuple[int, ...]:
        """The ids of the server's live processes."""
        return tuple(process.pid for process in self.processes)

    @property
    def roots(self) -> tuple[int, ...]:
        """Ids of the topmost processes. Their descendants also belong to the server."""
        return self.pids if self.supervisor is None else (self.supervisor,)

    @property
    def worker_pids(self) -> tuple[int, ...]:
        """Ids of the processes that serve requests. If unknown, the ids of all processes."""
        return self.pids

    @property
    def log(self) -> tuple[str, ...]:
        """The last lines of the server's output. Empty if fileperf does not get this output."""
        return ()

    def queries_since(self, at_ns: int) -> Queries | None:
        """Returns the queries of requests that ended after `at_ns` (monotonic clock). The last 50 ms may be missing.

        None if the server does not count queries, or uses neither SQLAlchemy nor Django.
        """
        return None

    def identity(self) -> dict[str, object]:
        """Returns facts that must be equal in runs that are compared, as JSON values."""
        changed = {"set by the test": [name for name, _ in self.changed]} if self.changed else {}
        return {
            "kind": self.kind,
            "workers": self.workers,
            "loop": self.loop,
            "http": self.http,
            "stabilised": list(self.stabilised),
            **({"access_log": True} if self.access_log else {}),
            **changed,
            **({"tls": True} if self.is_tls else {}),
            **({"uds": True} if self.uds else {}),
        }

    @abstractmethod
    def check(self) -> None:
        """If the server no longer runs, raises ServerDiedError with the exit code and the end of the log."""

    def client(self, **options: Unpack[ClientOptions]) -> httpx.AsyncClient:
        """Returns a client with this server as its base URL. It uses fileperf's transport for loads."""
        from pytest_fileperf.wire.family import FamilyClient

        options["family"] = options.get("family") or self.family
        return FamilyClient(base_url=self.url, transport=self._transport(), **options)

    def sync_client(self, **options: Unpack[ClientOptions]) -> httpx.Client:
        """Returns a synchronous client with this server as its base URL, for code that is not measured."""
        return self._sync_client(options)

    def quick_client(self, **options: Unpack[ClientOptions]) -> httpx.Client:
        """Returns a synchronous client for requests to this server only.

        Without TLS, the client reads no certificates, so it is made quickly.
        """
        return self._sync_client(options, is_only_here=True)

    def _sync_client(self, options: ClientOptions, *, is_only_here: bool = False) -> httpx.Client:
        from pytest_fileperf.wire.family import SyncFamilyClient, family_named

        options["family"] = options.get("family") or self.family
        transport = self._sync_transport(family_named(options["family"]), is_only_here=is_only_here)
        return cast("httpx.Client", SyncFamilyClient(base_url=self.url, transport=transport, **options))

    def _sync_transport(self, family: ModuleType, *, is_only_here: bool = False) -> httpx.BaseTransport:
        # With `trust_env`, httpx reads the environment's certificates even for plain HTTP, and these may be missing.
        tls = {"verify": self.ssl_context()} if self.is_tls else {"trust_env": False, "verify": not is_only_here}
        return cast("httpx.BaseTransport", family.HTTPTransport(uds=self.uds, **tls))

    def _transport(self) -> httpx.AsyncBaseTransport:
        from pytest_fileperf.wire.transport import LoadTransport

        return LoadTransport(uds=self.uds, verify=not self.is_tls or self.ssl_context())


_CERTIFICATES = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


def certificates_in(path: str, name: str, *, where: str) -> tuple[str, ...]:
    """Returns the certificates in a PEM file, without keys. Raises PlanError if there is none."""
    try:
        found = _CERTIFICATES.findall(Path(path).read_text(encoding="ascii", errors="replace"))
    except OSError as error:
        raise PlanError(f"{name}: {path} cannot be read ({error.strerror})", where=where) from error
    if not found:
        raise PlanError(f"{name}: {path} contains no certificate in PEM format", where=where)
    return tuple(found)


# --- A server that the user has started. We find and watch its processes, but neither start nor end them


class RunningUrl(RunningServer):
    kind = "url"

    def __init__(self, spec: Url, network: Network = LOCAL) -> None:
        self._network = network
        self.title = spec.url.rstrip("/")
        parts, uds, verify = urlsplit(spec.url), unix_socket(spec.url), spec.verify
        found = () if isinstance(verify, bool) else certificates_in(os.fspath(verify), "verify", where="Url")
        self.reach = Reach(uds=uds, trusted="\n".join(found) or bool(verify))
        self.url = self.title
        if uds is not None:
            self.url = f"{parts.scheme.removesuffix('+unix')}://localhost{parts.path.rstrip('/')}"
        self.verify = verify
        self._host = "localhost" if uds else parts.hostname or ""
        self._port = 0 if uds else parts.port or (443 if self.is_tls else 80)
        self._roots: tuple[int, ...] = ()

    @property
    def processes(self) -> tuple[psutil.Process, ...]:
        trees = self._trees()
        if not trees:
            self._roots = having_unix_socket(self.uds) if self.uds else listeners(self._host, self._port)
            trees = self._trees()
        return tuple(trees.values())

    def connect(self, *, tls: bool) -> None:
        """Opens a connection and closes it. Raises OSError, or PlanError for a host that must get no load."""
        from pytest_fileperf.wire.connect import Origin, dial

        origin = Origin("https" if tls else "http", self._host, self._port)
        if self.uds is not None:
            return dial(origin, self.reach, timeout_s=5.0).close()
        if problem := self._network.problem_of(self.url):
            raise PlanError(problem, where="Url")
        found = [str(each[4][0]) for each in socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)]
        allowed = [address for address in found if self._network.allows(address)]
        if not allowed:
            raise PlanError(f"{self.url!r} leads to {found[0]}: {refusal(found[0])}", where="Url")
        for address in allowed[:-1]:
            with suppress(OSError):
                return dial(origin, self.reach, timeout_s=5.0, address=address).close()
        return dial(origin, self.reach, timeout_s=5.0, address=allowed[-1]).close()

    def check(self) -> None:
        try:
            self.connect(tls=False)  # a handshake takes CPU time, and this is called often during a load
        except OSError as error:
            raise ServerDiedError(f"{self.title} no longer answers ({error})") from error

    def _trees(self) -> dict[int, psutil.Process]:
        return {process.pid: process for root in self._roots for process in process_tree(root)}


class UrlLaunch:
    """Checks that the user's server answers; starts and ends nothing."""

    def __init__(self, spec: Url, network: Network = LOCAL) -> None:
        self._running = RunningUrl(spec, network)

    def start(self) -> None: ...

    def ready(self) -> RunningUrl:
        try:
            self._running.connect(tls=self._running.is_tls)
        except ssl.SSLCertVerificationError as error:
            url, verify = self._running.title, self._running.verify
            advice = f"Check that {verify} contains the authority that signed it"
            if error.verify_code in (62, 64):  # OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH, …_IP_ADDRESS_MISMATCH
                host = urlsplit(self._running.url).hostname
                advice = f'It must be for {host}, unless you trust any certificate, as in Url("{url}", verify=False)'
            elif verify is True:
                advice = f'Name the file of the authority that signed it, as in Url("{url}", verify="ca.pem")'
            why = error.verify_message.removesuffix(".")
            raise ServerStartError(f"{url} has an untrusted certificate ({why}). {advice}") from error
        except OSError as error:
            raise ServerStartError(
                f"nothing answers at {self._running.title} ({error}). Start the server, or let fileperf serve the app"
            ) from error
        return self._running

    def ask_to_stop(self) -> None: ...

    def stop(self) -> str:
        return ""


# --- The fixture `fileperf_server` stands for the server that runs at the moment, because measurements restart servers


@RunningServer.register
class _ServingServer:
    """Has the attributes of the server that runs when you ask for them."""

    def __init__(self, now: Callable[[], RunningServer]) -> None:
        self._now = now

    def __getattr__(self, name: str) -> object:
        if name.startswith("_"):  # a copy has no `_now` yet, and a look at it must not start a server
            raise AttributeError(name)
        found = getattr(self._now(), name)
        return (lambda *args, **kwargs: getattr(self._now(), name)(*args, **kwargs)) if callable(found) else found


def serving_server(now: Callable[[], RunningServer]) -> RunningServer:
    """Returns an object that stands for the current server. `now` returns or starts this server."""
    return cast(RunningServer, _ServingServer(now))
