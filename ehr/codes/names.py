"""What codes are called: names that came with the upload, else those of the tables that ship with the service.

Names are kept by code in the manifests of datasets, models and cohorts, so that each can do without the others. A lab's
deciles share the name of the lab.
"""

import unicodedata
from collections.abc import Iterable, Mapping

from ehr.codes.meanings import description
from ehr.codes.systems import split_decile, without_decile

LONGEST_NAME = 200  # characters


def cleaned(text: str | None) -> str | None:
    """A name as it is kept: one line, without control characters, cut to LONGEST_NAME; None if none is left."""
    if text is None:
        return None
    if not text.isprintable():
        text = "".join(" " if unicodedata.category(each) in ("Cc", "Cs", "Zl", "Zp") else each for each in text)
    words = " ".join(text.split())
    return words if 0 < len(words) <= LONGEST_NAME else f"{words[: LONGEST_NAME - 1]}\u2026" if words else None


def names_for(codes: Iterable[str], given: Mapping[str, str]) -> dict[str, str]:
    """The names of a vocabulary, as manifests keep them: those given, then those of the tables."""
    stems = dict.fromkeys(without_decile(code) for code in codes)
    found = {stem: cleaned(given.get(stem)) or cleaned(description(stem)) for stem in stems}
    return {stem: name for stem, name in found.items() if name is not None}


def name_of(code: str, kept: Mapping[str, str]) -> str | None:
    """What a code is called, by the names a manifest keeps. Manifests of earlier versions keep none: then the tables
    say it, as they would have said then."""
    stem, decile = split_decile(code)
    found = kept.get(code) or kept.get(stem) if kept else description(stem)
    return f"{found}, decile {decile[1:]}" if found and decile else found
