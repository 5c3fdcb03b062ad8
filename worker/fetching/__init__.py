"""Records that were not uploaded: fetched from where whoever runs the service allows, into the folder of an upload.

From there on they are an upload. A file that is whole is not fetched again by the next attempt.
"""

from ehr.references import FhirExport, Objects
from worker.contract import IngestPayload
from worker.execution import JobRun
from worker.fetching.basket import Basket, FetchedFile
from worker.fetching.fhir import fetch_export
from worker.fetching.objects import fetch_objects
from worker.fetching.omop import fetch_omop


def fetch(run: JobRun, payload: IngestPayload) -> list[FetchedFile]:
    """All files of the payload's source."""
    assert payload.source is not None and payload.fetch_id is not None
    basket = Basket(run, payload.fetch_id)
    places, owner = run.runtime.settings.source_places, run.claim.owner
    if isinstance(payload.source, Objects):
        fetch_objects(basket, places, owner, payload.source)
    elif isinstance(payload.source, FhirExport):
        fetch_export(basket, places, owner, payload.source)
    else:
        fetch_omop(basket, places, owner, payload.source)
    return basket.files
