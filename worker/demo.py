"""`make demo`: train on the simulated population, generate, and show how close the result is to the truth.

python -m worker.demo [--records 40000] [--epochs 12] [--code ICD10CM:E84]
"""

import argparse
import time

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from worker.engine.conditions import Condition
from worker.engine.config import preset
from worker.engine.errors import EngineError
from worker.engine.generators import FitRequest, SampleRequest
from worker.engine.generators.d3pm import D3PMGenerator
from worker.engine.generators.independent import IndependentGenerator
from worker.engine.metrics import fidelity
from worker.engine.population import SimulatedPopulation, simulated_population
from worker.engine.records import Records
from worker.engine.training import Hooks

console = Console()


def bars() -> Progress:
    return Progress(TextColumn("{task.description:<12}"), BarColumn(), TimeRemainingColumn(), console=console)


def train(train_set: Records, holdout: Records, epochs: int) -> D3PMGenerator:
    """Train the default preset with a bar that shows the remaining time."""
    settings = preset("fast").model_dump()
    settings["training"] |= {"epochs": epochs}
    with bars() as shown:
        task = shown.add_task("training", total=None)
        hooks = Hooks(on_progress=lambda p: shown.update(task, completed=p.step, total=p.total_steps))
        return D3PMGenerator.fit(FitRequest(train_set, holdout, settings, hooks=hooks))


def sample(generator: D3PMGenerator, request: SampleRequest, label: str) -> Records:
    with bars() as shown:
        task = shown.add_task(label, total=request.n)
        return generator.sample(request, lambda done, total: shown.update(task, completed=done))


def show_fidelity(synth: Records, test: Records, train_set: Records) -> None:
    table = Table(title="How close the synthetic records are to real ones they have never seen", title_justify="left")
    for name in ("", "synthetic", "best possible", "codes drawn independently"):
        table.add_column(name, justify="right" if name else "left")
    for name, result in fidelity(synth, test, train_set, np.random.default_rng(0)).items():
        values = [
            m.absent if m.value is None else f"{m.value:.4g}" for m in (result.value, result.floor, result.independent)
        ]
        table.add_row(f"{name} ({result.metric.direction} is better)", *values)
    console.print(table)


def show_guided(truth: SimulatedPopulation, code: int, plain: Records, guided: Records) -> None:
    """The asked code and the codes that most often come with it, in truth and in both cohorts."""
    base = truth.prevalence()
    _, given = truth.conditional_prevalence(all_of=[code])
    with_code = guided.take(guided.having(code))
    partners = [i for i in np.argsort(-(given - base)) if i != code][:6]
    table = Table(title=f"Asked for: {truth.descriptions[code]} ({truth.vocabulary[code]})", title_justify="left")
    for name in ("", "everyone", "with it, truth", "unconditional", "guided", "with it, guided"):
        table.add_column(name, justify="right" if name else "left")
    for i in [code, *partners]:
        cells = [base[i], given[i], plain.prevalence()[i], guided.prevalence()[i], with_code.prevalence()[i]]
        table.add_row(truth.descriptions[i], *(f"{100 * cell:.2f} %" for cell in cells))
    console.print(table)
    console.print(
        f"{len(with_code):,} of {len(guided):,} guided records have it; {len(plain.having(code)):,} unguided."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=40_000, help="training records to simulate")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--samples", type=int, default=10_000, help="synthetic records in each cohort")
    parser.add_argument("--code", default="ICD10CM:E84", help="the code to guide towards (default: cystic fibrosis)")
    arguments = parser.parse_args()
    truth = simulated_population()
    try:
        code = truth.index(arguments.code)
    except EngineError as error:
        parser.error(str(error))
    start = time.perf_counter()
    rng = np.random.default_rng(0)
    train_set, holdout, test = (truth.sample(n, rng) for n in (arguments.records, 2_000, arguments.samples))
    console.print(
        f"Simulated population: {truth.n_codes} codes, {train_set.sizes().mean():.1f} per record; "
        f"training on {len(train_set):,} records."
    )
    generator = train(train_set, holdout, arguments.epochs)
    elbo = generator.held_out_elbo(test)
    exact = -truth.log_probability(test.take(np.arange(1_000))).mean()
    independent = IndependentGenerator.fit(FitRequest(train_set)).negative_log_likelihood(test)
    console.print(
        f"Nats needed to describe an unseen record (lower is better): model {elbo.value:.2f}, "
        f"true distribution {exact:.2f}, independent codes {independent:.2f}."
    )
    plain = sample(generator, SampleRequest(arguments.samples), "generating")
    asked = Condition.of(truth.n_codes, all_of=[code])
    guided = sample(generator, SampleRequest(arguments.samples, condition=asked), "guiding")
    show_fidelity(plain, test, train_set)
    show_guided(truth, code, plain, guided)
    console.print(f"Done in {time.perf_counter() - start:.0f} s.")


if __name__ == "__main__":
    main()
