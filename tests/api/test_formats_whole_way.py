"""An OMOP folder goes in, a synthetic OMOP database comes out: through HTTP, with a real worker."""

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from ehr.codes.systems import without_decile
from ehr.formats import WRITERS
from ehr_d3pm import ApiError, Client, JobFailedError
from tests.api.front import Front
from tests.formats.cdm import load_cdm
from tests.formats.omop_folder import DIABETES, omop_tables
from tests.formats.reading import ROOMY, read_upload
from tests.service.stand import TINY, Stand
from worker.ingestion.lab_curves import decile_of


def test_omop_in_and_omop_out(sqlite_stand: Stand, tmp_path: Path) -> None:
    folder = tmp_path / "cdm"
    folder.mkdir()
    tables = omop_tables()
    for name, data in tables.items():
        (folder / name).write_bytes(data)
    archive = tmp_path / "cdm.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, data in tables.items():
            zipped.writestr(f"export/{name}", data)

    with Front(sqlite_stand.settings) as front, Client(front.url, front.key("integrator")) as client:
        uploads = [client.wait(client.upload([what], name="cdm"))["result"] for what in (archive, folder)]
        datasets = [client.dataset(upload["dataset_id"]) for upload in uploads]
        assert datasets[0]["data_hash"] == datasets[1]["data_hash"]  # a zip and its files are the same data
        summary = datasets[0]["summary"]
        assert (summary["format"]["name"], summary["format"]["recognised"]) == ("omop", True)
        assert {table["table"] for table in summary["format"]["tables"]} == {name[:-4] for name in tables}
        assert summary["records"] == 600 and summary["patients"] == 300 and summary["rejected"] == {}
        assert summary["labs"] == {"with_deciles": 1, "with_unit": 1, "too_few": 0, "rows_in_other_units": 0}
        (lab,) = client.labs(uploads[0]["dataset_id"])
        assert lab["code"] == "LOINC:2345-7" and lab["cut_points"] == sorted(lab["cut_points"])
        assert len(lab["cut_points"]) == 9
        codes = {item["code"] for item in client.codes(uploads[0]["dataset_id"])}
        assert {"ICD9DX:25000", "ICD9DX:0389", "ICD9PX:0389", "NDC:00002751001", "SEX:F", "LOINC:2345-7#D10"} <= codes

        settings = TINY | {"training": {"epochs": 3, "batch_size": 64, "holdout_draws": 1}}
        model = client.wait(client.train(uploads[0]["dataset_id"], settings=settings))["result"]["model_id"]
        cohort = client.wait(client.generate(model, 150, all_of=[f"ICD9DX:{DIABETES}"], seed=3, evaluate=False))["id"]
        told = client.cohort(cohort)
        assert "synthesised" in told["manifest"]["dates"] and "ICD9DX" in told["leaves_out"]["mimic-iii.zip"]

        files = {}
        for writer in WRITERS:
            target = tmp_path / f"cohort.{writer.extension}"
            client.download(cohort, target, writer.name)
            files[writer.name] = target.read_bytes()
        with pytest.raises(ApiError, match=r"omop\.zip"):
            client.download(cohort, tmp_path / "x", "xlsx")
        # what it needs to know of the CDM came with it: the dataset and the model may go
        for kind, gone in (("models", model), ("datasets", uploads[0]["dataset_id"])):
            client.delete(kind, gone)
        client.download(cohort, tmp_path / "later.zip", "omop.zip")
        broken = tmp_path / "broken.zip"
        broken.write_bytes(archive.read_bytes()[:-100])
        with pytest.raises(JobFailedError, match="zip"):
            client.wait(client.upload([broken]))

    later = load_cdm((tmp_path / "later.zip").read_bytes(), tmp_path / "later")
    database = load_cdm(files["omop.zip"], tmp_path / "loaded")
    for table in ("person", "visit_occurrence", "condition_occurrence", "measurement", "concept"):
        assert (
            later.sql(f"from {table} order by all").fetchall() == database.sql(f"from {table} order by all").fetchall()
        )
    kinds = database.execute("select distinct visit_concept_id, visit_type_concept_id from visit_occurrence").fetchall()
    assert kinds == [(9201, 32817)]
    assert json.loads((tmp_path / "loaded" / "manifest.json").read_text())["lab_cut_points"] != {}
    assert database.execute("select count(*) from person").fetchone() == (150,)
    found = database.execute(
        "select distinct vocabulary_id, condition_concept_id from condition_occurrence"
        " join concept on concept_id = condition_source_concept_id where condition_source_value = ?",
        [DIABETES],
    ).fetchall()
    assert found == [("ICD9CM", 201826)]  # the concepts the upload's table gave
    labs = database.execute(
        "select distinct measurement_concept_id, unit_concept_id, unit_source_value, concept_code, concept_name"
        " from measurement join concept on concept_id = unit_concept_id"
    ).fetchall()
    assert labs == [(3004501, 8753, "mmol/l", "mmol/L", "millimole per liter")]  # as in the upload
    # the numbers of the form that has deciles too, and each in its decile
    numbers = pq.read_table(io.BytesIO(files["parquet"])).to_pylist()
    deciles = [(row["code"], row["value"]) for row in numbers if row["value"] is not None]
    found = database.execute("select value_as_number from measurement order by measurement_id").fetchall()
    assert [float(value) for (value,) in found] == [value for _, value in deciles] and len(found) > 50
    for code, value in deciles:
        assert code == f"LOINC:2345-7#D{decile_of(np.float32([value]), tuple(lab['cut_points']))[0] + 1}"
    # every form says the same of every record that has a code of its own
    omop = read_upload({"c.zip": files["omop.zip"]}, tmp_path, limits=ROOMY).records
    for name, label in (("long.csv", "c.csv"), ("npz", "c.npz"), ("meds.parquet", "c.parquet")):
        other = read_upload({label: files[name]}, tmp_path, limits=ROOMY).records
        assert {record: _labs_taken(other[record]) for record in omop} == {r: _labs_taken(c) for r, c in omop.items()}
    assert any(f"ICD9DX:{DIABETES}" in codes for codes in omop.values())
    with zipfile.ZipFile(io.BytesIO(files["mimic-iii.zip"])) as mimic:
        assert mimic.testzip() is None


def _labs_taken(codes: set[str]) -> set[str]:
    """Without deciles: those of numbers are learned anew from whatever is read."""
    return {without_decile(code) for code in codes}
