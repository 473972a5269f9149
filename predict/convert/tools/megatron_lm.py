"""Megatron-LM's arguments as a launch script, a list or YAML, those of Megatron-DeepSpeed among them (megatron/training/arguments.py)."""

from __future__ import annotations

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
from predict.convert.megatron_script import SWITCHES
from predict.convert.offload import offload_of
from predict.convert.tool import Cost, Reading, Sections, Tool
from predict.huggingface.config_json import load_model
from predict.model.shipped import shipped_model
from predict.model.spec import ModelSpec
from predict.run.execution import NATURAL, UNTOUCHED
from predict.run.frameworks import ON_GPUS
from sampling.arithmetic.expert_rows import BALANCED

CLUSTER: Mapping[str, str] = {"nnodes": "nodes", "nproc_per_node": "gpus_per_node"}
SWITCHED = frozenset(SWITCHES.split())
HARMLESS = """
    *data_path *data_cache* *data_args* mock_data data_impl max_position_embeddings disable_*saving split *_split tokenizer* vocab_file vocab_extra* merge_file *tiktoken* *sentencepiece* *lr* *_lr lr
    weight_decay* start_weight* end_weight* adam_* *beta1 *beta2 sgd_* muon_* *seed* *init_method* init_* *log* *tensorboard* *wandb* one_logger*
    *timing* *save* *load* *ckpt* *checkpoint* no_load_* no_save_* *eval* test_* valid* train_iters train_samples exit_* override_opt*
    use_checkpoint* num_workers dataloader_type *distributed_backend distributed_timeout* local_rank master_* node_rank nnodes nproc_per_node
    rdzv_* standalone max_restarts log_dir redirects tee use_mcore_models use_legacy* use_cpu_initialization perform_initialization *profile*
    use_pytorch_profiler record_memory* manual_gc* empty_unused_memory* no_position_embedding apply_layernorm_1p layernorm_epsilon norm_epsilon
    rotary_* use_rope_scaling rope_* no_rope_freq mscale* original_max_position* beta_fast beta_slow *loss_scale* loss_scale_window hysteresis
    calculate_per_token_loss rampup_batch_size fp8_amax* fp8_margin fp8_interval fp8_wgrad fp8_multi* tp_comm_bootstrap* te_rng_tracker
    moe_router_load_balancing_type moe_aux_loss* moe_z_loss* moe_router_dtype moe_router_score* moe_router_topk_scaling* moe_router_enable*
    moe_router_bias* moe_router_pre_softmax moe_router_force* moe_router_padding* moe_token_drop_policy moe_per_layer* moe_deepep_num_sms
    moe_hybridep_num_sms moe_input_jitter* moe_layer_recompute moe_router_fusion moe_router_num_groups moe_router_group_topk moe_router_limited*
    attention_softmax_in_fp32 no_query_key_layer_scaling apply_query_key* attention_dropout hidden_dropout check_* no_check* use_flash_attn
    no_create_attention* no_mmap* create_attention* *attention_mask_in* eod_mask_loss mtp_loss* ddp_bucket* ddp_average* ddp_num* ddp_pad*
    make_vocab_size* padded_vocab_size yaml_cfg config_file disable_straggler* enable_straggler* *straggler* adlr* attention_backend
    cross_entropy_fusion_impl transformer_impl use_dist_ckpt* dist_ckpt* *rerun* enable_ft* *ft_* high_priority* no_persist_layer_norm
    no_async_tensor* distributed_* app_tag* *experimental* overlap_p2p_comm* batch_p2p* align_grad* align_param* decoupled* finetune
    no_gradient_accumulation_fusion untie* clip_grad min_loss* consumed* ignore_* inference_* *timers* barrier* suggested* world_size
    rank *_per_second recompute_modules bert_* retro_* vision_* iteration_time* job_name overlap_param_gather overlap_grad_reduce
    disable_bias_linear moe_expert_parallel* deterministic_mode keep_last* skip_train *_prompt* spec warmup* openai_gelu reset_position_ids moe_use_upcycling create_moe_param_group
"""
"""Arguments of data, tokenizer, schedule, saving, logging and numerics; router's arithmetic beside the experts' products is below 1 % of a
layer."""
COSTS: Mapping[str, Cost | str] = {
    "optimizer_cpu_offload": "an optimizer in the host's memory is not modelled",
    "optimizer_offload*": "an optimizer in the host's memory is not modelled",
    "overlap_cpu_optimizer*": "an optimizer in the host's memory is not modelled",
    "use_torch_optimizer_for_cpu*": "an optimizer in the host's memory is not modelled",
    "cpu_offload*": "activations and weights in the host's memory are not modelled",
    "*fine_grained_activation_offload*": "activations in the host's memory are not modelled",
    "offload_modules": "activations in the host's memory are not modelled",
    "no_bias_gelu_fusion": "an activation apart from its bias is not modelled",
    "no_bias_swiglu_fusion": "an activation apart from its bias is not modelled",
    "no_bias_dropout_fusion": "a dropout apart from its bias is not modelled",
    "no_rope_fusion": "rotary embedding in single operators is not modelled here",
    "squared_relu": "another activation is not read; give --set model=FILE",
    "window_size": "attention in a window is not read from arguments; give --set model=FILE",
    "window_attn*": "attention in a window is not read from arguments; give --set model=FILE",
    "softmax_type": Cost(
        why="attention with sinks is not read from arguments; give --set model=FILE", neutral=("vanilla",)
    ),
    "hybrid_*": "hybrid models are not read from arguments; give --set model=FILE",
    "is_hybrid_model": "hybrid models are not read from arguments; give --set model=FILE",
    "mamba_*": "hybrid models are not read from arguments; give --set model=FILE",
    "linear_attention*": "linear attention is not read from arguments; give --set model=FILE",
    "experimental_attention_variant": "another attention is not read from arguments; give --set model=FILE",
    "heterogeneous*": "layers of different sizes are not read from arguments; give --set model=FILE",
    "encoder_*": "models with an encoder are not read",
    "decoder_seq_length": "models with an encoder are not read",
    "moe_expert_capacity_factor": "dropped tokens change the work of experts, which is not modelled",
    "moe_pad_expert_input*": "padded experts are not modelled",
    "moe_latent*": "experts on a latent width are not modelled",
    "num_zero_experts": "experts that do nothing are not modelled",
    "fp8_output_proj": "products kept in fp8 are not modelled",
    "keep_fp8_transpose_cache": "a second copy of fp8 weights is not modelled",
    "overlap_param_gather_with_optimizer_step": "weights gathered beside the optimizer's step are not modelled",
    "defer_embedding_wgrad*": "gradients of the embedding in the pipeline's flush are not modelled",
    "delay_wgrad_compute": "gradients of weights after the exchange are not modelled",
    "*use_sharp": "reductions in switches are not modelled here",
    "use_nccl_ub": "user buffers of NCCL are not modelled",
    "nccl_ub": "user buffers of NCCL are not modelled",
    "distribute_saved_activations": "activations split over tensor-parallel ranks are not modelled",
    "reset_attention_mask": "attention inside documents is not modelled here; give batch.lengths",
    "variable_seq_lengths": "sequences of several lengths are not read; give batch.lengths",
    "hierarchical_context_parallel*": "context parallelism in two levels is not modelled",
    "hybrid_context_parallel*": "context parallelism in two levels is not modelled",
    "microbatch_group_size*": "another order of the interleaved pipeline is not modelled",
    "pipeline_model_parallel_comm_backend": Cost(why="another library of sends is not modelled", neutral=("nccl",)),
    "use_ring_exchange_p2p": "another library of sends is not modelled",
    "use_custom_fsdp": "Megatron's earlier FSDP is not read; write use_megatron_fsdp",
    "outer_dp_sharding*": Cost(why="state sharded over replicas too is not modelled", neutral=("no_shard",)),
    "freeze_*": "frozen weights are not modelled",
    "lora*": "adapters on frozen weights are not modelled; only full training is",
    "peft*": "adapters on frozen weights are not modelled; only full training is",
    "sft": "packed sequences of fine-tuning are not read; give batch.lengths",
    "*kd_*": "distillation runs a second model, which is not modelled",
    "grpo_*": "reinforcement learning in Megatron-LM is not read",
    "perform_rl_step": "reinforcement learning in Megatron-LM is not read",
    "use_te_activation_func": "Transformer Engine's activations are not modelled apart",
    "*quant*": "weights or messages in fewer bits are not modelled",
    "zero_hpz*": "ZeRO++ is not modelled",
    "mlp_type": Cost(why="mixtures of DeepSpeed beside standard ones are not modelled", neutral=("standard",)),
    "curriculum*": "sequences that grow are not modelled",
    "*random_ltd*": "layers that drop tokens are not modelled",
}


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
    return {**read_arguments(reading), **offload_of(reading.given)}


OLDER: Mapping[str, Mapping[str, Any]] = {
    "recompute_activations": {"recompute_granularity": "selective"},
    "checkpoint_activations": {"recompute_granularity": "full"},
}
"""Switch of Megatron-LM → the arguments that it stands for (arguments.py, `recompute_activations` and the deprecated ones)."""


def with_older_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with those that a switch stands for in its place."""
    found = dict(values)
    for name, stands_for in OLDER.items():
        if found.get(name) in (True, "true", "True"):
            del found[name]
            found |= {key: value for key, value in stands_for.items() if key not in found}
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
        programs=r"pretrain_(gpt|mamba|bert|t5|vlm)\w*\.py",
        read=_read,
        harmless=HARMLESS,
        costs=COSTS,
        switches=SWITCHED,
        writes="megatron-lm",
    ),
)
