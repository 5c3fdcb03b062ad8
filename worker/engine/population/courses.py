"""The tables of the simulated histories: how diseases begin and progress, and what follows what.

Everything here is data; `histories.py` turns it into probabilities. The conditions and codes are those of
`catalogue.py`. Percentages are written as percentages; six values in a row always follow `catalogue.AGES`.
"""

from typing import NamedTuple

from worker.engine.population.catalogue import ByAge

FEWEST_VISITS, MOST_VISITS = 10, 30
VISITS = ("VISIT:9202", "VISIT:9201", "VISIT:9203")  # outpatient, inpatient, emergency room
OUTPATIENT, INPATIENT, EMERGENCY = range(3)


class Step(NamedTuple):
    """One step of a disease: who has made it at the first visit (of those who made the step before), who makes it
    between two visits, which conditions make it likelier by which factor, and how many go back."""

    condition: str
    start: ByAge
    hazard: ByAge
    faster: dict[str, float]
    back: float = 0.0


class Screening(NamedTuple):
    """Is due when it was not among the last `every` visits, and is then done at `percent` of outpatient visits."""

    code: str
    every: int
    percent: float
    women_from: int  # position in AGES
    men_from: int


class Treatment(NamedTuple):
    """A drug that can only follow one of its diagnoses, of an earlier visit, and then starts at `percent` of visits."""

    drug: str
    after: tuple[str, ...]
    percent: float


# fmt: off
# Diseases run side by side; the steps of one come in order. Diabetes leads to kidney disease, coronary disease to
# heart failure.
DISEASES: tuple[tuple[Step, ...], ...] = (
    (
        Step("metabolic", (1, 8, 22, 42, 56, 55), (0.2, 1, 2.5, 3.5, 4, 4), {}),
        Step("diabetes", (2, 8, 14, 18, 20, 18), (0.5, 1.5, 3, 4, 4, 4), {"mental health": 1.3}),
        Step("renal", (1, 3, 6, 12, 18, 24), (0.5, 2, 3, 4, 6, 8), {"heart failure": 1.8}),
    ),
    (
        Step("coronary", (0, 0.2, 1, 5, 12, 18), (0, 0.1, 0.5, 1.2, 2, 2.5), {"metabolic": 2, "diabetes": 1.6}),
        Step("heart failure", (0, 4, 8, 12, 20, 35), (0, 2, 3, 4, 5, 7), {"renal": 1.8, "diabetes": 1.3}),
    ),
    (Step("lung", (0, 0.4, 2, 6, 9, 9), (0, 0.1, 0.4, 0.8, 1, 1), {}),),
    (
        Step("mental health", (4, 14, 15, 13, 9, 8), (0.4, 1.5, 1.4, 1, 0.8, 0.8), {"lung": 1.5, "heart failure": 1.5},
             back=6),
    ),
    (Step("colorectal cancer", (0, 0, 0.2, 0.6, 1.2, 1.5), (0, 0.02, 0.1, 0.3, 0.5, 0.5), {"diabetes": 1.3}),),
    (Step("dementia", (0, 0, 0, 0.4, 3, 14), (0, 0, 0, 0.2, 1, 3), {"coronary": 1.4}),),
)

# per cent of visits at which the code of a lasting disorder is written down; these run beside the diseases above
LASTING: dict[str, float] = {
    "E03": 70, "E04": 35, "E55": 40, "D25": 40, "G43": 50, "H25": 45, "H40": 75, "H52": 25, "H90": 40, "I83": 30,
    "J30": 50, "J45": 65, "K21": 55, "K57": 35, "K64": 30, "L20": 50, "L40": 60, "L57": 35, "L70": 50, "M19": 45,
    "M25": 40, "M54": 45, "M75": 40, "M79": 35, "M81": 60, "N40": 65, "N80": 50, "N95": 45,
}

TREATMENTS: tuple[Treatment, ...] = (
    Treatment("metformin", ("E11",), 40), Treatment("glipizide", ("E11",), 6), Treatment("sitagliptin", ("E11",), 5),
    Treatment("empagliflozin", ("E11",), 6), Treatment("insulin glargine", ("E1165", "E1122"), 15),
    Treatment("insulin lispro", ("E1165", "E1122"), 8), Treatment("gabapentin", ("E1142",), 20),
    Treatment("atorvastatin", ("E78", "I25"), 16), Treatment("simvastatin", ("E78",), 5),
    Treatment("rosuvastatin", ("E78",), 4), Treatment("lisinopril", ("I10",), 15), Treatment("losartan", ("I10",), 8),
    Treatment("amlodipine", ("I10",), 10), Treatment("hydrochlorothiazide", ("I10",), 7),
    Treatment("metoprolol", ("I25", "I50"), 20), Treatment("carvedilol", ("I50",), 12),
    Treatment("furosemide", ("I50", "N18"), 18), Treatment("spironolactone", ("I50",), 8),
    Treatment("clopidogrel", ("I21", "Z95"), 20), Treatment("aspirin", ("I25",), 30),
    Treatment("nitroglycerin", ("I20",), 25), Treatment("apixaban", ("I48",), 20), Treatment("warfarin", ("I48",), 7),
    Treatment("calcitriol", ("N18",), 7), Treatment("allopurinol", ("M10",), 25),
    Treatment("albuterol", ("J44",), 30), Treatment("tiotropium", ("J44",), 18),
    Treatment("sertraline", ("F32", "F41"), 9), Treatment("escitalopram", ("F32", "F41"), 7),
    Treatment("trazodone", ("F32",), 6), Treatment("quetiapine", ("F31",), 12),
    Treatment("donepezil", ("F03", "G30"), 18), Treatment("memantine", ("G30",), 12),
    Treatment("fluorouracil", ("C18", "C20"), 25), Treatment("ondansetron", ("Z51",), 30),
    Treatment("levothyroxine", ("E03",), 45), Treatment("fluticasone", ("J30",), 18),
    Treatment("cetirizine", ("J30",), 12), Treatment("montelukast", ("J45",), 18),
    Treatment("omeprazole", ("K21",), 28), Treatment("cholecalciferol", ("E55",), 30),
    Treatment("alendronate", ("M81",), 22),
    Treatment("tamsulosin", ("N40",), 22), Treatment("estradiol", ("N95",), 15), Treatment("naproxen", ("M54",), 8),
)
CONTINUED = 85  # per cent of visits at which a drug of the visit before is there again

SCREENINGS: tuple[Screening, ...] = (
    Screening("Z00", 3, 60, 0, 0), Screening("Z23", 6, 35, 0, 0), Screening("Z12", 5, 45, 2, 3),
    Screening("Z01", 8, 30, 1, 1),
)

# drugs of short courses, which follow the state of the day
SHORT_COURSES = ("amoxicillin", "azithromycin", "cephalexin", "ciprofloxacin", "doxycycline", "prednisone",
                 "ibuprofen", "acetaminophen", "hydrocodone", "oxycodone")

# how often a code is written down at an outpatient, inpatient and emergency visit, against its rate
SERIOUS, SUDDEN = (0.3, 6.0, 2.5), (0.7, 1.2, 4.0)
BY_VISIT: dict[str, tuple[float, float, float]] = {
    **dict.fromkeys(("A41", "E86", "E87", "I21", "I63", "I82", "J18", "J90", "J96", "N17", "S72"), SERIOUS),
    **dict.fromkeys(("R07", "R10", "R11", "R42", "R50", "R55", "S06", "S52", "S61", "S93"), SUDDEN),
}

class Burden(NamedTuple):
    """What a condition does to a patient's course: points towards shorter gaps, and per cent of inpatient stays and of
    deaths that it adds to a visit."""

    points: int
    inpatient: float
    death: float


BURDENS: dict[str, Burden] = {
    "metabolic": Burden(1, 0, 0), "diabetes": Burden(1, 2, 0.3), "renal": Burden(1, 7, 4), "coronary": Burden(1, 4, 1),
    "heart failure": Burden(1, 12, 6), "lung": Burden(1, 6, 3), "mental health": Burden(1, 2, 0.3),
    "colorectal cancer": Burden(2, 12, 9), "dementia": Burden(1, 6, 6),
}
INPATIENT_PERCENT, EMERGENCY_PERCENT = 4, 9
INPATIENT_POINTS = 2  # a stay is followed sooner
LEAVING_PERCENT = 5
DEATH_PERCENT: ByAge = (0.1, 0.1, 0.2, 0.6, 1.5, 5)

# days to the next visit, first and last, and per cent of each for 0, 1, ... points
GAP_DAYS = ((1, 14), (21, 40), (75, 105), (165, 200), (345, 385))
GAP_PERCENT = (
    (3, 7, 15, 30, 45), (5, 13, 27, 35, 20), (8, 22, 38, 24, 8), (13, 34, 36, 14, 3), (20, 45, 26, 8, 1),
    (32, 46, 17, 4, 1),
)
# fmt: on
