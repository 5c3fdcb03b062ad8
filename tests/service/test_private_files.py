"""Nobody else on the machine reads what the service writes."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from model_store import migrate
from model_store.blobs import open_store
from runtime.private_files import keep_private


@pytest.fixture
def usual_mask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes(folder: Path) -> set[int]:
    return {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in (folder, *folder.rglob("*"))}


@pytest.mark.usefixtures("usual_mask")
def test_what_is_written_is_private(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    keep_private(folder)
    migrate.upgrade(f"sqlite:///{folder / 'ehr-d3pm.sqlite'}")
    open_store(f"file://{folder / 'store'}").write("models/mdl_1/a1/weights", b"x")
    assert modes(folder) == {0}


@pytest.mark.usefixtures("usual_mask")
def test_what_a_version_before_left_open_is_closed_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "worker.log").touch()
    (tmp_path / "mine.txt").touch()
    keep_private(tmp_path)
    assert modes(tmp_path / "store") == modes(tmp_path / "worker.log") == {0}
    assert modes(tmp_path / "mine.txt") == {0o044} and stat.S_IMODE(tmp_path.stat().st_mode) & 0o700 == 0o700
