"""Overrides of a Megatron-Bridge (NeMo) recipe, as YAML or on its command line, by the groups of its ConfigContainer.

Names: docs.nvidia.com/nemo/megatron-bridge, "Megatron-LM to Megatron Bridge Guide".
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from predict.convert.arguments import Arguments
from predict.convert.launch import PRECISIONS, USUALLY_ON
from predict.convert.tool import Reading, Sections, Tool, key_lists, tool_file, typed
from predict.convert.tools import megatron_lm
from sampling.files.faults import did_you_mean, shown

GROUP = re.compile(r"^(ConfigContainer\.)?(\w+?)(_config)?\.(.+)$")
RENAMED: Mapping[str, str] = {
    "num_moe_experts": "num_experts",
    "num_layers_in_first_pipeline_stage": "decoder_first_pipeline_num_layers",
    "num_layers_in_last_pipeline_stage": "decoder_last_pipeline_num_layers",
    "layernorm_epsilon": "norm_epsilon",
    "sequence_length": "seq_length",
    "gated_linear_unit": "swiglu",
    "virtual_pipeline_model_parallel_size": "num_virtual_stages_per_pipeline_rank",
}
"""Setting of a recipe → Megatron-LM's argument of the same meaning."""
STATED = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
"""Degrees that an override file has to state, since a recipe's own are in its Python."""
PRECISION = "mixed_precision"
MODIFIERS: Mapping[str, Mapping[str, Any]] = tool_file("megatron_bridge")["modifiers"]
MATRIX = "is a matrix of several runs; write the overrides of one of them"


def _read(reading: Reading) -> Sections:
    given = reading.given
    values: dict[str, Any] = {}
    theirs: dict[str, list[str]] = {}
    is_command = reading.source.form == "command"
    for path, text in given.values.items():
        name, value = _argument(path), typed(text) if is_command else text
        values[name] = value
        theirs.setdefault(name, []).append(path)
    precision = _precision(given)
    values = {**precision, **{name: value for name, value in values.items() if name != PRECISION}}
    reduces_fp32 = values.get("grad_reduce_in_fp32")
    if reduces_fp32 is not None:
        values["grad_reduce_in_bf16"] = str(reduces_fp32).lower() == "false"
    values.setdefault("attention_dropout", 0.0)  # the providers' own defaults, where Megatron-LM has 0.1
    values.setdefault("hidden_dropout", 0.0)
    if "num_query_groups" in values:
        values["group_query_attention"] = values["num_query_groups"] is not None
    for name in USUALLY_ON:
        values.setdefault(name, True)
    inner = replace(reading, given=replace(given, values=values, used=set()))
    sections = dict(megatron_lm.read_arguments(inner, framework="nemo"))
    _ask(given, values, sections, precision)
    left = inner.given.left_over
    given.passed_over(*(path for name, paths in theirs.items() if name not in left for path in paths))
    given.passed_over(*(path for path in given.values if path.endswith(("grad_reduce_in_fp32", "mixed_precision"))))
    if any(path.startswith("perf_matrix") for path in given.values):
        given.fault("perf_matrix", MATRIX)
        given.passed_over(*given.values)
    return sections


def _argument(path: str) -> str:
    found = GROUP.match(path)
    name = found[4] if found else path
    return RENAMED.get(name, name)


def _precision(given: Arguments) -> dict[str, Any]:
    """Megatron-LM's arguments for the name of a recipe's precision, whose words hyphens may join (training/mixed_precision.py)."""
    path = next((path for path in given.values if _argument(path) == PRECISION), PRECISION)
    word = given.text(path, "")
    stem, changed = word.replace("-", "_"), dict[str, Any]()
    for end, change in MODIFIERS.items():
        if stem.endswith(end):
            stem, changed = stem.removesuffix(end), {**changed, **change}
    name = next((each for each in (stem, f"{stem}_mixed") if each in PRECISIONS), "")
    if word and not name:
        near = did_you_mean(stem, PRECISIONS)
        given.fault(path, f"{shown(word)} is not modelled{near}; {', '.join(PRECISIONS)} are")
    return {**PRECISIONS[name], **changed} if name else {}


def _ask(given: Arguments, values: Mapping[str, Any], sections: dict[str, Any], precision: Mapping[str, Any]) -> None:
    """Take out what only the recipe knows, so that it is asked for."""
    if not precision and not {"bf16", "fp16"} & set(values):
        sections.pop("precision", None)
    if "num_layers" not in values:
        for name in STATED:
            if name not in values:
                given.fault(
                    f"model.{name}", "not stated, and the recipe's own is in its Python; add it to the overrides"
                )


TOOLS = (
    Tool(
        name="Megatron-Bridge",
        marks=(
            "model.tensor_model_parallel_size model.pipeline_model_parallel_size",
            "model_config train_config",
            "model.seq_length train.global_batch_size",
            "train.micro_batch_size model",
            "ConfigContainer",
            "perf_matrix ConfigContainer",
        ),
        read=_read,
        arguments_file="config_file",
        writes="nemo",
        keys=megatron_lm.KEYS | megatron_lm.KEYS.under("*.") | key_lists("megatron_bridge"),
    ),
)
