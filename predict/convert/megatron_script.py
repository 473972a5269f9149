"""Megatron-LM's arguments as text: the launch script that is written, and the scripts, lists and YAML that are read."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from predict.run.training_run import TrainingRun

SWITCHES = """
    sequence_parallel use_distributed_optimizer account_for_embedding_in_pipeline_split account_for_loss_in_pipeline_split
    swiglu disable_bias_linear add_qkv_bias untie_embeddings_and_output_weights group_query_attention qk_layernorm
    multi_latent_attention moe_grouped_gemm moe_shared_expert_gate use_megatron_fsdp use_torch_fsdp2 fp16 bf16
    overlap_grad_reduce overlap_param_gather tp_comm_overlap moe_shared_expert_overlap overlap_moe_expert_parallel_comm
    moe_enable_deepep no_overlap_p2p_communication no_scatter_gather_tensors_in_pipeline no_gradient_accumulation_fusion
    no_masked_softmax_fusion no_async_tensor_model_parallel_allreduce accumulate_allreduce_grads_in_fp32
    grad_reduce_in_bf16 use_rotary_position_embeddings moe_router_force_load_balancing deepspeed no_pipeline_parallel use_flash_attn
    use_flash_attn_v2 enable_expert_tensor_parallelism moe_use_legacy_grouped_gemm moe_permute_fusion
    checkpoint_activations deepspeed_activation_checkpointing cross_entropy_loss_fusion external_cuda_graph enable_cuda_graph
"""
"""Arguments that take no value on a command line (`store_true` in arguments.py)."""
LISTS = frozenset({"recompute_modules", "cp_comm_type"})
WITH_UNDERSCORE = frozenset({"deepspeed_config"})
"""Arguments whose flag is not written with dashes."""
FLAG = re.compile(r"--[A-Za-z][\w-]*")
ASSIGNMENT = re.compile(
    r"^\s*(?:export\s+|local\s+|readonly\s+)?([A-Za-z_]\w*)=(?!\()(\"[^\"\n]*\"|'[^'\n]*'|(?:\$\{[^}\n]*\}|[^\s;#()\"'])*)",
    re.M,
)
VARIABLE = re.compile(r"\$\{(\w+)(?::?[-=]([^${}]*))?\}|\$(\w+)")
LONGEST_VALUE = 200
"""Characters of a variable's value that are put in its place. Longer ones hold flags, which are read where they are set."""
MOST_TEXT = 4_000_000
"""Characters up to which variables are replaced."""
DEEPEST = 20
"""Variables inside variables that are followed."""


def script(run: TrainingRun, arguments: Mapping[str, Any], notes: Sequence[str], *, program: str) -> str:
    """A shell script that launches `program` on the run's nodes with the arguments; `notes` come first, as comments."""
    nodes, per_node = run.cluster.nodes, run.cluster.gpus_per_node
    comments = [f"# {line}" for note in notes for line in note.splitlines()]
    flags = [f"    {' '.join(_flag(name, value))}" for name, value in arguments.items()]
    lines = [
        "#!/usr/bin/env bash",
        f"# {run.name} on {nodes} x {per_node} {run.cluster.gpu.name}; add your data, tokenizer and optimizer's schedule",
        *comments,
        "ARGS=(",
        *flags,
        ")",
        f"torchrun --nnodes {nodes} --nproc-per-node {per_node} {program} " + '"${ARGS[@]}" "$@"',
    ]
    return "\n".join(lines) + "\n"


def _flag(name: str, value: Any) -> list[str]:
    flag = f"--{name if name in WITH_UNDERSCORE else name.replace('_', '-')}"
    if value is True:
        return [flag]
    values = value if isinstance(value, list) else [value]
    return [flag, *(shlex.quote(str(each)) for each in values)]


def read_script(text: str) -> dict[str, Any]:
    """Argument → value in a launch script, or in a plain list of arguments; of one given twice, the last, as argparse has it.

    Variables that the text sets, or that have a default, are replaced; others stay as they are written. A value that follows
    no known switch is that flag's; several make a list.
    """
    text = re.sub(r"(^|\s)#.*", r"\1", text)
    text = re.sub(r"\\\r?\n", " ", text)
    set_here = {name: _without_itself(name, value.strip("\"'")) for name, value in ASSIGNMENT.findall(text)}
    text = _expanded(text, set_here)
    arguments: dict[str, Any] = {}
    for name, values in _flags(text):
        alone = name in SWITCHES.split() and not (values and values[0].lower() in ("true", "false"))
        if alone or not values:
            arguments[name] = True
        else:
            arguments[name] = values if name in LISTS or len(values) > 1 else values[0]
    return arguments


def _without_itself(name: str, value: str) -> str:
    """The default of `NNODES=${NNODES:-8}`."""
    return VARIABLE.sub(lambda found: (found[2] or "") if name in (found[1], found[3]) else found[0], value)


def _expanded(text: str, set_here: Mapping[str, str]) -> str:
    def value(found: re.Match[str]) -> str:
        known = set_here.get(found[1] or found[3], found[2])
        return found[0] if known is None or len(known) > LONGEST_VALUE else known

    for _ in range(DEEPEST):
        new = VARIABLE.sub(value, text)
        if new == text or len(new) > MOST_TEXT:
            break
        text = new
    return text


def _flags(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each flag with the values that follow it, up to the next flag, the end of its line or a closing bracket."""
    for line in text.splitlines():
        pieces = FLAG.split(_unquoted(line))
        for flag, after in zip(FLAG.findall(_unquoted(line)), pieces[1:], strict=True):
            name = flag[2:].replace("-", "_")
            yield name, _values(after, one=name not in LISTS)


def _unquoted(line: str) -> str:
    return line.replace('"', " ").replace("'", " ")


def _values(after: str, *, one: bool) -> list[str]:
    words = after.lstrip("= ").replace("\t", " ").split()
    values: list[str] = []
    for word in words:
        if word == ")" or word.endswith(".py") or word.startswith(("|", "&", ">", "2>", ";", "${", "$@")):
            break
        values.append(word)
        if one and "(" not in word:
            break
    return ["".join(values)] if one and values else values


def read_mapping(document: Mapping[Any, Any]) -> dict[str, Any]:
    """Argument → value of a YAML file, flat or in sections, whose names may have dashes, as `--tensor-model-parallel-size`."""
    arguments: dict[str, Any] = {}
    for key, value in document.items():
        if isinstance(value, Mapping):
            arguments |= read_mapping(value)
        else:
            arguments[str(key).lstrip("-").replace("-", "_")] = value
    return arguments
