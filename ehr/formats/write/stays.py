"""What kind of visit each record is: what its code `VISIT:9201` says; the rest is drawn as the upload's visits were."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ehr.codes.systems import visit_concept
from ehr.formats.cdm import SourceCdm, Visit
from ehr.formats.write import draws
from ehr.formats.write.people import People
from ehr.formats.write.protocol import Block, CohortSource, Ints


@dataclass(frozen=True)
class Stays:
    """The visits of a cohort."""

    cohort: CohortSource
    source: SourceCdm
    people: People

    @cached_property
    def kinds(self) -> tuple[tuple[float, Visit], ...]:
        """All there can be, with their shares; those that only a code tells of are never drawn for other records."""
        told = self.source.visits or ((1.0, self.source.otherwise),)
        concepts = {visit.concept for _, visit in told}
        named = sorted({number for code in self.cohort.vocabulary if (number := visit_concept(code)) is not None})
        usual = told[0][1].type
        return (*told, *((0.0, Visit(number, usual)) for number in named if number not in concepts))

    def all(self) -> Iterator[tuple[Block, Ints]]:
        """Blocks with the positions in `kinds` of their records."""
        for block in self.cohort.blocks():
            yield block, self.of(block)

    def of(self, block: Block) -> Ints:
        """The position in `kinds` of each record's visit: of those with the concept that its code names, if it has one,
        by their shares."""
        u = draws.generator(self.cohort.seed, draws.VISITS, block.first_record).random(len(block.records))
        concept = np.array([person.visit or 0 for person in self.people.of(block)], dtype=np.int64)
        shares = np.array([share for share, _ in self.kinds])
        kinds = np.array([visit.concept for _, visit in self.kinds])
        found: Ints = np.zeros(len(u), dtype=np.int64)
        for number in np.unique(concept).tolist():
            among = np.flatnonzero(kinds == number) if number else np.flatnonzero(shares > 0)
            mine = concept == number
            weights = shares[among] if shares[among].any() else np.ones(len(among))
            ends = np.cumsum(weights)
            found[mine] = among[np.minimum(np.searchsorted(ends, u[mine] * ends[-1], side="right"), len(among) - 1)]
        return found
