"""Records per second: against the paper's network and sampler, an earlier version, and as codes and records grow."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from benchmarks._harness import Figures, show, timed
from benchmarks._kept_models import kept_model
from benchmarks._plain import PLAIN_STEPS, plain_records
from ehr.generators.d3pm import PRESETS, D3PMConfig, SparseConfig
from worker.engine.audit.effort import operations
from worker.engine.generators import SampleRequest
from worker.engine.generators.d3pm import REVEAL_STEPS, D3PMGenerator


def speed(generator: D3PMGenerator, quick: bool, figures: Figures) -> None:
    """Records per second of the paper's network and sampler, the plain sampler and the fast one, in one run; of the
    first and the last the best of three turns."""
    n_codes = generator.noise.n_codes
    paper_steps, rows, turns = 500, 4, 1 if quick else 3
    paper = D3PMGenerator(PRESETS["paper-mimic"], generator.prevalence, generator.sizes)
    draws = torch.Generator().manual_seed(0)
    x = paper.noise.prior_sample(rows, draws)
    t = torch.full((rows,), paper_steps)
    paper.denoiser.eval()
    with torch.no_grad():
        paper.denoiser.in_batches(x, t)
        paper_step = _best_of(turns, lambda: _paper_step(paper, x, t, draws))
    paper_rate = rows / (paper_step * paper_steps)
    n_plain, n_fast = (128, 512) if quick else (2_048, 10_240)
    with timed() as plain_seconds:
        plain_records(generator, n_plain, PLAIN_STEPS)
    generator.sample(SampleRequest(64))
    fast_rate = n_fast / _best_of(turns, lambda: generator.sample(SampleRequest(n_fast)))
    plain_rate = n_plain / plain_seconds[0]
    show(
        f"sampling, {n_codes} codes, same machine, same run",
        ["sampler", "records / s", "times the paper's"],
        [
            [f"linformer paper-mimic, {paper_steps} steps (extrapolated from one)", f"{paper_rate:.4f}", "1"],
            [f"plain absorbing, {PLAIN_STEPS} steps", f"{plain_rate:,.0f}", f"{plain_rate / paper_rate:,.0f}"],
            [f"block reveal, {REVEAL_STEPS} calls (default)", f"{fast_rate:,.0f}", f"{fast_rate / paper_rate:,.0f}"],
        ],
    )
    figures.add("sampling.records_per_s", fast_rate, "records / s")
    figures.add("sampling.speedup_vs_paper", fast_rate / paper_rate, "times")
    figures.add("sampling.speedup_vs_plain", fast_rate / plain_rate, "times")


# What a checkout of another version runs in a process of its own: it knows of this one nothing but the model.
def _paper_step(paper: D3PMGenerator, x: torch.Tensor, t: torch.Tensor, draws: torch.Generator) -> None:
    logits = paper.denoiser.in_batches(x, t)
    paper.noise.p_sample(logits, x, t[:1], t[:1] - 1, draws)


def _best_of(turns: int, call: Callable[[], object]) -> float:
    """Seconds of the fastest of some calls: a machine is never faster than it is."""
    seconds = []
    for _ in range(turns):
        with timed() as took:
            call()
        seconds.append(took[0])
    return min(seconds)


DRAW = """
import json, sys, time
from safetensors.torch import load_file
from worker.engine.generators import SampleRequest, State
from worker.engine.generators.d3pm import D3PMGenerator
import torch
torch.set_num_threads(int(sys.argv[3]))
config = json.load(open(sys.argv[1] + ".json"))
generator = D3PMGenerator.from_state(State(load_file(sys.argv[1] + ".safetensors"), config.get("config", config)))
generator.sample(SampleRequest(64))
begun = time.perf_counter()
generator.sample(SampleRequest(int(sys.argv[2])))
print(time.perf_counter() - begun)
"""


def against(before: Path, its_model: Path | None, generator: D3PMGenerator, quick: bool, figures: Figures) -> None:
    """Records per second of an earlier version (a checkout) and of this one, in turns, each with its own default, the
    earlier one from a model that it has trained, if there is one (two files, by their name without an ending)."""
    n, rounds = (512, 1) if quick else (10_240, 3)
    with tempfile.TemporaryDirectory() as folder:
        kept_model("model", Path(folder), lambda: generator)
        models = {before: its_model or Path(folder) / "model", Path(__file__).parents[1]: Path(folder) / "model"}
        seconds: dict[Path, list[float]] = {version: [] for version in models}
        for _ in range(rounds):
            for version, took in seconds.items():
                command = [sys.executable, "-c", DRAW, str(models[version]), str(n), str(torch.get_num_threads())]
                ran = subprocess.run(
                    command, cwd=version, env=os.environ | {"PYTHONPATH": str(version)}, capture_output=True, text=True
                )
                if ran.returncode:
                    raise SystemExit(f"{version} cannot draw from this model: {ran.stderr.strip().splitlines()[-1]}")
                took.append(float(ran.stdout.split()[-1]))
    earlier, now = (n / min(took) for took in seconds.values())
    show(
        "an earlier version and this one", ["", "records / s"], [["before", f"{earlier:,.0f}"], ["now", f"{now:,.0f}"]]
    )
    figures.add("sampling.speedup_vs_before", now / earlier, "times")


def share_of_peak(generator: D3PMGenerator, quick: bool, figures: Figures) -> None:
    """Operations of a record, and what share of the rate at which this machine multiplies matrices is reached."""
    n = 512 if quick else 8_192
    each = operations(lambda: generator.sample(SampleRequest(1_024))) / 1_024
    with timed() as seconds:
        generator.sample(SampleRequest(n))
    width = 512
    a, b = torch.randn(1_024, width), torch.randn(width, width)
    best = _best_of(20, lambda: torch.mm(a, b))
    peak = 2 * len(a) * width * width / best
    show(
        "what a record costs",
        ["MFLOP a record", "GFLOP / s reached", "GFLOP / s of a product of matrices", "share"],
        [
            [
                f"{each / 1e6:.1f}",
                f"{each * n / seconds[0] / 1e9:.1f}",
                f"{peak / 1e9:.1f}",
                f"{each * n / seconds[0] / peak:.2f}",
            ]
        ],
    )
    figures.add("sampling.gemm_share", each * n / seconds[0] / peak, "of the rate of a product of matrices")
    figures.add("sampling.mflop_per_record", each / 1e6, "MFLOP")


def growth(quick: bool, figures: Figures) -> None:
    """How the cost of a record grows with the number of codes and of records; untrained networks cost the same."""
    rows, widths, rates = [], (500, 1_000) if quick else (500, 1_000, 2_000, 4_000), {}
    for n_codes in widths:
        weights = 1 / np.arange(1, n_codes + 1) ** 0.9
        prevalence = torch.from_numpy(weights * 9 / weights.sum()).clamp(max=0.5)
        sizes = torch.from_numpy(np.bincount(np.random.default_rng(0).poisson(9, 10_000)) / 10_000)
        generator = D3PMGenerator(D3PMConfig(denoiser=SparseConfig()), prevalence, sizes)
        generator.sample(SampleRequest(64))
        cells = []
        for n in (512, 1_024) if quick else (2_048, 8_192):
            with timed() as seconds:
                generator.sample(SampleRequest(n))
            rates[n_codes] = n / seconds[0]
            cells.append(f"{rates[n_codes]:,.0f}")
        rows.append([f"{n_codes:,}", *cells])
    show("records / s by number of codes", ["codes", "few records", "four times as many"], rows)
    if not quick:
        figures.add("sampling.growth_4000_over_500", rates[500] / rates[4_000], "times the cost")
