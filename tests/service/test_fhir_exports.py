"""A FHIR server's bulk export, as the specification has it and as servers are: slow, busy, forgetful."""

import json
import time
from base64 import urlsafe_b64decode
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from runtime.places import FhirPlace
from tests.service.doors import Asked, Door, Said
from worker.fetching.smart import signed_statement

PATH = "/datasets/by-reference"
SOURCE = {"kind": "fhir", "server": "hospital", "group": "everyone"}
ICD10 = "http://hl7.org/fhir/sid/icd-10-cm"


def ndjson(resources: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in resources)


def condition(number: int, code: str) -> dict[str, Any]:
    coding = {"coding": [{"system": ICD10, "code": code}]}
    who = {"subject": {"reference": f"Patient/{number}"}, "encounter": {"reference": f"Encounter/{number}"}}
    return {"resourceType": "Condition", "id": f"c{number}{code}", "code": coding, **who}


FILES = {
    "Patient": ndjson([{"resourceType": "Patient", "id": str(i), "gender": "female"} for i in range(40)]),
    "Condition": ndjson([condition(i, code) for i in range(40) for code in ("E11", "I10") if i % 2 or code == "I10"]),
}


@dataclass
class Hospital:
    """A FHIR server. `looks`: what it says when it is asked how far it is, one after another; then it has finished."""

    url: str
    looks: list[Said] = field(default_factory=list)
    files: Callable[[str], Said] = lambda kind: Said(200, FILES[kind])
    begun: int = 0
    tokens: set[str] = field(default_factory=set)
    deleted: list[str] = field(default_factory=list)
    elsewhere: str = ""

    def __call__(self, asked: Asked) -> Said:
        if asked.path == "/token":
            return self._token(asked)
        if asked.headers.get("authorization", "").removeprefix("Bearer ") not in self.tokens:
            return Said(401)
        if asked.method == "DELETE":
            self.deleted.append(asked.path)
            return Said(202)
        if "$export" in asked.path:
            assert (asked.headers["prefer"], asked.headers["accept"]) == ("respond-async", "application/fhir+json")
            self.begun += 1
            return Said(202, headers={"Content-Location": f"{self.url}/fhir/status/{self.begun}"})
        if asked.path.startswith("/fhir/status/"):
            return self.looks.pop(0) if self.looks else self._manifest()
        return self.files(asked.path.rsplit("/", 1)[-1])

    def _token(self, asked: Asked) -> Said:
        form = parse_qs(asked.body.decode())
        assert form["grant_type"] == ["client_credentials"]
        assert form["client_assertion"][0].count(".") == 2
        self.tokens.add(f"token-{len(self.tokens)}")
        return Said(200, json.dumps({"access_token": f"token-{len(self.tokens) - 1}", "expires_in": 300}).encode())

    def _manifest(self) -> Said:
        base = self.elsewhere or self.url
        output = [{"type": kind, "url": f"{base}/fhir/files/{kind}"} for kind in FILES]
        return Said(200, json.dumps({"requiresAccessToken": True, "output": output, "error": []}).encode())


@pytest.fixture
def hospital(door: Door) -> Hospital:
    made = Hospital(door.web.url)
    door.web.answer = made
    return made


def test_an_export_is_what_an_upload_of_its_files_is(door: Door, hospital: Hospital) -> None:
    busy, wait = Said(429, headers={"Retry-After": "0"}), Said(202, headers={"Retry-After": "0", "X-Progress": "half"})
    hospital.looks = [wait, busy, Said(503), wait]
    uploaded = door.uploaded({f"{kind}.ndjson": data for kind, data in FILES.items()}, min_records=1)
    fetched = door.dataset(door.do(PATH, source={**SOURCE, "since": "2020-01-01T00:00:00Z"}, min_records=1))
    assert fetched["data_hash"] == uploaded["data_hash"]
    assert fetched["name"] == "hospital everyone"
    asked = next(each for each in door.web.asked if "$export" in each.path)
    query = parse_qs(urlsplit(asked.path).query)
    assert asked.path.startswith("/fhir/Group/everyone/$export?")
    assert query["_type"] == ["Patient,Encounter,Condition,Procedure,MedicationRequest,Observation"]
    assert query["_since"] == ["2020-01-01T00:00:00+00:00"]
    assert (hospital.begun, len(hospital.tokens)) == (1, 1)
    assert hospital.deleted == ["/fhir/status/1"]  # the server may forget it


def test_a_long_export_holds_no_worker(door: Door, hospital: Hospital) -> None:
    hospital.looks = [Said(202, headers={"Retry-After": "120"})]
    job = door.do(PATH, source=SOURCE, min_records=1)
    assert (job["state"], job["attempt"], job["max_attempts"]) == ("queued", 1, 4)  # it goes on later, uncounted
    done = door.run(job["id"])
    assert done["state"] == "succeeded", done["error"]
    assert hospital.begun == 1  # whoever went on with it looked where the first had asked


def test_an_export_that_has_expired_is_asked_for_again(door: Door, hospital: Hospital) -> None:
    hospital.looks = [Said(404)]
    gone = [Said(410)]
    hospital.files = lambda kind: gone.pop() if gone and kind == "Condition" else Said(200, FILES[kind])
    job = door.do(PATH, source=SOURCE, min_records=1)
    assert job["state"] == "succeeded", job["error"]
    assert hospital.begun == 3  # one expired before it was looked at, one while it was fetched


def test_a_server_that_forgets_every_export_is_given_up(door: Door, hospital: Hospital) -> None:
    hospital.looks = [Said(410)] * 10
    job = door.do(PATH, source=SOURCE)
    assert (job["state"], job["error"]["type"]) == ("failed", "outside")
    assert job["error"]["detail"] == "the server's exports expired 3 times before they could be fetched"


def test_what_goes_wrong_is_told(door: Door, hospital: Hospital) -> None:
    hospital.looks = [Said(202, headers={"Retry-After": "120"})] * 2
    job = door.do(PATH, source=SOURCE)
    late = door.limited(job_seconds=1e-6).run(job["id"])
    assert late["error"]["detail"].startswith("the source was not ready after 0.0 hours")
    hospital.looks = [Said(400)]
    assert door.do(PATH, source=SOURCE)["error"]["detail"] == "the server's export failed: status 400"
    hospital.looks, hospital.elsewhere = [], "http://evil.example"
    job = door.do(PATH, source=SOURCE)
    assert job["error"]["detail"] == "the server refers to evil.example, which SOURCES does not have in `files`"
    door.web.answer = lambda asked: Said(400)
    assert door.do(PATH, source=SOURCE)["error"]["detail"] == "the token server of 'hospital' answered with status 400"


def test_who_asks_is_signed(door: Door) -> None:
    place = next(each for each in door.runtime.settings.source_places if isinstance(each, FhirPlace))
    assert place.key_file is not None
    head, claims, signature = signed_statement(place, time.time()).split(".")
    key = load_pem_private_key(place.key_file.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    raw = _decoded(signature)
    both = encode_dss_signature(int.from_bytes(raw[:48], "big"), int.from_bytes(raw[48:], "big"))
    key.public_key().verify(both, f"{head}.{claims}".encode(), ec.ECDSA(SHA384()))  # raises if it is not ours
    assert json.loads(_decoded(head)) == {"typ": "JWT", "alg": "ES384", "kid": "one"}
    said = json.loads(_decoded(claims))
    assert said["iss"] == said["sub"] == "us"
    assert said["aud"] == f"{door.web.url}/token"
    assert said["exp"] < time.time() + 300


def _decoded(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
