"""mimic-iii: DIAGNOSES_ICD, PROCEDURES_ICD, CPTEVENTS, PRESCRIPTIONS, LABEVENTS with D_LABITEMS, PATIENTS, ADMISSIONS.

One record per HADM_ID or per SUBJECT_ID. Drugs are told by NDC; a row whose NDC is 0 names none.
"""

from ehr.formats.read.event_tables import Table
from ehr.formats.read.mimic import WHO, Mimic

OWN = ("row_id",)  # every table of MIMIC-III has it, none of MIMIC-IV


class MimicIII(Mimic):
    name = "mimic-iii"
    tables = (
        Table("patients", {"patient": ("subject_id",), "sex": ("gender",), "birth": ("dob",)}, marks=OWN, events=False),
        Table("admissions", {**WHO, "time": ("admittime",)}, marks=OWN, events=False),
        Table("d_labitems", {"item": ("itemid",), "loinc": ("loinc_code",)}, marks=OWN, events=False),
        Table("diagnoses_icd", {**WHO, "code": ("icd9_code",)}, marks=OWN, system="ICD9DX"),
        Table("procedures_icd", {**WHO, "code": ("icd9_code",)}, marks=OWN, system="ICD9PX"),
        Table("cptevents", {**WHO, "code": ("cpt_cd",)}, marks=OWN, system="CPT"),
        Table("prescriptions", {**WHO, "code": ("ndc",)}, marks=OWN, system="NDC"),
        Table("labevents", {**WHO, "code": ("itemid",), "value": ("valuenum",)}, {"text": ("value",)}, marks=OWN),
    )
