"""Trainers of Hugging Face transformers: TrainingArguments as YAML, JSON, a command line or a Python call, TRL's configs, and
LLaMA-Factory's YAML, which adds to them.

Names: transformers, training_args.py; trl, trainer/sft_config.py and model_config.py; LLaMA-Factory, hparams/*.py.
"""

import re
from collections.abc import Mapping
from typing import Any

from predict.convert.arguments import Arguments
from predict.convert.offload import offload_of
from predict.convert.tool import (
    ACCEPT,
    AUTO,
    OFF,
    BaseKeys,
    Read,
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
    switch,
    tool_file,
    written,
)
from predict.convert.tuning import CLASSES, WORDS, in_sequences, note_on_lengths, tuning_of, vision_of
from predict.run.vision import NONE
from sampling.files.faults import shown

FRAMEWORK, COMPILED, ZERO = "transformers", "fsdp-compile", "deepspeed"
EIGHT_BITS = tuple(tool_file("transformers")["eight_bits"])
"""AdamW of bitsandbytes or torchao with moments in eight bits; paged, they leave the device only where it is full."""
ADAMW = tuple(tool_file("transformers")["adamw"])
ATTENTION: Mapping[str, Any] = tool_file("transformers")["attention"]
"""Names of attention kernels, of which scaled_dot_product_attention's is FlashAttention-2."""
LIGER = {"fuse_rms_norm": True, "elementwise": "fused", "fuse_loss": True}
"""Liger's kernels: norms, rotary embedding, gated activation and the loss with the head's product."""
SHARDING: Mapping[str, int] = tool_file("transformers")["sharding"]


def optimizer(name: str) -> Read:
    """AdamW, muon, or a fault: others keep other state."""

    def value(given: Arguments) -> str | None:
        word = given.text(name, "").lower()
        if word and word not in ADAMW and word != "muon":
            given.fault(name, f"{word} keeps other state than AdamW, which is not modelled; adamw_torch and muon are")
        return "muon" if word == "muon" else None

    return Read(path="execution.optimizer", value=value)


def moments(name: str) -> Read:
    """Eight bits for the moments of the optimizers that have them so."""
    return Read(
        path="execution.moment_dtype",
        value=lambda given: "fp8" if given.text(name, "").lower() in EIGHT_BITS else None,
    )


CLIPPING = Read(
    path="execution.clip_gradients",
    value=lambda given: given.number("max_grad_norm", 1.0) > 0 if "max_grad_norm" in given.values else None,
)


def halves(given: Arguments) -> dict[str, Any]:
    """Precision by `bf16` and `fp16`; nothing where neither is given, since accelerate or DeepSpeed may say it."""
    given.passed_over("bf16", "fp16")
    for name in ("bf16", "fp16"):
        if str(given.values.get(name, "")).lower() in ("true", AUTO, "full"):
            return {"top": {"precision": name}, **({"execution": {"loss_scaling": True}} if name == "fp16" else {})}
    return {}


def fsdp_of(given: Arguments, words: list[str]) -> dict[str, Any]:
    """The plan and execution of FSDP, by accelerate's names, with or without `fsdp_` in front; `words` are those of `fsdp`."""

    def named(name: str) -> str:
        return next((full for full in (f"fsdp_config.fsdp_{name}", f"fsdp_config.{name}") if full in given.values), "")

    plan: dict[str, Any] = {}
    strategy = named("sharding_strategy")
    word = (
        given.text(strategy, "").lower()
        if strategy
        else next((word for word in words if word in SHARDING), "full_shard")
    )
    numbered = dict(enumerate(("full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2"), 1))
    word = numbered[int(word)] if word.isdecimal() and int(word) in numbered else word
    if word not in SHARDING:
        given.fault(strategy, f"{shown(word)} is not modelled; {', '.join(SHARDING)} are")
    plan["zero"] = SHARDING.get(word, 3)
    if word.startswith("hybrid"):
        plan["shard"] = "node"
    reshards = named("reshard_after_forward")
    if reshards:
        text = str(given.value(reshards, True)).lower()
        plan["zero"] = SHARDING.get(text, 2 if text in ("false", "no", "0") else 3)
    checkpointing = named("activation_checkpointing")
    if checkpointing and given.switch(checkpointing):
        plan["recompute"] = "full"
    return plan


IN_FOUR_BITS = BaseKeys(double="use_bnb_nested_quant")
OF_LLAMA_FACTORY = BaseKeys(
    bits="quantization_bit", form="quantization_type", double="double_quantization", usually_double=True, refused=()
)
SHARDED: Mapping[int, str] = {2: "shard_grad_op auto_wrap", 3: "full_shard auto_wrap"}
TABLE = (
    count("batch.micro", "per_device_train_batch_size", "per_gpu_train_batch_size", "train_batch_size"),
    count("batch.accumulation", "gradient_accumulation_steps", usual=1),
    switch("plan.recompute", "gradient_checkpointing", on="full", off="none"),
    optimizer("optim"),
    moments("optim"),
    CLIPPING,
    count("batch.seq_len", "max_seq_length", "max_length", "cutoff_len", "model_max_length", "block_size"),
)
WRITTEN = (
    written("precision", lambda name: {name: True} if name in ("bf16", "fp16") else None),
    written("plan.zero", lambda stage: {"fsdp": SHARDED[stage]} if stage in SHARDED else None),
    written("execution.framework", lambda name: {"torch_compile": True} if name == COMPILED else None),
    choice("execution.attention", "attn_implementation", {"flash_attention_3": "best", **ATTENTION}),
    *(written(f"execution.{key}", lambda value: {"use_liger_kernel": True}) for key in LIGER),
)
MODEL_NAMES = ("model_name_or_path", "model_name", "model_id", "model")
ATTENTION_NAMES = ("attn_implementation", "flash_attn", "attn")
LIGER_NAMES = ("use_liger_kernel", "use_liger", "enable_liger_kernel")
DTYPE_NAMES = ("torch_dtype", "dtype", "infer_dtype")
ALIASES = (MODEL_NAMES, ATTENTION_NAMES, LIGER_NAMES, DTYPE_NAMES)
OF_SAMPLES = {"max_seq_length", "max_length", "cutoff_len"}
"""Names of the longest sequence of samples, rather than of the pieces into which a text is cut."""


def _read(reading: Reading) -> Sections:
    return in_sequences(sections_of(reading))


def sections_of(reading: Reading) -> dict[str, Any]:
    """The sections by TrainingArguments, whose batch counts samples: pairs as one."""
    given = reading.given
    values = read_table(TABLE, given)
    for section, keys in halves(given).items():
        values.setdefault(section, {}).update(keys)
    if adapters := adapters_of(
        given,
        kind="use_peft",
        rank="lora_r",
        targets="lora_target_modules",
        usual_rank=16,
        dora="use_dora",
        base=IN_FOUR_BITS,
    ):
        values["adapters"] = adapters
    execution, plan = values.setdefault("execution", {}), values.setdefault("plan", {})
    _kernels(given, execution)
    words = given.values.get("fsdp")
    listed = [str(each).lower() for each in (words if isinstance(words, list) else str(words or "").split())]
    has_deepspeed = needs_file(reading, "deepspeed", "sharding, offload and the batch")
    needs_file(reading, "fsdp_config", "sharding and offload")
    given.passed_over("fsdp")
    if listed and listed != ["false"]:
        plan.update(fsdp_of(given, listed))
    if given.values.get("torch_compile") not in OFF and given.switch("torch_compile"):
        if has_deepspeed:
            given.fault(
                "torch_compile",
                f"compiled layers under DeepSpeed are not modelled; {ACCEPT} torch_compile reads the rest",
            )
        else:
            execution["framework"] = COMPILED
    given.passed_over("torch_compile")
    if has_deepspeed or listed:
        execution.setdefault("framework", ZERO if has_deepspeed else FRAMEWORK)
    named = model_named(reading, *MODEL_NAMES)
    if given.values.keys() & OF_SAMPLES and given.values.get("stage") != "pt":
        note_on_lengths(given, values.get("batch", {}).get("seq_len"), "packing", "neat_packing")
    usual: dict[str, Any] = {"execution": {"framework": FRAMEWORK}, "batch": {"micro": 8}}
    if plan.get("recompute") == "none":  # FSDP's own checkpointing, in accelerate's file, may be on
        usual["plan"] = {"recompute": plan.pop("recompute")}
    offload = offload_of(given, whole="offload" in listed)
    tuning = tuning_of(given, "program", _task_of(reading.source.program))
    return {**in_sections(values), **named, **offload, **tuning, "usual": usual}


def _task_of(program: str) -> str:
    """The word of TRL's class, sub-command or script; empty for others."""
    stem = re.split(r"[ ./]", program.removesuffix(".py"))[-1]
    return CLASSES.get(stem, stem if stem in WORDS else "")


def _kernels(given: Arguments, execution: dict[str, Any]) -> None:
    for name in ATTENTION_NAMES:
        execution.update(read_table((choice("execution.attention", name, ATTENTION),), given).get("execution", {}))
    for name in LIGER_NAMES:
        if name in given.values and given.switch(name):
            execution.update(LIGER)
    for name in DTYPE_NAMES:
        if given.text(name, "").lower() in ("bfloat16", "bf16", "float16", "fp16", "half"):
            execution["loaded_in_halves"] = True


def _read_llama_factory(reading: Reading) -> Sections:
    given = reading.given
    adapters = adapters_of(
        given,
        kind="finetuning_type",
        rank="lora_rank",
        targets="lora_target",
        usual_rank=8,
        usual_targets="all",
        dora="use_dora",
        base=OF_LLAMA_FACTORY,
    )
    given.passed_over("export_*")
    stage = given.text("stage", "sft")
    if given.values.get("pref_loss") in ("orpo", "simpo") and stage == "dpo":
        stage = given.text("pref_loss", "")
    tuning = tuning_of(given, "stage", "" if stage in ("sft", "pt") else stage)
    sections = in_sequences({**sections_of(reading), **tuning, **({"adapters": adapters} if adapters else {})})
    plan = dict(sections.get("plan", {}))
    # checkpointing is on unless it is switched off, and does not need TrainingArguments' own switch (model_args.py)
    plan["recompute"] = "none" if given.switch("disable_gradient_checkpointing") else "full"
    execution = {**sections.get("execution", {})}
    execution.pop("loaded_in_halves", None)
    vision = vision_of(given, "freeze_vision_tower", "freeze_multi_modal_projector")
    if adapters and vision["vision"]["trained"] != NONE:
        given.fault(
            "freeze_vision_tower",
            "adapters of a vision tower are not modelled; set freeze_vision_tower and freeze_multi_modal_projector to true",
        )
    if given.switch("use_muon"):
        execution["optimizer"] = "muon"
    if given.switch("pure_bf16"):
        execution |= {"master_weights": False, "gradient_dtype": "bf16"}
        sections["precision"] = "bf16"
    return {**sections, "plan": plan, "execution": execution, **vision}


KEYS, FLAGS = key_lists("transformers"), key_lists("transformers_flags")
TOOLS = (
    Tool(
        name="Hugging Face TrainingArguments",
        marks=(
            "per_device_train_batch_size",
            "gradient_accumulation_steps learning_rate",
            "model_name_or_path learning_rate",
        ),
        read=_read,
        table=(*TABLE, *WRITTEN),
        keys=KEYS | FLAGS | key_lists("preferences"),
        programs=r"^trl (sft|dpo|kto|reward)$",
        arguments_file="config",
        aliases=ALIASES,
    ),
    Tool(
        name="LLaMA-Factory",
        marks=("finetuning_type model_name_or_path stage", "finetuning_type cutoff_len", "finetuning_type template"),
        programs=r"llamafactory-cli",
        arguments_file="model_tag",
        aliases=ALIASES,
        read=_read_llama_factory,
        table=(
            written(
                "plan.recompute",
                lambda mode: {"disable_gradient_checkpointing": mode == "none"} if mode in ("none", "full") else None,
            ),
            *TABLE,
            *WRITTEN,
        ),
        keys=KEYS | key_lists("preferences") | key_lists("llama_factory"),
    ),
)
