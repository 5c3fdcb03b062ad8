"""Other generators of patients over time, for the same data and the same minutes."""

from benchmarks._harness import console, progress_bar, timed
from benchmarks._histories import Patients
from ehr.histories import Histories
from worker.engine.generators.halo import HaloGenerator
from worker.engine.generators.markov import MarkovGenerator
from worker.engine.histories.protocol import HistoryFit, HistoryRequest
from worker.engine.training import Hooks

TRIAL = 480  # patients, for a first guess of how long an epoch takes


def history_fit(data: Patients, settings: object = None, hooks: Hooks | None = None) -> HistoryFit:
    """All that is known of the data, for a generator with these settings."""
    return HistoryFit(
        data.train,
        data.holdout,
        settings or {},  # type: ignore[arg-type]
        hooks=hooks or Hooks(),
        visit_groups=data.visit_groups,
        static_groups=data.static_groups,
        rules=data.rules,
    )


def markov_cohort(data: Patients, n: int) -> Histories:
    return MarkovGenerator.fit(history_fit(data)).sample(HistoryRequest(n, seed=3))


def halo_cohort(data: Patients, n: int, seconds: float) -> Histories:
    """Patients of a HALO that was trained for about so many seconds: as many epochs as a short trial says."""
    few = min(TRIAL, len(data.train))
    with timed() as trial:
        HaloGenerator.fit(HistoryFit(data.train.take(range(few)), None, {"epochs": 1}))
    epochs = max(round(seconds / (trial[0] * len(data.train) / few)), 1)
    with progress_bar("training HALO") as advance, timed() as took:
        hooks = Hooks(on_progress=lambda progress: advance(progress.step, progress.total_steps))
        model = HaloGenerator.fit(history_fit(data, {"epochs": epochs}, hooks))
    curve = ", ".join(f"{point['held_out']:.2f}" for point in model.curve)
    weights = sum(weight.numel() for weight in model.network.parameters())
    console.print(f"HALO: {weights:,} weights, {epochs} epochs in {took[0]:.0f} s; nats of held-out visits: {curve}")
    with progress_bar("drawing patients of HALO") as advance:
        return model.sample(HistoryRequest(n, seed=4), advance)
