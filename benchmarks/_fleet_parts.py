"""A fleet on this machine: Postgres, Valkey over TCP, an S3 server, and APIs and workers of any checkout."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from runtime.settings import Settings
from tests.service.s3_server import BUCKET, CREDENTIALS, S3Server
from tests.service.servers import Postgres, Valkey, free_port, wait_until
from worker.processes import die_with_parent

HERE = Path(__file__).parents[1]
STOP_SECONDS = 90.0  # beyond what a worker takes to hand its jobs over


@dataclass
class Running:
    """An API or a worker of a checkout; `url` is an API's."""

    process: subprocess.Popen[bytes]
    checkout: Path
    log: Path
    url: str = ""

    def is_up(self) -> bool:
        return self.process.poll() is None

    def stop(self) -> int:
        """SIGTERM, as a container's runtime sends it; the exit code."""
        self.process.terminate()
        return self.process.wait(STOP_SECONDS)

    def kill(self) -> None:
        """Whatever is left of it, its children too."""
        if self.is_up():
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@dataclass
class Fleet:
    """`environment` is what all processes agree on."""

    folder: Path
    environment: dict[str, str]
    running: list[Running] = field(default_factory=list)

    @property
    def settings(self) -> Settings:
        """As a process of this machine would have them."""
        known = {name.lower(): value for name, value in self.environment.items()}
        return Settings.model_validate(known | {"data_dir": self.folder / "here"})

    def migrate(self, checkout: Path = HERE) -> None:
        command = [sys.executable, "-m", "ehr_d3pm", "migrate"]
        subprocess.run(
            command,
            check=True,
            cwd=checkout,
            env=self._environment(checkout, 0),
            stdout=subprocess.DEVNULL,
            timeout=120,
        )

    def api(self, checkout: Path = HERE) -> Running:
        """One that answers."""
        port = free_port()
        started = self._start(checkout, ["-m", "ehr_d3pm", "api", "--port", str(port), "--log-level", "warning"], {})
        started.url = f"http://127.0.0.1:{port}"
        wait_until(lambda: _is_ready(started), f"the API of {checkout}")
        return started

    def worker(self, checkout: Path = HERE, **more: str) -> Running:
        return self._start(checkout, ["-m", "worker"], more)

    def close(self) -> None:
        for each in self.running:
            each.kill()

    def _start(self, checkout: Path, arguments: list[str], more: dict[str, str]) -> Running:
        number, parent = len(self.running), os.getpid()
        log = self.folder / f"{number}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=checkout,
                env={**self._environment(checkout, number), **more},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=lambda: die_with_parent(signal.SIGKILL, parent),
            )
        self.running.append(Running(process, checkout, log))
        return self.running[-1]

    def _environment(self, checkout: Path, number: int) -> dict[str, str]:
        """Every process has a folder of its own, as on a host of its own."""
        paths = os.pathsep.join([str(checkout), str(checkout / "client")])
        data = {"PYTHONPATH": paths, "DATA_DIR": str(self.folder / f"host{number}")}
        return {**os.environ, "OMP_NUM_THREADS": "1", **self.environment, **data}


def _is_ready(api: Running) -> bool:
    if not api.is_up():
        raise RuntimeError(f"an API has ended: {api.log.read_text()[-2000:]}")
    try:
        return httpx.get(f"{api.url}/readyz", timeout=10).status_code == 200
    except httpx.HTTPError:
        return False


@contextmanager
def new_fleet(**environment: str) -> Iterator[Fleet]:
    """Servers with nothing in them, and no process of the service yet."""
    with tempfile.TemporaryDirectory(prefix="ehrfleet", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        postgres, valkey, s3 = Postgres(), Valkey(folder / "v"), S3Server()
        known = {
            **CREDENTIALS,
            "AWS_ENDPOINT_URL": s3.url,
            "STORE_URL": f"s3://{BUCKET}/fleet",
            "DATABASE_URL": postgres.new_database("fleet"),
            "REDIS_URL": valkey.listen(),
            "DEVICE": "cpu",
        }
        fleet = Fleet(folder, known | environment)
        try:
            yield fleet
        finally:
            fleet.close()
            s3.kill()
            valkey.stop()
            postgres.remove()
