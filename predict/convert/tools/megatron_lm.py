"""Megatron-LM's arguments as a launch script, a list or YAML, those of Megatron-DeepSpeed among them (megatron/training/arguments.py)."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from predict.convert import deepspeed
from predict.convert.arguments import Arguments, read_settings
from predict.convert.megatron import BATCH, FLASH, LOCAL_LAYERS, read_execution, read_plan, read_precision
from predict.convert.megatron_model import (
    BASE,
    EPSILON,
    model_section,
    read_model_arguments,
    shipped_models_of_shape,
    with_numerics,
)
from predict.convert.offload import offload_of
from predict.convert.tool import NO_VALUES, Reading, Sections, Tool, key_lists
from predict.huggingface.config_json import load_model
from predict.model.shipped import shipped_model
from predict.model.spec import ModelSpec
from predict.run.execution import NATURAL, UNTOUCHED
from predict.run.frameworks import ON_GPUS
from sampling.arithmetic.expert_rows import BALANCED
from sampling.files.faults import shown

CLUSTER: Mapping[str, str] = {"nnodes": "nodes", "nproc_per_node": "gpus_per_node"}


def read_arguments(reading: Reading, *, model: Mapping[str, Any] | None = None, framework: str = "") -> Sections:
    """The sections of Megatron-LM's arguments; `model` is the section where it is known already."""
    values = reading.given.values
    is_deepspeed = "deepspeed" in values
    given = replace(reading.given, values=deepspeed.as_megatron(values) if is_deepspeed else with_older_names(values))
    section, spec = _model_of(given, reading.chosen_model, reading.source.name, model or {})
    given = replace(given, layers=spec.layers if spec else given.count("num_layers") or 0)
    plan = read_plan(given)
    if is_deepspeed:
        given.passed_over("deepspeed", "deepspeed_config", "no_pipeline_parallel", "enable_expert_tensor_parallelism")
        given.passed_over(*deepspeed.RECOMPUTING)
        plan["zero"] = given.count("zero_stage") or 0
    given.passed_over(*(name for name in values if name not in given.values))  # an older name of another argument
    if (growing := values.get("rampup_batch_size")) not in NO_VALUES:
        given.notes.append(f"rampup_batch_size: {shown(growing)}: steps before the global batch is reached are shorter")
        given.passed_over("rampup_batch_size")
    if instances := given.count("num_distributed_optimizer_instances"):
        plan["instances"] = instances
    execution = read_execution(given)
    own = LOCAL_LAYERS if given.text("transformer_impl", "") == "local" else ON_GPUS
    if is_deepspeed:
        execution = {key: execution[key] for key in deepspeed.FROM_ARGUMENTS if key in execution}
        is_flash = [given.switch(name) for name in deepspeed.FLASH]
        execution["attention"] = "fa2" if any(is_flash) else "unfused"
    elif given.switch("use_flash_attn") and execution.get("attention") in ("best", "auto"):
        execution["attention"] = FLASH
    if chosen := framework or (deepspeed.FRAMEWORK if is_deepspeed else own):
        execution["framework"] = chosen
    execution |= _expert_load(given, spec)
    cluster = {
        own: int(values[theirs])
        for theirs, own in CLUSTER.items()
        if str(values.get(theirs, "")).isdecimal() and int(values[theirs])
    }
    return {
        "cluster": cluster,
        "plan": plan,
        "batch": read_settings(BATCH, given).get("batch", {}),
        "precision": read_precision(given),
        "execution": execution,
        **section,
    }


def _expert_load(given: Arguments, spec: ModelSpec | None) -> dict[str, str]:
    """The load that the script's router leaves where it is not forced to balance, as `execution.expert_load` is by default; with a note."""
    has_experts = spec.experts is not None if spec else bool(given.count("num_experts"))
    if not has_experts or given.switch("moe_router_force_load_balancing"):
        return {}
    load = UNTOUCHED if given.text("moe_router_load_balancing_type", "aux_loss") == "none" else NATURAL
    given.notes.append(
        f"execution.expert_load: {load}, since moe_router_force_load_balancing is not given; --set execution.expert_load={BALANCED} takes "
        "the load that benchmarks force"
    )
    return {"expert_load": load}


def _read(reading: Reading) -> Sections:
    if not _of_gpt(reading):
        return {}
    return {**read_arguments(reading), **offload_of(reading.given)}


OTHER_PROGRAMS = re.compile(r"(^|/)(pretrain_(retro|ict|vision)\w*|train_rl|\w*text_generation\w*)\.py$")
"""Programs that take Megatron-LM's arguments and do something else than to train a language model."""
OTHER_MODELS = re.compile(r"(^|/)pretrain_(bert|t5|mamba|hybrid|vlm)\w*\.py$")
"""Programs whose models have parts that the arguments of a GPT do not state."""


def _of_gpt(reading: Reading) -> bool:
    """Whether the program trains what its arguments are read as, or a model that the user names; else with a fault."""
    program = reading.source.program
    if OTHER_PROGRAMS.search(program):
        reading.given.fault(
            program, "does not train a language model by next tokens, which is what is read of Megatron-LM"
        )
    elif OTHER_MODELS.search(program) and reading.chosen_model is None:
        reading.given.fault(
            program, "trains another model than a GPT, which is not read from arguments; give --set model=NAME"
        )
    else:
        return True
    reading.given.passed_over(*reading.given.values)
    return False


OLDER: Mapping[str, Mapping[str, Any]] = {
    "recompute_activations": {"recompute_granularity": "selective"},
    "checkpoint_activations": {"recompute_granularity": "full"},
}
"""Switch of Megatron-LM → the arguments that it stands for (arguments.py, `recompute_activations` and the deprecated ones)."""


OPPOSITES: Mapping[str, str] = {
    "add_bias_linear": "disable_bias_linear",
    "share_embeddings_and_output_weights": "untie_embeddings_and_output_weights",
}
"""Setting of a file → the argument that is on where it is off."""
OF_MIXTURES = "moe_layer_recompute"
"""Switch that adds the mixtures to what is recomputed selectively (transformer_config.py, `__post_init__`)."""


def with_older_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with those that a switch stands for in its place."""
    found = dict(values)
    for name, opposite in OPPOSITES.items():
        if (value := found.pop(name, None)) is not None:
            found.setdefault(opposite, str(value).lower() != "true")
    for name, stands_for in OLDER.items():
        if found.get(name) in (True, "true", "True"):
            del found[name]
            found |= {key: value for key, value in stands_for.items() if key not in found}
    if found.pop(OF_MIXTURES, None) in (True, "true", "True") and found.get("recompute_granularity") != "full":
        modules = found.get("recompute_modules") or ["core_attn"]
        named = [modules] if isinstance(modules, str) else list(modules)
        found |= {"recompute_granularity": "selective", "recompute_modules": [*dict.fromkeys((*named, "moe"))]}
    return found


def _model_of(
    given: Arguments, chosen_model: Any, name: str, known: Mapping[str, Any]
) -> tuple[Mapping[str, Any], ModelSpec | None]:
    """The model's section and its spec, as far as the arguments or the name chosen in their place show."""
    if chosen_model is not None or known:
        silent = Arguments(values=given.values)  # what is wrong with a model that is replaced does not matter
        read_model_arguments(silent, name=name)
        given.passed_over(*silent.used, BASE, EPSILON)
        path = shipped_model(chosen_model) if isinstance(chosen_model, str) else None
        return known if chosen_model is None else {}, load_model(path) if path else None
    spec = read_model_arguments(given, name=name)
    if spec is None or given.faults:
        return {}, spec
    if not spec.vocab:
        return _model_by_other_sizes(given, spec), spec
    section = model_section(spec)
    if section is None:
        why = _difference(given, spec) or "no family of models has this shape"
        given.fault("num_layers", f"{why}; correct it, or give --set model=FILE, a config.json of it")
    return {} if section is None else {"model": with_numerics(section, given)}, spec


def _model_by_other_sizes(given: Arguments, spec: ModelSpec) -> Mapping[str, Any]:
    """The shipped model of the sizes that are given, where the vocabulary is left to a tokenizer and all that have them share one."""
    of_shape = shipped_models_of_shape(spec)
    vocabularies = {load_model(path).vocab for name in of_shape if (path := shipped_model(name))}
    if len(vocabularies) != 1:
        who = f"{' and '.join(of_shape)} have these sizes" if of_shape else "no shipped model has these sizes"
        why = "" if of_shape else _difference(given, spec)
        given.fault("vocab_size", f"missing, and {why or who}; give it, or --set model=NAME")
        return {}
    given.notes.append(f"vocab_size: not given; taken from {of_shape[0]}, the shipped model with the other sizes")
    return {"model": with_numerics(of_shape[0], given)}


WORDS: Mapping[str, Mapping[Any, str]] = {
    "norm": {"rms": "RMSNorm (--normalization RMSNorm)", "layer": "LayerNorm"},
    "rope": {True: "rotary positions (--position-embedding-type rope)", False: "learned positions"},
    "gated": {True: "a gated MLP (--swiglu)", False: "a plain MLP"},
    "tied": {True: "tied embeddings", False: "untied embeddings (--untie-embeddings-and-output-weights)"},
    "mlp_bias": {True: "biases", False: "no biases (--disable-bias-linear)"},
}


def _difference(given: Arguments, spec: ModelSpec) -> str:
    """The one trait by which the arguments miss a shipped model: "LayerNorm where llama3-8b has RMSNorm"."""
    for trait, words in WORDS.items():
        for other in words:
            changed = replace(spec, **{trait: other, **({"attention_bias": other} if trait == "mlp_bias" else {})})
            if other != getattr(spec, trait) and (near := shipped_models_of_shape(changed)):
                return f"{words[getattr(spec, trait)]} where {' and '.join(near)} have {words[other]}"
    return ""


KEYS, FLAGS = key_lists("megatron_lm"), key_lists("megatron_lm_flags")
TOOLS = (
    Tool(
        name="Megatron-LM",
        marks=(
            "tensor_model_parallel_size",
            "num_layers hidden_size",
            "micro_batch_size seq_length",
            "micro_batch_size global_batch_size",
            "pipeline_model_parallel_size",
            "use_distributed_optimizer",
            "num_layers num_attention_heads",
            "micro_batch_size deepspeed",
        ),
        programs=r"pretrain_(gpt|mamba|hybrid|bert|t5|vlm|retro|ict|vision)\w*\.py|(^|/)train_rl\.py$",
        arguments_file="yaml_cfg",
        in_any_section=True,
        read=_read,
        keys=KEYS | FLAGS,
        writes="megatron-lm",
    ),
)
