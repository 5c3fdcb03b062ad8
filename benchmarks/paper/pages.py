"""The results as files: Markdown to read, JSON to compute with, SVG to look at."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.pages.svg import Mark
from benchmarks.paper.contenders import ALL, COMMON, OURS, contenders
from benchmarks.paper.measure import AREAS, FIDELITY, REAL
from benchmarks.paper.plan import ALONE, RAREST, RUN, Bench, plan, rows_of
from benchmarks.paper.store import Cell, Store
from benchmarks.paper.svg import Curve, dot_plot, panels
from benchmarks.paper.tables import (
    AREA_NAMES,
    ARM_NAMES,
    Table,
    augmentation_points,
    part,
    row_name,
    tables,
)
from benchmarks.paper.wins import DEFINITION, guided_over_real, not_compared
from worker.engine.metrics import fidelity_metric

LOGARITHMIC = ("mmd",)  # from 1 down to 1e-5: on a linear axis all but the worst fall on one dot
NAMED = 12  # of the cells that are not finished
COLOURS = {"guided": 0, "real": 1, "unconditional": 2}


def write_results(bench: Bench, out: Path, figures: Sequence[dict[str, Any]], missing: Sequence[str]) -> None:
    """results.md, results.json and the pictures, from finished cells."""
    out.mkdir(parents=True, exist_ok=True)
    images = pictures(bench)
    for name, svg in images.items():
        (out / name).write_text(svg, encoding="utf-8")
    (out / "results.md").write_text(page(bench, figures, missing, list(images)), encoding="utf-8")
    kept = {"run": bench.facts, "figures": list(figures), "missing": list(missing), "cells": _cells(bench)}
    (out / "results.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def unpacked(results: Path, bench: Bench, folder: Path) -> Bench:
    """The run that a results.json was written from, its cells in `folder`."""
    kept = json.loads(results.read_text(encoding="utf-8"))
    store, facts = Store(folder), kept["run"]
    for name, cell in (kept["cells"] | {RUN: facts}).items():
        store.write(name, cell)
    return replace(bench, store=store, minutes=facts["minutes"], seed=facts["seed"])


def _cells(bench: Bench) -> dict[str, Cell]:
    return {task.name: bench.store.read(task.name) for task in plan(bench) if bench.store.has(task.name)}


# ---- the page


def page(bench: Bench, figures: Sequence[dict[str, Any]], missing: Sequence[str], images: Sequence[str]) -> str:
    facts = bench.facts
    box = facts["machine"]
    lines = [
        f"# Results on {facts['data']}",
        "",
        f"`{facts['command']}`",
        "",
        f"{facts['train']:,} training, {facts['holdout']:,} held-out and {facts['test']:,} test records, "
        f"{facts['codes']:,} codes. Every generator had {facts['minutes']:g} minutes of training and drew "
        f"{bench.sizes.records:,} records, on {box['cores']} CPU cores with {box['memory_gib']} GiB "
        f"(GPU: {box['gpu']}), torch {box['torch']}, seed {facts['seed']}. One training each: intervals are those of "
        "the measurement, not of training again with another seed.",
        "",
    ]
    if missing:
        more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
        lines += [f"**Not finished:** {', '.join(missing[:NAMED])}{more}.", ""]
    if figures:
        lines += ["## Where ours leads", "", DEFINITION, ""]
        rows = [[f"`{f['name']}`", f"{f['value']:.4g}", str(f["unit"])] for f in figures]
        lines += [*_markdown(Table("", ["figure", "value", ""], rows)), "", *_ratios(bench)]
        lines += [line for row, why in not_compared(bench).items() for line in (f"Not compared: {row}, {why}.", "")]
    for table in tables(bench):
        lines += [f"## {table.title}", "", *_markdown(table), ""]
        lines += [line for note in table.notes for line in (note, "")]
    lines += ["## Pictures", ""]
    lines += [line for name in images for line in (f"![{name.removesuffix('.svg')}]({name})", "")]
    return "\n".join(lines).rstrip() + "\n"


def _ratios(bench: Bench) -> list[str]:
    """The rarest disease: guided over real, with the interval over draws."""
    if RAREST not in bench.facts["labels"][ALL]:
        return []
    words = []
    for added in bench.sizes.added:
        ratio = guided_over_real(bench, RAREST, added)
        if ratio is not None:
            interval = "" if ratio.low is None else f" ({ratio.low:.2f}\u2013{ratio.high:.2f}, {ratio.seeds} draws)"
            words.append(f"{ratio.value:.2f}{interval} with {added:,} added")
    return [f"AUPRC for {RAREST} with guided records over that with as many real ones: {'; '.join(words)}.", ""]


def _markdown(table: Table) -> list[str]:
    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cells)} |"

    rule = ["---"] + ["---:"] * (len(table.header) - 1)
    return [line(table.header), line(rule), *(line(row) for row in table.rows)]


# ---- pictures


def pictures(bench: Bench) -> dict[str, str]:
    """File name -> SVG, of what there are cells for."""
    found = {}
    for arena in (ALL, COMMON):
        if contenders(arena, bench.quick):
            for metric in FIDELITY:
                drawn = _fidelity_picture(bench, arena, metric)
                if drawn is not None:
                    found[f"{metric.replace('_', '-')}-{arena.replace(' ', '-')}.svg"] = drawn
    for area in reversed(AREAS):
        drawn = _augmentation_picture(bench, area)
        if drawn is not None:
            found[f"augmentation-{area}.svg"] = drawn
    return found


def _fidelity_picture(bench: Bench, arena: str, metric: str) -> str | None:
    rows, floor = [], None
    for row in rows_of(bench, arena):
        cell = part(bench.store.find(f"fidelity/{arena}/{row}"), metric) or {}
        if "value" not in cell:
            continue
        if row == REAL:
            floor = cell["value"]
        else:
            rows.append((row_name(row), _mark(cell), row == OURS))
    if not rows:
        return None
    better = f"{fidelity_metric(metric).direction} is better"
    title, name = f"{FIDELITY[metric]}, {arena} ({better})", "floor, as many real records"
    return dot_plot(title, rows, floor, name, log=metric in LOGARITHMIC)


def _augmentation_picture(bench: Bench, area: str) -> str | None:
    parts = []
    for label in bench.facts["labels"][ALL]:
        points = augmentation_points(bench, label, area)
        alone = points[ALONE, 0] or {}
        curves = []
        for arm, colour in COLOURS.items():
            there = [(0.0, alone), *((float(n), points[arm, n] or {}) for n in bench.sizes.added)]
            marks = [(x, _mark(cell)) for x, cell in there if "value" in cell]
            if len(marks) > 1:
                curves.append(Curve(ARM_NAMES[arm], colour, marks))
        if curves:
            parts.append((label, curves))
    if not parts:
        return None
    title = f"{AREA_NAMES[area]} with {bench.sizes.start:,} real records and others added"
    return panels(title, parts, "records added")


def _mark(cell: Cell) -> Mark:
    return Mark("", cell["value"], cell["low"], cell["high"])
