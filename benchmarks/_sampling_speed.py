"""Records per second: against the paper's network and sampler, and as codes and records grow."""

import numpy as np
import torch

from benchmarks._harness import Figures, show, timed
from benchmarks._plain import PLAIN_STEPS, plain_records
from ehr.generators.d3pm import PRESETS, D3PMConfig, SparseConfig
from worker.engine.generators import SampleRequest
from worker.engine.generators.d3pm import REVEAL_STEPS, D3PMGenerator


def speed(generator: D3PMGenerator, quick: bool, figures: Figures) -> None:
    """Records per second of the paper's network and sampler, the plain sampler and the fast one, in one run."""
    n_codes = generator.noise.n_codes
    paper_steps, rows, steps = 500, 4, 1 if quick else 3
    paper = D3PMGenerator(PRESETS["paper-mimic"], generator.prevalence, generator.sizes)
    draws = torch.Generator().manual_seed(0)
    x = paper.noise.prior_sample(rows, draws)
    t = torch.full((rows,), paper_steps)
    paper.denoiser.eval()
    with torch.no_grad():
        paper.denoiser.in_batches(x, t)
        with timed() as paper_seconds:
            for _ in range(steps):
                logits = paper.denoiser.in_batches(x, t)
                paper.noise.p_sample(logits, x, t[:1], t[:1] - 1, draws)
    paper_rate = rows / (paper_seconds[0] / steps * paper_steps)
    n_plain, n_fast = (128, 512) if quick else (2_048, 20_480)
    with timed() as plain_seconds:
        plain_records(generator, n_plain, PLAIN_STEPS)
    generator.sample(SampleRequest(64))
    with timed() as fast_seconds:
        generator.sample(SampleRequest(n_fast))
    plain_rate, fast_rate = n_plain / plain_seconds[0], n_fast / fast_seconds[0]
    show(
        f"sampling, {n_codes} codes, same machine, same run",
        ["sampler", "records / s", "times the paper's"],
        [
            [f"linformer paper-mimic, {paper_steps} steps (extrapolated from {steps})", f"{paper_rate:.4f}", "1"],
            [f"plain absorbing, {PLAIN_STEPS} steps", f"{plain_rate:,.0f}", f"{plain_rate / paper_rate:,.0f}"],
            [f"block reveal, {REVEAL_STEPS} calls (default)", f"{fast_rate:,.0f}", f"{fast_rate / paper_rate:,.0f}"],
        ],
    )
    figures.add("sampling.records_per_s", fast_rate, "records / s")
    figures.add("sampling.speedup_vs_paper", fast_rate / paper_rate, "times")
    figures.add("sampling.speedup_vs_plain", fast_rate / plain_rate, "times")


def growth(quick: bool) -> None:
    """How the cost of a record grows with the number of codes and of records; untrained networks cost the same."""
    rows = []
    for n_codes in (500, 1_000) if quick else (500, 1_000, 2_000, 4_000):
        weights = 1 / np.arange(1, n_codes + 1) ** 0.9
        prevalence = torch.from_numpy(weights * 9 / weights.sum()).clamp(max=0.5)
        sizes = torch.from_numpy(np.bincount(np.random.default_rng(0).poisson(9, 10_000)) / 10_000)
        generator = D3PMGenerator(D3PMConfig(denoiser=SparseConfig()), prevalence, sizes)
        generator.sample(SampleRequest(64))
        cells = []
        for n in (512, 1_024) if quick else (2_048, 8_192):
            with timed() as seconds:
                generator.sample(SampleRequest(n))
            cells.append(f"{n / seconds[0]:,.0f}")
        rows.append([f"{n_codes:,}", *cells])
    show("records / s by number of codes", ["codes", "few records", "four times as many"], rows)
