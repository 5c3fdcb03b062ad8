"""Our codes as codings of FHIR, and back.

A FHIR code has no blanks around it and never two in a row, and an address has none at all. Where a code cannot be had
back from such a coding, an extension carries it as it was.
"""

import re
from typing import Any
from urllib.parse import quote, unquote

from ehr.codes.icd import dotted_icd, plain_icd
from ehr.codes.systems import BY_FHIR, BY_NAME, LOCAL_URL, split_code

SOURCE_CODE = "urn:ehr-d3pm:source-code"
CODE = re.compile(r"\S+(\s\S+)*")  # what FHIR allows a code to be
URI = re.compile(r"\S+")
Coding = dict[str, Any]


def coding_of(code: str) -> Coding:
    """The coding of `SYSTEM:CODE`, which has no decile."""
    system, stem = split_code(code)
    coding: Coding = {}
    if system:
        coding["system"] = BY_NAME[system].fhir if system in BY_NAME else f"{LOCAL_URL}{quote(system)}"
    if stem.strip():
        coding["code"] = " ".join(dotted_icd(system, stem).split())
    if code_of(coding) != code:
        coding = {"extension": [{"url": SOURCE_CODE, "valueString": code}], **coding}
    return coding


def code_of(coding: Coding) -> str | None:
    """`SYSTEM:CODE` of a coding; None if it has no code."""
    extensions = coding.get("extension")
    for extension in extensions if isinstance(extensions, list) else []:
        if isinstance(extension, dict) and extension.get("url") == SOURCE_CODE:
            return text_of(extension.get("valueString"))
    code = text_of(coding.get("code"))
    if not code:
        return None
    system = system_of(text_of(coding.get("system")) or "")
    code = plain_icd(code.strip()) if system.startswith("ICD") else code.strip()
    return f"{system}:{code}" if system else code


def system_of(url: str) -> str:
    if url in BY_FHIR:
        return BY_FHIR[url]
    if url.startswith(LOCAL_URL):
        return unquote(url.removeprefix(LOCAL_URL))
    return url.rstrip("/").replace(":", "/").rsplit("/", 1)[-1]


def text_of(value: Any) -> str | None:
    return value if isinstance(value, str) else None
