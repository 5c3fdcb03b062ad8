"""What a few patients alone have is in no answer, however often they come: through HTTP, with real workers.

Codes, sizes of records, numbers of visits and days between them end where 11 patients are.
"""

import csv
import random
from collections.abc import Iterable
from datetime import date, timedelta
from pathlib import Path

from ehr_d3pm import Client
from tests.api.front import Front
from tests.service.stand import TINY, Stand

Row = tuple[str, str, str]  # patient, record or day, code
CODES = [f"{number:03}" for number in range(12)]
FEW = 3  # patients who are like nobody else


def by_visit() -> Iterable[Row]:
    """Everyone has up to five codes; a few have all, and one who comes often has a code that nobody else has."""
    for patient in range(400):
        for code in CODES if patient < FEW else [CODES[(patient + k) % 12] for k in range(2 + patient % 4)]:
            yield f"p{patient}", f"v{patient}", code
    for visit in range(15):
        yield from ((f"p{FEW}", f"often{visit}", code) for code in (CODES[0], "999"))


def over_time() -> Iterable[Row]:
    """Everyone comes up to four times, weeks apart; a few come 25 times, years apart."""
    rng = random.Random(0)
    for patient in range(300):
        visits, gap = (25, 777) if patient < FEW else (1 + patient % 4, 10 + patient % 50)
        for visit in range(visits):
            day = date(1980, 1, 1) + timedelta(days=visit * gap)
            yield from ((f"p{patient}", str(day), code) for code in rng.sample(CODES, 5))


def written(folder: Path, second: str, rows: Iterable[Row]) -> Path:
    path = folder / f"{second}.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("patient_id", second, "code"), *rows])
    return path


def test_a_code_or_a_size_of_a_few_patients_is_not_told(sqlite_stand: Stand, tmp_path: Path) -> None:
    with Front(sqlite_stand.settings) as front:
        keys = front.key("ward", "data", "train", "generate", "read"), front.key("ward", "generate", "read")
        with Client(front.url, keys[0]) as custodian, Client(front.url, keys[1]) as analyst:
            table = written(tmp_path, "record_id", by_visit())
            said = {"default_vocabulary": "ICD9DX", "holdout_share": 0.2, "test_share": 0.2}
            dataset = custodian.wait(custodian.upload([table], **said))["result"]["dataset_id"]
            training = custodian.train(dataset, settings=TINY | {"training": {"epochs": 1}}, seed=1)
            model = custodian.wait(training)["result"]["model_id"]
            known = {each["code"] for each in analyst.codes(model)}
            assert known == {f"ICD9DX:{code}" for code in CODES}  # 15 records have 999, of one patient
            cohort = analyst.wait(analyst.generate(model, 4000, seed=1))
            sizes = analyst.report(cohort["id"])["synthetic"]["sizes"]
            assert max(each["codes"] for each in sizes) < 9  # not 12


def test_days_and_visits_of_a_few_patients_are_not_drawn(sqlite_stand: Stand, tmp_path: Path) -> None:
    with Front(sqlite_stand.settings) as front:
        keys = front.key("ward", "data", "train", "generate", "read"), front.key("ward", "generate", "read")
        with Client(front.url, keys[0]) as custodian, Client(front.url, keys[1]) as analyst:
            table = written(tmp_path, "date", over_time())
            said = {"default_vocabulary": "ICD9DX", "unit": "history", "holdout_share": 0.2, "test_share": 0.2}
            dataset = custodian.wait(custodian.upload([table], **said))["result"]["dataset_id"]
            model = custodian.wait(custodian.train(dataset, generator="markov"))["result"]["model_id"]
            shown = analyst.probe(model, 100)["patients"]
            assert max(visit["gap_days"] for patient in shown for visit in patient["visits"]) < 60
            assert max(len(patient["visits"]) for patient in shown) <= 4
