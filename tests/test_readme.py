"""The README's commands, run in order against a real service; ids are those the commands before gave."""

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ehr_d3pm import Client
from tests.api.test_cli import free_port

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
BIN = Path(sys.executable).parent


def blocks(language: str) -> list[str]:
    found = re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.M | re.S)
    assert found
    return found


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """`ehr-d3pm serve`, as `make serve` starts it, on a free port."""
    folder = tmp_path_factory.mktemp("readme")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    process = subprocess.Popen([BIN / "ehr-d3pm", "serve", "--port", str(port), "--data-dir", folder / "data"])
    try:
        with Client(url) as client:
            for _ in range(600):
                try:
                    client.ready()
                    break
                except Exception:
                    assert process.poll() is None, "the service ended"
                    time.sleep(0.2)
        yield url, folder
    finally:
        process.terminate()
        process.wait(60)


class Ids:
    """Fills `ds_...`, `mdl_...` and `job_...` with the newest id of that kind that was printed."""

    def __init__(self) -> None:
        self.newest: dict[str, str] = {}

    def fill(self, text: str) -> str:
        return re.sub(r"(ds|mdl|job)_\.\.\.", lambda found: self.newest[found[1]], text)

    def read(self, output: str) -> None:
        for kind in ("ds", "mdl", "job"):
            if found := re.findall(rf"\b{kind}_[0-9a-f]{{32}}\b", output):
                self.newest[kind] = found[0]


def test_the_commands_of_the_readme(service: tuple[str, Path]) -> None:
    url, folder = service
    environment = os.environ | {"EHR_D3PM_URL": url, "PATH": f"{BIN}:{os.environ['PATH']}"}
    environment["PYTHONPATH"] = str(Path(__file__).parent.parent)
    ids = Ids()
    for line in filter(None, "\n".join(blocks("sh")).splitlines()):
        if line.startswith("curl") and "/reports/" in line:  # the job before it was only just submitted
            with Client(url) as client:
                client.wait(client.job(ids.newest["job"]))
                client.wait(client.job(client.job(ids.newest["job"])["result"]["evaluate_job_id"]))
        command = shlex.split(ids.fill(line).replace("http://127.0.0.1:8000", url))
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        ids.read(done.stdout)
    assert (folder / "cohort.csv").read_text().startswith("record_id,vocabulary,code")


def test_the_python_of_the_readme(service: tuple[str, Path]) -> None:
    url, folder = service
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)}
    subprocess.run(
        [BIN / "ehr-d3pm", "simulate", "records.csv.gz", "--records", "2000"],
        cwd=folder,
        env=environment,
        check=True,
    )
    for code in blocks("python"):
        script = code.replace("http://127.0.0.1:8000", url)
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=folder, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
