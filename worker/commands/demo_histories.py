"""`ehr-d3pm demo --histories`: the same way with patients over time."""

import csv
import tempfile
from pathlib import Path
from typing import Any

from ehr_d3pm import Client
from ehr_d3pm.cli.cohorts import show_estimate
from ehr_d3pm.cli.output import console, print_table
from ehr_d3pm.cli.progress_bars import wait_with_bars
from ehr_d3pm.cli.reports import show_report
from worker.commands.simulate import simulate

FIRST, THEN = "ICD10CM:E11", "ICD10CM:N18"  # diabetes before kidney disease
ASKED = {"before": [{"first": f"{FIRST}*", "then": f"{THEN}*"}]}


def learned_from_histories(client: Client, patients: int) -> str:
    """Simulate, upload, ingest; the dataset's id."""
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "simulated-histories.csv.gz"
        with console.status("simulating patients over time"):
            simulate(table, patients, histories=True)
        job = client.upload([table], name="simulated histories", unit="history")
    ingested: str = wait_with_bars(client, job, "ingest")["result"]["dataset_id"]
    return ingested


def history_cohort(client: Client, label: str, model_id: str, n: int, history: dict[str, Any] | None) -> str:
    """Generate and evaluate; the generate job's id."""
    job = wait_with_bars(client, client.generate(model_id, n, history=history, seed=7), label)
    if job["result"]["evaluate_job_id"] is not None:
        wait_with_bars(client, client.job(job["result"]["evaluate_job_id"]), "evaluate")
    cohort_id: str = job["id"]
    return cohort_id


def show_histories(client: Client, dataset_id: str, model_id: str, n: int, cohorts: dict[str, str]) -> None:
    """What was learned from, what was expected, and a report of each cohort."""
    summary = client.dataset(dataset_id)["summary"]
    console.print(
        f"Learned from {summary['patients']:,} simulated patients with {summary['visits']:,} visits and"
        f" {summary['codes']} codes.",
        highlight=False,
    )
    console.print(f"\nWhat {n:,} patients with {FIRST} before {THEN} were expected to take", style="bold")
    show_estimate(client.estimate(model_id, n, history=ASKED))
    for label, job_id in cohorts.items():
        console.print(f"\nCohort: {label}", style="bold")
        show_report(client.report(job_id))


def show_order(client: Client, cohorts: dict[str, str]) -> None:
    """How many patients have the one code before the other, counted in what a user would download."""
    rows = []
    for label, job_id in cohorts.items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "cohort.csv"
            client.download(job_id, path)
            first: dict[str, dict[str, str]] = {FIRST: {}, THEN: {}}
            with path.open(encoding="utf-8", newline="") as file:
                for row in csv.DictReader(file):
                    for code, days in first.items():
                        if f"{row['vocabulary']}:{row['code']}".startswith(code):
                            days[row["patient_id"]] = min(days.get(row["patient_id"], row["date"]), row["date"])
        inside = sum(first[FIRST][who] < day for who, day in first[THEN].items() if who in first[FIRST])
        n = client.cohort(job_id)["n_records"]
        rows.append([label, f"{inside:,}", f"{n:,}", f"{inside / n:.1%}"])
    print_table(["cohort", f"{FIRST} before {THEN}", "patients", "share"], rows, right=(1, 2, 3))
