"""`python -m worker.simulate FILE`: records of the simulated population as a long table, such as one would upload."""

import argparse
import csv
import gzip
from pathlib import Path
from typing import IO

import numpy as np

from worker.engine.population import simulated_population


def write_long_csv(file: IO[str], records: int, seed: int) -> None:
    """`record_id,vocabulary,code`, one row per code."""
    population = simulated_population()
    drawn = population.sample(records, np.random.default_rng(seed))
    cells = [code.split(":", 1) for code in population.vocabulary]
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["record_id", "vocabulary", "code"])
    owners = np.repeat(np.arange(records), np.diff(drawn.indptr))
    writer.writerows([f"r{owner}", *cells[code]] for owner, code in zip(owners, drawn.indices, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="to write; gzip if it ends in .gz")
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    opened = gzip.open if arguments.file.suffix == ".gz" else open
    with opened(arguments.file, "wt", encoding="utf-8", newline="") as file:
        write_long_csv(file, arguments.records, arguments.seed)


if __name__ == "__main__":
    main()
