"""torchtune's YAML (torchtune, recipes/configs and recipes/full_finetune_distributed.py)."""

import re
from typing import Any

from predict.convert.arguments import Arguments
from predict.convert.offload import offload_of
from predict.convert.tool import (
    OFF,
    Reading,
    Sections,
    Tool,
    choice,
    count,
    in_sections,
    key_lists,
    read_table,
    switch,
    written,
)
from predict.convert.tuning import note_on_lengths
from predict.model.shipped import shipped_model, shipped_models
from sampling.files.faults import did_you_mean, shown

EAGER, COMPILED = "fsdp", "fsdp-compile"
MODEL = "model._component_"
ADAPTED = re.compile(r"^(q?lora|q?dora)_")
ATTENTION = {"output_proj": "o_proj"}
"""torchtune's name of an adapted product → peft's."""
MODULES = "model.lora_attn_modules"
SEQUENCE = "tokenizer.max_seq_len"
OPTIMIZERS = {"torch.optim.adamw": "adamw", "torch.optim.adam": "adamw"}
LOSS, IN_CHUNKS = "loss._component_", ("Chunked", "LinearCrossEntropy")
RESHARDS = "fsdp_reshard_after_forward"
TABLE = (
    count("batch.micro", "batch_size"),
    count("batch.accumulation", "gradient_accumulation_steps", usual=1),
    count("batch.seq_len", SEQUENCE, "dataset.max_seq_len"),
    count("plan.tp", "tensor_parallel_dim"),
    count("plan.cp", "context_parallel_dim"),
    switch("plan.recompute", "enable_activation_checkpointing", usual=False, on="full", off="none"),
    switch("execution.framework", "compile", usual=False, on=COMPILED, off=EAGER),
    choice("top.precision", "dtype", {"bf16": "bf16", "fp32": "fp32"}, usual="fp32"),
    choice("execution.optimizer", "optimizer._component_", OPTIMIZERS),
)
WRITTEN = (written("plan.zero", lambda stage: {RESHARDS: stage == 3} if stage in (2, 3) else None),)


def _read(reading: Reading) -> Sections:
    given = reading.given
    values = read_table(TABLE, given)
    given.passed_over(SEQUENCE, "dataset.max_seq_len")
    plan, execution = values.setdefault("plan", {}), values.setdefault("execution", {})
    if any(word in given.text(LOSS, "") for word in IN_CHUNKS):
        given.notes.append(
            f"{LOSS}: logits in chunks are not modelled; the whole ones that are predicted take more memory"
        )
    note_on_lengths(given, values.get("batch", {}).get("seq_len"), "dataset.packed")
    recipe = reading.source.program or reading.source.name
    if "single_device" in recipe:
        plan["zero"] = 0
    else:
        plan["zero"] = 3 if given.switch(RESHARDS, True) else 2
    replicas, shards = given.count("data_parallel_replicate_dim") or 1, given.whole("data_parallel_shard_dim", -1)
    if replicas > 1:
        plan |= {"shard": shards} if shards > 0 else {"instances": replicas}
    if values["top"]["precision"] == "bf16":  # weights, gradients and moments are all of that dtype
        execution |= {"master_weights": False, "gradient_dtype": "bf16", "moment_dtype": "bf16"}
    execution["clip_gradients"] = given.values.get("clip_grad_norm") not in OFF
    given.passed_over("clip_grad_norm")
    model = _model(reading, given)
    adapters = _adapters(given)
    return {**in_sections(values), **model, **offload_of(given), **({"adapters": adapters} if adapters else {})}


def _adapters(given: Arguments) -> dict[str, Any]:
    """The section `adapters`, by the builder's name and its arguments."""
    name = given.text(MODEL, "").rpartition(".")[2]
    if not ADAPTED.search(name):
        return {}
    modules = given.value(MODULES, ["q_proj", "v_proj"])
    if not isinstance(modules, list):
        given.fault(MODULES, f"{shown(modules)} is not a list of products; write [q_proj, v_proj]")
        return {}
    targets = [ATTENTION.get(str(module), str(module)) for module in modules]
    if given.switch("model.apply_lora_to_mlp"):
        targets.append("mlp")
    is_dora = name.startswith(("dora_", "qdora_")) or given.switch("model.use_dora")
    is_quantised = name.startswith("q") or given.switch("model.quantize_base")
    given.passed_over("model.lora_alpha", "model.lora_dropout")
    # torchao's NF4Tensor always quantises its scales too (dtypes/nf4tensor.py)
    base = {"base": "nf4", "double_quantised": True} if is_quantised else {}
    return {
        "kind": "dora" if is_dora else "lora",
        "rank": given.count("model.lora_rank") or 8,
        "targets": ",".join(targets),
        **base,
    }


def _model(reading: Reading, given: Arguments) -> dict[str, str]:
    name = given.text(MODEL, "").rpartition(".")[2]
    if "qat" in reading.source.program:
        given.fault(MODEL, f"{name}: training for quantization is not modelled")
        return {}
    name = ADAPTED.sub("", name)
    if reading.chosen_model is not None:
        return {}
    # llama3_1_8b, qwen2_5_7b_base: the last number is the size, one before it the minor version
    plain = re.sub(r"_(base|instruct)$", "", name)
    plain = re.sub(r"(\d)_(\d+)_(\d+b)", r"\1.\2-\3", plain).replace("_", "-")
    path = shipped_model(plain)
    if path is None:
        given.fault(
            MODEL, f"{shown(name)} is not a shipped model{did_you_mean(plain, shipped_models())}; give --set model=NAME"
        )
        return {}
    return {"model": path.stem}


TOOLS = (
    Tool(
        name="torchtune",
        marks=("model._component_ batch_size", "model._component_ tokenizer checkpointer"),
        programs=r"^tune run",
        read=_read,
        table=(*TABLE, *WRITTEN),
        keys=key_lists("torchtune"),
    ),
)
