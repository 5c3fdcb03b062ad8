"""Lab values go in as numbers with units and come out as numbers with units: through HTTP, with a real worker."""

import csv
import io
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from scipy.stats import ks_2samp

from benchmarks._fhir_check import invalid
from ehr_d3pm import Client
from tests.api.front import Front
from tests.service.stand import TINY, Stand
from worker.ingestion.lab_curves import decile_of

FORMATS = {"long.csv": "csv", "fhir.ndjson": "ndjson", "meds.parquet": "parquet", "parquet": "parquet"}
Numbers = Counter[tuple[int, str, np.float32]]


def source(n: int) -> tuple[str, dict[str, np.ndarray]]:
    """Half of the patients have diabetes and a high glucose; somebody's is beyond all others. Creatinine has two
    decimals; a tenth of it comes in another unit."""
    rng = np.random.default_rng(0)
    sick = rng.random(n) < 0.5
    glucose = np.round(rng.normal(np.where(sick, 180, 95), 15))
    glucose[7] = 99_999
    creatinine = np.round(rng.lognormal(0, 0.3, n), 2)
    lines = ["record_id,vocabulary,code,value,unit"]
    for i in range(n):
        lines += [f"{i},ICD10CM,E11,,"] * int(sick[i]) + [f"{i},LOINC,2345-7,{glucose[i]:.0f},mg/dL"]
        factor, unit = (88.4, "umol/L") if i % 10 == 0 else (1, "mg/dL")
        lines.append(f"{i},LOINC,2160-0,{creatinine[i] * factor:.2f},{unit}")
    in_mg = np.arange(n) % 10 != 0
    return "\n".join(lines) + "\n", {"LOINC:2345-7": glucose, "LOINC:2160-0": creatinine[in_mg]}


def test_numbers_in_and_numbers_out(sqlite_stand: Stand, tmp_path: Path) -> None:
    text, values = source(600)
    path = tmp_path / "labs.csv"
    path.write_text(text)
    with Front(sqlite_stand.settings) as front, Client(front.url, front.key("chemist")) as client:
        uploaded = client.wait(client.upload([path]))["result"]
        told = uploaded["summary"]["labs"]
        assert told == {"with_deciles": 2, "with_unit": 2, "too_few": 0, "rows_in_other_units": 60}
        labs = {lab["code"]: lab for lab in client.labs(uploaded["dataset_id"])}
        assert {lab["unit"] for lab in labs.values()} == {"mg/dL"} and labs.keys() == values.keys()
        settings = TINY | {"training": {"epochs": 2, "batch_size": 64, "holdout_draws": 1}}
        model = client.wait(client.train(uploaded["dataset_id"], settings=settings))["result"]["model_id"]
        cohort = client.wait(client.generate(model, 1_000, seed=3, evaluate=False))["id"]
        assert "lab_curves" not in client.cohort(cohort)["manifest"]  # they are in the files
        client.delete("datasets", uploaded["dataset_id"])
        files = {}
        for name, extension in FORMATS.items():
            client.download(cohort, tmp_path / f"cohort.{extension}", name)
            files[name] = (tmp_path / f"cohort.{extension}").read_bytes()

    rows = list(csv.DictReader(io.StringIO(files["long.csv"].decode())))
    long = Counter(
        (int(row["record_id"]), f"{row['vocabulary']}:{row['code']}", np.float32(row["value"]))
        for row in rows if row["value"]
    )  # fmt: skip
    assert {row["unit"] for row in rows if row["value"]} == {"mg/dL"} and not any("#D" in row["code"] for row in rows)
    fhir: Numbers = Counter()
    for resource in map(json.loads, files["fhir.ndjson"].splitlines()):
        if "valueQuantity" in resource:
            record = int(resource["subject"]["reference"].rpartition("-")[2])
            assert resource["valueQuantity"]["unit"] == "mg/dL"
            value = np.float32(resource["valueQuantity"]["value"])
            fhir[record, f"LOINC:{resource['code']['coding'][0]['code']}", value] += 1
    events = pq.read_table(io.BytesIO(files["meds.parquet"])).to_pylist()
    meds = Counter(
        (row["subject_id"], row["code"].replace("//", ":"), np.float32(row["numeric_value"]))
        for row in events if row["numeric_value"] is not None
    )  # fmt: skip
    assert len(long) > 1_000 and long == fhir == meds and invalid(files["fhir.ndjson"].splitlines()) == 0

    # the deciles that the records have, and values distributed within them as in the source
    drawn = pq.read_table(io.BytesIO(files["parquet"])).to_pylist()
    for lab, real in values.items():
        own = [(row["code"], row["value"]) for row in drawn if row["code"].startswith(f"{lab}#")]
        numbers = np.array([value for _, value in own], dtype=np.float32)
        cuts = tuple(labs[lab]["cut_points"])
        part = decile_of(numbers, cuts)
        assert [f"{lab}#D{decile + 1}" for decile in part] == [code for code, _ in own]
        assert numbers.max() < 300 and numbers.min() > 0.2
        of_real = decile_of(real.astype(np.float32), cuts)
        for decile in range(10):
            assert ks_2samp(numbers[part == decile], real[of_real == decile]).pvalue > 1e-6
    assert all(value == round(value) for _, lab, value in long if lab == "LOINC:2345-7")
