"""torchtitan's TOML file (torchtitan/config/job_config.py)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from predict.convert import torchtitan
from predict.convert.offload import offload_of
from predict.convert.tool import Cost, Reading, Sections, Tool
from predict.huggingface.config_json import load_model
from predict.model.shipped import shipped_model
from sampling.files.faults import shown

OLDER = {
    "training.compile": "compile.enable",
    "training.tensor_parallel_degree": torchtitan.TP,
    "training.data_parallel_replicate_degree": torchtitan.REPLICAS,
    "training.data_parallel_shard_degree": torchtitan.SHARDS,
    "training.batch_size": torchtitan.LOCAL,
    "experimental.context_parallel_degree": torchtitan.CP,
    "experimental.context_parallel_rotate_method": torchtitan.ROTATION,
    "experimental.pipeline_parallel_degree": torchtitan.PP,
    "experimental.pipeline_parallel_schedule": torchtitan.SCHEDULE,
    "experimental.enable_async_tensor_parallel": torchtitan.ASYNC_TP,
}
"""Key of a release before mid-2025 → today's."""


def read_torchtitan(reading: Reading, *, model: str = "") -> Sections:
    """The sections of a file; `model` is the shipped one where a preset names it."""
    values = {OLDER.get(name, name): value for name, value in reading.given.values.items()}
    given = replace(reading.given, values=values)
    reading.given.passed_over(*(name for name in OLDER if name in reading.given.values))
    name = reading.chosen_model or model or torchtitan.read_model_name(given)
    given.passed_over("model.name", "model.flavor")
    path = shipped_model(name) if isinstance(name, str) else None
    if path is None and reading.chosen_model is None and not given.faults:  # its own file may have it
        given.fault("model.flavor", f"{shown(name)} is not a shipped model; give --set model=NAME")
    sections: dict[str, Any] = torchtitan.read_sections(replace(given, layers=load_model(path).layers if path else 0))
    if given.text("training.dtype", "float32") == "bfloat16":  # weights, gradients and moments are all of that dtype
        sections["execution"] |= {"master_weights": False, "gradient_dtype": "bf16", "moment_dtype": "bf16"}
    found = {} if path is None or reading.chosen_model is not None else {"model": path.stem}
    return {**found, **sections, **offload_of(given)}


TOOLS = (
    Tool(
        name="torchtitan",
        marks=(
            "model.flavor",
            "training.local_batch_size",
            "parallelism.tensor_parallel_degree",
            "parallelism.data_parallel_shard_degree",
            "training.seq_len model.name",
            "activation_checkpoint.mode",
        ),
        read=read_torchtitan,
        arguments_file="job.config_file",
        writes="torchtitan",
        harmless="""
            job.* profiling.* metrics.* checkpoint.* lr_scheduler.* validation.* model.hf_assets_path model.tokenizer_path model.norm_type
            model.tokenizer* model.vocab* model.print_* optimizer.lr optimizer.eps optimizer.beta1 optimizer.beta2 optimizer.weight_decay
            optimizer.implementation optimizer.fused training.steps training.dataset* training.seed training.deterministic training.warmup_steps
            training.max_norm training.gc_* training.data_parallel_* training.debug* comm.* compile.components compile.backend debug.*
            float8.enable_fsdp* float8.filter_fqns float8.precompute* float8.emulate float8.moe* mx.filter* mx.mxfp8_dim1* quantize.* experimental.custom_import
            experimental.custom_args_module activation_checkpoint.early_stop activation_checkpoint.per_op* activation_checkpoint.force*
            activation_checkpoint.memory* activation_checkpoint.selective_ac_option memory_estimation.* communication.* fault_tolerance.*
            tokenizer* scheduler.* float8.scaling_type* parallelism.disable_loss_parallel parallelism.module* training.num_* data.*
            training.*validation* mx.use_fp8_dim1*
        """,
        costs={
            "training.enable_cpu_offload": "what lies in the host's memory is not modelled",
            "parallelism.enable_compiled_autograd": "compiled autograd is not modelled",
            "parallelism.disable_loss_parallel": "a loss over gathered logits is not modelled",
            "optimizer.early_step_in_backward": "an optimizer's step in the backward is not modelled",
            "optimizer.fused": Cost(why="a loop over parameters is not modelled", neutral=(True,)),
            "optimizer.implementation": Cost(
                why="a loop over parameters is not modelled", neutral=("fused", "foreach")
            ),
            "float8.enable_float8_linear": Cost(why='is an older switch; write model.converters = ["float8"]'),
            "fault_tolerance.enable": "replicas that come and go are not modelled",
            "activation_checkpoint.mode": "memory budgets are not modelled",
            "lora*": "adapters are not modelled; only full training is",
            "model.use_flex_attn": "FlexAttention is not modelled",
            "model.attn_type": Cost(why="FlexAttention is not modelled", neutral=("sdpa", "causal")),
        },
    ),
)
