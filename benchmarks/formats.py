"""Reading 10 million rows of OMOP condition_occurrence: seconds, memory, and rows per second beside plain DuckDB.

python -m benchmarks.formats [--quick] [--json FILE]
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
from numpy.typing import NDArray

from benchmarks._harness import Figures, console, options, peak_rss_gib, progress_bar, show, timed
from ehr.formats import Limits, Options, SourceFile, open_upload, unpacked
from ehr.formats.read.rejects import Rejects
from worker.ingestion.encode import Encoder
from worker.ingestion.encoded import Choices

ROWS, QUICK_ROWS = 10_000_000, 200_000
BLOCK = 500_000
ROWS_PER_VISIT, VISITS_PER_PERSON, CODES = 12, 4, 5_000
COLUMNS = (
    "condition_occurrence_id person_id condition_concept_id condition_start_date condition_start_datetime"
    " condition_end_date condition_end_datetime condition_type_concept_id stop_reason provider_id visit_occurrence_id"
    " visit_detail_id condition_source_value condition_source_concept_id condition_status_source_value"
    " condition_status_concept_id"
)
DUCKDB = (
    "create table t as select visit_occurrence_id, person_id, trim(condition_source_value) as code"
    " from read_csv('{}', all_varchar=true)"
)


def write_conditions(path: Path, n: int) -> None:
    """A table as a hospital exports it: 64-bit ids with any sign, padded codes, rows of a visit far apart."""
    rng = np.random.default_rng(0)
    codes = pa.array([f"{code:05d}  " for code in rng.permutation(100_000)[:CODES]])
    with path.open("wb") as file, progress_bar("rows to write") as progress:
        file.write((",".join(COLUMNS.split()) + "\n").encode())
        for first in range(0, n, BLOCK):
            table = _some_rows(rng, codes, first, min(BLOCK, n - first))
            pacsv.write_csv(table, file, pacsv.WriteOptions(include_header=False, quoting_style="needed"))
            progress(first + len(table), n)


def _some_rows(rng: np.random.Generator, codes: pa.StringArray, first: int, n: int) -> pa.Table:
    visit = (first + np.arange(n)) // ROWS_PER_VISIT
    code = (CODES * rng.random(n) ** 2.5).astype(np.int32)  # a few codes are common and most are rare
    day = pa.array(np.datetime64("2100-01-01") + (visit % 20_000).astype("timedelta64[D]")).cast(pa.string())
    time_of_day = pc.binary_join_element_wise(day, " 11:05:00", "")
    empty = pa.array([""] * n)
    filled = {
        "condition_occurrence_id": pa.array(rng.integers(-(2**63), 2**63 - 1, n)),
        "person_id": pa.array(_scattered(visit // VISITS_PER_PERSON)),
        "condition_concept_id": pa.array(code + 196_523),
        "condition_start_date": day,
        "condition_start_datetime": time_of_day,
        "condition_end_date": day,
        "condition_end_datetime": time_of_day,
        "condition_type_concept_id": pa.array(np.full(n, 32_821)),
        "visit_occurrence_id": pa.array(_scattered(visit)),
        "condition_source_value": codes.take(pa.array(code)),
        "condition_source_concept_id": pa.array(code + 44_820_000),
    }
    table = pa.table([filled.get(name, empty) for name in COLUMNS.split()], names=COLUMNS.split())
    return table.take(pa.array(rng.permutation(n)))


def _scattered(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Distinct numbers as distinct 64-bit ids of any sign."""
    scattered: NDArray[np.int64] = (numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).view(np.int64)
    return scattered


def read_here(path: Path) -> dict[str, float]:
    """Read and encode as the ingest task does; runs in a process of its own, whose memory is then this alone."""
    limits = Limits(1 << 40, 1 << 31, 256)
    start, rejects = time.perf_counter(), Rejects()
    files = unpacked([SourceFile.at(path, path.name, limits)])
    reader, encoder = open_upload("auto", files, Options()), Encoder(limits, rejects)
    for batch in reader.batches(rejects):
        encoder.add(batch)
    encoded = encoder.finish(Choices())
    encoder.facts().source_cdm(reader, encoded.vocabulary.codes, "none")
    return {
        "seconds": time.perf_counter() - start,
        "peak_rss_gib": peak_rss_gib(),
        "records": len(encoded.records),
        "rows": encoded.counted.usable + encoded.counted.rejected,
    }


def read_with_duckdb(path: Path) -> float:
    """Seconds to have the same three columns in memory."""
    with duckdb.connect(config={"threads": 2}) as database, timed() as took:
        database.execute("set enable_progress_bar = false")
        database.execute(DUCKDB.format(path))
    return took[0]


def main() -> None:
    parser = options("Reading OMOP tables")
    parser.add_argument(
        "--read", type=Path, help="only read this table and print what it took; for this program itself"
    )
    arguments = parser.parse_args()
    if arguments.read is not None:
        console.print_json(json.dumps(read_here(arguments.read)))
        return
    n, figures = QUICK_ROWS if arguments.quick else ROWS, Figures()
    with tempfile.TemporaryDirectory(prefix="ehrbench") as folder:
        path = Path(folder) / "condition_occurrence.csv"
        write_conditions(path, n)
        with console.status("reading"):
            command = [sys.executable, "-m", "benchmarks.formats", "--read", str(path)]
            ours = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        with console.status("reading with DuckDB"):
            theirs = read_with_duckdb(path)
        size = path.stat().st_size
    assert ours["rows"] == n
    rows = [
        ["this project, to encoded records", f"{ours['seconds']:.1f}", f"{n / ours['seconds']:,.0f}"],
        ["DuckDB, to a table of three columns", f"{theirs:.1f}", f"{n / theirs:,.0f}"],
    ]
    show(f"{n:,} rows, {size / 2**20:,.0f} MiB, {ours['records']:,.0f} visits", ["", "seconds", "rows per s"], rows)
    figures.add("omop.seconds_10m", ours["seconds"] * ROWS / n, "s")
    figures.add("omop.peak_rss_gib", ours["peak_rss_gib"], "GiB")
    figures.add("omop.rows_per_s", n / ours["seconds"], "1/s")
    figures.add("omop.ratio_to_duckdb", theirs / ours["seconds"], "of DuckDB's rows per s")
    figures.finish(arguments.json)


if __name__ == "__main__":
    main()
