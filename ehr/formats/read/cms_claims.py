"""cms-claims: wide claims with ICD9_DGNS_CD_*, ICD9_PRCDR_CD_*, HCPCS_CD_*; ICD_DGNS_CD_* are ICD-10.

One record per claim (its segments together) or per beneficiary. Sex and birth come from the beneficiary summary file.
"""

import re
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ehr.formats.cdm import CLAIM
from ehr.formats.cdm import Visit as VisitKind
from ehr.formats.read.columns import as_days, filled, stripped, without_dots
from ehr.formats.read.event_tables import Table, TablesReader
from ehr.formats.read.protocol import Batch, Events, Patients, Visits
from ehr.formats.read.rejects import Rejects
from ehr.formats.read.sources import SourceFile
from ehr.formats.read.tables import Rows

PATIENT = ("desynpuf_id", "bene_id")
# the columns of codes, and their system
CODE_COLUMNS = (
    (re.compile(r"icd9_dgns_cd_\d+|line_icd9_dgns_cd_\d+"), "ICD9DX"),
    (re.compile(r"icd9_prcdr_cd_\d+"), "ICD9PX"),
    (re.compile(r"icd_dgns_cd_?\d+"), "ICD10CM"),
    (re.compile(r"icd_prcdr_cd_?\d+"), "ICD10PCS"),
    (re.compile(r"hcpcs_cd_\d+|hcpcs_cd"), "HCPCS"),
)
CLAIMS = Table("claims", {"patient": PATIENT, "visit": ("clm_id",)}, {"time": ("clm_from_dt",)}, ("clm_id",))
SUMMARY = Table(
    "beneficiary_summary",
    {"patient": PATIENT, "sex": ("bene_sex_ident_cd", "sex_ident_cd"), "birth": ("bene_birth_dt",)},
    {"death": ("bene_death_dt",)},
    distinctive=("bene_birth_dt",),
    events=False,
)


class CmsClaims(TablesReader):
    name = "cms-claims"
    visits = VisitKind(type=CLAIM)
    tables = (SUMMARY, CLAIMS)

    def columns_of(self, table: Table, file: SourceFile) -> dict[str, str]:
        codes = code_columns(file) if table is CLAIMS else []
        return super().columns_of(table, file) | {name: name for name in codes}

    @classmethod
    def table_of(cls, file: SourceFile) -> Table | None:
        table = super().table_of(file)
        return None if table is CLAIMS and not code_columns(file) else table

    def batches_of(self, table: Table, rows: Rows, rejects: Rejects) -> Iterator[Batch]:
        if table is SUMMARY:
            sex = pc.replace_substring(pc.replace_substring(stripped(rows.columns["sex"]), "1", "M"), "2", "F")
            birth, death = (
                as_days(rows.columns[role]) if role in rows.columns else None for role in ("birth", "death")
            )
            yield Patients(rows.file, rows.lines, rows.columns["patient"], sex, birth, death)
            return
        record, patient = self.who(rows)
        if "time" in rows.columns:
            yield Visits(rows.file, rows.lines, record, patient, as_days(rows.columns["time"]))
        for name in [role for role in rows.columns if role not in (*CLAIMS.needs, *CLAIMS.takes)]:
            # an empty cell is no code: claims have room for more than they use
            some = filled(rows.columns[name])
            whose, codes, patients = (column.filter(pa.array(some)) for column in (record, rows.columns[name], patient))
            code, system, was_number = without_dots(codes), system_of(name), name in rows.numbers
            yield Events(rows.file, rows.lines[some], whose, code, system, patients, code_was_number=was_number)


def system_of(column: str) -> str | None:
    return next((system for pattern, system in CODE_COLUMNS if pattern.fullmatch(column)), None)


def code_columns(file: SourceFile) -> Sequence[str]:
    return [name for name in file.plain_columns if system_of(name) is not None]
