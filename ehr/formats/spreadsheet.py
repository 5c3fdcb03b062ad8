"""Cells of CSV files that people open in spreadsheets."""

import pyarrow as pa
import pyarrow.compute as pc

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
NEEDS_QUOTES = frozenset(',"\r\n')


def quoted(cell: str) -> str:
    """A cell as CSV wants it."""
    return '"' + cell.replace('"', '""') + '"' if NEEDS_QUOTES & set(cell) else cell


def defused(cell: str) -> str:
    """A cell that no spreadsheet takes for a formula, quoted where CSV needs it."""
    return quoted(f"'{cell}" if cell.startswith(FORMULA_STARTS) else cell)


def as_meant(column: pa.StringArray) -> pa.StringArray:
    """Cells without the apostrophe that `defused` gave them."""
    if not pc.any(pc.starts_with(column, "'")).as_py():
        return column
    return pc.replace_substring_regex(column, r"^'([=+\-@\t\r])", r"\1")
