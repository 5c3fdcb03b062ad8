"""What an analyst does, with real workers, after the real records are gone: nothing of it can depend on them."""

from pathlib import Path

import pytest

from ehr_d3pm import Client
from tests.api.front import Front
from tests.service.servers import wait_until
from tests.service.stand import Stand, long_csv


def test_an_analyst_needs_no_real_record(postgres_stand: Stand, tmp_path: Path) -> None:
    table = tmp_path / "records.csv"
    table.write_bytes(long_csv(900, n_codes=40))
    with Front(postgres_stand.settings) as front:
        keys = front.key("ward", "data", "train", "generate", "read"), front.key("ward", "generate", "read")
        with Client(front.url, keys[0]) as custodian, Client(front.url, keys[1]) as analyst:
            uploaded = custodian.upload([table], holdout_share=0.2, test_share=0.2)
            dataset = custodian.wait(uploaded)["result"]["dataset_id"]
            trained = custodian.wait(custodian.train(dataset, generator="independent"))
            model = trained["result"]["model_id"]

            # a model is attacked when it is trained, so nobody waits for a custodian's report
            assert custodian.model(model)["details"]["audit"]["verdict"]["level"] != "fail"
            early = analyst.wait(analyst.generate(model, 50))
            assert early["result"]["evaluate_job_id"] is None
            assert analyst.download(early["id"], tmp_path / "early.csv") > 100

            # an unconditional cohort speaks for the model, and a conditioned one does not
            for asked in ({"all_of": ["ICD9DX:001"]}, {}):
                judged = custodian.wait(custodian.generate(model, 300, **asked))
                evaluation = custodian.wait(judged["result"]["evaluate_job_id"])
            said = analyst.model(model)["verdicts"]
            assert said["report_id"] == evaluation["id"] and said["families"].keys() >= {"fidelity", "privacy"}

            custodian.delete("datasets", dataset)
            wait_until(lambda: postgres_stand.blobs(f"datasets/{dataset}") == [], "the real records to go")
            cohort = analyst.wait(analyst.generate(model, 2000, all_of=["ICD9DX:001"], targets={"ICD9DX:002": 0.25}))
            assert analyst.download(cohort["id"], tmp_path / "cohort.csv") > 1000
            report = analyst.report(cohort["id"])
            assert report["reader"] == "shareable" and report["model"]["families"] == said["families"]
            assert report["synthetic"]["metrics"]["attainment"]["figures"]["value"]["value"] == 1
            assert report["targets"] == [{"codes": ["ICD9DX:002"], "asked": 0.25, "attained": 0.25}]
            assert report["synthetic"]["prevalence"][0] == {"code": "ICD9DX:001", "synthetic": 1.0}
            sizes = report["synthetic"]["sizes"]
            mean = sum(each["codes"] * each["synthetic"] for each in sizes)
            assert sum(each["synthetic"] for each in sizes) == pytest.approx(1)
            assert mean == pytest.approx(report["synthetic"]["codes_per_record"])
            assert "Fidelity" in analyst.report_page(cohort["id"])
            told = {each["key"]: each for each in analyst.exposure(model)}[keys[1][:12]]
            assert (told["requests"], told["records"], told["conditions"]) == (2, 2050, 1)
