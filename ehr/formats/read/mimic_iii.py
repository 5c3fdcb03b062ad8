"""mimic-iii: DIAGNOSES_ICD, PROCEDURES_ICD, CPTEVENTS, PRESCRIPTIONS, LABEVENTS with D_LABITEMS, PATIENTS, ADMISSIONS;
D_ICD_DIAGNOSES and D_ICD_PROCEDURES for names.

One record per HADM_ID or per SUBJECT_ID. Drugs are told by NDC; a row whose NDC is 0 names none.
"""

from ehr.formats.read.event_tables import Table
from ehr.formats.read.mimic import DEATH, ITEM, LAB, MEASURED, TIME, WHO, Mimic
from ehr.formats.read.tables import NAME

ICD = {"code": ("icd9_code",)}
TITLE = {NAME: ("long_title", "short_title")}
OWN = ("row_id",)  # every table of MIMIC-III has it, none of MIMIC-IV


class MimicIII(Mimic):
    name = "mimic-iii"
    tables = (
        Table("patients", {"patient": ("subject_id",), "sex": ("gender",), "birth": ("dob",)}, DEATH, (), OWN, False),
        Table("admissions", {**WHO, "time": ("admittime",)}, marks=OWN, events=False),
        Table("d_labitems", ITEM, {"loinc": ("loinc_code",), NAME: ("label",)}, marks=OWN, events=False, system=LAB),
        Table("d_icd_diagnoses", ICD, TITLE, marks=OWN, events=False, system="ICD9DX"),
        Table("d_icd_procedures", ICD, TITLE, marks=OWN, events=False, system="ICD9PX"),
        Table("diagnoses_icd", {**WHO, "code": ("icd9_code",)}, marks=OWN, system="ICD9DX"),
        Table("procedures_icd", {**WHO, "code": ("icd9_code",)}, marks=OWN, system="ICD9PX"),
        Table("cptevents", {**WHO, "code": ("cpt_cd",)}, {NAME: ("description",), **TIME}, marks=OWN, system="CPT"),
        Table("prescriptions", {**WHO, "code": ("ndc",)}, {NAME: ("drug",), **TIME}, marks=OWN, system="NDC"),
        Table("labevents", {**WHO, "code": ("itemid",), "value": ("valuenum",)}, {**MEASURED, **TIME}, marks=OWN),
    )
