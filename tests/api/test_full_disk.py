"""No room for what the API itself writes: said as such, nothing is left, and it goes on when there is room again."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from sqlalchemy import event, text

import model_store.blobs.file as files
from tests.api.conftest import settings_for
from tests.api.front import Caller, Front
from tests.api.test_problems import assert_problem
from tests.api.test_uploads import TABLE, files_of, wait_until_gone
from tests.service.fixtures import ON_ONE_MACHINE

pytestmark = ON_ONE_MACHINE


@contextmanager
def full_disk() -> Iterator[None]:
    def opened(path: Path) -> BinaryIO:
        path.parent.mkdir(parents=True, exist_ok=True)
        return Path("/dev/full").open("wb")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "_opened", opened)
        yield


def test_uploads_bundles_and_forms_of_cohorts(open_front: Front, sqlite_caller: Caller) -> None:
    caller, http = sqlite_caller, sqlite_caller.http
    cohort, bundle = caller.cohort([[[0], [1]]]), http.get(f"/models/{caller.model()}/bundle").content
    upload = {"file": ("a.csv", TABLE)}
    before = files_of(open_front)
    with full_disk():
        assert_problem(http.post("/datasets", files=upload), 507, "store-full")
        assert_problem(http.post("/models/import", files={"file": ("b.zip", bundle)}), 507, "store-full")
        assert_problem(http.get(f"/cohorts/{cohort}/records.parquet"), 507, "store-full")
        wait_until_gone(open_front, before)
        assert http.get(f"/cohorts/{cohort}/records").status_code == 200  # what only reads goes on
    assert http.post("/datasets", files=upload).status_code == 202
    assert http.get(f"/cohorts/{cohort}/records.parquet").status_code == 200


def test_the_database(tmp_path: Path) -> None:
    with Front(settings_for(tmp_path, f"sqlite:///{tmp_path / 'full.sqlite'}")) as front:
        caller, engine = front.as_owner("ada"), front.services.database.engine
        with engine.connect() as connection:
            pages = int(connection.execute(text("PRAGMA page_count")).scalar_one())

        def limit(connection: Any, *_: object) -> None:
            connection.execute(f"PRAGMA max_page_count = {pages}")

        event.listen(engine, "checkout", limit)
        refused = None
        for _ in range(300):
            answer = caller.http.post("/datasets", files={"file": ("a.csv", TABLE)})
            if answer.status_code != 202:
                refused = answer
                break
        assert refused is not None
        assert_problem(refused, 503, "database-unavailable")
        assert refused.headers["retry-after"] == "2" and caller.http.get("/jobs").status_code == 200
        pages = 1 << 30
        assert caller.http.post("/datasets", files={"file": ("a.csv", TABLE)}).status_code == 202
