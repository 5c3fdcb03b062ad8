"""What a call of the sparse denoiser tells, before it is asked about codes."""

from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor

PART = 64  # records, of which what is said of thousands of codes stays in the cache


class Told(NamedTuple):
    """What a call tells of the records that are read."""

    z: Tensor  # (rows, width) of the trunk
    some: Tensor | slice  # which records these are
    same_as: Tensor | slice  # for each record, which of these it is like
    left: Tensor | None  # (B,) codes that are still to come
    tilt: Tensor | None  # (B,)

    @property
    def the_left(self) -> Tensor:
        """Codes still to come in the records that are read, (rows,)."""
        assert self.left is not None
        return self.left[self.some]

    def parts(self) -> Iterator["Told"]:
        """The same of a few records after the other."""
        for start in range(0, len(self.z), PART):
            part = slice(start, start + PART)
            yield self._replace(z=self.z[part], some=part if isinstance(self.some, slice) else self.some[part])
