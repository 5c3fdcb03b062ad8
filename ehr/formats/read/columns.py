"""What several formats do with columns of text: strip, and read as numbers, days, ICD codes or lab values."""

import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ehr.codes.systems import DECILE


def stripped(column: pa.StringArray) -> pa.StringArray:
    """Without blanks around: CHAR columns are padded."""
    return pc.utf8_trim_whitespace(column)


def filled(column: pa.StringArray) -> NDArray[np.bool_]:
    """Which cells hold something."""
    mask: NDArray[np.bool_] = pc.fill_null(pc.greater(pc.binary_length(stripped(column)), 0), False).to_numpy(
        zero_copy_only=False
    )
    return mask


def as_numbers(column: pa.StringArray) -> pa.DoubleArray:
    """Cells as numbers; null where they are none."""
    text = stripped(column)
    is_number = pc.match_substring_regex(text, r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$")
    return pc.if_else(is_number, text, None).cast(pa.float64())


def as_days(column: pa.StringArray) -> pa.Date32Array:
    """Cells as days; null where they are none. ISO dates, with or without a time, and 20081209. A year of two digits is
    no year: which century would be a guess."""
    text = pc.replace_substring_regex(stripped(column), r"^(\d{4})(\d\d)(\d\d)$", r"\1-\2-\3")
    day = pc.utf8_slice_codeunits(text, 0, 10)
    is_day = pc.match_substring_regex(day, r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$")
    candidates = pc.if_else(is_day, day, None)
    try:
        return candidates.cast(pa.date32())
    except pa.ArrowInvalid:  # the 30th of February
        return pa.array([_day_or_none(text) for text in candidates.to_pylist()], pa.date32())


def _day_or_none(text: str | None) -> datetime.date | None:
    try:
        return None if text is None else datetime.date.fromisoformat(text)
    except ValueError:
        return None


def visit_ids(patient: pa.StringArray, day: pa.Date32Array, visit: pa.StringArray | None = None) -> pa.StringArray:
    """The visit of each row: as the upload names it, else all that a patient has on one day; null where there is none
    of both."""
    by_day = pc.binary_join_element_wise(patient, pc.cast(day, pa.string()), " ")
    return by_day if visit is None else pc.if_else(pa.array(filled(visit)), visit, by_day)


def without_dots(code: pa.StringArray) -> pa.StringArray:
    return pc.utf8_upper(pc.replace_substring(stripped(code), ".", ""))


def with_value_or_decile(
    code: pa.StringArray, value: pa.StringArray, text: pa.StringArray | None
) -> tuple[pa.StringArray, pa.DoubleArray]:
    """A lab's code and number. Where there is no number but a decile (`D7`, as our writers put it), the code has it."""
    number = as_numbers(value)
    if text is not None:
        is_decile = pc.fill_null(pc.match_substring_regex(stripped(text), r"^D(10|[1-9])$"), False)
        decile = pc.and_(is_decile, pc.is_null(number))
        marked = pc.binary_join_element_wise(code, pc.replace_substring(stripped(text), "D", DECILE), "")
        code = pc.if_else(decile, marked, code)
    return code, number
