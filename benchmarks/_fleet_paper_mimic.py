"""What a training step of the paper's network takes: peak memory and seconds, by how many records go at a time.

`python -m benchmarks._fleet_paper_mimic '{"preset": ..., "batch": ..., ...}'` is one training in a process of its own,
whose peak is that of nothing else.
"""

import json
import subprocess
import sys
from typing import Any

import numpy as np

from benchmarks._harness import Figures, peak_rss_gib, show, timed

CODES, BATCH, STEPS = 949, 256, 2  # two: the optimiser has its state from the first on
MACHINES = (8, 16, 24)  # GiB
SPARE = 1.0  # GiB that a machine needs for everything else


def paper_mimic(figures: Figures, quick: bool) -> None:
    """`paper_mimic.peak_rss_gib`: training with the preset as it is, 949 codes and batches of 256."""
    codes = 60 if quick else CODES
    one = measured(preset="paper-mimic", codes=codes, batch=BATCH, steps=1 if quick else STEPS)
    large = measured(preset="paper-large", codes=codes, batch=one["rows"], steps=1)  # a batch of one part or two
    sizes = (2, 4) if quick else (4, 16)
    remembered = [measured(preset="paper-mimic", codes=codes, batch=n, micro=n, recompute=False) for n in sizes]
    recomputed = [measured(preset="paper-mimic", codes=codes, batch=n, micro=n, recompute=True) for n in sizes]
    show(
        f"a step at {codes} codes",
        ["preset", "batch", "at a time", "blocks are", "peak, GiB", "seconds a step"],
        [_row(each) for each in (one, large, *remembered, *recomputed)],
    )
    lines = [_line(remembered), _line(recomputed)]
    show(
        "paper-mimic: records at a time that a machine can hold (a straight line through the two sizes above)",
        ["memory", "blocks remembered", "blocks recomputed"],
        [[f"{gib} GiB", *(str(_fits(gib, *line)) for line in lines)] for gib in MACHINES],
    )
    figures.add("paper_mimic.peak_rss_gib", one["peak_gib"], "GiB")
    figures.add("paper_mimic.seconds_per_step", one["seconds"], "s")
    figures.add("paper_large.peak_rss_gib", large["peak_gib"], "GiB")
    for gib in MACHINES:
        figures.add(f"paper_mimic.rows_in_{gib}_gib", _fits(gib, *lines[0]), "records at a time")
        figures.add(f"paper_mimic.recomputed_rows_in_{gib}_gib", _fits(gib, *lines[1]), "records at a time")


def measured(**what: Any) -> dict[str, Any]:
    """One training in a process of its own."""
    command = [sys.executable, "-m", "benchmarks._fleet_paper_mimic", json.dumps(what)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return what | dict(json.loads(done.stdout))


def _row(each: dict[str, Any]) -> list[str]:
    how = "recomputed" if each["recomputes"] else "remembered"
    numbers = [f"{each['peak_gib']:.2f}", f"{each['seconds']:.0f}"]
    return [str(each["preset"]), str(each["batch"]), str(each["rows"]), how, *numbers]


def _line(two: list[dict[str, Any]]) -> tuple[float, float]:
    """(GiB without any record, GiB for each)."""
    (a, x), (b, y) = ((each["rows"], each["peak_gib"]) for each in two)
    each = (y - x) / (b - a)
    return x - a * each, each


def _fits(gib: int, base: float, each: float) -> int:
    return max(int((gib - SPARE - base) / each), 0)


def train(
    preset: str, codes: int, batch: int, steps: int = 1, micro: int | None = None, recompute: bool | None = None
) -> None:
    from ehr.generators.d3pm import PRESETS
    from ehr.records import Records
    from worker.engine.denoisers import LinformerDenoiser
    from worker.engine.generators import FitRequest
    from worker.engine.generators.d3pm import D3PMGenerator

    rng = np.random.default_rng(0)
    shares = np.minimum(9 * (weights := 1 / np.arange(1, codes + 1) ** 0.9) / weights.sum(), 0.5)
    train = Records.from_dense(rng.random((batch * steps, codes)) < shares)
    settings = PRESETS[preset].model_dump()
    settings["training"] |= {"epochs": 1, "batch_size": batch, "micro_batch": micro}
    settings["denoiser"] |= {"recompute": recompute}
    generator, run = D3PMGenerator.prepare(FitRequest(train, None, settings, device="cpu"))
    with timed() as seconds:
        run.to_the_end()
    assert run.step == steps and isinstance(generator.denoiser, LinformerDenoiser)
    result = {
        "peak_gib": peak_rss_gib(),
        "seconds": seconds[0] / steps,
        "rows": micro or min(batch, generator.denoiser.rows_per_gradient(generator.device) or batch),
        "recomputes": generator.denoiser._recomputes(generator.device),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    train(**json.loads(sys.argv[1]))
