"""Which package may know which."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "lightgbm", "linformer")
# package -> what none of its modules may import
FORBIDDEN = {
    "app": (*HEAVY, "worker.engine", "worker.tasks", "worker.celery_app"),
    "model_store": (*HEAVY, "worker", "app", "fastapi"),
    "worker": ("app", "fastapi"),
    "worker/engine": (
        "model_store",
        "app",
        "celery",
        "sqlalchemy",
        "fastapi",
        "redis",
        "worker.contract",
        "worker.tasks",
    ),
}


def imported(file: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


@pytest.mark.parametrize("package", FORBIDDEN)
def test_imports_follow_the_arrows(package: str) -> None:
    wrong = [
        f"{file.relative_to(ROOT)} imports {name}"
        for file in (ROOT / package).rglob("*.py")
        for name in imported(file)
        for forbidden in FORBIDDEN[package]
        if name == forbidden or name.startswith(f"{forbidden}.")
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "module",
    [
        "worker.contract",
        "ehr.generators",
        "app.main",
        "worker.celery_app",
        "runtime.sweeper",
        "worker.tasks.ingest",
    ],
)
def test_torch_is_not_loaded_by(module: str) -> None:
    """The API imports the first, the Celery parent the second; a fork after OpenMP has started hangs."""
    heavy = ", ".join(repr(name) for name in HEAVY)
    code = f"import sys, {module}; sys.exit(any(name in sys.modules for name in ({heavy},)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_no_pickle_anywhere() -> None:
    files = [file for package in ("app", "model_store", "worker") for file in (ROOT / package).rglob("*.py")]
    assert [file for file in files if imported(file) & {"pickle", "joblib", "dill", "cloudpickle", "marshal"}] == []
    assert [file for file in files if "allow_pickle=True" in file.read_text()] == []
    assert [file for file in files if "torch.load(" in file.read_text()] == []
