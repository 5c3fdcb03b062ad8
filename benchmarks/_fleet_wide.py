"""A vocabulary of 20,000 codes the whole way: upload, training, audit, cohort and report by a real worker, and the most
memory that any process of it held."""

import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from benchmarks._harness import Figures, show, timed
from benchmarks._million import LOOK_SECONDS, _service, _wait_until_ready
from benchmarks.service import free_port, peak_rss_mib, tree
from ehr_d3pm import Client
from runtime.settings import Settings

FULL, QUICK = (200_000, 20_000), (1_500, 5_000)  # records, codes
CODES_PER_RECORD, SPECIALTIES, BLOCK = 16, 60, 20_000
TEST_SHARE = 0.49  # a step takes the same memory however many there are: half of the epoch would tell nothing new


def wide(figures: Figures, quick: bool) -> None:
    """`wide.peak_rss_gib`: of any step of the whole way, with the preset `fast` and one epoch."""
    measured = whole_way(*(QUICK if quick else FULL))
    rows = [[name, f"{seconds:.0f}", f"{peak:.2f}"] for name, (seconds, peak) in measured.items()]
    show("a wide vocabulary through the service", ["step", "seconds", "peak, GiB"], rows)
    figures.add("wide.peak_rss_gib", max(peak for _, peak in measured.values()), "GiB")
    figures.add("wide.seconds", sum(seconds for seconds, _ in measured.values()), "s")


def whole_way(records: int, codes: int, epochs: int = 1) -> dict[str, tuple[float, float]]:
    """Seconds, and the most memory of a process of the worker up to then, by step."""
    measured: dict[str, tuple[float, float]] = {}
    with tempfile.TemporaryDirectory(prefix="ehrbench", ignore_cleanup_errors=True) as folder:
        table = Path(folder) / "records.csv"
        write_records(table, records, codes)
        settings = Settings(data_dir=Path(folder) / "data", port=free_port())
        with _service(settings, 1, 1) as workers, Client(f"http://127.0.0.1:{settings.port}") as client:
            _wait_until_ready(client)
            process = workers[0].process
            assert process is not None
            with followed(process.pid) as peak:

                def step(name: str, job: dict[str, object]) -> dict[str, object]:
                    with timed() as seconds:
                        done = client.wait(job)
                    measured[name] = (seconds[0], peak[0])
                    return done

                uploaded = step("upload", client.upload([table], name="wide", min_records=1, test_share=TEST_SHARE))
                dataset = uploaded["result"]["dataset_id"]  # type: ignore[index]
                changes = {"training": {"epochs": epochs}}
                trained = step("train, audit, reference", client.train(dataset, preset="fast", settings=changes))
                model = trained["result"]["model_id"]  # type: ignore[index]
                cohort = step("cohort", client.generate(model, min(records // 10, 10_000), seed=1))
                step("report", client.job(cohort["result"]["evaluate_job_id"]))  # type: ignore[index]
                assert client.report(str(cohort["id"]))["fidelity"]["metrics"]["cmd"]["figures"]["value"]["value"] > 0
    return measured


@contextmanager
def followed(pid: int) -> Iterator[list[float]]:
    """The list's one number is the most memory, in GiB, that a process or one of its children has held."""
    peak, over = [0.0], threading.Event()

    def look() -> None:
        while not over.wait(LOOK_SECONDS):
            for each in _living(pid):
                peak[0] = max(peak[0], each)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        over.set()
        thread.join()


def _living(pid: int) -> list[float]:
    try:
        return [peak_rss_mib(each) / 1024 for each in tree(pid)]
    except OSError:  # one has ended while we looked
        time.sleep(LOOK_SECONDS)
        return []


def write_records(path: Path, records: int, codes: int) -> None:
    """A long table: most codes of a record belong to its specialty, some are common everywhere."""
    rng = np.random.default_rng(0)
    order = [rng.permutation(codes) for _ in range(SPECIALTIES)]
    names = pa.array([f"{number:05d}" for number in range(codes)])
    schema = pa.schema([("record_id", pa.int64()), ("vocabulary", pa.string()), ("code", pa.string())])
    with pacsv.CSVWriter(str(path), schema) as writer:
        for first in range(0, records, BLOCK):
            n = min(BLOCK, records - first)
            place = (codes * rng.random((n, CODES_PER_RECORD)) ** 3).astype(np.int64)
            specialty = rng.integers(0, SPECIALTIES, n)
            drawn = np.where(rng.random(place.shape) < 0.3, place, np.stack(order)[specialty[:, None], place])
            owner = np.repeat(np.arange(first, first + n), CODES_PER_RECORD)
            columns = [pa.array(owner), pa.array(["SIM"] * len(owner)), names.take(pa.array(drawn.ravel()))]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))
