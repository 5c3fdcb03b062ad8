"""The presets: the paper's are the paper's, and `auto` follows a rule."""

import json

import pytest

from ehr.errors import ConfigError
from ehr.generators.auto import NARROW, Shape, narrowed, settings_for, shortened
from ehr.generators.d3pm import D3PM, PRESETS, D3PMConfig, LinformerConfig


def test_the_papers_presets_are_the_papers() -> None:
    mimic, large = PRESETS["paper-mimic"], PRESETS["paper-large"]
    assert mimic.denoiser == LinformerConfig(width=256, heads=8, layers=5, projection=128)
    assert large.denoiser == LinformerConfig(width=512, heads=8, layers=8, projection=128)
    for config, epochs, batch in ((mimic, 100, 256), (large, 40, 512)):
        assert (config.noise, config.timesteps) == ("uniform", 500)
        assert (config.training.epochs, config.training.batch_size) == (epochs, batch)
        assert (config.training.learning_rate, config.training.weight_decay) == (1e-4, 1e-5)
        assert (config.training.schedule, config.training.decay_per_epoch) == ("exponential", 0.99)
    with pytest.raises(ConfigError, match="paper-large"):
        D3PM.resolve("huge", {}, Shape(100, 10))


def test_presets_survive_json() -> None:
    for config in PRESETS.values():
        assert type(config)(**json.loads(config.model_dump_json())) == config


# --- by rule ---

BEST = PRESETS["best"]
SIZES = [1_000, 5_000, 20_000, 50_000, 100_000, 400_000, 1_000_000, 5_000_000]


def by_rule(records: int) -> D3PMConfig:
    return settings_for(BEST, Shape(records, 60))


def test_where_best_was_found_the_rule_is_best() -> None:
    found = by_rule(103_000)
    assert found.denoiser == BEST.denoiser
    assert found.training.epochs == BEST.training.epochs


def test_more_records_are_passed_over_less_often_and_with_less_left_out() -> None:
    rules = [by_rule(records) for records in SIZES]
    epochs = [config.training.epochs for config in rules]
    assert epochs == sorted(epochs, reverse=True) and 10 < epochs[-1] < epochs[0] == BEST.training.epochs
    dropout = [config.denoiser.dropout for config in rules]  # type: ignore[union-attr]
    assert dropout == sorted(dropout, reverse=True) and dropout[-1] > 0.1 and dropout[0] <= 0.4
    assert [config.denoiser.width for config in rules] == [NARROW] * 2 + [512] * 6


def test_few_records_for_their_codes_are_passed_over_less_often() -> None:
    """They would be known by heart long before the last epoch."""
    epochs = [settings_for(BEST, Shape(12_500, codes)).training.epochs for codes in (500, 1_000, 2_000, 20_000)]
    assert epochs[0] == epochs[1] == BEST.training.epochs
    assert epochs[1:] == sorted(epochs[1:], reverse=True) and epochs[-1] >= 0.4 * BEST.training.epochs


def test_a_single_patient_does_not_move_the_settings() -> None:
    """People who may not know how many patients there are see them."""
    changes = [by_rule(records) != by_rule(records + 1) for records in range(50_000, 100_000)]
    assert sum(changes) == 1  # between two doublings, once


def test_less_time_is_fewer_epochs_and_less_that_is_left_out() -> None:
    short = shortened(BEST, 10)
    assert (short.training.epochs, short.training.evaluate_every, short.training.patience) == (10, 1, 4)
    assert short.denoiser.dropout < BEST.denoiser.dropout  # type: ignore[union-attr]
    assert narrowed(short).denoiser.width == NARROW and narrowed(narrowed(short)) == narrowed(short)
    paper = PRESETS["paper-mimic"]
    assert narrowed(paper) is paper and shortened(paper, 3).denoiser == paper.denoiser


def test_changes_come_after_the_rule() -> None:
    changes = {"training": {"epochs": 3}, "denoiser": {"dropout": 0.5}}
    resolved = D3PM.resolve("auto", changes, Shape(20_000, 400))
    assert resolved.preset == "auto" and resolved.preset_reason is not None
    assert "about 25,000 records with 400 codes" in resolved.preset_reason
    assert isinstance(resolved.config, D3PMConfig)
    assert (resolved.config.training.epochs, resolved.config.denoiser.dropout) == (3, 0.5)  # type: ignore[union-attr]
    assert not D3PM.follows_rule("best") and D3PM.follows_rule(None)
