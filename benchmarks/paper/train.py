"""Training within a budget of wall-clock time, the same for every generator, and drawing within a limit."""

import math
import multiprocessing
import os
import resource
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks._harness import peak_rss_gib, subset, timed
from benchmarks._plain import plain_records
from benchmarks.paper.contenders import OURS, Contender
from benchmarks.paper.store import Cell, Store
from ehr.errors import EhrError, TrainingStopped
from ehr.generators import generator_spec
from ehr.records import Records
from worker.engine.generators import FitRequest, Generator, SampleRequest, generator_named
from worker.engine.generators.d3pm import ANCESTRAL_STEPS, D3PMGenerator
from worker.engine.training import Hooks, TrainingProgress

TRIAL_STEPS, WARM_UP = 24, 2
ENOUGH = 0.8  # of the budget
TRIAL_SHARE = 0.1  # of the budget: a trial of a slow network has fewer steps
EVALUATIONS = 0.05  # of the budget, for the held-out evaluations of ours; no other generator makes any
LARGEST_AUTOMATIC_BATCH, SMALLEST_AUTOMATIC_BATCH = 512, 64
PROBE_CALLS, PROBE_ROWS, PROBE_SHARE = 4, (4, 64, 1024), 0.01
MEMORY_SHARE = 0.75  # of the machine's, for one training or drawing
FEW_CALLS = 16  # of the network: never too slow, and enough to see how much memory one needs


@dataclass(frozen=True)
class Plan:
    """What fits into the budget."""

    epochs: int
    records: int  # of the training records, where not even one pass over all of them fits
    step_seconds: float | None
    batch: int | None

    def steps(self) -> int:
        return 0 if self.batch is None else self.epochs * max(self.records // self.batch, 1)


# ---- training


def train_apart(folder: Path, split: str, contender: Contender, name: str, seconds: float, seed: int) -> Cell:
    """Train in a process of its own, so that its peak of memory is the training's, and keep the model as `name`."""
    return _apart(train_here, folder, split, contender, name, seconds, seed)


def _apart(make: Callable[..., Cell], *arguments: Any) -> Cell:
    """The cell that `make` gives, in a process that does nothing else."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=_send, args=(sender, make, *arguments), daemon=True)
    process.start()
    sender.close()  # ours; the process that ends closes the last one
    try:
        cell: Cell = receiver.recv()
    except EOFError:
        process.join()
        raise RuntimeError(f"{make.__name__} ended with exit code {process.exitcode}") from None
    process.join()
    return cell


def _send(sender: Any, make: Callable[..., Cell], *arguments: Any) -> None:
    # A network too large for this machine shall fail by itself, before the kernel ends some process to make room.
    most = int(MEMORY_SHARE * _memory_bytes())
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    try:
        sender.send(make(*arguments))
    except RuntimeError as error:  # torch has no exception of its own for this
        if "allocate memory" not in str(error):
            raise
        sender.send({"absent": f"it needs more than {most / 2**30:.0f} GiB of memory"})


def train_here(folder: Path, split: str, contender: Contender, name: str, seconds: float, seed: int) -> Cell:
    """The same in this process, which saves the seconds of starting another."""
    store = Store(folder)
    train, holdout = (store.load_records(f"{split}/{part}") for part in ("train", "holdout"))
    generator, cell = train_within(contender, train, holdout, seconds, seed)
    if generator is not None:
        store.save_model(name, generator)
    return cell | {"peak_gib": _own_peak_gib()}


def train_within(
    contender: Contender, train: Records, holdout: Records, seconds: float, seed: int
) -> tuple[Generator | None, Cell]:
    """The generator trained for about `seconds`, and what it took; None and the reason if it cannot be trained."""
    try:
        trial = None
        if _epochs(contender.settings) is not None:  # it is trained by steps
            trial = _seconds_per_step(contender, train, _batch(contender.settings, len(train)), seconds, seed)
        run = _fit(contender, train, holdout, _planned(contender, train, seconds, trial), seed)
        # A trial may see none of the quick steps of a later phase. Who was given too little begins again.
        if trial is not None and run.seconds < ENOUGH * seconds:
            longer = _planned(contender, train, seconds, run.seconds / run.steps)
            if longer.steps() > run.plan.steps():
                run = _fit(contender, train, holdout, longer, seed)
    except EhrError as error:
        return None, {"absent": f"training failed: {error}"}
    return run.generator, {
        "budget_seconds": seconds,
        "seconds": run.seconds,
        "epochs": run.plan.epochs,
        "epochs_published": _epochs(contender.settings),
        "records": run.plan.records,
        "of_records": len(train),
        "records_seen": run.seen,
        "records_per_second": run.seen / run.seconds,
        "step_seconds": run.plan.step_seconds,
        "parameters": sum(tensor.numel() for tensor in run.generator.state().tensors.values()),
    }


@dataclass(frozen=True)
class Run:
    """A training as it went."""

    plan: Plan
    generator: Generator
    seconds: float
    steps: int
    seen: int  # records, each as often as it was seen


def _fit(contender: Contender, train: Records, holdout: Records, plan: Plan, seed: int) -> Run:
    part = subset(train.take(np.random.default_rng(seed).permutation(len(train))), plan.records)
    several = holdout if plan.epochs > 1 else None  # one pass has no better epoch to go back to
    settings, steps = contender.settings, 0
    if plan.batch is not None:
        settings = _with(settings, epochs=plan.epochs, batch_size=plan.batch)

    def count(_: TrainingProgress) -> None:
        nonlocal steps
        steps += 1

    with timed() as took:
        request = FitRequest(part, several, settings, seed, hooks=Hooks(on_progress=count))
        generator = generator_named(contender.generator).fit(request)
    return Run(plan, generator, took[0], steps, steps * plan.batch if plan.batch and steps else len(part))


def _planned(contender: Contender, train: Records, seconds: float, step: float | None) -> Plan:
    """How many epochs fit, if a step takes so long; None: nothing is trained by steps."""
    most = _epochs(contender.settings)
    if most is None or step is None:
        return Plan(1, len(train), None, None)
    batch = _batch(contender.settings, len(train))
    planned = seconds * (1 - EVALUATIONS) if contender.generator == OURS else seconds
    steps = max(int(planned / step), 1)
    per_epoch = max(len(train) // batch, 1)
    epochs, fewest = min(steps // per_epoch, most), _fewest_epochs(contender)
    if epochs >= fewest:
        return Plan(epochs, len(train), step, batch)
    return Plan(fewest, min(max(steps // fewest, 1) * batch, len(train)), step, batch)


def _seconds_per_step(contender: Contender, train: Records, batch: int, seconds: float, seed: int) -> float:
    """Time a small training with the method's own phases, without the first steps, which are slower than the rest."""
    first = _step_times(contender, train, batch, 1, seed)[1]
    steps = min(int(TRIAL_SHARE * seconds / first), TRIAL_STEPS)
    if steps <= 2 * WARM_UP:
        return first
    times = _step_times(contender, train, batch, steps, seed)[WARM_UP:]
    return (times[-1] - times[0]) / (len(times) - 1)


def _step_times(contender: Contender, train: Records, batch: int, steps: int, seed: int) -> list[float]:
    """Seconds since the start: 0, and after each of so many steps."""
    fewest = _fewest_epochs(contender)
    part = subset(train, math.ceil(steps / fewest) * batch)
    epochs = max(math.ceil(steps / max(len(part) // batch, 1)), fewest)
    started, times = time.perf_counter(), [0.0]

    def note(_: TrainingProgress) -> None:
        times.append(time.perf_counter() - started)

    hooks = Hooks(on_progress=note, should_stop=lambda: len(times) > steps)
    settings = _with(contender.settings, epochs=epochs, batch_size=batch)
    with suppress(TrainingStopped):
        generator_named(contender.generator).fit(FitRequest(part, None, settings, seed, hooks=hooks))
    return times


def _epochs(settings: dict[str, Any]) -> int | None:
    epochs: int | None = settings.get("training", settings).get("epochs")
    return epochs


def _fewest_epochs(contender: Contender) -> int:
    """A method of two phases may need an epoch for each."""
    settings = generator_spec(contender.generator).settings
    epochs = None if settings is None else settings.model_fields.get("epochs")
    bounds = [] if epochs is None else epochs.metadata
    return next((int(bound.ge) for bound in bounds if hasattr(bound, "ge")), 1)


def _batch(settings: dict[str, Any], n: int) -> int:
    asked: int | None = settings.get("training", settings)["batch_size"]
    automatic = max(min(LARGEST_AUTOMATIC_BATCH, n // 50), SMALLEST_AUTOMATIC_BATCH)
    return min(automatic if asked is None else asked, n)


def _with(settings: dict[str, Any], **training: Any) -> dict[str, Any]:
    if "training" in settings:
        return settings | {"training": settings["training"] | training}
    return settings | training


def _own_peak_gib() -> float:
    """The most memory this process held. What getrusage tells includes the process that started it."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 2**20
    return peak_rss_gib()


# ---- drawing


def draw_within(
    generator: Generator, n: int, seconds: float, seed: int, tell: Callable[[int, int], None] | None = None
) -> tuple[Records | None, Cell]:
    """n records with the published number of network calls, or none if that would take longer than `seconds`."""
    request = SampleRequest(n, seed)
    calls = generator.steps_of(request)
    if calls is not None and calls > FEW_CALLS:
        rate = _calls_per_second(generator, seconds)
        if n * calls / rate > seconds:
            needed = _duration(n * calls / rate)
            why = f"{n:,} records would take {needed} with the published {calls:,} network calls"
            return None, {"absent": why, "calls": calls, "records_per_second": rate / calls}
    with timed() as took:
        records = generator.sample(request, tell)
    return records, {"records": n, "seconds": took[0], "records_per_second": n / took[0], "calls": calls}


def draw_plainly(generator: Generator, n: int, seed: int) -> tuple[Records, Cell]:
    """n records by the plain sampler of an absorbing model."""
    assert isinstance(generator, D3PMGenerator)
    with timed() as took:
        records = plain_records(generator, n, ANCESTRAL_STEPS, seed)
    cell: Cell = {"records": n, "seconds": took[0], "records_per_second": n / took[0]}
    return records, cell | {"calls": ANCESTRAL_STEPS}


def drawing_peak_apart(folder: Path, name: str, n: int, calls: int | None) -> Cell:
    """The most memory that drawing n records takes, in a process that does nothing else."""
    return _apart(drawing_peak_here, folder, name, n, calls)


def drawing_peak_here(folder: Path, name: str, n: int, calls: int | None) -> Cell:
    """The same in this process."""
    steps = None if calls is None else min(calls, FEW_CALLS)
    Store(folder).load_model(name).sample(SampleRequest(n, steps=steps))
    return {"peak_gib": _own_peak_gib()}


def _calls_per_second(generator: Generator, seconds: float) -> float:
    """Network calls for single records in a second, from batches that grow until they are large or slow."""
    rate = math.nan
    for rows in PROBE_ROWS:
        request = SampleRequest(rows, steps=PROBE_CALLS)
        with timed() as took:
            generator.sample(request)
        rate = rows * (generator.steps_of(request) or 1) / took[0]
        if took[0] > PROBE_SHARE * seconds:
            break
    return rate


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.1f} minutes" if seconds < 3600 else f"{seconds / 3600:.1f} hours"


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def machine() -> Cell:
    """What the figures were measured on."""
    memory = _memory_bytes() / 2**30
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"cores": cores, "memory_gib": round(memory), "gpu": device, "torch": torch.__version__.split("+")[0]}
