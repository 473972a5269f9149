"""Run configs with one fault each, and the key that is blamed for it, from the YAML file beside this one."""

from pathlib import Path

import yaml

MODEL = (
    "{model_type: llama, hidden_size: 64, num_attention_heads: 4, num_key_value_heads: 2, intermediate_size: 96, "
    "num_hidden_layers: 4, vocab_size: 512}"
)

SECTIONS = {
    "model": MODEL,
    "cluster": "{hardware: cpu, nodes: 1, gpus_per_node: 2, profile: nowhere}",
    "plan": "{pp: 2}",
    "batch": "{global: 8, micro: 1, seq_len: 16}",
    "precision": "fp32",
}


def config(*, without: str = "", **sections: str) -> str:
    """A sound config with some sections replaced or left out."""
    lines = {**SECTIONS, **sections}
    return "".join(f"{name}: {text}\n" for name, text in lines.items() if name != without)


def model(**keys: str) -> str:
    """A config whose inline model has keys replaced or added."""
    plain = dict(part.split(": ") for part in MODEL.strip("{}").split(", "))
    return config(model="{" + ", ".join(f"{key}: {value}" for key, value in {**plain, **keys}.items()) + "}")


def _text(*, text: str = "", **of: dict[str, str]) -> str:
    return text or (config(**of["config"]) if "config" in of else model(**of["model"]))


_ROWS = Path(__file__).with_suffix(".yml").read_text(encoding="utf-8").replace("FIVE_THOUSAND_F", "f" * 5000)
ROWS: list[tuple[str, str]] = [
    (_text(**{name: value for name, value in entry.items() if name != "path"}), entry["path"])
    for entry in yaml.load(_ROWS, Loader=yaml.CSafeLoader)
]
