"""Where our default leads, counted from finished cells alone."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from benchmarks.paper.contenders import ALL, COMMON, OURS, contenders
from benchmarks.paper.measure import AREAS, FIDELITY, GUIDED, REAL
from benchmarks.paper.plan import RAREST, Bench, arm_cells, plan, seeds_of
from benchmarks.paper.store import Cell
from worker.engine.metrics import fidelity_metric

DEFINITION = (
    "Ours leads a fidelity metric when its value is better than every baseline's; a tie is no lead. It leads an area "
    "(AUROC, AUPRC) when none is larger by more than half the width of our 95 % interval, and *outright* when ours is "
    "larger than all. Baselines are the published generators with all their variants; `independent`, real records and "
    "our own variants are yardsticks and do not count. A baseline without a cohort has not been compared, nor one "
    "whose cohort has no value for a metric: each figure says how many of the baselines have a cohort."
)


class MissingCellsError(Exception):
    """Cells that the figures are made of are not finished."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(f"{len(names)} cells are not finished: {', '.join(names)}")
        self.names = list(names)


@dataclass(frozen=True)
class Lead:
    """Whether ours leads one metric."""

    metric: str
    within_interval: bool
    outright: bool


def compare(metric: str, direction: str, ours: Cell, rivals: Sequence[Cell]) -> Lead:
    """By the definition above, over the rivals that have a value. Without one, ours or theirs, nothing is led."""
    theirs = [rival["value"] for rival in rivals if "value" in rival]
    if "value" not in ours or not theirs:
        return Lead(metric, False, False)
    sign = 1 if direction == "higher" else -1
    lead = min(sign * (ours["value"] - rival) for rival in theirs)  # over the best of them
    half = (ours["high"] - ours["low"]) / 2
    return Lead(metric, bool(lead >= -half), bool(lead > 0))


def unfinished(bench: Bench) -> list[str]:
    """Cells of the plan that are not there."""
    return [task.name for task in plan(bench) if not bench.store.has(task.name)]


def fidelity_leads(bench: Bench, arena: str) -> list[Lead]:
    """Of the five fidelity metrics."""
    ours, *rivals = (bench.store.read(f"fidelity/{arena}/{row}") for row in (OURS, *rivals_in(bench, arena)))
    return [
        compare(name, fidelity_metric(name).direction, _part(ours, name), [_part(r, name) for r in rivals])
        for name in FIDELITY
    ]


def not_compared(bench: Bench) -> dict[str, str]:
    """Published generator -> why it has no cohort."""
    rows = [(arena, row) for arena in (ALL, COMMON) for row in rivals_in(bench, arena)]
    cells = {row: bench.store.find(f"cohort/{arena}/{row}") or {} for arena, row in rows}
    return {row: cell["absent"] for row, cell in cells.items() if "absent" in cell}


def area_leads(bench: Bench, arena: str, area: str) -> list[Lead]:
    """Of the diseases, for AUROC or AUPRC."""
    leads = []
    for label in bench.facts["labels"][arena]:
        rows = (OURS, *rivals_in(bench, arena))
        ours, *rivals = (_part(bench.store.read(f"utility/{arena}/{row}/{label}"), area) for row in rows)
        leads.append(compare(label, "higher", ours, rivals))
    return leads


@dataclass(frozen=True)
class Ratio:
    """AUPRC with guided records over AUPRC with as many real ones: geometric mean over seeds and 95 % interval."""

    value: float
    low: float | None  # one seed has no interval
    high: float | None
    seeds: int


def guided_over_real(bench: Bench, label: str, added: int) -> Ratio | None:
    """None where a classifier could not be trained."""
    logs = []
    for seed in seeds_of(bench, label):
        names = {(arm, n): name for arm, n, name in arm_cells(bench, label, seed)}
        guided, real = (bench.store.read(names[arm, added])["auprc"].get("value") for arm in (GUIDED, REAL))
        if guided and real:
            logs.append(np.log(guided / real))
    if not logs:
        return None
    middle = float(np.mean(logs))
    if len(logs) == 1:
        return Ratio(float(np.exp(middle)), None, None, 1)
    half = student.ppf(0.975, len(logs) - 1) * np.std(logs, ddof=1) / np.sqrt(len(logs))
    return Ratio(float(np.exp(middle)), float(np.exp(middle - half)), float(np.exp(middle + half)), len(logs))


def figures(bench: Bench) -> list[tuple[str, float, str]]:
    """(name, value, unit). MissingCellsError if cells are missing or there is nobody to win against; the figures of the
    most common codes are of cells of their own, and left out while those are missing."""
    missing = unfinished(bench)
    few_codes_missing = [name for name in missing if f"/{COMMON}/" in name]
    if missing != few_codes_missing:
        raise MissingCellsError(missing)
    if not rivals_in(bench, ALL):
        raise MissingCellsError(["(this engine has no published baseline to compare with)"])
    found = []
    for arena, suffix in ((ALL, ""), (COMMON, "_100_codes")):
        if not rivals_in(bench, arena) or (arena == COMMON and few_codes_missing):
            continue
        against = _against(bench, arena)
        won = [lead.outright for lead in fidelity_leads(bench, arena)]
        found.append((f"wins.fidelity{suffix}", float(sum(won)), f"of {len(won)} metrics, {against}"))
        for area in reversed(AREAS):
            found += _counted(f"wins.{area}{suffix}", area_leads(bench, arena, area), against)
    if RAREST in bench.facts["labels"][ALL]:
        for added in bench.sizes.added:
            ratio = guided_over_real(bench, RAREST, added)
            if ratio is not None:
                name = "augmentation.402_over_real" + ("" if added == bench.sizes.added[0] else f".{added}")
                found.append((name, ratio.value, "AUPRC, guided over real"))
    return found


def _against(bench: Bench, arena: str) -> str:
    """How many of the published generators have a cohort."""
    rivals = rivals_in(bench, arena)
    there = [row for row in rivals if "absent" not in bench.store.read(f"cohort/{arena}/{row}")]
    return f"against {len(there)} of {len(rivals)} baselines"


def _counted(name: str, leads: Sequence[Lead], against: str) -> list[tuple[str, float, str]]:
    of = f"of {len(leads)} diseases, {against}"
    if not leads:
        return []
    return [
        (name, float(sum(lead.within_interval for lead in leads)), of),
        (f"{name}_outright", float(sum(lead.outright for lead in leads)), of),
    ]


def rivals_in(bench: Bench, arena: str) -> list[str]:
    """The published generators of an arena."""
    return [row.name for row in contenders(arena, bench.quick) if row.published]


def _part(cell: Cell, name: str) -> Cell:
    """One measurement of a cell; a cell that is absent as a whole has none."""
    part: Cell = cell if "absent" in cell else cell[name]
    return part
