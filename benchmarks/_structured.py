"""Simulated visits to doctors, with the strong structure that such records have.

Every visit has one specialty, one sex and one age band. Its services follow from the specialty, its diagnoses from
specialty, age and sex and from each other, its drugs and symptoms from its diagnoses, and there is a long tail of codes
that few visits have.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ehr.codes.systems import BANDS, SEXES, band_middle
from ehr.records import Records

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Specialty(NamedTuple):
    """Where the ICD-10 categories of its diagnoses begin, its share of the visits, and who comes."""

    name: str
    chapter: str
    first_category: int
    share: float
    age: float
    age_spread: float
    women: float


# Categories from N40 on are men's and those from N80 on women's to the service, and here.
SPECIALTIES = (
    Specialty("FAMILY", "E", 70, 0.22, 45, 22, 0.56),
    Specialty("CARDIOLOGY", "I", 20, 0.08, 68, 13, 0.44),
    Specialty("PULMONOLOGY", "J", 40, 0.05, 60, 17, 0.48),
    Specialty("ENDOCRINOLOGY", "E", 10, 0.05, 55, 16, 0.62),
    Specialty("NEUROLOGY", "G", 20, 0.05, 55, 20, 0.55),
    Specialty("PSYCHIATRY", "F", 20, 0.06, 40, 17, 0.58),
    Specialty("DERMATOLOGY", "L", 20, 0.07, 45, 22, 0.55),
    Specialty("ORTHOPAEDICS", "M", 10, 0.08, 52, 20, 0.53),
    Specialty("GASTROENTEROLOGY", "K", 20, 0.05, 55, 17, 0.52),
    Specialty("NEPHROLOGY", "N", 10, 0.03, 65, 15, 0.46),
    Specialty("UROLOGY", "N", 40, 0.05, 63, 15, 0.20),
    Specialty("GYNAECOLOGY", "N", 80, 0.07, 38, 14, 1.0),
    Specialty("PAEDIATRICS", "Q", 10, 0.07, 7, 4, 0.49),
    Specialty("OPHTHALMOLOGY", "H", 10, 0.05, 58, 20, 0.55),
    Specialty("ONCOLOGY", "C", 15, 0.02, 64, 13, 0.52),
)
NAMES = [each.name for each in SPECIALTIES]
OF_MEN, OF_WOMEN = NAMES.index("UROLOGY"), NAMES.index("GYNAECOLOGY")
KINDS_OF_A_CATEGORY = 4  # diagnoses, of which a visit has at most one
AGES = np.array([band_middle(band) for band in BANDS], dtype=np.float64)
# mean numbers of codes that a visit has besides those that come with others
SERVICES, DIAGNOSES, SYMPTOMS, RARE = 1.8, 1.5, 0.6, 1.0
DRUGS_WITHOUT_DIAGNOSIS = 0.02  # of those that come with one


def cumulated(weight: Floats) -> Floats:
    """Weights (S, K) as cumulative shares of each row."""
    shares: Floats = (weight / weight.sum(axis=1, keepdims=True)).cumsum(axis=1)
    return shares


def one_of(cumulative: Floats, row: Integers, rng: np.random.Generator) -> Integers:
    """A column for each of `row`, by the shares of that row of `cumulative` (S, K)."""
    # all rows are one ascending line: row s lies between s and s + 1
    line = (cumulative + np.arange(len(cumulative))[:, None]).ravel()
    columns = cumulative.shape[1]
    place = np.searchsorted(line, row + rng.random(len(row)), side="right") - row * columns
    chosen: Integers = place.clip(0, columns - 1)
    return chosen


@dataclass(frozen=True)
class Links:
    """What codes bring with them: `others[first[c] : first[c + 1]]`, each by its chance."""

    first: Integers
    others: Integers
    chance: Floats

    @classmethod
    def of(cls, codes: Integers, others: Integers, n_codes: int, draw_chance: Callable[[int], Floats]) -> "Links":
        """From pairs in any order; a pair given twice counts once."""
        pairs = np.unique(np.stack([codes, others]), axis=1)
        first = np.searchsorted(pairs[0], np.arange(n_codes + 1))
        return cls(first, pairs[1], draw_chance(pairs.shape[1]))

    def follow(self, rows: Integers, codes: Integers, rng: np.random.Generator) -> tuple[Integers, Integers]:
        """(rows, others) that come with the codes of these rows."""
        number = self.first[codes + 1] - self.first[codes]
        place = np.repeat(self.first[codes] - (number.cumsum() - number), number) + np.arange(number.sum())
        kept = rng.random(len(place)) < self.chance[place]
        return np.repeat(rows, number)[kept], self.others[place[kept]]


@dataclass(frozen=True)
class World:
    """How likely everything is; numbers of codes count from the first of their kind."""

    specialties: Floats  # cumulative, (1, specialties)
    ages: Floats  # cumulative, (specialties, bands)
    services: Floats  # cumulative, (specialties, services)
    diagnoses: Floats  # cumulative, (specialties x bands x sexes, diagnoses)
    symptoms: Floats  # cumulative, (specialties, symptoms)
    rare: Floats  # cumulative, (specialties, rare codes)
    suits: Floats  # diagnoses at an age and sex, 0 to 1, (bands x sexes, diagnoses)
    comorbidity: Links
    drugs: Links
    examinations: Links
    companions: Links  # services that come with services
    complaints: Links


@dataclass(frozen=True)
class Visits:
    """Simulated visits with so many codes of each kind, one or more for each specialty."""

    records: int
    services: int = 330
    diagnoses: int = 510
    drugs: int = 450
    symptoms: int = 150
    rare: int = 700

    @property
    def name(self) -> str:
        return f"{self.records:,} visits x {len(self.vocabulary):,} codes, with strong structure"

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        return (
            *(f"SPECIALTY:{name}" for name in NAMES),
            *SEXES,
            *BANDS,
            *(f"CPT:{90_000 + 100 * (n % len(NAMES)) + n // len(NAMES)}" for n in range(self.services)),
            *(_diagnosis(n) for n in range(self.diagnoses)),
            *(f"RXNORM:{1_000 + 17 * n}" for n in range(self.drugs)),
            *(f"ICD10CM:R{n // 2:02}{n % 2}" for n in range(self.symptoms)),
            *(f"SNOMED:{100_000 + 31 * n}" for n in range(self.rare)),
        )

    @cached_property
    def starts(self) -> dict[str, int]:
        """Where the codes of each kind begin in the vocabulary."""
        sizes = {"specialty": len(NAMES), "sex": len(SEXES), "age": len(BANDS), "services": self.services}
        sizes |= {"diagnoses": self.diagnoses, "drugs": self.drugs, "symptoms": self.symptoms, "rare": self.rare}
        return dict(zip(sizes, np.cumsum([0, *sizes.values()]).tolist(), strict=False))

    @cached_property
    def world(self) -> World:
        """The same for all visits of this shape."""
        rng = np.random.default_rng([len(self.vocabulary), 1])
        suits, weight = _who_has(self.diagnoses, rng)
        return World(
            cumulated(np.array([[each.share for each in SPECIALTIES]])),
            cumulated(np.array([np.exp(-(((AGES - each.age) / each.age_spread) ** 2) / 2) for each in SPECIALTIES])),
            cumulated(_of_specialties(self.services, rng, at_home=25, steepness=1.0)),
            cumulated(weight),
            cumulated(_of_specialties(self.symptoms, rng, at_home=8, steepness=0.8)),
            cumulated(_of_specialties(self.rare, rng, at_home=10, steepness=1.5, first_rank=40)),
            suits,
            _links(self.diagnoses, self.diagnoses, 3, (0.05, 0.4), rng),
            self._indications(rng),
            _links(self.diagnoses, self.services, 2, (0.05, 0.4), rng),
            _links(self.services, self.services, 1, (0.0, 0.9), rng),
            _links(self.diagnoses, self.symptoms, 2, (0.02, 0.3), rng),
        )

    def _indications(self, rng: np.random.Generator) -> Links:
        """Each drug is for one to three diagnoses of one specialty."""
        number = rng.integers(1, 4, self.drugs)
        drugs = np.repeat(np.arange(self.drugs), number)
        home, of_home = drugs % len(NAMES), self.diagnoses // len(NAMES)
        diagnoses = home + len(NAMES) * rng.integers(of_home, size=len(drugs))
        return Links.of(diagnoses, drugs, self.diagnoses, lambda n: rng.uniform(0.15, 0.9, n))

    def draw(self, seed: int, rows: int | None = None) -> Records:
        """Visits of this shape; the same world for every seed, other visits."""
        world, rng, n = self.world, np.random.default_rng([seed, 3]), self.records if rows is None else rows
        everyone = np.arange(n)
        specialty = one_of(world.specialties, np.zeros(n, dtype=np.int64), rng)
        age = one_of(world.ages, specialty, rng)
        sex = (rng.random(n) >= np.array([each.women for each in SPECIALTIES])[specialty]).astype(np.int64)
        people = age * len(SEXES) + sex
        found = {"specialty": (everyone, specialty), "sex": (everyone, sex), "age": (everyone, age)}
        found["diagnoses"] = diagnosed = self._diagnosed(specialty, people, rng)
        some = _some(world.services, SERVICES, specialty, rng, at_least=1)
        examined = _both(some, world.examinations.follow(*diagnosed, rng))
        found["services"] = _both(examined, world.companions.follow(*examined, rng))
        prescribed = world.drugs.follow(*diagnosed, rng)
        stray = prescribed[1][rng.random(len(prescribed[1])) < DRUGS_WITHOUT_DIAGNOSIS]
        found["drugs"] = _both(prescribed, (rng.integers(n, size=len(stray)), stray))
        complaints = world.complaints.follow(*diagnosed, rng)
        found["symptoms"] = _both(_some(world.symptoms, SYMPTOMS, specialty, rng), complaints)
        found["rare"] = _some(world.rare, RARE, specialty, rng)
        rows_of = np.concatenate([rows for rows, _ in found.values()])
        codes = np.concatenate([numbers + self.starts[kind] for kind, (_, numbers) in found.items()])
        return Records.from_pairs(rows_of, codes, n, len(self.vocabulary))

    def _diagnosed(self, specialty: Integers, people: Integers, rng: np.random.Generator) -> tuple[Integers, Integers]:
        """Some by specialty, age and sex, more of them in the old, and those that come with these."""
        world, strata = self.world, specialty * len(BANDS) * len(SEXES) + people
        older = AGES[people // len(SEXES)] / 50
        first = _some(world.diagnoses, DIAGNOSES * older, strata, rng, at_least=1)
        rows, codes = world.comorbidity.follow(*first, rng)
        kept = rng.random(len(rows)) < world.suits[people[rows], codes]
        rows, codes = _both(first, (rows[kept], codes[kept]))
        # of one category the first one stays
        kind = rows * self.diagnoses + _category(codes)
        _, once = np.unique(kind, return_index=True)
        return rows[once], codes[once]


def _diagnosis(number: int) -> str:
    home = SPECIALTIES[number % len(SPECIALTIES)]
    of_home = number // len(SPECIALTIES)
    category = home.first_category + of_home // KINDS_OF_A_CATEGORY
    return f"ICD10CM:{home.chapter}{category}{of_home % KINDS_OF_A_CATEGORY}"


def _category(diagnoses: Integers) -> Integers:
    """The number of each diagnosis's category."""
    home, of_home = diagnoses % len(SPECIALTIES), diagnoses // len(SPECIALTIES)
    return of_home // KINDS_OF_A_CATEGORY * len(SPECIALTIES) + home


def _who_has(diagnoses: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """How well each diagnosis suits an age and sex, (bands x sexes, D), and its weight in each specialty, age and sex,
    (specialties x bands x sexes, D)."""
    home = np.arange(diagnoses) % len(NAMES)
    peak = np.array([each.age for each in SPECIALTIES])[home] + rng.normal(0, 12, diagnoses)
    by_age = np.exp(-(((AGES[:, None] - peak) / rng.uniform(12, 35, diagnoses)) ** 2) / 2)  # (bands, D)
    by_sex = rng.uniform(0.3, 1.0, (len(SEXES), diagnoses))
    by_sex[SEXES.index("SEX:F"), home == OF_MEN] = 0
    by_sex[SEXES.index("SEX:M"), home == OF_WOMEN] = 0
    suits = (by_age[:, None] * by_sex).reshape(-1, diagnoses)
    weight = _of_specialties(diagnoses, rng, at_home=20, steepness=0.9)
    # nobody is of an age at which nothing can be diagnosed
    return suits, (weight[:, None] * (suits + 1e-6 * (suits > 0))).reshape(-1, diagnoses)


def _of_specialties(n: int, rng: np.random.Generator, at_home: float, steepness: float, first_rank: int = 1) -> Floats:
    """Weights of codes in each specialty, (specialties, n): unequally common, and more so where they are at home."""
    common = rng.permutation(1 / (first_rank + np.arange(n)) ** steepness)
    elsewhere = rng.lognormal(-1.5, 1.0, (len(NAMES), n))
    home = np.arange(n) % len(NAMES) == np.arange(len(NAMES))[:, None]
    weight: Floats = common * np.where(home, at_home, elsewhere)
    return weight


def _links(codes: int, others: int, each: int, chances: tuple[float, float], rng: np.random.Generator) -> Links:
    """So many others with each code, half of them of its specialty."""
    source = np.repeat(np.arange(codes), each)
    anywhere, of_home = rng.integers(others, size=len(source)), others // len(NAMES)
    near = source % len(NAMES) + len(NAMES) * rng.integers(of_home, size=len(source))
    other = np.where(rng.random(len(source)) < 0.5, near, anywhere)
    return Links.of(source, other, codes, lambda n: rng.uniform(*chances, n))


def _some(
    cumulative: Floats, mean: float | Floats, row: Integers, rng: np.random.Generator, at_least: int = 0
) -> tuple[Integers, Integers]:
    """(records, codes): a Poisson number more than `at_least` for each record, by the shares of its `row`."""
    rows = np.repeat(np.arange(len(row)), at_least + rng.poisson(mean, len(row)))
    return rows, one_of(cumulative, row[rows], rng)


def _both(a: tuple[Integers, Integers], b: tuple[Integers, Integers]) -> tuple[Integers, Integers]:
    return np.concatenate([a[0], b[0]]), np.concatenate([a[1], b[1]])
