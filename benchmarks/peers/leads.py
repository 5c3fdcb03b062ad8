"""Where ours leads and where a peer does, over all seeds, from finished cells alone."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.paper.measure import AREAS, FIDELITY
from benchmarks.peers.cells import ALONE, METRICS, OURS, REAL, Bench
from worker.engine.metrics import fidelity_metric

ABSENT = "-"
TITLES = FIDELITY | {"auroc": "AUROC, mean", "auprc": "AUPRC, mean", "distinguisher": "distinguisher AUC"}


def direction(metric: str) -> int:
    """1: larger is better."""
    if metric in AREAS:
        return 1
    return 1 if metric in FIDELITY and fidelity_metric(metric).direction == "higher" else -1


def values(benches: Sequence[Bench], row: str, metric: str) -> list[float]:
    """One for each seed that has one."""
    found = (_value(bench, row, metric) for bench in benches)
    return [value for value in found if value is not None]


def _value(bench: Bench, row: str, metric: str) -> float | None:
    if metric in AREAS:
        cells = [bench.store.find(f"utility/{label.name}/{row}") or {} for label in bench.arena.labels]
        areas = [(cell.get(metric) or {}).get("value") for cell in cells]
        known = [area for area in areas if area is not None]
        return float(np.mean(known)) if known and len(known) == len(areas) else None
    if metric == "distinguisher":
        return (bench.store.find(f"distinguisher/{row}") or {}).get("value")
    return ((bench.store.find(f"fidelity/{row}") or {}).get(metric) or {}).get("value")


@dataclass(frozen=True)
class Lead:
    """Ours against the best peer, by the mean over seeds."""

    metric: str
    ours: float
    best: float
    peer: str

    @property
    def is_ours(self) -> bool:
        return direction(self.metric) * (self.ours - self.best) > 0


def leads(benches: Sequence[Bench], row: str = OURS) -> list[Lead]:
    """Of every metric that ours and some peer have."""
    found = []
    for metric in METRICS:
        ours = values(benches, row, metric)
        rivals = {peer: values(benches, peer, metric) for peer in benches[0].rows if peer not in (OURS, ALONE)}
        means = {peer: float(np.mean(each)) for peer, each in rivals.items() if each}
        if ours and means:
            peer = max(means, key=lambda name: direction(metric) * means[name])
            found.append(Lead(metric, float(np.mean(ours)), means[peer], peer))
    return found


def figures(benches: Sequence[Bench]) -> list[tuple[str, float, str]]:
    """(name, value, unit)."""
    found = []
    for row, suffix in ((OURS, ""), (ALONE, "_independent")):
        there = leads(benches, row)
        found.append(
            (f"peers.led{suffix}", float(sum(lead.is_ours for lead in there)), "metrics, by the mean of seeds")
        )
    found.append(("peers.of", float(len(leads(benches))), "metrics that ours and a peer have"))
    ours, rivals = rates(benches, OURS), [rates(benches, peer.name) for peer in benches[0].peers]
    known = [float(np.mean(each)) for each in rivals if each]
    if ours and known:
        found.append(("peers.sampling_ratio", float(np.mean(ours)) / max(known), "ours over the fastest peer"))
    return found


def rates(benches: Sequence[Bench], row: str, name: str = "records_per_second") -> list[float]:
    cells = [bench.store.find(f"cohort/{row}") or {} for bench in benches]
    return [cell[name] for cell in cells if name in cell]


def quality_rows(benches: Sequence[Bench]) -> list[list[str]]:
    rows = []
    for row in (REAL, *benches[0].rows):
        cell = benches[0].store.find(f"cohort/{row}") or {}
        cells = [_spread(values(benches, row, metric)) for metric in METRICS]
        rows.append([row, *([ABSENT] * len(METRICS) if "absent" in cell else cells)])
    return rows


def cost_rows(benches: Sequence[Bench]) -> list[list[str]]:
    rows = []
    for row in benches[0].rows:
        names = ("train_seconds", "records_per_second", "condition_seconds", "condition_attained")
        cell = benches[0].store.find(f"cohort/{row}") or {}
        remark = cell.get("absent") or cell.get("condition_note") or ""
        rows.append([row, *(_spread(rates(benches, row, name)) for name in names), remark])
    return rows


def privacy_rows(benches: Sequence[Bench]) -> list[list[str]]:
    """The gain of every attack over its control."""
    rows = []
    for row in benches[0].rows:
        cells = [bench.store.find(f"privacy/{row}") or {} for bench in benches]
        gains = [[(cell.get(attack) or {}).get("gain", {}).get("value") for cell in cells] for attack in ("mir", "air")]
        rows.append([row, *(_spread([gain for gain in each if gain is not None]) for each in gains)])
    return rows


def _spread(found: Sequence[float]) -> str:
    """The mean, and with several seeds the standard deviation."""
    if not found:
        return ABSENT
    mean = f"{np.mean(found):,.0f}" if abs(np.mean(found)) >= 1000 else f"{np.mean(found):.4g}"
    return mean if len(found) == 1 else f"{mean} ± {np.std(found, ddof=1):.2g}"
