"""Patients over time go in, synthetic ones come out: through HTTP, with a real worker."""

from pathlib import Path

import numpy as np
import pytest

from ehr_d3pm import ApiError, Client
from tests.api.front import Front
from tests.formats.reading import ROOMY, read_upload
from tests.service.stand import Stand
from worker.commands.simulate import simulate

TINY = {
    "denoiser": {"width": 16, "blocks": 1},
    "state": 16,
    "timesteps": 50,
    "steps": 4,
    "training": {"epochs": 1, "holdout_draws": 1},
}
ORDER = {"before": [{"first": "e11", "then": "ICD10CM:N18"}]}


def test_histories_in_and_histories_out(sqlite_stand: Stand, tmp_path: Path) -> None:
    simulate(tmp_path / "visits.csv.gz", 150, histories=True)
    with Front(sqlite_stand.settings) as front, Client(front.url, front.key("integrator")) as client:
        uploaded = client.wait(client.upload([tmp_path / "visits.csv.gz"], unit="history"))["result"]
        summary = client.dataset(uploaded["dataset_id"])["summary"]
        assert (summary["format"]["unit"], summary["records"], summary["patients"]) == ("history", 150, 150)
        assert summary["visits"] > 1500 and summary["visits_per_patient_quantiles"]["p5"] >= 10
        assert {group["codes"] for group in summary["groups"]} == {"AGE:*", "SEX:*", "VISIT:*"}
        with pytest.raises(ApiError, match="these learn: visits, markov"):
            client.train(uploaded["dataset_id"], generator="independent")

        model = client.wait(client.train(uploaded["dataset_id"], settings=TINY))["result"]["model_id"]
        with pytest.raises(ApiError, match="`history` says"):
            client.generate(model, 20, all_of=["ICD10CM:E11"])
        with pytest.raises(ApiError, match="unknown code 'E999'"):
            client.generate(model, 20, history={"ever": ["E999"]})
        assert "not attacked yet" in client.estimate(model, 20, history=ORDER)["withheld"]
        job = client.wait(client.generate(model, 20, history=ORDER, origin="1990-02-01", seed=3))
        assert job["result"]["evaluate_job_id"] is None and any("not evaluated" in each for each in job["warnings"])
        cohort = job["id"]
        with pytest.raises(ApiError, match="withheld"):
            client.download(cohort, tmp_path / "cohort.zip", "omop.zip")
        client.release(cohort, "nobody is behind it")
        with pytest.raises(ApiError, match="cannot tell visits over time"):
            client.download(cohort, tmp_path / "cohort.npz", "npz")
        with pytest.raises(ApiError, match="not evaluated yet"):
            client.evaluate(cohort)
        client.download(cohort, tmp_path / "cohort.zip", "omop.zip")
        assert "1990-02-01" in client.cohort(cohort)["manifest"]["dates"]

    result = read_upload([tmp_path / "cohort.zip"], limits=ROOMY, unit="history")
    histories, codes = result.encoded.histories, result.encoded.vocabulary.codes
    assert histories is not None and len(histories) == 20
    first = {}
    for name in ("ICD10CM:E11", "ICD10CM:N18"):
        first[name] = np.full(20, len(histories.visits))
        at = histories.visits.having(codes.index(name))
        np.minimum.at(first[name], histories.patients()[at], at)
    assert np.all(first["ICD10CM:E11"] < first["ICD10CM:N18"]) and first["ICD10CM:N18"].max() < len(histories.visits)
