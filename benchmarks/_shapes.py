"""Simulated data of any shape: records with so many of so many codes, which go together by a few hidden themes."""

from dataclasses import dataclass

import numpy as np

from ehr.records import Records

THEMES_PER_CODES = 25  # a theme for so many codes
THEMES_OF_A_RECORD = 2


@dataclass(frozen=True)
class DataShape:
    """How many records, codes, and codes of a record."""

    records: int
    codes: int
    codes_per_record: float

    @property
    def name(self) -> str:
        return f"{self.records:,} x {self.codes:,} codes, {self.codes_per_record:g} each"

    def draw(self, seed: int, rows: int | None = None) -> Records:
        """Records of this shape; the same world for every seed, other records."""
        world, rng = np.random.default_rng([self.codes, 1]), np.random.default_rng([seed, 2])
        n, themes = self.records if rows is None else rows, max(self.codes // THEMES_PER_CODES, 4)
        # codes are as unequally common as those of patients are, and belong to one theme for the most part
        common = world.permutation(1 / (1 + np.arange(self.codes)) ** 0.9)
        weight = common * np.where(world.integers(themes, size=(themes, self.codes)) == 0, 20.0, 0.2)  # (themes, N)
        cumulative = (weight / weight.sum(1, keepdims=True)).cumsum(1)
        size = rng.poisson(self.codes_per_record - 1, n) + 1
        chosen = rng.integers(themes, size=(n, THEMES_OF_A_RECORD))
        rows_of, theme = np.repeat(np.arange(n), size), rng.integers(THEMES_OF_A_RECORD, size=size.sum())
        points, codes = rng.random(size.sum()), np.empty(size.sum(), dtype=np.int64)
        of_theme = chosen[rows_of, theme]
        for each in range(themes):
            mine = of_theme == each
            codes[mine] = np.searchsorted(cumulative[each], points[mine]).clip(max=self.codes - 1)
        pairs = np.unique(np.stack([rows_of, codes]), axis=1)  # a code that was drawn twice is there once
        return Records.from_pairs(pairs[0], pairs[1], n, self.codes)
