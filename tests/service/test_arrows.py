"""Which package may know which."""

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.arrows import OUTSIDE, ROOMS, ROOT, UNREACHABLE, imports_in, modules, reach, violations

HEAVY = ("torch", "lightgbm", "linformer")
LIBRARIES = (*HEAVY, "celery", "fastapi", "pydantic_settings", "redis", "requests", "sqlalchemy")
FORBIDDEN = [
    *((room, other) for room, row in ROOMS.items() for other in ROOMS if other != room and other not in row.rooms),
    *((room, name) for room, row in ROOMS.items() for name in LIBRARIES if name not in (*row.libraries, *row.lazily)),
    *((room, outside) for room in ROOMS for outside in OUTSIDE),
]
FORMS = "import {0}\nfrom {0} import name\ndef later():\n    import {0}\n    from {0} import name"


def test_imports_follow_the_arrows() -> None:
    assert violations() == []


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's packages, to add what is forbidden to."""
    root = tmp_path_factory.mktemp("project")
    for file in modules(ROOT).values():
        (root / file.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, root / file.relative_to(ROOT))
    return root


@pytest.fixture(scope="module")
def clean(copy: Path) -> set[str]:
    """What is found before anything is added."""
    return set(violations(copy))


def home(root: Path, room: str) -> Path:
    folder = root / ("client" if room == "ehr_d3pm" else ".") / room.replace(".", "/")
    return folder if room != "worker.contract" else folder.with_suffix(".py")


def with_import(root: Path, room: str, statement: str) -> set[str]:
    """What is found in the copy once a room has one more statement."""
    place = home(root, room)
    file = place if place.suffix else place / "added.py"
    before = file.read_text() if file.exists() else None
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        file.write_text((before or "") + f"\n{statement}\n")
        return set(violations(root))
    finally:
        file.unlink() if before is None else file.write_text(before)


@pytest.mark.parametrize("room", ROOMS)
def test_forbidden_imports_are_found(copy: Path, clean: set[str], room: str) -> None:
    """Each of them in each of its forms, and nothing else."""
    targets = [target for each, target in FORBIDDEN if each == room]
    found = with_import(copy, room, "\n".join(FORMS.format(target) for target in targets)) - clean
    told = Counter(line.partition(": ")[2] for line in found)
    assert targets and told == {f"{room} may not import {target}": 4 for target in targets}


@pytest.mark.parametrize("room", ROOMS)
def test_what_is_allowed_is_not(copy: Path, clean: set[str], room: str) -> None:
    allowed = (*ROOMS[room].rooms, *ROOMS[room].libraries, "json", f"{room}.added")
    assert with_import(copy, room, "\n".join(FORMS.format(target) for target in allowed)) == clean


@pytest.mark.parametrize(("room", "name"), [(room, name) for room, row in ROOMS.items() for name in row.lazily])
def test_some_libraries_are_imported_inside_functions_only(copy: Path, clean: set[str], room: str, name: str) -> None:
    assert with_import(copy, room, f"def later():\n    import {name}") == clean
    assert len(with_import(copy, room, f"import {name}") - clean) == 1


def test_a_submodule_of_a_package_is_itself(copy: Path, clean: set[str]) -> None:
    assert with_import(copy, "app", "from worker import contract") == clean
    found = with_import(copy, "app", "from worker import celery_app") - clean
    assert [line.rpartition(" ")[2] for line in found] == ["worker.celery_app"]
    assert with_import(copy, "worker.engine", "from .. import celery_app, contract") > clean
    assert imports_in("from ..b import c", "worker.engine.x")[0].module == "worker.engine.b"


def test_a_package_with_rooms_inside_imports_nothing(copy: Path, clean: set[str]) -> None:
    file = copy / "worker" / "__init__.py"
    before = file.read_text()
    try:
        file.write_text("from worker.celery_app import app\n")
        assert len(set(violations(copy)) - clean) == 1
    finally:
        file.write_text(before)


@pytest.mark.parametrize(
    "place", ["another/__init__.py", "another/deep/module.py", "another.py", "client/another/x.py"]
)
def test_a_new_package_needs_a_row(copy: Path, place: str) -> None:
    clean, file = set(violations(copy)), copy / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    assert [*(set(violations(copy)) - clean)] == [f"{place}: another is a package without a row in the table"]
    file.unlink()


def test_an_arrow_cannot_open_what_is_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(UNREACHABLE) == set(ROOMS)
    assert not any(reach(room) & set(names) for room, names in UNREACHABLE.items())
    row = ROOMS["worker.contract"]
    monkeypatch.setitem(ROOMS, "worker.contract", type(row)((*row.rooms, "worker.engine"), row.libraries))
    assert "app leads to torch" in violations()


@pytest.mark.parametrize(
    "module",
    [
        "worker.contract",
        "ehr.generators",
        "worker.celery_app",
        "runtime.sweeper",
        "worker.tasks.ingest",
    ],
)
def test_torch_is_not_loaded_by(module: str) -> None:
    """A fork after OpenMP has started hangs. What the API and the command line import: see test_deployment."""
    heavy = ", ".join(repr(name) for name in HEAVY)
    code = f"import sys, {module}; sys.exit(any(name in sys.modules for name in ({heavy},)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_no_pickle_anywhere() -> None:
    files = list(modules(ROOT).values())
    pickles = {"pickle", "joblib", "dill", "cloudpickle", "marshal"}
    assert [file for file in files for each in imports_in(file.read_text(), "") if each.module in pickles] == []
    assert [file for file in files if "allow_pickle=True" in file.read_text()] == []
    assert [file for file in files if "torch.load(" in file.read_text()] == []
