"""Megatron-LM's arguments as text: the launch script that is written, its switches, and the YAML that is read."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
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
    checkpoint_activations recompute_activations deepspeed_activation_checkpointing cross_entropy_loss_fusion external_cuda_graph enable_cuda_graph
    no_position_embedding apply_layernorm_1p mock_data use_mcore_models no_load_optim no_load_rng no_save_optim no_save_rng log_throughput manual_gc
    calculate_per_token_loss no_create_attention_mask_in_dataloader no_mmap_bin_files profile use_pytorch_profiler use_rope_scaling
    fp8_param_gather fp8_dot_product_attention first_last_layers_bf16 use_precision_aware_optimizer attention_softmax_in_fp32 optimizer_cpu_offload overlap_cpu_optimizer_d2h_h2d no_rope_fusion
    no_bias_swiglu_fusion no_bias_gelu_fusion no_bias_dropout_fusion distribute_saved_activations te_rng_tracker delay_wgrad_compute
    moe_pad_expert_input_to_capacity reuse_grad_buf_for_mxfp8_param_ag use_cpu_initialization ddp_average_in_collective log_memory_to_tensorboard
    moe_router_enable_expert_bias moe_router_pre_softmax moe_router_fusion finetune async_save use_dist_ckpt use_distributed_optimizer
"""
"""Arguments that take no value on a command line (`store_true` in arguments.py)."""
WITH_UNDERSCORE = frozenset({"deepspeed_config"})
"""Arguments whose flag is not written with dashes."""


def script(run: TrainingRun, arguments: Mapping[str, Any], notes: Sequence[str], *, program: str) -> str:
    """A shell script that launches `program` on the run's nodes with the arguments; `notes` come first, as comments."""
    nodes, per_node = run.cluster.nodes, run.cluster.gpus_per_node
    comments = [f"# {line}" for note in notes for line in note.splitlines()]
    flags = [f"    {' '.join(flag_words(name, value))}" for name, value in arguments.items()]
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


def flag_words(name: str, value: Any) -> list[str]:
    """The words of an argument on a command line: its flag, and its values where it is no switch."""
    flag = f"--{name if name in WITH_UNDERSCORE else name.replace('_', '-')}"
    if value is True:
        return [flag]
    values = value if isinstance(value, list) else [value]
    return [flag, *(shlex.quote(str(each)) for each in values)]


def read_mapping(document: Mapping[Any, Any]) -> dict[str, Any]:
    """Argument → value of a YAML file, flat or in sections, whose names may have dashes, as `--tensor-model-parallel-size`."""
    arguments: dict[str, Any] = {}
    for key, value in document.items():
        if isinstance(value, Mapping):
            arguments |= read_mapping(value)
        else:
            arguments[str(key).lstrip("-").replace("-", "_")] = value
    return arguments
