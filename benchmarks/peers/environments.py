"""An environment of its own for every peer: made once, from the package index, and kept in the work folder."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.paper.store import Cell

DRIVERS = Path(__file__).parent / "drivers"
CONSTRAINTS = Path(__file__).parents[2] / "constraints.txt"
INSTALLED = "installed"
PATIENCE = 10.0  # times the budget that a driver may take in all: preparing and drawing are not limited by it
LEAST_SECONDS = 3600.0


@dataclass(frozen=True)
class Peer:
    """A row of the tables: a package, the script that drives it, and how records are shown to it."""

    name: str
    package: str
    driver: str
    way: str

    @property
    def environment(self) -> str:
        """Ways of one package share one."""
        return self.package


PEERS = (
    Peer("TabularARGN, wide", "mostlyai-engine", "mostly.py", "wide"),
    Peer("TabularARGN, sequence", "mostlyai-engine", "mostly.py", "sequence"),
    Peer("ORIGAMI", "origami-ml", "origami_json.py", "json"),
)


def python_of(work: Path, peer: Peer) -> Path | str:
    """The interpreter of the peer's environment, which is made if it is not there; a sentence if it cannot be."""
    folder = work / "environments" / peer.environment
    interpreter = folder / "bin" / "python"
    if (folder / INSTALLED).exists():
        return interpreter
    log = folder.with_suffix(".log")
    log.parent.mkdir(parents=True, exist_ok=True)
    install = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", str(CONSTRAINTS))
    commands = (
        [sys.executable, "-m", "venv", "--clear", str(folder)],
        [str(interpreter), *install, "torch", "numpy", peer.package],
        # Builds of these for another torch keep a package from being imported, and nobody here looks at pictures.
        [str(interpreter), "-m", "pip", "uninstall", "--quiet", "--yes", "torchvision", "torchaudio"],
    )
    with log.open("w") as told:
        for command in commands:
            if subprocess.run(command, stdout=told, stderr=subprocess.STDOUT, check=False).returncode != 0:
                return f"{peer.package} could not be installed: {_last_line(log)}"
    (folder / INSTALLED).touch()
    return interpreter


def drive(python: Path, peer: Peer, folder: Path, seconds: float) -> Cell | None:
    """Run the driver on a folder with a request; None if it has told what it took, else why it has not."""
    log = folder / "driver.log"
    most = max(PATIENCE * seconds, LEAST_SECONDS)
    with log.open("w") as told:
        try:
            command = [str(python), str(DRIVERS / peer.driver), str(folder)]
            ended = subprocess.run(command, stdout=told, stderr=subprocess.STDOUT, check=False, timeout=most)
        except subprocess.TimeoutExpired:
            return {"absent": f"it was not done after {most / 60:.0f} minutes"}
    if ended.returncode != 0 or not (folder / "told.json").exists():
        return {"absent": f"it ended with exit code {ended.returncode}: {_last_line(log)}"}
    return None


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it said nothing"
