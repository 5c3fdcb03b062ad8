"""`ehr-d3pm demo`: the whole way, from an upload to reports, on a simulated population."""

import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from ehr.errors import EhrError
from ehr_d3pm import ApiError, Client, UnreachableError
from ehr_d3pm.cli.cohorts import show_estimate
from ehr_d3pm.cli.output import Exit, console, errors_as_exit_codes, fail, print_table, say
from ehr_d3pm.cli.progress_bars import wait_with_bars
from ehr_d3pm.cli.reports import show_report
from runtime.command_options import settings_with
from worker.commands.demo_histories import (
    ASKED,
    history_cohort,
    learned_from_histories,
    show_histories,
    show_order,
)
from worker.commands.service import api_command
from worker.commands.simulate import simulate

READY_SECONDS = 90
RARE_CODE = "ICD10CM:E84"


@dataclass(frozen=True)
class Sizes:
    """How much is learned and drawn."""

    records: int
    epochs: int
    cohort: int


RECORDS, OVER_TIME = Sizes(20_000, 20, 3_000), Sizes(3_000, 8, 1_000)


class WatchfulClient(Client):
    """Whenever it looks at a job it first has started again what has ended: nobody else would, and a job without a
    worker waits for ever. In the caller's thread: the service's processes end with the thread that started them."""

    def __init__(self, url: str, keep_running: Callable[[], None]) -> None:
        super().__init__(url)
        self._keep_running = keep_running

    def job(self, job_id: str) -> dict[str, Any]:
        self._keep_running()
        return super().job(job_id)


@errors_as_exit_codes(EhrError)
def demo(
    data_dir: Annotated[Path, typer.Option(help="folder of everything that lasts")] = Path("ehr-d3pm-data"),
    records: Annotated[int | None, typer.Option(help="simulated patients to learn from [default: 20000]")] = None,
    epochs: Annotated[int | None, typer.Option(help="passes over them [default: 20]")] = None,
    cohort: Annotated[int | None, typer.Option(help="synthetic records in each cohort [default: 3000]")] = None,
    code: Annotated[str, typer.Option(help="the rare code to ask for (default: cystic fibrosis)")] = RARE_CODE,
    histories: Annotated[bool, typer.Option(help="patients over time: 3000, 8 epochs, cohorts of 1000")] = False,
) -> None:
    """Start everything and show what it does, in minutes.

    Learns from a simulated population, generates two cohorts and shows how good they are. With --histories, of patients
    over time: everyone, and diabetes before kidney disease.
    """
    from worker import embedded

    start = time.perf_counter()
    settings = settings_with(data_dir=data_dir, host="127.0.0.1", port=_free_port())
    service = embedded.Supervisor(settings, api_command(settings, "error"))
    with service, WatchfulClient(f"http://{settings.host}:{settings.port}", service.watch_once) as client:
        _wait_until_ready(client)
        usual = OVER_TIME if histories else RECORDS
        given = zip((records, epochs, cohort), (usual.records, usual.epochs, usual.cohort), strict=True)
        sizes = Sizes(*(default if value is None else value for value, default in given))
        folder = settings.resolved_data_dir
        reports = _run_histories(client, sizes, folder) if histories else _run(client, sizes, code, folder)
    console.print("\nReports:", *(f"  {path}" for path in reports), sep="\n", highlight=False, soft_wrap=True)
    say(f"'ehr-d3pm serve --data-dir {data_dir}' goes on with what is there now.")
    say(f"Done in {time.perf_counter() - start:.0f} s.")


def _run(client: Client, sizes: Sizes, code: str, folder: Path) -> list[Path]:
    dataset_id = _learned_from(client, sizes.records)
    settings = {"training": {"epochs": sizes.epochs}}
    train = wait_with_bars(client, client.train(dataset_id, name="demo", preset="fast", settings=settings), "train")
    model_id = train["result"]["model_id"]
    plain = _cohort(client, "generate", model_id, sizes.cohort, [])
    expected = client.estimate(model_id, sizes.cohort, all_of=[code])
    asked = _cohort(client, f"with {code}"[:16], model_id, sizes.cohort, [code])
    _show_dataset(client.dataset(dataset_id), code, client)
    console.print(f"\nWhat {sizes.cohort:,} records with {code} were expected to take", style="bold")
    show_estimate(expected)
    console.print("\nUnconditional cohort", style="bold")
    show_report(client.report(plain))
    console.print(f"\nCohort asked for {code}", style="bold")
    show_report(client.report(asked))
    for job_id in (plain, asked):
        _release_if_withheld(client, job_id)
    _show_effect(client, plain, asked, code)
    return _pages(client, folder, {"unconditional": plain, "conditioned": asked})


def _run_histories(client: Client, sizes: Sizes, folder: Path) -> list[Path]:
    dataset_id = learned_from_histories(client, sizes.records)
    settings = {"training": {"epochs": sizes.epochs}}
    train = wait_with_bars(client, client.train(dataset_id, name="demo, over time", settings=settings), "train")
    model_id = train["result"]["model_id"]
    cohorts = {
        "unconditional": history_cohort(client, "generate", model_id, sizes.cohort, None),
        "conditioned": history_cohort(client, "with an order", model_id, sizes.cohort, ASKED),
    }
    show_histories(client, dataset_id, model_id, sizes.cohort, cohorts)
    for job_id in cohorts.values():
        _release_if_withheld(client, job_id)
    show_order(client, cohorts)
    return _pages(client, folder, cohorts)


def _pages(client: Client, folder: Path, cohorts: dict[str, str]) -> list[Path]:
    """The reports as pages, by what the cohorts are called."""
    paths = []
    for name, job_id in cohorts.items():
        paths.append(folder / f"report-{name}.html")
        paths[-1].write_text(client.report_page(job_id), encoding="utf-8")
    return paths


def _learned_from(client: Client, records: int) -> str:
    """Simulate, upload, ingest; the dataset's id."""
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "simulated-population.csv.gz"
        with console.status("simulating patients"):
            simulate(table, records)
        job = client.upload([table], name="simulated population")
    ingested: str = wait_with_bars(client, job, "ingest")["result"]["dataset_id"]
    return ingested


def _cohort(client: Client, label: str, model_id: str, n: int, all_of: list[str]) -> str:
    """Generate and evaluate; the generate job's id."""
    job = wait_with_bars(client, client.generate(model_id, n, all_of=all_of, seed=7), label)
    if job["result"]["evaluate_job_id"] is not None:
        wait_with_bars(client, client.job(job["result"]["evaluate_job_id"]), "evaluate")
    cohort_id: str = job["id"]
    return cohort_id


def _show_dataset(dataset: dict[str, Any], code: str, client: Client) -> None:
    summary = dataset["summary"]
    count = next((c["records"] for c in client.codes(dataset["id"], code) if c["code"] == code), None)
    seen = "too few to show" if count is None else f"{count:,}"
    console.print(
        f"Learned from {summary['records']:,} simulated patients with {summary['codes']} codes,"
        f" {summary['codes_per_record']} each; {code} in {seen} of them.",
        highlight=False,
    )


def _release_if_withheld(client: Client, cohort_id: str) -> None:
    """Whoever runs the demo is the custodian of its patients: nobody is behind them."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            client.download(cohort_id, Path(folder) / "cohort.csv")
        except ApiError as error:
            if error.type != "withheld":
                raise
            console.print(f"\n{error}", style="yellow", highlight=False)
            client.release(cohort_id, "its patients are simulated")
            say("The patients of this demo are simulated, so it is released.")


def _show_effect(client: Client, plain: str, asked: str, code: str) -> None:
    """How often the code occurs in both cohorts, counted in what a user would download."""
    rows = []
    for label, job_id in (("unconditional", plain), (f"asked for {code}", asked)):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "cohort.csv"
            client.download(job_id, path)
            vocabulary, _, rest = code.partition(":")
            with path.open(encoding="utf-8", newline="") as file:
                having = sum(line.rstrip("\r\n").endswith(f",{vocabulary},{rest}") for line in file)
        n = client.cohort(job_id)["n_records"]
        rows.append([label, f"{having:,}", f"{n:,}", f"{having / n:.2%}"])
    print_table(["cohort", f"records with {code}", "records", "share"], rows, right=(1, 2, 3))


def _wait_until_ready(client: Client) -> None:
    deadline = time.monotonic() + READY_SECONDS
    with console.status("starting the service"):
        while True:
            try:
                client.ready()
                return
            except (UnreachableError, ApiError) as error:
                if time.monotonic() > deadline:
                    fail(f"the service did not become ready: {error}", Exit.UNREACHABLE)
                time.sleep(0.2)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
