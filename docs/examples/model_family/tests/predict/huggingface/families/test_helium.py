"""Helium's `config.json` is read, and its parameters are those that transformers counts."""

from __future__ import annotations

import json

import pytest

from predict.huggingface.config_json import load_model
from sampling.errors import ConfigError
from sampling.files.places import CONFIGS

CONFIG = json.loads((CONFIGS / "models" / "helium-1-preview-2b.json").read_text())


def test_parameters_are_those_that_transformers_counts() -> None:
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(transformers.HeliumConfig(**CONFIG))
    assert load_model(CONFIG).parameters == sum(weight.numel() for weight in model.parameters())


def test_a_misspelt_key_is_refused() -> None:
    with pytest.raises(ConfigError, match="did you mean"):
        load_model(CONFIG | {"head_dims": 128})
