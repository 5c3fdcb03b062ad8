"""What a FHIR server exports in bulk (hl7.org/fhir/uv/bulkdata): asked for, looked after until it is there, fetched.

The address at which the server tells how far it is, is noted in the store: a job that has to wait gives its worker
away, and whoever goes on with it asks there. An export that has expired is asked for again, a few times.
"""

import http.client
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlencode, urljoin, urlsplit

from ehr.errors import OutsideError
from ehr.references import FhirExport
from runtime.pinned_http import UnsentError
from runtime.places import FhirPlace, Places, fhir_place
from worker.fetching.basket import Basket
from worker.fetching.smart import Tokens
from worker.fetching.web import BUSY, GONE, LONGEST_WAIT_SECONDS, GoneError, Web, retry_after

T = TypeVar("T")
# what the format `fhir` reads
TYPES = ("Patient", "Encounter", "Condition", "Procedure", "MedicationRequest", "Observation")
FHIR_JSON, NDJSON = "application/fhir+json", "application/fhir+ndjson"
LOOK_SECONDS = 10.0  # where the server does not say when to look again
MOST_EXPORTS = 3
LARGEST_MANIFEST = 16 << 20
Answer = http.client.HTTPResponse


def fetch_export(basket: Basket, places: Places, owner: str, source: FhirExport) -> None:
    place = fhir_place(places, owner, source.server)
    tokens = Tokens(place)
    Exports(basket, place, source, Web(place.private, basket.pause, tokens.headers)).fetch()


@dataclass(frozen=True)
class Exports:
    """What a job asks a server for: an export, and another if that one has expired."""

    basket: Basket
    place: FhirPlace
    source: FhirExport
    web: Web

    def fetch(self) -> None:
        """All files of an export, and of one alone: those of two would not fit together."""
        for number in range(MOST_EXPORTS):
            if self.basket.noted(f"export-{number}-gone") is not None:
                continue
            try:
                status_url = self._begun(number)
                manifest = self._patiently(status_url, {"Accept": "application/json"}, self._look)
                self._take(number, manifest)
            except GoneError:
                self.basket.note(f"export-{number}-gone", b"expired")
                self.basket.empty()
            else:
                self._thank(status_url)
                return
        raise OutsideError(f"the server's exports expired {MOST_EXPORTS} times before they could be fetched")

    def _begun(self, number: int) -> str:
        """The address at which to look after an export."""
        if (noted := self.basket.noted(f"export-{number}")) is not None:
            return noted.decode()
        whose = "Patient" if self.source.group is None else f"Group/{self.source.group}"
        query = {"_outputFormat": NDJSON, "_type": ",".join(self.source.types or TYPES)}
        if self.source.since is not None:
            query["_since"] = self.source.since.isoformat()
        url = f"{self.place.base}/{whose}/$export?{urlencode(query)}"

        def begin(answer: Answer) -> str:
            where = answer.headers.get("Content-Location")
            if answer.status != 202 or where is None:
                raise OutsideError(f"the server does not begin an export: status {answer.status}")
            return self._allowed(urljoin(url, where))

        status_url = self._patiently(url, {"Accept": FHIR_JSON, "Prefer": "respond-async"}, begin)
        self.basket.note(f"export-{number}", status_url.encode())
        return status_url

    def _look(self, answer: Answer) -> Mapping[str, Any] | None:
        """The list of files; None if it is not there yet and was waited for."""
        if answer.status == 202:
            wait = retry_after(answer)
            self.basket.pause(LOOK_SECONDS if wait is None else min(wait, LONGEST_WAIT_SECONDS))
            return None
        if answer.status in GONE:
            raise GoneError("the export has expired")
        if answer.status != 200:
            raise OutsideError(f"the server's export failed: status {answer.status}")
        try:
            return dict(json.loads(answer.read(LARGEST_MANIFEST)))
        except ValueError:
            raise OutsideError("the server's list of files is not JSON") from None

    def _take(self, number: int, manifest: Mapping[str, Any]) -> None:
        try:
            files = [(str(each["type"]), str(each["url"])) for each in manifest["output"]]
        except (KeyError, TypeError):
            raise OutsideError("the server's list of files has no output") from None
        web = self.web if manifest.get("requiresAccessToken", True) else Web(self.place.private, self.basket.pause)
        self.basket.expect(len(files), 0)
        for place, (kind, url) in enumerate(files):
            blocks = web.blocks(self._allowed(url), {"Accept": NDJSON})
            self.basket.put(f"e{number}-{place}", f"{''.join(filter(str.isalnum, kind))}.{place}.ndjson", blocks)

    def _thank(self, status_url: str) -> None:
        """The server may forget the export. If it cannot be told, it expires."""
        try:
            with self.web.ask("DELETE", status_url):
                pass
        except (UnsentError, OutsideError):
            pass

    def _patiently(self, url: str, headers: Mapping[str, str], use: Callable[[Answer], T | None]) -> T:
        """What `use` makes of an answer; asked again while it makes nothing of it or the server is busy."""
        attempt = 0
        while True:
            try:
                with self.web.ask("GET", url, headers) as answer:
                    if answer.status not in BUSY:
                        attempt = 0
                        if (made := use(answer)) is not None:
                            return made
                        continue
                    problem, wait = answer.status, retry_after(answer)
            except UnsentError as error:
                self.web.wait_or_give_up(attempt, str(error))
            else:
                self.web.wait_or_give_up(attempt, problem, wait)
            attempt += 1

    def _allowed(self, url: str) -> str:
        """`url` if it is the server's own, or lies where the operator says that its files may."""
        own, other = urlsplit(self.place.base), urlsplit(url)
        if (own.scheme, own.netloc) == (other.scheme, other.netloc) or url.startswith(self.place.files):
            return url
        raise OutsideError(f"the server refers to {other.netloc or 'nowhere'}, which SOURCES does not have in `files`")
