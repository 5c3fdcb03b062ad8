"""Units of measurements in an OMOP CDM: as recorded, or by their concept."""

import pyarrow as pa
import pyarrow.compute as pc

from ehr.formats.read.columns import stripped
from ehr.formats.read.lab_units import LabUnits
from ehr.formats.read.omop_concepts import ConceptTable, as_ids
from ehr.formats.read.tables import Rows
from ehr.labs import UCUM, LabUnit

# roles of columns of the table measurement
MEASURED = {
    "value": ("value_as_number",),
    "text": ("value_source_value",),
    "value_unit": ("unit_source_value",),
    "unit_concept": ("unit_concept_id",),
}


def units_of(rows: Rows, table: ConceptTable, known: LabUnits) -> pa.StringArray:
    """The name of each row's unit: its text, or else the code or the id of its concept. `known` learns what is more."""
    text = rows.columns.get("value_unit")
    text = pa.nulls(len(rows), pa.string()) if text is None else stripped(text)
    text = pc.if_else(pc.equal(text, ""), None, text)
    if "unit_concept" not in rows.columns:
        return text
    concept = as_ids(rows.columns["unit_concept"])
    at = table.positions(concept)
    number = pa.array(concept, mask=concept == 0)
    name = pc.coalesce(text, table.codes(at), number.cast(pa.string()))
    seen = pa.table({"name": name, "text": text, "concept": number, "at": at}).filter(pc.is_valid(number))
    for row in seen.group_by(list(seen.column_names)).aggregate([([], "count_all")]).to_pylist():
        known.add(row["name"], _unit(row["text"], row["concept"], table, row["at"]), row["count_all"])
    return name


def _unit(text: str | None, concept_id: int, table: ConceptTable, at: int) -> LabUnit:
    concept = table.concept(at)
    if concept is None:
        return LabUnit(text or "", concept_id=concept_id)
    coded = {"code": concept.concept_code, "system": UCUM} if concept.vocabulary_id == "UCUM" else {}
    return LabUnit(text or concept.concept_code, concept_id=concept_id, **coded)
