"""A small config of each model family, from the YAML file beside this one, and what is said of a wrong one."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from predict.huggingface.config_json import load_model
from sampling.errors import ConfigError

_FILE = yaml.load(Path(__file__).with_suffix(".yml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
COMMON, LATENT = (_FILE["parts"][name] for name in ("common", "latent"))
TINY: dict[str, dict[str, Any]] = _FILE["tiny"]
PUBLISHED_KEYS: dict[str, dict[str, Any]] = _FILE["published"]
"""Keys of published configs that change no shape."""
WRONG: list[tuple[str, dict[str, Any], str]] = [(name, changes, path) for name, changes, path in _FILE["wrong"]]
"""A family, keys of it that are wrong, and the key that is blamed."""

IN_TRANSFORMERS = {"kimi_k2": "deepseek_v3"}
"""Families that transformers runs under another name: Kimi K2's `config.json` names DeepseekV3ForCausalLM."""


def faults_of(config: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        load_model(config)
    return str(caught.value)


def transformers_config(config: dict[str, Any]) -> Any:
    """The library's configuration of the text decoder."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed: no count to compare with")
    keys = {key: value for key, value in config.items() if key not in ("model_type", "architectures")}
    try:
        whole = transformers.AutoConfig.for_model(
            IN_TRANSFORMERS.get(config["model_type"], config["model_type"]), **keys
        )
    except ValueError:
        pytest.skip(f"this transformers does not know {config['model_type']}")
    return getattr(whole, "text_config", whole)


def transformers_count(config: dict[str, Any]) -> int:
    """Parameters of the model that transformers builds, on the meta device, shared ones once."""
    decoder = transformers_config(config)
    import torch
    import transformers

    with torch.device("meta"):
        built = transformers.AutoModelForCausalLM.from_config(decoder)
    return sum(weight.numel() for weight in {id(weight): weight for weight in built.parameters()}.values())
