"""meds: Parquet shards of the Medical Event Data Standard 0.4 (subject_id, time, code, numeric_value; unit, which is no
column of the standard, is read where it is there).

A record is a subject; in a history a visit is all that a subject has on one day. `SYSTEM//CODE` and `SYSTEM/CODE`
become SYSTEM:CODE. MEDS_BIRTH and GENDER//F are what is known of the subject, not codes. The codes' metadata has their
names.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ehr.errors import DataError
from ehr.formats.read.columns import as_days, as_numbers, stripped, visit_ids
from ehr.formats.read.protocol import Batch, Events, Patients, Reader
from ehr.formats.read.rejects import Rejects
from ehr.formats.read.sources import SourceFile
from ehr.formats.read.tables import NAME, Rows, read_rows

BIRTH, DEATH = "MEDS_BIRTH", "MEDS_DEATH"
SEX_PATTERN = r"^GENDER/{1,2}(F|M|FEMALE|MALE)$"
DATA = {"subject_id", "time", "code"}
PEOPLE = {"subject_id", "patient_id", "record_id"}
OPTIONAL = {"value": "numeric_value", "unit": "unit", NAME: "description"}


class MedsReader(Reader):
    name = "meds"
    units = ("patient", "history")

    @classmethod
    def tables_in(cls, files: Sequence[SourceFile]) -> dict[int, str]:
        shards = {i: "data" for i, file in enumerate(files) if _is_shard(file)}
        metadata = {i: "codes" for i, file in enumerate(files) if _is_metadata(file)}
        return shards | metadata if shards else {}

    def batches(self, rejects: Rejects) -> Iterator[Batch]:
        shards = [file for file in self.files if _is_shard(file)]
        if not shards:
            raise DataError("no file of the upload is a MEDS shard: Parquet with subject_id, time and code")
        for file in filter(_is_metadata, self.files):
            if "description" in file.plain_columns:
                for rows in read_rows(file, {"code": "code", NAME: "description"}, Rejects()):
                    self.remember_names(_as_ours(stripped(rows.columns["code"])), rows.columns[NAME])
        for file in shards:
            wanted = {"patient": "subject_id", "time": "time", "code": "code"}
            wanted |= {role: name for role, name in OPTIONAL.items() if name in file.plain_columns}
            for rows in read_rows(file, wanted, rejects):
                yield from self._of_rows(rows)

    def _of_rows(self, rows: Rows) -> Iterator[Batch]:
        code = stripped(rows.columns["code"])
        birth = pc.fill_null(pc.equal(code, BIRTH), False)
        sex = pc.fill_null(pc.match_substring_regex(code, SEX_PATTERN, ignore_case=True), False)
        death = pc.fill_null(pc.equal(code, DEATH), False) if self.over_time else pa.array(np.zeros(len(rows), bool))
        about = pc.or_(pc.or_(birth, sex), death)
        if self.options.demographics and pc.any(about).as_py():
            yield _patients_of(rows, code, birth, sex, death)
        keep = pc.invert(about)
        mask = keep.to_numpy(zero_copy_only=False)
        called = rows.columns[NAME].filter(keep) if NAME in rows.columns else None
        value = as_numbers(rows.columns["value"].filter(keep)) if "value" in rows.columns else None
        subject = rows.columns["patient"].filter(keep)
        day = as_days(rows.columns["time"].filter(keep))
        code = _as_ours(code.filter(keep))
        unit = rows.columns["unit"].filter(keep) if "unit" in rows.columns else None
        more: dict[str, Any] = {"value_unit": unit, "name": called}
        record = visit_ids(subject, day) if self.over_time else subject
        yield Events(rows.file, rows.lines[mask], record, code, None, subject, value, day, **more)


def _patients_of(
    rows: Rows, code: pa.StringArray, birth: pa.BooleanArray, sex: pa.BooleanArray, death: pa.BooleanArray
) -> Patients:
    about = pc.or_(pc.or_(birth, sex), death)
    letter = pc.utf8_upper(pc.utf8_slice_codeunits(pc.replace_substring_regex(code, r"^.*/", ""), 0, 1))
    return Patients(
        rows.file,
        rows.lines[about.to_numpy(zero_copy_only=False)],
        rows.columns["patient"].filter(about),
        pc.if_else(sex, letter, None).filter(about),
        as_days(pc.if_else(birth, rows.columns["time"], None)).filter(about),
        as_days(pc.if_else(death, rows.columns["time"], None)).filter(about),
    )


def _as_ours(code: pa.StringArray) -> pa.StringArray:
    return pc.replace_substring_regex(code, r"^([^:/]+)//?", r"\1:")


def _is_shard(file: SourceFile) -> bool:
    return file.kind == "parquet" and set(file.plain_columns) >= DATA


def _is_metadata(file: SourceFile) -> bool:
    """A table of codes and of nobody."""
    names = set(file.plain_columns) if file.kind == "parquet" else set()
    return "code" in names and ("parent_codes" in names or file.stem == "codes") and not names & PEOPLE
