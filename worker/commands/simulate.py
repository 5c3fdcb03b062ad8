"""Records or histories of the simulated population as a long table, such as one would upload."""

import csv
import gzip
from collections.abc import Iterator
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
    histories: Annotated[bool, typer.Option(help="patients over time: upload them with --unit history")] = False,
) -> None:
    """Write records of a simulated population, ready to be uploaded."""
    opened = gzip.open if file.suffix == ".gz" else open
    with opened(file, "wt", encoding="utf-8", newline="") as table:
        writer = csv.writer(table, lineterminator="\n")
        writer.writerows(_visits(records, seed) if histories else _records(records, seed))


def _records(n: int, seed: int) -> Iterator[list[str]]:
    import numpy as np

    from worker.engine.population import simulated_population

    population = simulated_population()
    drawn = population.sample(n, np.random.default_rng(seed))
    named = zip(population.vocabulary, population.descriptions, strict=True)
    cells = [[*code.split(":", 1), name] for code, name in named]
    owners = np.repeat(np.arange(n), np.diff(drawn.indptr))
    yield ["record_id", "vocabulary", "code", "name"]
    for owner, code in zip(owners, drawn.indices, strict=True):
        yield [f"r{owner}", *cells[code]]


def _visits(n: int, seed: int) -> Iterator[list[str]]:
    """All first visits are on one day. Sex and age are codes of the first: ingestion gives them to the patient."""
    import numpy as np

    from ehr.formats.write.dates import HISTORY_ORIGIN
    from ehr.formats.write.protocol import Block
    from worker.engine.population import simulate_histories

    drawn, vocabulary = simulate_histories(n, seed)
    block = Block.of_histories(0, 0, drawn, np.datetime64(HISTORY_ORIGIN, "D"))
    cells = [[*code.split(":", 1), vocabulary.name_of(code) or ""] for code in vocabulary.codes]
    days, owners = block.dates().astype(str).tolist(), block.people().tolist()
    yield ["patient_id", "date", "vocabulary", "code", "name"]
    for row, code in zip(*(column.tolist() for column in block.rows()), strict=True):
        yield [f"p{owners[row]}", days[row], *cells[code]]
