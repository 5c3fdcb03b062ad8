"""meds: Parquet shards of the Medical Event Data Standard 0.4 (subject_id, time, code, numeric_value).

A record is a subject. `SYSTEM//CODE` and `SYSTEM/CODE` become SYSTEM:CODE. MEDS_BIRTH and GENDER//F are what is known
of the subject, not codes. The codes' metadata is recognised and not needed.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ehr.errors import DataError
from ehr.formats.read.columns import as_days, as_numbers, stripped
from ehr.formats.read.protocol import Batch, Events, Patients, Reader
from ehr.formats.read.rejects import Rejects
from ehr.formats.read.sources import SourceFile
from ehr.formats.read.tables import Rows, read_rows

BIRTH = "MEDS_BIRTH"
SEX_PATTERN = r"^GENDER/{1,2}(F|M|FEMALE|MALE)$"
DATA = {"subject_id", "time", "code"}


class MedsReader(Reader):
    name = "meds"
    units = ("patient",)

    @classmethod
    def tables_in(cls, files: Sequence[SourceFile]) -> dict[int, str]:
        shards = {i: "data" for i, file in enumerate(files) if _is_shard(file)}
        metadata = {i: "codes" for i, file in enumerate(files) if _is_metadata(file)}
        return shards | metadata if shards else {}

    def batches(self, rejects: Rejects) -> Iterator[Batch]:
        shards = [file for file in self.files if _is_shard(file)]
        if not shards:
            raise DataError("no file of the upload is a MEDS shard: Parquet with subject_id, time and code")
        for file in shards:
            wanted = {"patient": "subject_id", "time": "time", "code": "code"}
            if "numeric_value" in file.plain_columns:
                wanted["value"] = "numeric_value"
            for rows in read_rows(file, wanted, rejects):
                yield from self._of_rows(rows)

    def _of_rows(self, rows: Rows) -> Iterator[Batch]:
        code = stripped(rows.columns["code"])
        birth = pc.fill_null(pc.equal(code, BIRTH), False)
        sex = pc.fill_null(pc.match_substring_regex(code, SEX_PATTERN, ignore_case=True), False)
        about = pc.or_(birth, sex)
        if self.options.demographics and pc.any(about).as_py():
            yield _patients_of(rows, code, birth, sex)
        keep = pc.invert(about)
        mask = keep.to_numpy(zero_copy_only=False)
        name = pc.replace_substring_regex(code.filter(keep), r"^([^:/]+)//?", r"\1:")
        value = as_numbers(rows.columns["value"].filter(keep)) if "value" in rows.columns else None
        subject = rows.columns["patient"].filter(keep)
        day = as_days(rows.columns["time"].filter(keep))
        yield Events(rows.file, rows.lines[mask], subject, name, None, subject, value, day)


def _patients_of(rows: Rows, code: pa.StringArray, birth: pa.BooleanArray, sex: pa.BooleanArray) -> Patients:
    about = pc.or_(birth, sex)
    letter = pc.utf8_upper(pc.utf8_slice_codeunits(pc.replace_substring_regex(code, r"^.*/", ""), 0, 1))
    return Patients(
        rows.file,
        rows.lines[about.to_numpy(zero_copy_only=False)],
        rows.columns["patient"].filter(about),
        pc.if_else(sex, letter, None).filter(about),
        as_days(pc.if_else(birth, rows.columns["time"], None)).filter(about),
    )


def _is_shard(file: SourceFile) -> bool:
    return file.kind == "parquet" and set(file.plain_columns) >= DATA


def _is_metadata(file: SourceFile) -> bool:
    return file.kind == "parquet" and "code" in file.plain_columns and "parent_codes" in file.plain_columns
