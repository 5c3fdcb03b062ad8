"""mimic-iv: hosp/diagnoses_icd, procedures_icd, hcpcsevents, prescriptions, labevents; patients, admissions.

ICD versions 9 and 10 stand in one table: each row says which. A patient's year of birth is anchor_year - anchor_age.
"""

import pyarrow as pa
import pyarrow.compute as pc

from ehr.formats.read.columns import as_days, as_numbers, stripped
from ehr.formats.read.event_tables import Table
from ehr.formats.read.mimic import WHO, Mimic
from ehr.formats.read.protocol import Patients
from ehr.formats.read.tables import Rows

ICD = {**WHO, "code": ("icd_code",), "version": ("icd_version",)}
VERSIONS = {"diagnoses_icd": ("ICD9DX", "ICD10CM"), "procedures_icd": ("ICD9PX", "ICD10PCS")}


class MimicIV(Mimic):
    name = "mimic-iv"
    tables = (
        Table(
            "patients",
            {"patient": ("subject_id",), "sex": ("gender",), "age": ("anchor_age",), "year": ("anchor_year",)},
            events=False,
        ),
        Table("admissions", {**WHO, "time": ("admittime",)}, events=False),
        Table("d_labitems", {"item": ("itemid",)}, {"loinc": ("loinc_code",)}, events=False),
        Table("diagnoses_icd", ICD),
        Table("procedures_icd", ICD),
        Table("hcpcsevents", {**WHO, "code": ("hcpcs_cd",)}, system="HCPCS"),
        Table("prescriptions", {**WHO, "code": ("ndc",)}, system="NDC"),
        Table("labevents", {**WHO, "code": ("itemid",), "value": ("valuenum",)}, {"text": ("value",)}),
    )

    def system_of(self, table: Table, rows: Rows) -> pa.StringArray | str:
        if table.name not in VERSIONS:
            return table.system
        nine, ten = VERSIONS[table.name]
        version = stripped(rows.columns["version"])
        return pc.case_when(
            pc.make_struct(pc.equal(version, "9"), pc.equal(version, "10")), pa.scalar(nine), pa.scalar(ten)
        )

    def patients_of(self, rows: Rows) -> Patients:
        age, year = (as_numbers(rows.columns[role]) for role in ("age", "year"))
        born = pc.cast(pc.cast(pc.subtract(year, age), pa.int32()), pa.string())
        birth = as_days(pc.binary_join_element_wise(born, "-01-01", ""))
        return Patients(rows.file, rows.lines, rows.columns["patient"], rows.columns["sex"], birth)
