"""One contract for all generators: what they learn, how they are saved, and that a seed is enough to repeat them."""

import json
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load, save

from ehr.conditions import Condition, Target
from ehr.errors import ConfigError, DataError, StateError
from ehr.generators import CHUNK, GENERATORS, generator_spec
from ehr.records import Records
from worker.engine.generators import (
    FitRequest,
    Generator,
    SampleRequest,
    State,
    from_state,
    generator_named,
)
from worker.engine.generators.baselines.base import Baseline
from worker.engine.independent import independent_records
from worker.engine.metrics import fidelity_metric
from worker.engine.population import simulated_population
from worker.engine.training import Hooks


@cache
def population(n: int, seed: int = 0, codes: int | None = None) -> Records:
    """Simulated patients, with all codes or with the most common ones only."""
    world = simulated_population()
    records = world.sample(n, np.random.default_rng(seed))
    if codes is None:
        return records
    return Records.from_dense(records.to_dense()[:, np.sort(np.argsort(-world.prevalence(), kind="stable")[:codes])])


@dataclass(frozen=True)
class Example:
    """How a generator is trained here: smaller than published, to learn in seconds. The published sizes are in
    test_baselines.py and test_diffusion_baselines.py."""

    settings: dict[str, Any] = field(default_factory=dict)
    codes: int | None = None  # the most common ones only: what this size can learn
    records: int = 3000
    prevalences: float = 0.95  # correlation with those of real records
    phases: tuple[float, ...] = ()  # shares of the steps after which another part of the network is trained
    falls_to: float = 0.9  # the loss at the end, as a share of that at the start
    rises_first: bool = False  # a critic's distance, which grows while the critic learns: a share of the largest

    def population(self, n: int, seed: int = 0) -> Records:
        return population(n, seed, self.codes)

    @property
    def n_codes(self) -> int:
        return self.population(1).n_codes

    def common(self) -> list[int]:
        """Codes, the most common ones first."""
        found: list[int] = np.argsort(-self.population(3000).prevalence()).tolist()
        return found


# GANs this small hardly dare to say that a rare code is more likely than not, so codes are drawn and not rounded.
BRIEF_GAN = {"binarise": "bernoulli"}
EXAMPLES = {
    "independent": Example(),
    "d3pm": Example(
        {
            "timesteps": 50,
            "denoiser": {"kind": "sparse", "width": 32, "blocks": 1},
            "training": {"epochs": 8, "batch_size": 200, "learning_rate": 5e-3},
        },
        falls_to=0.95,  # it begins with the right number of codes in every record
    ),
    "med-wgan": Example(
        BRIEF_GAN
        | {
            "epochs": 40,
            "batch_size": 250,
            "learning_rate": 2e-3,
            "ema_decay": 0.98,
            "pretrain_share": 0.1,
            "pretrain_batch_size": 50,
            "critic_widths": [64, 32],
        },
        codes=100,
        phases=(0.1,),
        falls_to=0.5,
        rises_first=True,
    ),
    "emr-wgan": Example(
        BRIEF_GAN
        | {
            "epochs": 60,
            "batch_size": 100,
            "learning_rate": 3e-3,
            "ema_decay": 0.98,
            "critic_steps": 3,
            "width": 64,
            "layers": 2,
        },
        codes=60,
        prevalences=0.9,  # with one thread it reached 0.965
        falls_to=0.5,
        rises_first=True,
    ),
    "tabddpm": Example(
        {"epochs": 40, "batch_size": 250, "ema_decay": 0.98, "timesteps": 50, "width": 128, "layers": [128]},
        codes=50,
    ),
    "ehrdiff": Example(
        {
            "epochs": 40,
            "batch_size": 250,
            "learning_rate": 2e-3,
            "ema_decay": 0.98,
            "layers": [128, 128],
            "time_width": 64,
            "sigma_data": 0.25,
        },
        codes=50,
    ),
    "tabsyn": Example(
        {"epochs": 12, "batch_size": 100, "learning_rate": 5e-3, "factor": 8, "width": 256, "sampling_steps": 12},
        codes=30,
        prevalences=0.93,  # with one thread it reached 0.959 on one processor
        phases=(2 / 7,),
    ),
}
TRAINED = [name for name in EXAMPLES if name != "independent"]
REJECTING = [name for name in EXAMPLES if generator_spec(name).methods == ("rejection",)]


def test_every_generator_keeps_the_contract() -> None:
    assert {spec.name for spec in GENERATORS} == set(EXAMPLES)
    assert all(generator_named(spec.name).spec is spec for spec in GENERATORS)


@cache
def fitted_once(name: str) -> tuple[Generator, list[float]]:
    """The trained example, and the loss of each of its steps (for ours, a running mean)."""
    example, losses = EXAMPLES[name], []
    kind, hooks = generator_named(name), Hooks()
    if issubclass(kind, Baseline):

        class Watched(kind):  # type: ignore[misc, valid-type]
            def train_step(self, *arguments: Any) -> float:
                losses.append(super().train_step(*arguments))
                return losses[-1]

        kind = Watched
    elif name != "independent":
        hooks = Hooks(on_progress=lambda progress: losses.append(progress.loss))
    train, holdout = example.population(example.records), example.population(300, seed=1)
    return kind.fit(FitRequest(train, holdout, example.settings, hooks=hooks)), losses


@pytest.fixture(params=EXAMPLES)
def example(request: pytest.FixtureRequest) -> Example:
    return EXAMPLES[request.param]


@pytest.fixture
def fitted(example: Example) -> Generator:
    return fitted_once(next(name for name, known in EXAMPLES.items() if known is example))[0]


def same(a: Records, b: Records) -> bool:
    return np.array_equal(a.indptr, b.indptr) and np.array_equal(a.indices, b.indices)


# --- what they learn ---


def test_samples_are_records_with_about_the_right_prevalences(fitted: Generator, example: Example) -> None:
    samples, truth = fitted.sample(SampleRequest(4000)), example.population(example.records).prevalence()
    assert (len(samples), samples.n_codes) == (4000, len(truth))
    common = truth > 0.05
    assert np.corrcoef(samples.prevalence()[common], truth[common])[0, 1] > example.prevalences


@pytest.mark.parametrize("name", TRAINED)
def test_the_loss_falls(name: str) -> None:
    """In every phase."""
    example, losses = EXAMPLES[name], fitted_once(name)[1]
    for phase in np.split(np.array(losses), [int(share * len(losses)) for share in example.phases]):
        tenths = [tenth.mean() for tenth in np.array_split(phase, 10)]
        assert max(tenths) > 0, tenths  # else a critic has found no difference, and a share of it says nothing
        assert tenths[-1] < example.falls_to * (max(tenths) if example.rises_first else tenths[0]), tenths


@pytest.mark.parametrize("name", TRAINED)
def test_samples_beat_independent_codes(name: str) -> None:
    example, rng = EXAMPLES[name], np.random.default_rng(0)
    train, test = example.population(example.records), example.population(4000, seed=2)
    synthetic = fitted_once(name)[0].sample(SampleRequest(4000, seed=1))
    independent = independent_records(train.prevalence(), 4000, rng)
    share = {}
    for metric in ("cmd", "mcad"):
        values = [fidelity_metric(metric).measure(who, test, train, rng).value for who in (synthetic, independent)]
        assert values[0] is not None and values[1] is not None
        share[metric] = values[0] / values[1]
    assert min(share.values()) < 0.9, share


# --- how they draw ---


def test_the_same_seed_gives_the_same_records_and_another_seed_others(fitted: Generator) -> None:
    first = fitted.sample(SampleRequest(300, seed=5))
    assert same(first, fitted.sample(SampleRequest(300, seed=5)))
    assert not same(first, fitted.sample(SampleRequest(300, seed=6)))


def test_a_cohort_is_made_of_chunks_that_do_not_depend_on_its_size(fitted: Generator) -> None:
    few, many = fitted.sample(SampleRequest(CHUNK)), fitted.sample(SampleRequest(2 * CHUNK))
    assert same(few, many.take(np.arange(CHUNK)))
    assert not same(few, many.take(np.arange(CHUNK, 2 * CHUNK)))


def test_no_records_is_a_cohort_too(fitted: Generator) -> None:
    assert len(fitted.sample(SampleRequest(0))) == 0


def test_state_goes_through_safetensors_and_json_and_gives_the_same_samples(fitted: Generator) -> None:
    state = fitted.state()
    loaded = State(
        load(save({k: v.contiguous() for k, v in state.tensors.items()})), json.loads(json.dumps(state.config))
    )
    assert same(fitted.sample(SampleRequest(100)), from_state(loaded).sample(SampleRequest(100)))


def test_a_foreign_state_is_refused(fitted: Generator) -> None:
    state = fitted.state()
    with pytest.raises(StateError):
        fitted.from_state(State(state.tensors, state.config | {"version": 99}))
    with pytest.raises(ConfigError, match="known: d3pm, independent"):
        from_state(State({}, {"generator": "gan"}))


def test_sampling_reports_progress_in_records(fitted: Generator) -> None:
    seen: list[tuple[int, int]] = []
    fitted.sample(SampleRequest(CHUNK + 10), progress=lambda done, total: seen.append((done, total)))
    assert seen == [(CHUNK, CHUNK + 10), (CHUNK + 10, CHUNK + 10)]


def test_a_condition_raises_what_it_asks_for(fitted: Generator, example: Example) -> None:
    code = example.common()[4]
    asked = Condition.of(example.n_codes, all_of=[code])
    plain = fitted.sample(SampleRequest(1500)).prevalence()[code]
    guided = fitted.sample(SampleRequest(1500, condition=asked)).prevalence()[code]
    assert guided > 2 * plain


def test_every_record_satisfies_the_condition(fitted: Generator, example: Example) -> None:
    codes = example.common()
    asked = Condition.of(example.n_codes, any_of=[codes[:2]], none_of=[codes[2]])
    assert asked.satisfied_by(fitted.sample(SampleRequest(CHUNK + 50, condition=asked))).all()


def test_a_target_is_met_by_its_share_and_by_no_other_record(fitted: Generator, example: Example) -> None:
    code = example.common()[0]
    for share in (0.3, 1.0):
        drawn = fitted.sample(SampleRequest(500, targets=(Target(example.n_codes, frozenset([code]), share),)))
        assert abs(len(drawn.having(code)) - share * 500) <= 1


def test_a_part_of_a_conditioned_cohort_does_not_depend_on_the_rest(fitted: Generator, example: Example) -> None:
    asked = Condition.of(example.n_codes, none_of=example.common()[:1])
    whole = fitted.sample(SampleRequest(CHUNK + 100, condition=asked))
    part = fitted.sample(SampleRequest(100, condition=asked, first_chunk=1))
    assert same(part, whole.take(np.arange(CHUNK, CHUNK + 100)))


def test_bad_requests_are_refused(fitted: Generator) -> None:
    with pytest.raises(ConfigError, match="0 or more"):
        SampleRequest(-1)
    with pytest.raises(ConfigError, match="strength"):
        SampleRequest(1, strength=-1)
    with pytest.raises(DataError, match="nothing to learn from"):
        type(fitted).fit(FitRequest(Records.from_sets([], 3)))


def test_more_steps_than_the_process_has_are_refused() -> None:
    with pytest.raises(ConfigError, match="between 1 and the 50"):
        fitted_once("d3pm")[0].sample(SampleRequest(1, steps=51))


def test_the_engine_knows_no_service() -> None:
    """Importing the whole engine brings in no HTTP, task queue or database."""
    code = (
        "import worker.engine.generators, worker.engine.metrics, worker.engine.population, sys;"
        "print([m for m in ('fastapi', 'celery', 'redis', 'sqlalchemy', 'httpx', 'uvicorn') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
