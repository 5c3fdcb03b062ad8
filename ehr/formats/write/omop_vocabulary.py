"""Tables concept, vocabulary, domain and concept_class: of what the other tables refer to, so that foreign keys hold.

Of a concept that the upload did not explain, a row says as much as the places do in which it stands. Whoever has the
vocabularies of OHDSI loads those instead.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ehr.codes.systems import BY_NAME, split_code
from ehr.formats.cdm import EVENT_TABLES, SourceCdm, Visit
from ehr.formats.concepts import UNDEFINED, CodeConcepts, Concept
from ehr.formats.known_concepts import GENDERS, KNOWN
from ehr.formats.write import csv_tables as csv
from ehr.formats.write.omop_rows import CodeRow
from ehr.formats.write.omop_tables import CONCEPT, CONCEPT_CLASS, DOMAIN, VOCABULARY
from ehr.labs import UCUM, LabUnit

NO_CONCEPT = Concept(0, "None", "No matching concept", "No matching concept", "Metadata", UNDEFINED)
UNKNOWN = "OMOP"  # the vocabulary of concepts of which nothing but the id is known, as in codes of the reader
TYPE = "Type Concept"
SHORT, LONG, NAME = 20, 50, 255  # columns of the CDM
VALID = {"valid_start_date": "1970-01-01", "valid_end_date": "2099-12-31"}


def concepts_of(
    rows: Sequence[CodeRow],
    cdm: SourceCdm,
    codes: Mapping[str, CodeConcepts],
    units: Sequence[LabUnit] = (),
    name_of: Callable[[str], str | None] = lambda code: None,
    visits: Sequence[Visit] = (),
) -> dict[int, Concept]:
    """By id: all that a cohort's tables refer to. `name_of` a code, where no concept table named it."""
    told = [each for pair in codes.values() for each in (pair.source, pair.standard) if each is not None]
    known = {concept.concept_id: concept for concept in (*told, *cdm.concepts)}
    found = {concept.concept_id: concept for concept in (NO_CONCEPT, *GENDERS)}
    for stub in (*_sources(rows, name_of), *_standards(rows), *_kinds(cdm, visits), *_units(units)):
        if stub.concept_id not in found:
            shared = KNOWN.get(stub.concept_id, stub)
            found[stub.concept_id] = _with_place(known.get(stub.concept_id, shared), stub)
        elif stub.standard_concept and stub.concept_id not in known:
            found[stub.concept_id] = replace(found[stub.concept_id], standard_concept="S")
    return found


def _with_place(concept: Concept, stub: Concept) -> Concept:
    """A concept of a table that told no domains gets what its place says."""
    if concept.domain_id is not None:
        return concept
    return replace(
        concept, domain_id=stub.domain_id, standard_concept=concept.standard_concept or stub.standard_concept
    )


def _sources(rows: Sequence[CodeRow], name_of: Callable[[str], str | None]) -> Iterator[Concept]:
    for row in rows:
        system, code = split_code(row.source_code)
        vocabulary = BY_NAME[system].omop if system in BY_NAME else system or "OBSERVATION"
        name = name_of(row.source_code)
        yield Concept(row.source, vocabulary, code, name, domain_id=EVENT_TABLES[row.table].capitalize())


def _standards(rows: Sequence[CodeRow]) -> Iterator[Concept]:
    for row in rows:
        yield _standard(row.standard, EVENT_TABLES[row.table].capitalize())
        yield _standard(row.type, TYPE)


def _kinds(cdm: SourceCdm, visits: Sequence[Visit]) -> Iterator[Concept]:
    for _, person in cdm.people:
        yield _source(person.race_source, "Race", person.race_source_value)
        yield _source(person.ethnicity_source, "Ethnicity", person.ethnicity_source_value)
        yield _standard(person.race, "Race")
        yield _standard(person.ethnicity, "Ethnicity")
    for visit in visits:
        yield _source(visit.source, "Visit", "")
        yield _standard(visit.concept, "Visit")
        yield _standard(visit.type, TYPE)
    yield _standard(cdm.otherwise.type, TYPE)
    for _, period in cdm.periods:
        yield _standard(period.type, TYPE)


def _units(units: Sequence[LabUnit]) -> Iterator[Concept]:
    for unit in units:
        if unit.concept_id is not None:
            vocabulary = "UCUM" if unit.system == UCUM else UNKNOWN
            code, name = unit.code or str(unit.concept_id), unit.name or unit.text or None
            yield Concept(unit.concept_id, vocabulary, code, name, "Unit", "Unit", "S")


def _standard(number: int, domain: str) -> Concept:
    return Concept(number, UNKNOWN, str(number), domain_id=domain, standard_concept="S")


def _source(number: int, domain: str, text: str) -> Concept:
    return Concept(number, UNKNOWN, text or str(number), domain_id=domain)


def concept_rows(concepts: Mapping[int, Concept]) -> Iterator[bytes]:
    vocabularies = short_names(concept.vocabulary_id for concept in concepts.values())
    for concept in concepts.values():
        cells = {
            "concept_id": concept.concept_id,
            "concept_name": (concept.name or concept.concept_code)[:NAME],
            "domain_id": _domain(concept),
            "vocabulary_id": vocabularies[concept.vocabulary_id],
            "concept_class_id": _class(concept),
            "standard_concept": concept.standard_concept or "",
            "concept_code": concept.concept_code[:LONG],
        }
        yield csv.one_row(CONCEPT, cells | VALID)


def vocabulary_rows(concepts: Mapping[int, Concept]) -> Iterator[bytes]:
    names = short_names(concept.vocabulary_id for concept in concepts.values())
    for name, short in names.items():
        cells = {"vocabulary_id": short, "vocabulary_name": name[:NAME], "vocabulary_concept_id": 0}
        yield csv.one_row(VOCABULARY, cells)


def domain_rows(concepts: Mapping[int, Concept]) -> Iterator[bytes]:
    for name in sorted({_domain(concept) for concept in concepts.values()}):
        yield csv.one_row(DOMAIN, {"domain_id": name, "domain_name": name, "domain_concept_id": 0})


def class_rows(concepts: Mapping[int, Concept]) -> Iterator[bytes]:
    for name in sorted({_class(concept) for concept in concepts.values()}):
        cells = {"concept_class_id": name, "concept_class_name": name, "concept_class_concept_id": 0}
        yield csv.one_row(CONCEPT_CLASS, cells)


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Each name as the CDM has room for it: cut, and two that are then the same are numbered."""
    short: dict[str, str] = {}
    for name in sorted(set(names)):
        cut, number = name[:SHORT], 2
        while cut in short.values():
            cut, number = f"{name[: SHORT - len(str(number)) - 1]}~{number}", number + 1
        short[name] = cut
    return short


def _domain(concept: Concept) -> str:
    return (concept.domain_id or "Metadata")[:SHORT]


def _class(concept: Concept) -> str:
    return (concept.concept_class_id or UNDEFINED)[:SHORT]
