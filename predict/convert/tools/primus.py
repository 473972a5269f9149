"""Primus' YAML: an experiment whose module `pre_trainer` overrides a preset of Megatron-LM's or torchtitan's arguments."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from predict.convert.tool import Reading, Sections, Tool, flat, key_lists
from predict.convert.tools import megatron_lm, torchtitan_toml
from predict.huggingface.config_json import override
from predict.model.shipped import shipped_model, shipped_models
from sampling.files.documents import NotYamlError, parse_yaml, read_json
from sampling.files.faults import did_you_mean, shown

TRAINER = "modules.pre_trainer"
OVERRIDES = f"{TRAINER}.overrides."
VARIABLE = re.compile(r"\$\{\w+(?::([^${}]*))?\}")
"""`${PRIMUS_TP:1}`: a variable of the environment with its default."""
SUFFIX = re.compile(r"(_v0\.\d)?\.ya?ml$")
"""The end of a preset's file name, and Mistral's version, which says nothing of the sizes."""
SIZES_OVER_A_PRESET = (
    "num_layers",
    "hidden_size",
    "ffn_hidden_size",
    "num_experts",
    "moe_router_topk",
    "mtp_num_layers",
)
"""Sizes that a Primus experiment changes in its model's preset."""
DEFAULTS: Mapping[str, Any] = {"bf16": True, "attention_dropout": 0.0, "hidden_dropout": 0.0}
"""Values of Primus' language-model presets where Megatron-LM's own defaults differ (primus/configs/models/megatron)."""


def _read(reading: Reading) -> Sections:
    given = reading.given
    framework = str(given.values.get(f"{TRAINER}.framework", "megatron")).lower()
    preset = SUFFIX.sub("", str(_settled(str(given.values.get(f"{TRAINER}.model", "")))))
    overrides = {
        name.removeprefix(OVERRIDES): _settled(value)
        for name, value in given.values.items()
        if name.startswith(OVERRIDES)
    }
    path = shipped_model(preset)
    if path is None and reading.chosen_model is None:
        near = did_you_mean(preset, shipped_models())
        given.fault("model", f"Primus' preset {shown(preset)} is not a shipped model{near}; give --set model=NAME")
        given.passed_over(*given.values)
        return {}
    if framework not in ("megatron", "torchtitan"):
        given.fault(f"{TRAINER}.framework", f"{shown(framework)} is not read; megatron and torchtitan are")
        given.passed_over(*given.values)
        return {}
    # the arguments take the place of the file's keys, so that what is left over goes by their names
    is_megatron = framework == "megatron"
    values = {**DEFAULTS, **overrides} if is_megatron else flat(overrides)
    inner = replace(reading, given=replace(given, values=values, used=set()))
    if not is_megatron:
        sections = torchtitan_toml.read_torchtitan(inner, model=path.stem if path else "")
    else:
        given.notes.append(
            f"{TRAINER}: the presets that it names are not read; what they set beyond the model is taken as Megatron-LM has it"
        )
        sections = megatron_lm.read_arguments(inner, model=_model(path, overrides, reading.chosen_model))
    left = inner.given.left_over
    given.passed_over(*(name for name in given.values if not name.startswith(OVERRIDES)))
    given.passed_over(*(f"{OVERRIDES}{name}" for name in overrides if name not in left or name in SIZES_OVER_A_PRESET))
    return sections


def _model(path: Any, overrides: Mapping[str, Any], chosen_model: Any) -> dict[str, Any]:
    """The `model` section of a preset, with the sizes that the experiment changes."""
    if path is None:
        return {}
    changed = {name: value for name, value in overrides.items() if name in SIZES_OVER_A_PRESET}
    if not changed or chosen_model is not None:
        return {"model": path.stem}
    keys = read_json(path)[0] or {}
    for name, value in changed.items():
        keys = override(keys, name, 0 if value is None else value)
    return {"model": keys}


def _settled(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _settled(each) for name, each in value.items()}
    if not isinstance(value, str) or "${" not in value:
        return value
    text = VARIABLE.sub(lambda found: found[1] or "", value)
    try:
        return parse_yaml(text)[0]
    except NotYamlError:
        return text


TOOLS = (
    Tool(
        name="Primus",
        marks=("modules.pre_trainer.framework modules.pre_trainer.model", "modules.pre_trainer.overrides"),
        read=_read,
        writes="megatron-lm",
        keys=(megatron_lm.KEYS | torchtitan_toml.KEYS | key_lists("primus")).under(OVERRIDES),
    ),
)
