"""Records of the simulated population as a long table, such as one would upload."""

import csv
import gzip
from pathlib import Path
from typing import Annotated

import typer

from ehr.errors import EhrError
from ehr_d3pm.cli.output import errors_as_exit_codes


@errors_as_exit_codes(EhrError)
def simulate(
    file: Annotated[Path, typer.Argument(help="to write; gzip if it ends in .gz")],
    records: Annotated[int, typer.Option("-n", "--records", min=1, help="patients to draw")] = 20_000,
    seed: Annotated[int, typer.Option(min=0)] = 0,
) -> None:
    """Write records of a simulated population, ready to be uploaded."""
    import numpy as np

    from worker.engine.population import simulated_population

    population = simulated_population()
    drawn = population.sample(records, np.random.default_rng(seed))
    named = zip(population.vocabulary, population.descriptions, strict=True)
    cells = [[*code.split(":", 1), name] for code, name in named]
    owners = np.repeat(np.arange(records), np.diff(drawn.indptr))
    opened = gzip.open if file.suffix == ".gz" else open
    with opened(file, "wt", encoding="utf-8", newline="") as table:
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow(["record_id", "vocabulary", "code", "name"])
        writer.writerows([f"r{owner}", *cells[code]] for owner, code in zip(owners, drawn.indices, strict=True))
