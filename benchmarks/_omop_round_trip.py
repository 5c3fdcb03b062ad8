"""OMOP in, OMOP out: the same questions are put to the CDM that was uploaded and to the synthetic one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from benchmarks._cdm54 import EVENTS, broken, load
from ehr.formats import Limits, Options, SourceFile, open_upload, unpacked, writer_named
from ehr.formats.cdm import SourceCdm
from ehr.formats.concepts import CodeConcepts
from ehr.formats.read.rejects import Rejects
from ehr.formats.write.protocol import BLOCK_RECORDS, Block, CohortSource
from ehr.generators.auto import Shape
from ehr.groups import find_groups
from ehr.records import Records
from worker.engine.generators import FitRequest, SampleRequest, generator_named
from worker.ingestion.encode import Encoder
from worker.ingestion.encoded import Choices, Encoded
from worker.ingestion.rules import find_rules

LIMITS = Limits(inflated_bytes=8 << 30, rows=100_000_000, field_bytes=256)
CODE = "upper(replace(trim({prefix}_source_value), '.', ''))"


def measure(folder: Path, work: Path, records: int = 3_000, **options: Any) -> int:
    """Learn an upload for two epochs, draw records, write omop.zip, load it and ask: how many events have concept 0
    although no event of their code had in the upload? `options` are those of an upload."""
    return asked(folder, round_trip(folder, work, records, **options), work)["zero concepts"]


def omop_zero_concepts(folder: Path, zip_path: Path, work: Path) -> int:
    return asked(folder, zip_path, work)["zero concepts"]


def round_trip(folder: Path, work: Path, n: int, form: str = "omop.zip", **options: Any) -> Path:
    """A synthetic cohort of an upload, as a file."""
    encoded, cdm, concepts = read(folder, **options)
    records = _learned(encoded, n)
    target = work / f"cohort.{form}"
    target.write_bytes(b"".join(writer_named(form).write(cohort_of(records, encoded, cdm, concepts))))
    return target


def read(folder: Path, **options: Any) -> tuple[Encoded, SourceCdm | None, dict[str, CodeConcepts]]:
    """An upload as the ingest task reads it."""
    rollup, without = options.pop("rollup", "none"), options.pop("without", ())
    paths = [path for path in sorted(folder.iterdir()) if path.name not in without]
    reader = open_upload(
        "auto", unpacked([SourceFile.at(path, path.name, LIMITS) for path in paths]), Options(**options)
    )
    rejects = Rejects()
    encoder = Encoder(LIMITS, rejects)
    for batch in reader.batches(rejects):
        encoder.add(batch)
    encoded = encoder.finish(Choices(rollup=rollup, masked_age=reader.masked_age))
    return encoded, encoder.facts().source_cdm(reader, encoded.vocabulary.codes, rollup), reader.concepts


def _learned(encoded: Encoded, n: int) -> Records:
    train = encoded.records
    settings = generator_named("d3pm").spec.resolve(
        "fast", {"training": {"epochs": 2}}, Shape(len(train), train.n_codes)
    )
    codes = encoded.vocabulary.codes
    rules = find_rules(train, codes, find_groups(train, codes))
    groups = rules.groups if len(rules.groups) else None
    model = generator_named("d3pm").fit(FitRequest(train, None, settings.config or {}, groups=groups, rules=rules))
    return model.sample(SampleRequest(n, seed=1))


def cohort_of(
    records: Records, encoded: Encoded, cdm: SourceCdm | None, concepts: dict[str, CodeConcepts]
) -> CohortSource:
    """Records in memory, as writers take them."""

    def blocks() -> Iterator[Block]:
        for first in range(0, len(records), BLOCK_RECORDS):
            yield Block(first, records.take(np.arange(first, min(first + BLOCK_RECORDS, len(records)))))

    codes, count, curves = encoded.vocabulary.codes, int(records.indptr[-1]), encoded.curves
    return CohortSource(codes, len(records), blocks, lambda: count, {}, concepts, lambda: cdm, 1, curves)


def asked(folder: Path, zip_path: Path, work: Path) -> dict[str, int]:
    """Questions whose answer is 0 if what comes back is what was sent; counts of synthetic rows, or of tables."""
    database = load(zip_path, work / "loaded")
    found = {"broken constraints": sum(broken(database).values())}
    found |= dict.fromkeys(("zero concepts", "other tables", "other concepts", "other types", "empty tables"), 0)
    for table, prefix in EVENTS.items():
        path = folder / f"{table}.csv"
        if not path.exists():
            found["other tables"] += _count(database, f"from {table}")
            continue
        database.execute(f"create view source_{table} as from read_csv('{path}', all_varchar=true, header=true)")
        concept, kind, source = f"{prefix}_concept_id", f"{prefix}_type_concept_id", f"source_{table}"
        code = CODE.format(prefix=prefix)
        never_zero = f"select {code} from {source} group by 1 having min(abs(cast({concept} as bigint))) > 0"
        found["zero concepts"] += _count(database, f"from {table} where {concept} = 0 and {code} in ({never_zero})")
        known = {name: f"select cast({name} as bigint) from {source}" for name in (concept, kind)}
        found["other concepts"] += _count(database, f"from {table} where {concept} not in ({known[concept]})")
        found["other types"] += _count(database, f"from {table} where {kind} not in ({known[kind]})")
        found["empty tables"] += _count(database, f"from {source}") > 0 and _count(database, f"from {table}") == 0
    return found


def _count(database: duckdb.DuckDBPyConnection, what: str) -> int:
    return int(database.execute(f"select count(*) {what}").fetchall()[0][0])
