"""No count of 1 to 10 real patients leaves the service, nor a total from which one could be solved for."""

SMALLEST_SHOWN = 11
ROUNDED_TO = 20  # twice the largest count that is hidden


def shown(count: int, total: int | None = None) -> int | None:
    """The count if it may be shown, else None. With `total`, the patients who are *not* counted are protected too:
    290 of 295 tells that five are without."""
    if 0 < count < SMALLEST_SHOWN:
        return None
    if total is not None and 0 < total - count < SMALLEST_SHOWN:
        return None
    return count


def rounded(count: int, total: int) -> int | None:
    """A count that may stand beside others like it: None below 11, else rounded to two digits and to no less than
    ROUNDED_TO. Two exact counts of nested groups would give away their difference; these do not, and neither does one
    beside the total: all but 0 to 10 of the records are shown as all of them."""
    if count < SMALLEST_SHOWN:
        return None
    if total - count < SMALLEST_SHOWN:
        count = total
    step = max(ROUNDED_TO, int(10 ** (len(str(count)) - 2)))
    return max((count + step // 2) // step, 1) * step


def shown_parts(counts: dict[str, int]) -> dict[str, int] | None:
    """Counts that add up to a known total: all of them, or none if any is small (the others would give it away)."""
    return counts if all(shown(count) is not None for count in counts.values()) else None
