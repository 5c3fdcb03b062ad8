"""synthea: conditions, procedures, medications and patients. SNOMED and RxNorm; one record per encounter or patient.

Exports differ in their column names: `PATIENT`, `med_pat_id` and `pat_id` all say whose row it is.
"""

from collections.abc import Iterator

import numpy as np

from ehr.formats.cdm import Row
from ehr.formats.read.columns import as_days, stripped
from ehr.formats.read.event_tables import Table, TablesReader
from ehr.formats.read.protocol import Batch, Events, Patients
from ehr.formats.read.rejects import Rejects
from ehr.formats.read.tables import NAME, Rows


def _columns(prefix: str) -> dict[str, tuple[str, ...]]:
    return {
        "patient": ("patient", f"{prefix}_pat_id", "pat_id"),
        "visit": ("encounter", f"{prefix}_enc_id", "enc_id"),
        "code": ("code", f"{prefix}_code"),
    }


def _more(prefix: str) -> dict[str, tuple[str, ...]]:
    return {
        "time": ("start", "date", f"{prefix}_start_date", f"{prefix}_date", "start_date"),
        NAME: ("description", f"{prefix}_description"),
    }


# table -> where its rows stand in a CDM: SNOMED has conditions and procedures
CDM_TABLES = {
    "conditions": "condition_occurrence",
    "procedures": "procedure_occurrence",
    "medications": "drug_exposure",
}


class Synthea(TablesReader):
    name = "synthea"
    tables = (
        Table(
            "patients",
            {"patient": ("id", "pat_id"), "sex": ("gender",), "birth": ("birthdate", "birth_date")},
            {"death": ("deathdate", "death_date")},
            events=False,
        ),
        Table("conditions", _columns("cond"), _more("cond"), system="SNOMED"),
        Table("procedures", _columns("proc"), _more("proc"), system="SNOMED"),
        Table("medications", _columns("med"), _more("med"), system="RXNORM"),
    )

    def batches_of(self, table: Table, rows: Rows, rejects: Rejects) -> Iterator[Batch]:
        patient = rows.columns["patient"]
        if table.name == "patients":
            birth, death = (
                as_days(rows.columns[role]) if role in rows.columns else None for role in ("birth", "death")
            )
            yield Patients(rows.file, rows.lines, patient, rows.columns["sex"], birth, death)
            return
        wanted = self.options.demographics or self.over_time
        day = as_days(rows.columns["time"]) if "time" in rows.columns and wanted else None
        record, code = self.who(rows)[0], stripped(rows.columns["code"])
        self.ways = self.ways or [Row(each) for each in CDM_TABLES.values()]
        way = np.full(len(rows), list(CDM_TABLES).index(table.name), dtype=np.int64)
        name = rows.columns.get(NAME)
        yield Events(rows.file, rows.lines, record, code, table.system, patient, day=day, way=way, name=name)
