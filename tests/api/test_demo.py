"""What the demo of patients over time counts in a cohort that was downloaded."""

from pathlib import Path
from typing import Any

import pytest

from ehr_d3pm import Client
from worker.commands.demo_histories import show_order

ROWS = """patient_id,date,vocabulary,code
a,2000-01-01,ICD10CM,E119
a,2000-02-01,ICD10CM,N183
b,2000-01-01,ICD10CM,N183
b,2000-02-01,ICD10CM,E119
c,2000-01-01,ICD10CM,E119
c,2000-01-01,ICD10CM,N183
d,2000-01-01,RXNORM,E119
d,2000-02-01,ICD10CM,N183
"""


class Downloads(Client):
    """One cohort."""

    def download(self, job_id: str, path: str | Path, format: str = "long.csv", *, names: bool = False) -> int:
        return Path(path).write_text(ROWS)

    def cohort(self, job_id: str) -> dict[str, Any]:
        return {"n_records": 4}


def test_an_order_is_one_day_before_another(capsys: pytest.CaptureFixture[str]) -> None:
    with Downloads("http://127.0.0.1:9") as client:
        show_order(client, {"everyone": "job"})
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "everyone" in line]
    assert [word for word in line.split() if word[0].isdigit()] == ["1", "4", "25.0%"]
