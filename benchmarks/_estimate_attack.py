"""Asking a service about single people by what it counts: an attack that read 191 codes of a patient in 233 questions.

`any_of` is an AND of ORs, so `[[a1, P], ..., [a6, P], [s, P]]` counts "P, or whoever has a1 to a6 and s". The attacker
knows codes that nobody else has, looks for a P at which one person more changes the answer, and then asks for each
code s whether the answer changes still. Whatever the answer shows counts: numbers, warnings, what is withheld or
refused.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ehr_d3pm import ApiError, Client

Groups = list[list[str]]
Ask = Callable[[Groups], str]  # what is visible of the answer
Estimate = Callable[[Groups], dict[str, Any]]
SPARE_CODES = 2  # known beside those that nobody else has
MOST_FILLERS = 6  # codes of one P
RESAMPLES = 1_000
# what an answer says of how many there are; the rest repeats the question, or is about the machine
SHOWN = ("feasible", "problem", "withheld", "support", "unknown", "training_records", "warnings")


@dataclass(frozen=True)
class Accuracy:
    """Balanced accuracy of "has the code", with a 95 % interval over people; guessing has 0.5."""

    value: float
    low: float
    high: float
    people: int  # that were attacked
    found: int  # for whom a question was found that one person more seems to change
    queries: int


def estimate_attack(
    client: Client,
    model_id: str,
    people: Sequence[Sequence[str]],
    codes: Sequence[str],
    queries_per_person: int,
    rng: np.random.Generator,
) -> Accuracy:
    """The attack on `POST /generate/estimate`. `people`: the codes of each; `codes`: the vocabulary."""
    estimate = _estimates(client, model_id)

    def ask(groups: Groups) -> str:
        answer = estimate(groups)
        return json.dumps({name: answer[name] for name in SHOWN if name in answer}, sort_keys=True)

    return _attack(ask, estimate, people, codes, queries_per_person, rng)


def decision_attack(
    client: Client,
    model_id: str,
    people: Sequence[Sequence[str]],
    codes: Sequence[str],
    queries_per_person: int,
    rng: np.random.Generator,
) -> Accuracy:
    """The same through what `POST /generate` decides: accepted or refused and why, and what it warns of. Every job is
    cancelled at once."""

    def ask(groups: Groups) -> str:
        try:
            job = client.generate(model_id, 1, any_of=groups)
        except ApiError as error:
            return f"{error.status} {error}"
        client.cancel(job["id"])
        return json.dumps(job["warnings"])

    return _attack(ask, _estimates(client, model_id), people, codes, queries_per_person, rng)


def _estimates(client: Client, model_id: str) -> Estimate:
    return lambda groups: client.estimate(model_id, 1_000, any_of=groups)


def _attack(
    ask: Ask,
    estimate: Estimate,
    people: Sequence[Sequence[str]],
    codes: Sequence[str],
    queries: int,
    rng: np.random.Generator,
) -> Accuracy:
    attacked = [
        _Person(ask, estimate, list(person), people, codes, queries, rng) for person in people if len(person) > 1
    ]
    right = np.array([person.attack() for person in attacked])  # (people, 2): of codes they have, and of others
    drawn = rng.integers(len(right), size=(RESAMPLES, len(right)))
    low, high = np.percentile(right[drawn].mean(axis=(1, 2)), [2.5, 97.5])
    found, asked = (sum(values) for values in zip(*((p.found, p.asked) for p in attacked), strict=True))
    return Accuracy(float(right.mean()), float(low), float(high), len(attacked), found, asked)


class _Person:
    """One person, of whom some codes are known and the others are asked for."""

    def __init__(
        self,
        ask: Ask,
        estimate: Estimate,
        person: list[str],
        people: Sequence[Sequence[str]],
        codes: Sequence[str],
        queries: int,
        rng: np.random.Generator,
    ) -> None:
        self._ask, self.estimate, self.queries, self.rng = ask, estimate, queries, rng
        self.asked, self.found = 0, False
        self.has = [person[i] for i in rng.permutation(len(person))]
        self.fillers = [code for code in codes if code not in person]
        # a common code comes first as often as others have it: what is asked about is as common on both sides
        others = [code for other in people for code in other if code not in person]
        self.has_not = list(dict.fromkeys(others[i] for i in rng.permutation(len(others))))

    def attack(self) -> tuple[float, float]:
        """The share of right answers about codes the person has, and about codes they have not.

        Who finds nothing to ask by tosses a coin, which is right half of the time.
        """
        known = self._isolating()
        has = self.has[len(known) :][: self.queries // 10]
        has_not = self.has_not[: len(has)]
        border = self._border(known, self.queries - self.asked - len(has) - len(has_not))
        if border is None or not has_not:
            return 0.5, 0.5
        self.found = True
        said = [[self._says(known, code, *border) for code in candidates] for candidates in (has, has_not)]
        return float(np.mean(said[0])), 1 - float(np.mean(said[1]))

    def ask(self, groups: Groups) -> str:
        self.asked += 1
        return self._ask(groups)

    def _isolating(self) -> list[str]:
        """Codes that nobody else has, as far as the service lets one see; at most all but one."""
        for n in range(1, len(self.has) - 1):
            self.asked += 1
            if _hardly_anyone(self.estimate([[code] for code in self.has[:n]])["support"]):
                return self.has[: min(n + SPARE_CODES, len(self.has) - 1)]
        return self.has[:-1]

    def _border(self, known: list[str], queries: int) -> tuple[list[str], str] | None:
        """(P, the answer to P or the known codes), where that is another than the answer to P alone."""
        for _ in range(queries // 2):
            size = min(int(self.rng.integers(1, MOST_FILLERS + 1)), len(self.fillers))
            filler = [str(code) for code in self.rng.choice(self.fillers, size, replace=False)]
            either = self.ask([[code, *filler] for code in known])
            if self.ask([filler]) != either:
                return filler, either
        return None

    def _says(self, known: list[str], code: str, filler: list[str], either: str) -> bool:
        """Whether the attacker says that the person has the code."""
        return self.ask([*([each, *filler] for each in known), [code, *filler]]) == either


def _hardly_anyone(support: dict[str, Any]) -> bool:
    """Whether this is as few as the service ever says; services of earlier versions told it in words."""
    return support.get("matching") == 0 or support.get("seen") in ("no", "fewer than 11")
