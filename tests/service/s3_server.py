"""An S3 server as a process of its own, and a proxy before it that misbehaves as networks and busy servers do."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from typing import Any

from ehr.errors import StoreError
from tests.service.servers import free_port, missing, wait_until
from worker.processes import die_with_parent

BUCKET = "test-bucket"
HOP = ("connection", "transfer-encoding", "server", "date")  # headers that a proxy does not pass on
# no profile or role of the machine the tests run on
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
    "NO_PROXY": "127.0.0.1",
}


# a writer that dies when one of its parts has been sent
KILLED = """
import os, signal
from model_store.blobs import S3Store
with S3Store(os.environ["STORE_URL"]).create("models/m/a1/x.bin") as file:
    file.write(bytes(9 << 20))
    os.kill(os.getpid(), signal.SIGKILL)
"""


class S3Server:
    """moto's server on a free port of loopback, with a bucket. It keeps everything in memory."""

    def __init__(self) -> None:
        if any(find_spec(package) is None for package in ("moto", "flask", "flask_cors")):
            missing("an S3 server (moto)")
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        parent = os.getpid()
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)],
            env={**os.environ, "OMP_NUM_THREADS": "1", **CREDENTIALS},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=lambda: die_with_parent(signal.SIGKILL, parent),
        )
        wait_until(self._has_bucket, "the S3 server")

    def _has_bucket(self) -> bool:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request("PUT", f"/{BUCKET}")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(20)


@dataclass
class Answer:
    """What the server said, or what the proxy says in its place."""

    status: int
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""


SLOW_DOWN = Answer(
    503,
    [("Content-Type", "application/xml")],
    b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>",
)


@dataclass
class Seen:
    """A request on its way. A rule may change its body, answer in the server's place, or raise to break it off."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    pass_on: Callable[["Seen"], Answer]

    def is_listing(self) -> bool:
        return self.method == "GET" and "list-type=2" in self.path

    def is_conditional(self) -> bool:
        return "if-none-match" in {name.lower() for name in self.headers}


Rule = Callable[[Seen], Answer]


class BrokenOffError(Exception):
    """The connection ends here, without an answer."""


class Proxy:
    """Stands before a server. `rule` sees every request; without one, all pass."""

    def __init__(self, server: S3Server) -> None:
        self.server = server
        self.rule: Rule | None = None
        self.requests: list[tuple[str, str]] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(5)

    @contextmanager
    def ruled(self, rule: Rule) -> Iterator[None]:
        self.rule = rule
        try:
            yield
        finally:
            self.rule = None

    def pass_on(self, seen: Seen) -> Answer:
        connection = HTTPConnection("127.0.0.1", self.server.port, timeout=30)
        try:
            connection.request(seen.method, seen.path, seen.body, seen.headers)
            response = connection.getresponse()
            return Answer(response.status, response.getheaders(), response.read())
        except OSError:
            raise BrokenOffError from None
        finally:
            connection.close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {name: value for name, value in self.headers.items() if name.lower() != "expect"}
                seen = Seen(self.command, self.path, headers, body, proxy.pass_on)
                proxy.requests.append((seen.method, seen.path))
                try:
                    self.reply((proxy.rule or proxy.pass_on)(seen))
                except BrokenOffError:
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do  # noqa: N815, the names that the base class calls

            def reply(self, answer: Answer) -> None:
                self.send_response(answer.status)
                kept = [(name, value) for name, value in answer.headers if name.lower() not in HOP]
                for name, value in kept:
                    self.send_header(name, value)
                if not any(name.lower() == "content-length" for name, _ in kept):
                    self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


def together(deeds: list[Callable[[], Any]]) -> list[Any]:
    """All at the same moment; an error is a result."""
    gate = threading.Barrier(len(deeds))

    def run(deed: Callable[[], Any]) -> Any:
        gate.wait()
        try:
            return deed()
        except StoreError as error:
            return error

    with ThreadPoolExecutor(len(deeds)) as pool:
        return list(pool.map(run, deeds))


def small_page(seen: Seen) -> Answer:
    """A rule: listings have 10 names to a page."""
    name = "max-uploads" if "uploads" in seen.path else "max-keys"
    seen.path += f"&{name}=10" if seen.method == "GET" and "prefix=" in seen.path else ""
    return seen.pass_on(seen)


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])
