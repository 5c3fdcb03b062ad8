"""The JSON schema of reports, as it is served. `python -m ehr.report_schema > docs/report.schema.json` publishes it."""

import json
from typing import Annotated, Any

from pydantic import Discriminator, TypeAdapter

from ehr.reports import Report
from ehr.shareable import ShareableReport

AnyReport: TypeAdapter[Report | ShareableReport] = TypeAdapter(
    Annotated[Report | ShareableReport, Discriminator("reader")]
)


def report_schema() -> dict[str, Any]:
    """Of both kinds; `reader` tells them apart."""
    schema = AnyReport.json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "urn:ehr-d3pm:report:2", **schema}


def schema_text() -> str:
    """What stands in docs/report.schema.json."""
    return json.dumps(report_schema(), indent=2) + "\n"


if __name__ == "__main__":
    print(schema_text(), end="")
