"""ndjson: one line per record, `{"record_id": 0, "codes": [...]}`, with `names` of the codes if wanted; records without
codes are there too. Histories have a line per visit, with `patient_id` and `date`."""

import json
from collections.abc import Iterator

from ehr.formats.write.protocol import Block, CohortSource, Writer

RECORDS_AT_A_TIME = 2048


def write_ndjson(cohort: CohortSource) -> Iterator[bytes]:
    """Each code becomes JSON once; a line joins what is ready."""
    texts = [json.dumps(code) for code in cohort.vocabulary]
    names = [json.dumps(cohort.name_of(code)) for code in cohort.vocabulary] if cohort.with_names else []
    for block in cohort.blocks():
        records, ids = block.records, _ids(block)
        bounds, indices = records.indptr.tolist(), records.indices.tolist()
        for first in range(0, len(records), RECORDS_AT_A_TIME):
            lines = []
            for i in range(first, min(first + RECORDS_AT_A_TIME, len(records))):
                own = indices[bounds[i] : bounds[i + 1]]
                codes = ", ".join([texts[code] for code in own])
                called = f', "names": [{", ".join([names[code] for code in own])}]' if names else ""
                lines.append(f'{{{ids[i]}, "codes": [{codes}]{called}}}\n')
            yield "".join(lines).encode()


def _ids(block: Block) -> list[str]:
    """The first keys of each line."""
    numbers = [f'"record_id": {number}' for number in block.numbers().tolist()]
    if block.days is None:
        return numbers
    days = zip(block.people().tolist(), block.dates().astype(str).tolist(), strict=True)
    return [f'{own}, "patient_id": {who}, "date": "{day}"' for own, (who, day) in zip(numbers, days, strict=True)]


NDJSON = Writer("ndjson", "application/x-ndjson", "ndjson", write_ndjson)
