"""Records and histories as named arrays, which is how both lie in files."""

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from ehr.histories import Histories
from ehr.records import Records


def arrays_of(stored: Records | Histories) -> dict[str, NDArray[Any]]:
    """CSR of records; of histories CSR of visits, and what makes patients of them."""
    if isinstance(stored, Records):
        return {"indptr": stored.indptr, "indices": stored.indices}
    return arrays_of(stored.visits) | time_arrays(stored)


def time_arrays(histories: Histories) -> dict[str, NDArray[Any]]:
    """What makes patients of visits."""
    return {
        "offsets": histories.offsets,
        "gaps": histories.gaps,
        "static_indptr": histories.static.indptr,
        "static_indices": histories.static.indices,
    }


def histories_in(visits: Records, arrays: Mapping[str, NDArray[Any]]) -> Histories | None:
    """The patients whose visits these are; None where records are by themselves."""
    if "offsets" not in arrays:
        return None
    static = Records(arrays["static_indptr"], arrays["static_indices"], visits.n_codes)
    return Histories(visits, arrays["offsets"], arrays["gaps"], static)
