"""mimic-iv: hosp/diagnoses_icd, procedures_icd, hcpcsevents, prescriptions, labevents; patients, admissions.

ICD versions 9 and 10 stand in one table: each row says which. A patient's year of birth is anchor_year - anchor_age.
Names of codes come from d_icd_diagnoses, d_icd_procedures, d_hcpcs and d_labitems.
"""

import pyarrow as pa
import pyarrow.compute as pc

from ehr.formats.read.columns import as_days, as_numbers, stripped
from ehr.formats.read.event_tables import Table
from ehr.formats.read.mimic import DEATH, ITEM, LAB, MEASURED, TIME, WHO, Mimic, death_of
from ehr.formats.read.protocol import Patients
from ehr.formats.read.tables import NAME, Rows

D_ICD = {"code": ("icd_code",), "version": ("icd_version",)}
ICD = {**WHO, **D_ICD}
TITLE = {NAME: ("long_title",)}
DIAGNOSES, PROCEDURES = ("ICD9DX", "ICD10CM"), ("ICD9PX", "ICD10PCS")
VERSIONS = {
    **dict.fromkeys(("diagnoses_icd", "d_icd_diagnoses"), DIAGNOSES),
    **dict.fromkeys(("procedures_icd", "d_icd_procedures"), PROCEDURES),
}


class MimicIV(Mimic):
    name = "mimic-iv"
    tables = (
        Table(
            "patients",
            {"patient": ("subject_id",), "sex": ("gender",), "age": ("anchor_age",), "year": ("anchor_year",)},
            DEATH,
            events=False,
        ),
        Table("admissions", {**WHO, "time": ("admittime",)}, events=False),
        Table("d_labitems", ITEM, {"loinc": ("loinc_code",), NAME: ("label",)}, events=False, system=LAB),
        Table("d_icd_diagnoses", D_ICD, TITLE, events=False),
        Table("d_icd_procedures", D_ICD, TITLE, events=False),
        Table("d_hcpcs", {"code": ("code",)}, {NAME: ("short_description",)}, events=False, system="HCPCS"),
        Table("diagnoses_icd", ICD),
        Table("procedures_icd", ICD, TIME),
        Table("hcpcsevents", {**WHO, "code": ("hcpcs_cd",)}, {NAME: ("short_description",), **TIME}, system="HCPCS"),
        Table("prescriptions", {**WHO, "code": ("ndc",)}, {NAME: ("drug",), **TIME}, system="NDC"),
        Table("labevents", {**WHO, "code": ("itemid",), "value": ("valuenum",)}, {**MEASURED, **TIME}),
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
        return Patients(rows.file, rows.lines, rows.columns["patient"], rows.columns["sex"], birth, death_of(rows))
