"""Axolotl's YAML (axolotl, utils/schemas/config.py)."""

from collections.abc import Mapping
from typing import Any

from predict.convert.arguments import Arguments
from predict.convert.offload import offload_of
from predict.convert.tool import (
    ACCEPT,
    NO_VALUES,
    OF_PEFT,
    OFF,
    BaseKeys,
    Reading,
    Sections,
    Tool,
    adapters_of,
    choice,
    count,
    in_sections,
    key_lists,
    model_named,
    needs_file,
    read_table,
    tool_file,
    written,
)
from predict.convert.tools.transformers_trainer import (
    ATTENTION,
    CLIPPING,
    COMPILED,
    FRAMEWORK,
    LIGER,
    ZERO,
    fsdp_of,
    halves,
    moments,
    optimizer,
)
from predict.convert.tuning import in_sequences, note_on_lengths, tuning_of

IN_FOUR_BITS = BaseKeys(usually_double=True, refused=("load_in_8bit", "gptq"))
"""Double quantisation is not a key of its own (axolotl, loaders/model.py, `_set_quantization_config`)."""
TABLE = (
    count("batch.micro", "micro_batch_size"),
    count("batch.accumulation", "gradient_accumulation_steps", usual=1),
    count("batch.global", "batch_size"),
    count("batch.seq_len", "sequence_len"),
    count("plan.cp", "context_parallel_size", "sequence_parallel_degree"),
    count("plan.tp", "tensor_parallel_size"),
    optimizer("optimizer"),
    moments("optimizer"),
    CLIPPING,
)
WRITTEN = (
    written("precision", lambda name: {name: True} if name in ("bf16", "fp16") else None),
    written("execution.framework", lambda name: {"torch_compile": True} if name == COMPILED else None),
    written(
        "plan.recompute", lambda mode: {"gradient_checkpointing": mode == "full"} if mode in ("none", "full") else None
    ),
    written(
        "execution.attention", lambda kernel: {"flash_attention": True} if kernel in ("best", "fa2", "fa3") else None
    ),
    written("execution.fuse_rms_norm", lambda value: {"liger_rms_norm": True}),
    written("execution.elementwise", lambda value: {"liger_glu_activation": True}),
    written("execution.fuse_loss", lambda value: {"liger_fused_linear_cross_entropy": True}),
)
SWITCHES: Mapping[str, str] = tool_file("axolotl")["attention_switches"]
NAMED: Mapping[str, str] = {"flash": "fa2", "sdpa": "fa2", "xformers": "fa2", "eager": "unfused"}
"""Words of the key `attention`, which later took the place of the switches."""
KERNELS: Mapping[str, Mapping[str, Any]] = {
    "liger_rms_norm": {"fuse_rms_norm": True},
    "flash_attn_rms_norm": {"fuse_rms_norm": True},
    "liger_glu_activation": {"elementwise": "fused"},
    "liger_swiglu": {"elementwise": "fused"},
    "flash_attn_fuse_mlp": {"elementwise": "fused"},
    "liger_fused_linear_cross_entropy": {"fuse_loss": True},
    "cut_cross_entropy": {"fuse_loss": True},
    "liger_cross_entropy": {"fuse_loss": True},
    "flash_attn_cross_entropy": {"fuse_loss": True},
    "use_liger_kernel": LIGER,
}
"""Switch of fused kernels → what they fuse here."""
PLUGINS = ("CutCrossEntropyPlugin", "LigerPlugin", "LMEvalPlugin")
"""Plugins whose switches are read, or that change no step of training."""
CUT_CROSS_ENTROPY = "CutCrossEntropyPlugin"
"""The plugin whose own switch is on unless it is set (axolotl, integrations/cut_cross_entropy/args.py)."""


def _read(reading: Reading) -> Sections:
    given = reading.given
    values = read_table(TABLE, given)
    for section, keys in halves(given).items():
        values.setdefault(section, {}).update(keys)
    every = given.values.get("lora_target_linear") not in OFF and given.switch("lora_target_linear")
    if adapters := adapters_of(
        given,
        kind="adapter",
        rank="lora_r",
        targets="lora_target_modules",
        usual_rank=8,
        usual_targets="all" if every else OF_PEFT,
        dora="peft_use_dora",
        base=IN_FOUR_BITS,
    ):
        values["adapters"] = adapters
    note_on_lengths(given, values.get("batch", {}).get("seq_len"), "sample_packing")
    plan, execution = values.setdefault("plan", {}), values.setdefault("execution", {})
    execution["loaded_in_halves"] = True  # the model is loaded in the dtype of `bf16` or `fp16`
    waiting = _recompute(given, plan)
    _kernels(given, execution)
    offload = _sharding(reading, plan, execution)
    if waiting:
        offload = {"offload": {**offload.get("offload", {}), "activation_share": 1.0}}
    if plan.get("cp", 1) > 1:
        plan["cp_method"] = "ring"
    if given.values.get("torch_compile") not in (*OFF, "auto") and given.switch("torch_compile"):
        execution["framework"] = COMPILED
    given.passed_over("torch_compile")
    sections = {
        **in_sections(values),
        **model_named(reading, "base_model"),
        **offload,
        **_tuning(given),
        "usual": {"execution": {"framework": FRAMEWORK}, "plan": {"recompute": "none"}},
    }
    return in_sequences(sections)


def _tuning(given: Arguments) -> dict[str, Any]:
    rewards = given.values.get("reward_model") not in OFF and given.switch("reward_model")
    return tuning_of(given, "rl", "reward" if rewards else given.text("rl", ""))


def _recompute(given: Arguments, plan: dict[str, Any]) -> bool:
    """Whether the inputs of the layers that are repeated wait on the host."""
    value = given.values.get("gradient_checkpointing")
    given.passed_over("gradient_checkpointing")
    if value == "offload_disk":
        given.fault("gradient_checkpointing", f"{value}: activations on disks are not modelled; write offload")
    if value not in OFF:
        plan["recompute"] = "full"
    return value in ("offload", "unsloth")


def _kernels(given: Arguments, execution: dict[str, Any]) -> None:
    attention = given.text("attn_implementation", "").lower()
    if attention and attention not in ATTENTION:
        given.fault("attn_implementation", f"{attention} is not modelled; {', '.join(ATTENTION)} are")
    if ATTENTION.get(attention):
        execution["attention"] = ATTENTION[attention]
    execution.update(read_table((choice("execution.attention", "attention", NAMED),), given).get("execution", {}))
    for name, kernel in SWITCHES.items():
        if given.values.get(name) not in OFF and given.switch(name):
            execution["attention"] = kernel
        given.passed_over(name)
    plugins = given.values.get("plugins") or []
    listed = plugins if isinstance(plugins, list) else [plugins]
    for each in listed:
        if not str(each).endswith(PLUGINS):
            problem = (
                f"{each} is not known here, and may change time or memory; {ACCEPT} plugins reads the rest without it"
            )
            given.fault("plugins", problem)
    usual = {"cut_cross_entropy": any(str(each).endswith(CUT_CROSS_ENTROPY) for each in listed)}
    for name, fused in KERNELS.items():
        value = given.values.get(name)
        is_on = usual.get(name, False) if value in NO_VALUES else value not in OFF and given.switch(name)
        if is_on:
            execution.update(fused)
        given.passed_over(name)


def _sharding(reading: Reading, plan: dict[str, Any], execution: dict[str, Any]) -> dict[str, Any]:
    """The section `offload`, beside what sharding sets in plan and execution."""
    given = reading.given
    if needs_file(reading, "deepspeed", "sharding, offload and the batch"):
        execution.setdefault("framework", ZERO)
    words = given.values.get("fsdp") or []
    has_config = any(name.startswith("fsdp_config.") for name in given.values)
    given.passed_over("fsdp", "fsdp_config")
    listed = [str(word).lower() for word in (words if isinstance(words, list) else str(words).split())]
    if listed or has_config:
        plan.update(fsdp_of(given, listed))
        execution.setdefault("framework", FRAMEWORK)
    shards, replicas = given.count("dp_shard_size"), given.count("dp_replicate_size") or 1
    if replicas > 1 and shards:
        plan["shard"] = shards * plan.get("cp", 1)
    return offload_of(given, whole="offload" in listed)


TOOLS = (
    Tool(
        name="Axolotl",
        marks=(
            "base_model micro_batch_size",
            "base_model sequence_len",
            "base_model datasets",
            "base_model num_epochs",
        ),
        programs=r"^axolotl( |\.cli\.)train$",
        arguments_file="model_tag",
        read=_read,
        table=(*TABLE, *WRITTEN),
        keys=key_lists("preferences") | key_lists("axolotl"),
    ),
)
