"""Groups through HTTP: found or declared at upload, kept by every record, named where a request breaks one."""

import csv
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ehr_d3pm import ApiError, Client, JobFailedError
from tests.api.front import Front
from tests.service.stand import TINY, Stand

PAYERS = [{"codes": "PAYER*", "rule": "exactly one"}]


def table(n: int) -> str:
    """Everyone has a sex and one payer, whose codes share no delimiter, and some diagnoses."""
    rng = np.random.default_rng(0)
    lines = ["record_id,code"]
    for record in range(n):
        codes = [f"SEX:{rng.choice(['F', 'M'])}", f"PAYER{rng.integers(3)}"]
        codes += [f"ICD10CM:A{code:02d}" for code in np.flatnonzero(rng.random(12) < 0.3)]
        lines += [f"r{record},{code}" for code in codes]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("generator", ["d3pm", "independent"])
def test_no_cohort_breaks_a_group(postgres_stand: Stand, tmp_path: Path, generator: str) -> None:
    path = tmp_path / "records.csv"
    path.write_text(table(800))
    with Front(postgres_stand.settings) as front, Client(front.url, front.key("steward")) as client:
        dataset = client.wait(client.upload([path], groups=PAYERS))["result"]["dataset_id"]
        shown = {
            group["codes"]: (group["rule"], group["origin"]) for group in client.dataset(dataset)["summary"]["groups"]
        }
        assert shown == {"PAYER*": ("exactly one", "declared"), "SEX:*": ("exactly one", "known")}
        settings = TINY | {"training": {"epochs": 1, "batch_size": 64}} if generator == "d3pm" else None
        model = client.wait(client.train(dataset, generator=generator, settings=settings))["result"]["model_id"]

        for conditions in ({}, {"all_of": ["SEX:F"]}, {"none_of": ["PAYER0"], "any_of": ["SEX:M", "ICD10CM:A03"]}):
            cohort = client.wait(client.generate(model, 1_500, evaluate=False, **conditions))
            client.download(cohort["id"], tmp_path / "cohort.csv")
            with (tmp_path / "cohort.csv").open(newline="") as file:
                rows = [(row["record_id"], f"{row['vocabulary']}:{row['code']}") for row in csv.DictReader(file)]
            for prefix in ("SEX:", ":PAYER"):
                held = Counter(record for record, code in rows if code.startswith(prefix))
                assert len(held) == 1_500 and set(held.values()) == {1}, prefix

        both: dict[str, Any] = {"all_of": ["SEX:F", "SEX:M"]}
        estimate = client.estimate(model, 10, **both)
        assert not estimate["feasible"]
        assert "'SEX:F' and 'SEX:M' exclude each other: a record has exactly one of SEX:*" in estimate["problem"]
        assert len(estimate["relaxation"]["conditions"]["all_of"]) == 1
        with pytest.raises(ApiError, match="exclude each other"):
            client.generate(model, 10, **both)


def test_a_group_that_does_not_hold_is_refused(sqlite_stand: Stand, tmp_path: Path) -> None:
    path = tmp_path / "records.csv"
    path.write_text(table(300))
    with Front(sqlite_stand.settings) as front, Client(front.url, front.key("steward")) as client:
        with pytest.raises(JobFailedError, match=r"'ICD10CM:\*' does not hold"):
            client.wait(client.upload([path], groups=[{"codes": "ICD10CM:*", "rule": "at most one"}]))
        for wrong in ([{"codes": "SEX:*"}], [{"codes": "SEX:*", "rule": "one"}], "SEX:*"):
            with pytest.raises(ApiError, match="groups"):
                client.upload([path], groups=wrong)  # type: ignore[arg-type]
