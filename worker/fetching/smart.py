"""Tokens of SMART backend services (hl7.org/fhir/smart-app-launch/backend-services.html): a signed statement of who we
are against a token that lasts for some minutes."""

import json
import secrets
import time
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from ehr.errors import OutsideError
from runtime.pinned_http import UnsentError, answered
from runtime.places import FhirPlace

ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
ASSERTION_SECONDS = 240  # the specification allows five minutes
MARGIN_SECONDS = 30  # a token is not used up to its last second
LARGEST_ANSWER = 1 << 20


class Tokens:
    """Of one server. Without a `client_id` it needs none."""

    def __init__(self, place: FhirPlace) -> None:
        self._place = place
        self._token, self._good_until = "", 0.0

    def headers(self) -> Mapping[str, str]:
        if self._place.client_id is None:
            return {}
        if time.time() > self._good_until:
            self._token, lasts = self._new()
            self._good_until = time.time() + max(lasts - MARGIN_SECONDS, 1)
        return {"Authorization": f"Bearer {self._token}"}

    def _new(self) -> tuple[str, float]:
        form = {
            "grant_type": "client_credentials",
            "scope": self._place.scope,
            "client_assertion_type": ASSERTION,
            "client_assertion": signed_statement(self._place, time.time()),
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        url, body = str(self._place.token_url), urlencode(form).encode()
        try:
            with answered("POST", url, headers, self._place.private, body) as answer:
                status, data = answer.status, answer.read(LARGEST_ANSWER)
            said = json.loads(data) if status == 200 else {}
            return str(said["access_token"]), float(said.get("expires_in", 300))
        except UnsentError as error:
            raise OutsideError(f"the token server of '{self._place.name}': {error}") from None
        except (ValueError, KeyError, TypeError):
            raise OutsideError(f"the token server of '{self._place.name}' answered with status {status}") from None


def signed_statement(place: FhirPlace, now: float) -> str:
    """A JWT that says who asks, signed by the operator's key."""
    key, algorithm = _key(place)
    header = {"typ": "JWT", "alg": algorithm} | ({"kid": place.key_id} if place.key_id is not None else {})
    claims = {
        "iss": place.client_id,
        "sub": place.client_id,
        "aud": place.token_url,
        "exp": int(now) + ASSERTION_SECONDS,
        "jti": secrets.token_hex(16),
    }
    said = f"{_encoded(json.dumps(header).encode())}.{_encoded(json.dumps(claims).encode())}"
    return f"{said}.{_encoded(_signature(key, said.encode()))}"


def _key(place: FhirPlace) -> tuple[Any, str]:
    try:
        from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, EllipticCurvePrivateKey
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError:
        raise OutsideError("workers need the extra `smart` for SMART servers: pip install 'ehr-d3pm[smart]'") from None
    if place.key_file is None or place.token_url is None:
        raise OutsideError(f"'{place.name}' has a client_id in SOURCES and no token_url or key_file")
    try:
        key = load_pem_private_key(place.key_file.read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise OutsideError(f"the key of '{place.name}' cannot be read: {type(error).__name__}") from None
    if isinstance(key, RSAPrivateKey):
        return key, "RS384"
    if isinstance(key, EllipticCurvePrivateKey) and isinstance(key.curve, SECP384R1):
        return key, "ES384"
    raise OutsideError(f"the key of '{place.name}' is neither RSA nor on the curve P-384")


def _signature(key: Any, said: bytes) -> bytes:
    from cryptography.hazmat.primitives.asymmetric import ec, padding
    from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
    from cryptography.hazmat.primitives.hashes import SHA384

    if isinstance(key, ec.EllipticCurvePrivateKey):
        r, s = decode_dss_signature(key.sign(said, ec.ECDSA(SHA384())))
        return r.to_bytes(48, "big") + s.to_bytes(48, "big")
    return bytes(key.sign(said, padding.PKCS1v15(), SHA384()))


def _encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
