"""The presets: the paper's are the paper's."""

import json

import pytest

from ehr.errors import ConfigError
from ehr.generators.d3pm import D3PM, PRESETS, LinformerConfig


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
        D3PM.resolve("huge", {}, records=100, codes=10, on_gpu=False)


def test_presets_survive_json() -> None:
    for config in PRESETS.values():
        assert type(config)(**json.loads(config.model_dump_json())) == config
