"""ndjson: one line per record, `{"record_id": 0, "codes": [...]}`; records without codes are there too."""

import json
from collections.abc import Iterator
from typing import Any

from ehr.formats.protocol import CodeConcepts, Format, Writer
from model_store.blobs import BlobStore
from model_store.cohorts import iter_blocks

RECORDS_AT_A_TIME = 2048


def write_ndjson(store: BlobStore, manifest: dict[str, Any], _: dict[str, CodeConcepts]) -> Iterator[bytes]:
    """Each code becomes JSON once; a line joins what is ready."""
    texts = [json.dumps(code) for code in manifest["vocabulary"]]
    for block in iter_blocks(store, manifest):
        bounds, indices = block.indptr.tolist(), block.indices.tolist()
        for first in range(0, len(block), RECORDS_AT_A_TIME):
            lines = []
            for i in range(first, min(first + RECORDS_AT_A_TIME, len(block))):
                codes = ", ".join([texts[code] for code in indices[bounds[i] : bounds[i + 1]]])
                lines.append(f'{{"record_id": {block.first_record + i}, "codes": [{codes}]}}\n')
            yield "".join(lines).encode()


NDJSON = Format(writers=(Writer("ndjson", "application/x-ndjson", "ndjson", write_ndjson),))
