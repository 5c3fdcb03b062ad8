"""meds.parquet: a shard of the Medical Event Data Standard 0.4. A record is a subject; codes are SYSTEM//CODE.

In histories a patient is a subject, codes have the time of their visit, and sex and age are GENDER and MEDS_BIRTH.

Units of labs stand in a column of their own, which the standard allows and does not name, and so do names if they are
wanted: as `description`, which is what the metadata of MEDS calls them.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ehr.codes.systems import AGE, SEX, split_code
from ehr.formats.write.arrow_rows import parquet_of
from ehr.formats.write.dates import birth_year
from ehr.formats.write.lab_values import LabValues
from ehr.formats.write.people import People
from ehr.formats.write.protocol import Block, CohortSource, Ints, Writer

SCHEMA = pa.schema(
    [
        pa.field("subject_id", pa.int64(), nullable=False),
        pa.field("time", pa.timestamp("us")),
        pa.field("code", pa.string(), nullable=False),
        pa.field("numeric_value", pa.float32()),
    ],
    {"meds_version": "0.4.1"},
)
BIRTH = "MEDS_BIRTH"
UNIT, NAME = pa.field("unit", pa.string()), pa.field("description", pa.string())


def write_meds(cohort: CohortSource) -> Iterator[bytes]:
    """One shard: subjects are contiguous, and what has no time (sex, age) comes first, as MEDS wants it."""
    labs = LabValues(cohort)
    schema = SCHEMA.append(UNIT) if any(unit.text for unit in labs.units) else SCHEMA
    schema = schema.append(NAME) if cohort.with_names else schema
    schema = schema.with_metadata({"dates": cohort.about_dates, **(SCHEMA.metadata or {})})
    return parquet_of(schema, (_events(cohort, block, labs, schema) for block in cohort.blocks()))


def _events(cohort: CohortSource, block: Block, labs: LabValues, schema: pa.Schema) -> pa.RecordBatch:
    row, code = block.rows()
    time, has_no_time = block.dates()[row].astype("datetime64[us]"), _without_time(labs, code)
    texts = np.array([name.replace(":", "//", 1) for name in labs.names], dtype=object)[code]
    if cohort.origin is not None:
        has_no_time = _tell_people(cohort, block, time, texts)
    order = np.lexsort((time, ~has_no_time, block.people()[row]))
    code, numbers = code[order], labs.of(block)[order]
    columns = [
        pa.array(block.people()[row][order], pa.int64()),
        pa.array(time[order], pa.timestamp("us"), mask=has_no_time[order]),
        pa.array(texts[order], pa.string()),
        pa.array(numbers.astype(np.float32), pa.float32(), mask=np.isnan(numbers)),
    ]
    if UNIT.name in schema.names:
        units = pa.array([unit.text or None for unit in labs.units], pa.string())
        columns.append(units.take(pa.array(code)))
    if cohort.with_names:
        columns.append(pa.array(map(cohort.name_of, labs.names), pa.string()).take(pa.array(code)))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _without_time(labs: LabValues, code: Ints) -> NDArray[np.bool_]:
    known: NDArray[np.bool_] = np.array([split_code(name)[0] in (SEX, AGE) for name in labs.names], dtype=bool)[code]
    return known


def _tell_people(
    cohort: CohortSource, block: Block, time: NDArray[np.datetime64], texts: NDArray[np.object_]
) -> NDArray[np.bool_]:
    """Write sex and age of patients as MEDS has them; which rows have no time."""
    row, code = block.rows()
    people = People(cohort)
    told, persons = np.flatnonzero(people.said_by_person(block)), people.of(block)
    untimed = np.zeros(len(row), dtype=bool)
    for at in told.tolist():
        system, letter = split_code(cohort.vocabulary[code[at]])
        if system == SEX:
            texts[at], untimed[at] = f"GENDER//{letter}", True
        elif system == AGE and not persons[row[at]].is_newborn:
            texts[at] = BIRTH
            time[at] = np.datetime64(f"{birth_year(persons[row[at]].age, cohort.first_year)}-01-01")
        elif system == AGE:
            texts[at] = BIRTH
    return untimed


MEDS_PARQUET = Writer(
    "meds.parquet",
    "application/vnd.apache.parquet",
    "meds.parquet",
    write_meds,
    "records without codes; dates are synthesised",
    by_ranges=True,
)
