"""Which diseases a utility metric predicts, and which codes of a vocabulary those are."""

from collections.abc import Sequence

from ehr.codes.meanings import Kind, kind_of, plain_code
from ehr.vocabulary import Vocabulary
from worker.engine.metrics.classifier import Label

# name -> code system -> how the codes begin
DEFAULT_LABELS: dict[str, dict[Kind, tuple[str, ...]]] = {
    "diabetes": {"icd9dx": ("250",), "icd10cm": ("E11",)},
    "chronic kidney disease": {"icd9dx": ("585",), "icd10cm": ("N18",)},
    "COPD": {"icd9dx": ("496",), "icd10cm": ("J44",)},
    "asthma": {"icd9dx": ("493",), "icd10cm": ("J45",)},
    "hypertensive heart disease": {"icd9dx": ("402",), "icd10cm": ("I11",)},
    "osteoarthritis": {"icd9dx": ("715",), "icd10cm": ("M15", "M16", "M17", "M18", "M19")},
}


def labels_in(vocabulary: Vocabulary, asked: Sequence[str] | None = None) -> list[Label]:
    """The default diseases the vocabulary has, or those the caller names: codes or wildcards, each a label.

    UnknownCodeError if a named one is not in the vocabulary.
    """
    if asked is not None:
        read = [vocabulary.read(name) for name in asked]
        return [Label(each.meant, each.codes, vocabulary.name_of(each.meant)) for each in read]
    labels = []
    for name, prefixes in DEFAULT_LABELS.items():
        codes = tuple(i for i, code in enumerate(vocabulary.codes) if _begins(code, prefixes))
        if codes:
            labels.append(Label(name, codes))
    return labels


def _begins(code: str, prefixes: dict[Kind, tuple[str, ...]]) -> bool:
    kind = kind_of(code)
    return kind is not None and plain_code(code).startswith(prefixes.get(kind, ("\0",)))
