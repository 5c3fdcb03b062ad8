"""Simulated patients over time: a small hidden Markov process, so that what comes next is known exactly.

A patient has a latent state (how far each disease of `courses.DISEASES` has come), which makes one step between two
visits. State and kind of a visit give its diagnoses; lasting disorders are hidden switches beside it; drugs and
screenings follow what earlier visits show. Gaps and the end of a history (death, or leaving) follow the state.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ehr.errors import ConditionError
from ehr.histories import Histories
from ehr.records import Records, indptr_of
from ehr.vocabulary import Vocabulary
from worker.engine.population.draws import Draws
from worker.engine.population.shown import Shown

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
SAMPLE_BLOCK = 4096  # patients drawn at a time: their dense visits stay in the cache
TINY = 1e-300  # stands for 0 under a logarithm


@dataclass(frozen=True)
class Predictions:
    """What is to come after each visit, given the patient and all visits up to and including it."""

    codes: Floats  # (V, N), P(code at the next visit | there is one)
    gaps: Floats  # (V, D), P(days to the next visit | there is one)
    end: Floats  # (V,), P(there is no next visit)


@dataclass(frozen=True, eq=False)
class SimulatedHistories:
    """The process: G groups of sex and age, S latent states, K kinds of visits.

    The vocabulary is in blocks: static codes, kinds of visits, A codes of states, C of lasting disorders, D drugs,
    E screenings.
    """

    vocabulary: Vocabulary
    group_weights: Floats  # (G,)
    static: Records  # one row for each group
    start: Floats  # (G, S)
    move: Floats  # (G, S, S)
    kinds: Floats  # (S, K)
    present: Floats  # (G, S, K, A)
    gaps: Floats  # (S, K, D), by the kind of the visit before
    end: Floats  # (most visits + 1, G, S), after so many visits
    lasting_start: Floats  # (G, C), present at the first visit
    lasting_onset: Floats  # (G, C), begins between two visits
    lasting_seen: Floats  # (C,), written down when present
    triggers: NDArray[np.bool_]  # (D, A + C), the diagnoses a drug follows
    drug_start: Floats  # (D,)
    drug_continued: float
    screening_every: Ints  # (E,)
    screening_done: Floats  # (G, E), at an outpatient visit when it is due
    outpatient: int  # which of the kinds

    @property
    def n_codes(self) -> int:
        return len(self.vocabulary)

    @property
    def blocks(self) -> tuple[slice, slice, slice, slice, slice]:
        """Where kinds, codes of states, lasting disorders, drugs and screenings lie in the vocabulary."""
        sizes = [self.kinds.shape[1], self.present.shape[3], len(self.lasting_seen), len(self.drug_start)]
        ends = np.cumsum([self.n_codes - sum(sizes) - len(self.screening_every), *sizes, len(self.screening_every)])
        kinds, states, lasting, drugs, screenings = (slice(a, b) for a, b in pairwise(ends.tolist()))
        return kinds, states, lasting, drugs, screenings

    # ---- drawing

    def sample(self, n: int, rng: np.random.Generator) -> Histories:
        """`n` independent patients. Memory follows the codes that are drawn."""
        groups = rng.choice(len(self.group_weights), size=n, p=self.group_weights)
        drawn = [self._draw(groups[first : first + SAMPLE_BLOCK], rng) for first in range(0, n, SAMPLE_BLOCK)]
        gaps = np.concatenate([np.zeros(0, np.int32), *(block[2] for block in drawn)])
        counts = np.concatenate([np.zeros(0, np.int64), *(block[1] for block in drawn)])
        visits = [Records.from_pairs([], [], 0, self.n_codes), *(block[0] for block in drawn)]
        return Histories(Records.concatenate(visits), indptr_of(counts), gaps, self.static.take(groups))

    def _draw(self, groups: Ints, rng: np.random.Generator) -> tuple[Records, Ints, NDArray[np.int32]]:
        """Visits of the patients of `groups` in order, how many each has, and the gaps."""
        n_states, n_kinds = self.kinds.shape
        present = self.present.reshape(-1, self.present.shape[3]).astype(np.float32)
        start, move, kinds, gaps = (Draws.of(p) for p in (self.start, self.move, self.kinds, self.gaps))
        state = start.draw(groups, rng)
        lasting = rng.random((len(groups), len(self.lasting_seen))) < self.lasting_start[groups]
        shown = Shown.nothing(self, len(groups))
        counts, gap = np.zeros(len(groups), np.int64), np.zeros(len(groups), np.int64)
        owners, numbers, codes, waits = [], [], [], []  # of every code: patient, number of the visit, code
        alive = np.arange(len(groups))
        for number in range(len(self.end) - 1):
            group, now = groups[alive], state[alive]
            kind = kinds.draw(now, rng)
            chances = present[(group * n_states + now) * n_kinds + kind]
            of_state = rng.random(chances.shape, np.float32) < chances
            of_lasting = lasting[alive] & (rng.random((len(alive), lasting.shape[1])) < self.lasting_seen)
            drugs = rng.random((len(alive), len(self.drug_start))) < shown.drugs(self, alive)
            screened = rng.random((len(alive), len(self.screening_every))) < shown.screenings(self, alive, group)
            screened &= (kind == self.outpatient)[:, None]
            visit = np.hstack([np.eye(n_kinds, dtype=bool)[kind], of_state, of_lasting, drugs, screened])
            shown.add(self, alive, of_state, of_lasting, drugs, screened)
            row, code = np.nonzero(visit)
            owners.append(alive[row])
            numbers.append(np.full(len(row), number))
            codes.append(code + self.blocks[0].start)
            waits.append((alive, np.full(len(alive), number), gap[alive]))
            counts[alive] += 1
            gap[alive] = gaps.draw(now * n_kinds + kind, rng)
            goes_on = rng.random(len(alive)) >= self.end[number + 1, group, now]
            alive = alive[goes_on]
            state[alive] = move.draw(groups[alive] * n_states + state[alive], rng)
            lasting[alive] |= rng.random((len(alive), lasting.shape[1])) < self.lasting_onset[groups[alive]]
        offsets = indptr_of(counts)
        rows = offsets[np.concatenate(owners)] + np.concatenate(numbers)
        visits = Records.from_pairs(rows, np.concatenate(codes), int(offsets[-1]), self.n_codes)
        ordered = np.zeros(len(visits), np.int32)
        for patient, number_of, days in waits:
            ordered[offsets[patient] + number_of] = days
        return visits, counts, ordered

    # ---- what comes next, given what was

    def first_visit(self) -> Floats:
        """P(code at the first visit) for each group, (G, N)."""
        nothing = Shown.nothing(self, len(self.start))
        return self._codes(np.arange(len(self.start)), self.start, self.lasting_start, nothing)

    def predictions(self, histories: Histories) -> Predictions:
        """What comes after each visit of `histories`: exact, by filtering the hidden states visit after visit."""
        groups = self.groups_of(histories)
        belief, lasting = self.start[groups], self.lasting_start[groups]
        shown = Shown.nothing(self, len(groups))
        codes = np.zeros((len(histories.visits), self.n_codes))
        gaps, end = np.zeros((len(codes), self.gaps.shape[2])), np.zeros(len(codes))
        counts = histories.visit_counts()
        for number in range(int(counts.max(initial=0))):
            here = np.flatnonzero(counts > number)
            rows, group = histories.offsets[here] + number, groups[here]
            visit = histories.visits.take(rows).to_dense() > 0
            kind = visit[:, self.blocks[0]].argmax(axis=1)
            of_state, of_lasting, drugs, screened = (visit[:, block] for block in self.blocks[1:])
            known = belief[here] * self._likelihood(group, kind, of_state)
            known /= known.sum(axis=1, keepdims=True)
            doubt = lasting[here]
            doubt = np.where(of_lasting, 1, doubt * (1 - self.lasting_seen) / (1 - doubt * self.lasting_seen))
            shown.add(self, here, of_state, of_lasting, drugs, screened)
            after = min(number + 1, len(self.end) - 1)
            end[rows] = (known * self.end[after, group]).sum(axis=1)
            known *= 1 - self.end[after, group]  # all zeros where a history can be no longer
            known /= np.maximum(known.sum(axis=1, keepdims=True), TINY)
            gaps[rows] = _by(kind, lambda k, of: known[of] @ self.gaps[:, k])  # noqa: B023 (called at once)
            belief[here] = _by(group, lambda g, of: known[of] @ self.move[g])  # noqa: B023
            lasting[here] = doubt + (1 - doubt) * self.lasting_onset[group]
            codes[rows] = self._codes(group, belief[here], lasting[here], shown.of(here))
            if number + 1 < int(counts.max()):  # the next gap tells about the state it followed
                later = here[counts[here] > number + 1]
                of = np.searchsorted(here, later)
                told = known[of] * self.gaps[:, kind[of], histories.gaps[histories.offsets[later] + number + 1]].T
                told /= told.sum(axis=1, keepdims=True)
                belief[later] = _by(group[of], lambda g, which: told[which] @ self.move[g])  # noqa: B023
        return Predictions(codes, gaps, end)

    def groups_of(self, histories: Histories) -> Ints:
        """The group of each patient, by the static codes, (P,)."""
        of = {tuple(codes): group for group, codes in enumerate(_sets(self.static))}
        return np.array([of[tuple(codes)] for codes in _sets(histories.static)], dtype=np.int64)

    def _likelihood(self, groups: Ints, kinds: Ints, of_state: NDArray[np.bool_]) -> Floats:
        """P(kind and diagnoses of a visit | state), up to a factor for each visit, (B, S)."""
        log = np.zeros((len(groups), self.kinds.shape[0]))
        pairs = groups * self.kinds.shape[1] + kinds
        for pair in np.unique(pairs):
            of = pairs == pair
            group, kind = divmod(int(pair), self.kinds.shape[1])
            p = np.clip(self.present[group, :, kind], TINY, 1 - 1e-16)  # (S, A)
            seen = of_state[of].astype(np.float64)
            log[of] = seen @ (np.log(p) - np.log1p(-p)).T + np.log1p(-p).sum(axis=1) + np.log(self.kinds[:, kind])
        likelihood: Floats = np.exp(log - log.max(axis=1, keepdims=True))
        return likelihood

    def _codes(self, groups: Ints, belief: Floats, lasting: Floats, shown: Shown) -> Floats:
        """P(code at a visit) where the state is believed to be `belief`, (B, N)."""
        kinds, states, of_lasting, drugs, screenings = self.blocks
        everyone = np.arange(len(groups))
        p = np.zeros((len(groups), self.n_codes))
        p[:, kinds] = belief @ self.kinds
        p[:, states] = _by(groups, lambda g, of: belief[of] @ np.einsum("sk,ska->sa", self.kinds, self.present[g]))
        p[:, of_lasting] = lasting * self.lasting_seen
        p[:, drugs] = shown.drugs(self, everyone)
        p[:, screenings] = shown.screenings(self, everyone, groups) * p[:, [kinds.start + self.outpatient]]
        return p

    # ---- what happens ever

    def visit_count_probabilities(self) -> Floats:
        """P(so many visits) for each group, (G, most visits + 1)."""
        always = np.ones(self.start.shape)
        return self._left(always, 0 * always, 0 * always)

    def ever_probability(self, code: int) -> Floats:
        """P(the code at any visit) for each group, (G,)."""
        return 1 - self.never_probability([code])

    def ever_both_probability(self, a: int, b: int) -> Floats:
        """P(both codes, at whatever visits) for each group, (G,)."""
        return 1 - self.never_probability([a]) - self.never_probability([b]) + self.never_probability([a, b])

    def before_probability(self, a: int, b: int) -> Floats:
        """P(diagnosis `a` at a visit and `b` at a later one) for each group, (G,); both are codes of states."""
        states = self.blocks[1]
        if not (states.start <= a < states.stop and states.start <= b < states.stop):
            raise ConditionError("an order is known exactly for diagnoses that follow the state")
        without = [np.einsum("sk,gsk->gs", self.kinds, 1 - self.present[..., c - states.start]) for c in (a, b)]
        in_order: Floats = 1 - self._left(without[0], 1 - without[0], without[1]).sum(axis=1)
        return in_order

    def never_probability(self, codes: Iterable[int]) -> Floats:
        """P(none of the codes at any visit) for each group, (G,); at most one of them a drug."""
        wanted = sorted(set(codes))
        kinds, states, of_lasting, of_drugs, screenings = self.blocks
        if outside := [c for c in wanted if not kinds.start <= c < self.n_codes]:
            raise ConditionError(f"code {outside[0]} is no code of a visit")
        drugs = [c - of_drugs.start for c in wanted if of_drugs.start <= c < of_drugs.stop]
        if len(drugs) > 1:
            raise ConditionError("at most one drug: each remembers which diagnoses it follows")
        held = np.isin(np.arange(states.start, of_lasting.stop), wanted)  # (A + C,), must stay away
        after = self.triggers[drugs[0]] if drugs else np.zeros(len(held), bool)
        n_states = self.present.shape[3]
        # P(nothing of the list | state, kind), but for lasting disorders and drugs
        none = (1 - self.present[..., held[:n_states]]).prod(axis=3)  # (G, S, K)
        none[..., [c - kinds.start for c in wanted if c < kinds.stop]] = 0
        of_screenings = [c - screenings.start for c in wanted if c >= screenings.start]
        none[..., self.outpatient] *= (1 - self.screening_done[:, of_screenings]).prod(axis=1)[:, None]
        quiet = none * (1 - self.present[..., (after & ~held)[:n_states]]).prod(axis=3)
        none, quiet = (np.einsum("sk,gsk->gs", self.kinds, p) for p in (none, quiet))
        untreated = 1 - self.drug_start[drugs[0]] if drugs else 1.0
        left = self._left(quiet, none - quiet, none * untreated)  # (G, M)
        for c in np.flatnonzero((held | after)[n_states:]):
            held_too, starts = bool(held[n_states + c]), bool(after[n_states + c])
            left = left * self._lasting_left(int(c), held_too, untreated if starts else 1.0)
        never: Floats = left.sum(axis=1)
        return never

    def _left(self, quiet: Floats, arrive: Floats, stay: Floats) -> Floats:
        """P(so many visits, and not caught) for each group, (G, M), of a patient who at each visit stays as he was with
        probability `quiet`, comes into danger with `arrive`, and once there escapes with `stay`, all (G, S)."""
        safe, danger = self.start, np.zeros_like(self.start)
        left = np.zeros((len(self.start), len(self.end)))
        for count in range(1, len(self.end)):
            safe, danger = safe * quiet, safe * arrive + danger * stay
            left[:, count] = ((safe + danger) * self.end[count]).sum(axis=1)
            going = 1 - self.end[count]
            safe, danger = (np.einsum("gs,gst->gt", p * going, self.move) for p in (safe, danger))
        return left

    def _lasting_left(self, c: int, held: bool, untreated: float) -> Floats:
        """P(not caught | so many visits), (G, M), for a lasting disorder that must stay away, or whose drug must."""
        seen, onset = self.lasting_seen[c], self.lasting_onset[:, c]
        has = self.lasting_start[:, c]
        hasnt, shown = 1 - has, np.zeros_like(has)
        left = np.ones((len(has), len(self.end)))
        for count in range(1, len(self.end)):
            shown = np.zeros_like(has) if held else shown * untreated + has * seen
            has = has * (1 - seen)
            left[:, count] = has + hasnt + shown
            has, hasnt = has + hasnt * onset, hasnt * (1 - onset)
        return left


def _by(keys: Ints, rows_of: Callable[[int, Ints], Floats]) -> Floats:
    """Rows computed for each key by itself and put back in order."""
    parts = [(np.flatnonzero(keys == key), int(key)) for key in np.unique(keys)]
    if not parts:
        return np.zeros((0, 1))
    order = np.concatenate([of for of, _ in parts])
    found = np.concatenate([rows_of(key, of) for of, key in parts])
    return found[np.argsort(order)]


def _sets(records: Records) -> list[list[int]]:
    return [codes.tolist() for codes in np.split(records.indices, records.indptr[1:-1])] if len(records) else []
