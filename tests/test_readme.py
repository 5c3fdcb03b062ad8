"""The examples of the README and of docs/method.md, run as they are printed, and the places the documents point to.

The README's commands run in order against a real service; ids are those that the commands before them printed.
"""

import ast
import json
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

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
METHOD = ROOT / "docs" / "method.md"
DOCUMENTS = [README, *sorted((ROOT / "docs").rglob("*.md"))]
BIN = Path(sys.executable).parent


def blocks(document: Path, language: str) -> list[str]:
    found = re.findall(rf"^```{language}\n(.*?)^```", document.read_text(encoding="utf-8"), flags=re.M | re.S)
    assert found
    return found


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """`ehr-d3pm serve`, as `make serve` starts it, on a free port."""
    folder = tmp_path_factory.mktemp("readme")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [BIN / "ehr-d3pm", "serve", "--port", str(port), "--data-dir", folder / "data"]
    # what still runs at the end is not waited for, and few records are enough to estimate from
    environment = os.environ | {"STOP_SECONDS": "1", "REFERENCE_RECORDS": "1024"}
    process = subprocess.Popen(command, env=environment)
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
    environment = os.environ | {"EHR_D3PM_URL": url, "PATH": f"{BIN}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    ids = Ids()
    for line in filter(None, "\n".join(blocks(README, "sh")).splitlines()):
        if line.startswith("curl") and "/reports/" in line:  # the job before it was only just submitted
            with Client(url) as client:
                client.wait(client.job(ids.newest["job"]))
                client.wait(client.job(client.job(ids.newest["job"])["result"]["evaluate_job_id"]))
        command = shlex.split(smaller(ids.fill(line).replace("http://127.0.0.1:8000", url)))
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        ids.read(done.stdout)
    assert (folder / "cohort.csv").read_text().startswith("record_id,vocabulary,code")


def smaller(text: str) -> str:
    """The same with fewer patients and a smaller network: the machine that tests has other things to do."""
    network = {"kind": "sparse", "width": 64, "blocks": 1}
    text = text.replace('{"training": {"epochs": 3}}', json.dumps({"training": {"epochs": 3}, "denoiser": network}))
    words = [f"--set denoiser.{name}={value}" for name, value in network.items()]
    text = text.replace("--set training.epochs=3", " ".join(["--set training.epochs=3", *words]))
    return re.sub(r"\b5_?000\b", "1000", re.sub(r"\b2_?000\b", "600", text))


def run_python(script: str, folder: Path) -> str:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_python_of_the_readme(service: tuple[str, Path]) -> None:
    url, folder = service
    simulate = [BIN / "ehr-d3pm", "simulate", "records.csv.gz", "--records", "1000"]
    subprocess.run(simulate, cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True)
    for code in blocks(README, "python"):
        run_python(smaller(code.replace("http://127.0.0.1:8000", url)), folder)


def test_the_engine_example_of_the_method(tmp_path: Path) -> None:
    (printed,) = [run_python(smaller(code), tmp_path) for code in blocks(METHOD, "python")]
    assert "1.000 when asked for" in printed


def test_the_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").split()) <= 1200


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    """Files and headings within the repository."""
    text = document.read_text(encoding="utf-8")
    wrong = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, heading = link.partition("#")
        if re.match(r"[a-z]+:", path):
            continue
        target = (document.parent / path).resolve() if path else document
        if not target.exists() or (heading and heading not in headings(target)):
            wrong.append(link)
    assert wrong == []


def headings(document: Path) -> set[str]:
    """The anchors that a Markdown page gives its headings."""
    titles = re.findall(r"^#+ (.*)$", document.read_text(encoding="utf-8"), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_map_of_the_paper_names_what_there_is() -> None:
    """`file.py::name, name` of docs/method.md, relative to the engine or to its metrics."""
    found = re.findall(r"`([\w/]+\.py)::([^`]+)`", METHOD.read_text(encoding="utf-8"))
    pairs = [(path, name) for path, names in found for name in names.split(", ")]
    assert len(pairs) > 50
    assert [(path, name) for path, name in pairs if not defines(engine_file(path), name)] == []


def engine_file(path: str) -> Path:
    engine = ROOT / "worker" / "engine"
    return next(folder / path for folder in (engine, engine / "metrics") if (folder / path).exists())


def defines(file: Path, dotted: str) -> bool:
    """Whether the module has this function, class, constant, method or attribute."""
    first, _, rest = dotted.partition(".")
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        names = [getattr(node, "name", None)]
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
        if first in names:
            return not rest or re.search(rf"\bdef {rest}\b|\bself\.{rest}\b", ast.unparse(node)) is not None
    return False
