"""The tables, made of finished cells alone: a cell that is not there is shown as missing."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from benchmarks.paper.contenders import ALL, CLIPPED, COMMON, OURS, YARDSTICK, contenders
from benchmarks.paper.measure import AREAS, ATTACKS, CODES_PER_RECORD, FIDELITY, MAY_BE_ATTACKED, REAL
from benchmarks.paper.plan import ALONE, RAREST, Bench, arm_cells, rows_of, seeds_of
from benchmarks.paper.store import Cell
from worker.engine.metrics import fidelity_metric

ARROWS = {"higher": "\u2191", "lower": "\u2193"}
MISSING, ABSENT = "missing", "\u2013"
UNLEARNED = f"{ABSENT}: the cohort has too few records with the disease, or hardly any without, to train a classifier."
TOO_MANY_CODES = (
    f"{CLIPPED}: its clipped values are no probabilities; the small positive noise of several hundred absent codes "
    "adds up to too many codes."
)
AREA_NAMES = {"auroc": "AUROC", "auprc": "AUPRC"}
ATTACK_NAMES = {"air": "AIR", "mir": "MIR"}
ARM_NAMES = {ALONE: "real alone", "real": "+ real", "unconditional": "+ unconditional", "guided": "+ exact-guided"}


@dataclass(frozen=True)
class Table:
    """A title, what to know about it, and cells of text."""

    title: str
    header: list[str]
    rows: list[list[str]]
    notes: Sequence[str] = ()


def tables(bench: Bench) -> list[Table]:
    """All tables that the run has."""
    found = [fidelity_table(bench, ALL), *utility_tables(bench, ALL), guided_table(bench)]
    found += [augmentation_table(bench, area) for area in reversed(AREAS)]
    if bench.data in MAY_BE_ATTACKED:
        found.append(privacy_table(bench))
    found.append(cost_table(bench, ALL))
    if contenders(COMMON, bench.quick):
        found += [fidelity_table(bench, COMMON), *utility_tables(bench, COMMON), cost_table(bench, COMMON)]
    return found


# ---- fidelity and utility


def fidelity_table(bench: Bench, arena: str) -> Table:
    header = ["", *(f"{title} {ARROWS[fidelity_metric(name).direction]}" for name, title in FIDELITY.items())]
    header.append("codes per record")
    rows = []
    for row in rows_of(bench, arena):
        cell = bench.store.find(f"fidelity/{arena}/{row}")
        shown = "floor (real records)" if row == REAL else row_name(row)
        rows.append([shown, *(measured(part(cell, name)) for name in FIDELITY), _codes(cell)])
    title = f"Fidelity, {arena}, {bench.sizes.records:,} records"
    return Table(title, header, rows, [*remarks(bench, arena), *_fidelity_notes(bench, arena)])


def _codes(cell: Cell | None) -> str:
    if cell is None:
        return MISSING
    return f"{cell[CODES_PER_RECORD]:.1f}" if CODES_PER_RECORD in cell else ABSENT  # as in cells of earlier versions


def _fidelity_notes(bench: Bench, arena: str) -> list[str]:
    published = [row.name for row in contenders(arena, bench.quick) if row.published]
    yardstick = bench.store.find(f"fidelity/{arena}/{YARDSTICK}") or {}
    worse = [row for row in published if _worse(bench.store.find(f"fidelity/{arena}/{row}") or {}, yardstick)]
    notes = []
    if worse:
        notes.append(
            f"{', '.join(worse)}: worse than {YARDSTICK} codes on every metric: hardly trained within the budget."
        )
    return [*notes, TOO_MANY_CODES] if CLIPPED in published else notes


def _worse(cell: Cell, yardstick: Cell) -> bool:
    """On every metric that both have."""
    losses = []
    for name in FIDELITY:
        value, bar = ((part(each, name) or {}).get("value") for each in (cell, yardstick))
        if value is not None and bar is not None:
            losses.append(value < bar if fidelity_metric(name).direction == "higher" else value > bar)
    return bool(losses) and all(losses)


def utility_tables(bench: Bench, arena: str) -> list[Table]:
    labels = bench.facts["labels"][arena]
    if not labels:
        return []
    found = []
    for area in AREAS:
        rows = []
        for row in rows_of(bench, arena):
            cells = [part(bench.store.find(f"utility/{arena}/{row}/{label}"), area) for label in labels]
            shown = "real records" if row == REAL else row_name(row)
            rows.append([shown, *(measured(cell, 3) for cell in cells)])
        title = f"Utility, {arena}: {AREA_NAMES[area]} of classifiers trained on {bench.sizes.records:,} records"
        found.append(Table(title, ["trained on", *labels], rows, [*remarks(bench, arena), UNLEARNED]))
    return found


# ---- conditions


def guided_table(bench: Bench) -> Table:
    ways = {"real": "real", "unconditional": "unconditional", "langevin": "Langevin", "exact": "exact"}
    rows = []
    for label in bench.facts["labels"][ALL]:
        cell = bench.store.find(f"guided/{label}")
        rows.append([label, *(measured(part(cell, way), 3, share=True) for way in ways)])
    notes = [f"Langevin and exact: {bench.sizes.guided:,} records each that were asked to have the disease."]
    return Table("Share of records with the disease, ours", ["", *ways.values()], rows, notes)


def augmentation_table(bench: Bench, area: str) -> Table:
    sizes = bench.sizes
    arms = [arm for arm in ARM_NAMES if arm != ALONE]
    header = ["disease", "added", ARM_NAMES[ALONE], *(ARM_NAMES[arm] for arm in arms)]
    rows = []
    for label in bench.facts["labels"][ALL]:
        points = augmentation_points(bench, label, area)
        for added in sizes.added:
            cells = [points[ALONE, 0], *(points[arm, added] for arm in arms)]
            rows.append([label, f"{added:,}", *(measured(cell, 3) for cell in cells)])
    notes = [
        "Half of the guided records have the disease; real ones have it as often as patients do. The generator has "
        "learned from all training records, so that what it adds may come from more patients than '+ real' adds.",
    ]
    if RAREST in bench.facts["labels"][ALL] and sizes.rarest_seeds > 1:
        notes.append(
            f"For {RAREST}: mean of {sizes.rarest_seeds} draws of real and synthetic records, with the 95 % interval "
            "of that mean; for the others one draw, with the interval of the test records."
        )
    return Table(f"Augmentation: {AREA_NAMES[area]} with {sizes.start:,} real records", header, rows, notes)


def augmentation_points(bench: Bench, label: str, area: str) -> dict[tuple[str, int], Cell | None]:
    """(arm, added) -> the measurement, over seeds where there are several."""
    found: dict[tuple[str, int], list[Cell | None]] = {}
    for seed in seeds_of(bench, label):
        for arm, added, name in arm_cells(bench, label, seed):
            found.setdefault((arm, added), []).append(part(bench.store.find(name), area))
    return {key: _over_seeds(cells) for key, cells in found.items()}


def _over_seeds(cells: Sequence[Cell | None]) -> Cell | None:
    if any(cell is None for cell in cells):
        return None
    there = [cell for cell in cells if cell is not None]
    values = [cell["value"] for cell in there if "value" in cell]
    if len(values) < 2:
        return next((cell for cell in there if "value" in cell), there[0])
    middle = float(np.mean(values))
    half = float(student.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)))
    return {"value": middle, "low": max(middle - half, 0.0), "high": min(middle + half, 1.0)}


# ---- privacy and cost


def privacy_table(bench: Bench) -> Table:
    roles = ("attack", "control", "gain")
    header = ["", *(f"{ATTACK_NAMES[name]} {role}" for name in ATTACKS for role in roles)]
    rows = []
    for row in rows_of(bench, ALL)[1:]:
        cell = bench.store.find(f"privacy/{row}")
        parts = [part(cell, name) for name in ATTACKS]
        rows.append([row_name(row), *(measured(part(each, role), 3) for each in parts for role in roles)])
    notes = ["The control is the same attack with unseen real records in the cohort's place; the gain is the risk."]
    notes += remarks(bench, ALL)
    return Table("Privacy (F1 of the attack)", header, rows, notes)


def cost_table(bench: Bench, arena: str) -> Table:
    header = ["", "training s", "epochs", "records seen", "trained records / s", "saved weights", "peak GiB, training"]
    header += ["network calls", "drawn records / s", "peak GiB, drawing"]
    rows = []
    for row in contenders(arena, bench.quick):
        model = bench.store.find(f"model/{arena}/{row.trained_as}")
        cohort = bench.store.find(f"cohort/{arena}/{row.name}")
        # other settings take no other memory, but the plain sampler has not been measured
        peak = ABSENT if row.plain else _peak(bench.store.find(f"memory/{arena}/{row.trained_as}"))
        rows.append([row_name(row.name), *_training(model), *_sampling(cohort), peak])
    notes = [
        f"Budget: {60 * bench.minutes:,.0f} s of training each, the epochs chosen by a short trial; an epoch that does "
        "not fit is cut to a part of the records. Peak memory is that of a process that does nothing else, libraries "
        "included. Of GANs and autoencoders, only what drawing needs is saved.",
        *_cost_notes(bench, arena),
        *remarks(bench, arena),
    ]
    return Table(f"Cost, {arena}", header, rows, notes)


def _training(cell: Cell | None) -> list[str]:
    if cell is None or "absent" in cell:
        return [MISSING if cell is None else ABSENT] * 6
    epochs = ABSENT if cell["epochs_published"] is None else f"{cell['epochs']} of {cell['epochs_published']}"
    seen, rate = f"{cell['records_seen']:,}", f"{cell['records_per_second']:,.0f}"
    return [f"{cell['seconds']:,.1f}", epochs, seen, rate, f"{cell['parameters']:,}", f"{cell['peak_gib']:.2f}"]


def _sampling(cell: Cell | None) -> list[str]:
    if cell is None or "records_per_second" not in cell:
        return [MISSING if cell is None else ABSENT] * 2
    calls = ABSENT if cell["calls"] is None else f"{cell['calls']:,}"
    rate = cell["records_per_second"]
    about = "about " if "absent" in cell else ""  # estimated: nothing was drawn
    return [calls, about + (f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}")]


def _peak(cell: Cell | None) -> str:
    if cell is None or "absent" in cell:
        return MISSING if cell is None else ABSENT
    return f"{cell['peak_gib']:.2f}"


def _cost_notes(bench: Bench, arena: str) -> list[str]:
    notes = []
    for row in contenders(arena, bench.quick):
        model = bench.store.find(f"model/{arena}/{row.trained_as}") or {}
        if row.weights_of is not None:
            how = "every record drawn by itself" if row.plain else "probabilities drawn instead of rounded"
            notes.append(f"{row.name}: the weights of {row.weights_of}, with {how}.")
        elif model.get("records", 0) < model.get("of_records", 0):
            seen = f"{model['records']:,} of {model['of_records']:,} training records"
            notes.append(f"{row.name}: its fewest epochs do not fit into the budget, so it learned from {seen}.")
    return notes


def remarks(bench: Bench, arena: str) -> list[str]:
    """Why rows have no figures."""
    notes = []
    for row in contenders(arena, bench.quick):
        cell = bench.store.find(f"cohort/{arena}/{row.name}") or {}
        if "absent" in cell:
            notes.append(f"{row.name}: not measured, {cell['absent']}.")
    return notes


# ---- words


def row_name(row: str) -> str:
    """Ours is told apart from the same method in the paper's size."""
    return f"{OURS} (ours)" if row == OURS else row


def part(cell: Cell | None, name: str) -> Cell | None:
    """One measurement of a cell; what is absent as a whole is absent in every part."""
    if cell is None or "absent" in cell:
        return cell
    inner: Cell | None = cell.get(name)
    return inner


def measured(cell: Cell | None, digits: int = 4, share: bool = False) -> str:
    """A value with its interval."""
    if cell is None:
        return MISSING
    if "value" not in cell:
        return ABSENT
    value, low, high = (_number(cell[key], digits, share) for key in ("value", "low", "high"))
    return f"{value} ({low}\u2013{high})"


def _number(value: float, digits: int, share: bool) -> str:
    if share:
        return f"{100 * value:.2f} %"
    return f"{value:.{digits}f}" if 0.001 <= abs(value) < 10 or value == 0 else f"{value:.{digits}g}"
