"""The rows of test_rules.py: what breaks each rule, where it is blamed, and what mends it. The words of each are among the kept answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DENSE, MOE, MLA, LITTLE = "llama3-70b", "qwen3-30b-a3b", "deepseek-v3", "llama3-8b"
ENCODER = "bert-base-uncased"
TORCH = {"execution__framework": "torch"}


@dataclass(frozen=True, kw_only=True)
class Row:
    """Settings that break `rule` and nothing else, the key that is blamed, and what mends them."""

    rule: str
    settings: Mapping[str, Any]
    path: str
    mended: Mapping[str, Any]
    model: str


def row(rule: str, settings: Mapping[str, Any], path: str, mended: Mapping[str, Any], model: str = LITTLE) -> Row:
    return Row(rule=rule, settings=settings, path=path, mended=mended, model=model)


ROWS = [
    row(
        "no_setting_is_changed",
        {**TORCH, "execution__attention": "fa2", "execution__dropout": True},
        "execution.framework",
        {"execution__framework": "megatron-core"},
    ),
    row(
        "all_layers_are_recomputed",
        {**TORCH, "plan__recompute": "full", "plan__recompute_method": "block"},
        "plan.recompute_method",
        {"execution__framework": "megatron-core"},
    ),
    row(
        "block_is_full_recomputation",
        {"plan__recompute_method": "block"},
        "plan.recompute_method",
        {"plan__recompute": "full"},
    ),
    row(
        "layers_are_of_blocks",
        {"plan__recompute": "full", "plan__recompute_layers": 3},
        "plan.recompute_layers",
        {"plan__recompute_method": "block"},
    ),
    row(
        "attention_runs_in_fp8",
        {"execution__fp8_attention": True, "execution__attention": "fa2"},
        "execution.fp8_attention",
        {"execution__attention": "cudnn"},
    ),
    row(
        "attention_runs_in_fp8",
        {"execution__fp8_attention": True, "cluster__hardware": "a100-80gb"},
        "execution.fp8_attention",
        {"cluster__hardware": "h100-sxm"},
    ),
    row(
        "wide_layers_are_of_narrow_runs",
        {"execution__wide_first_layers": 1},
        "execution.wide_first_layers",
        {"precision": "fp8"},
    ),
    row(
        "wide_layers_are_of_narrow_runs",
        {"execution__wide_first_layers": 20, "execution__wide_last_layers": 20, "precision": "fp8"},
        "execution.wide_first_layers",
        {"execution__wide_last_layers": 4},
    ),
    row("norms_over_all_heads_stay_whole", {"plan__tp": 2}, "plan.tp", {"plan__tp": 1}, model="olmo2-7b"),
    row(
        "load_is_of_the_experts",
        {"execution__expert_load": "power_law_1.2"},
        "execution.expert_load",
        {"execution__expert_load": "balanced"},
    ),
    *(
        row(
            "load_is_of_the_experts",
            {"execution__expert_load": load},
            "execution.expert_load",
            {"execution__expert_load": "8"},
            model=MOE,
        )
        for load in ("0.9", "129")
    ),
    row(
        "shared_experts_hide_the_exchange",
        {"execution__overlap_ep": "microbatch"},
        "execution.overlap_ep",
        {"execution__overlap_ep": "none"},
    ),
    row("no_context_parallelism", {**TORCH, "plan__cp": 2}, "plan.cp", {"execution__framework": "megatron-core"}),
    row("only_the_optimizer_is_sharded", {**TORCH, "plan__dp": 8, "plan__zero": 2}, "plan.zero", {"plan__zero": 1}),
    row(
        "layers_are_recomputed_whole",
        {**TORCH, "plan__recompute": "selective"},
        "plan.recompute",
        {"plan__recompute": "full"},
    ),
    row(
        "layers_are_recomputed_whole",
        {**TORCH, "plan__recompute": "ops"},
        "plan.recompute",
        {"plan__recompute": "full"},
    ),
    row("layers_have_one_dtype", {**TORCH, "precision": "fp8"}, "precision", {"precision": "bf16"}),
    row("layers_are_plain", TORCH, "model.model_type", {"execution__framework": "megatron-core"}, model=MOE),
    row(
        "windows_hold_whole_sequences",
        {**TORCH, "batch__seq_len": 2048},
        "batch.seq_len",
        {"batch__seq_len": 512},
        model="gemma3-1b",
    ),
    row(
        "other_layers_are_of_one_process",
        {**TORCH, "plan__dp": 2, "batch__seq_len": 64},
        "plan.tp",
        {"execution__framework": "megatron-core"},
        model=ENCODER,
    ),
    row("ep_needs_experts", {"plan__dp": 4, "plan__ep": 2}, "plan.ep", {"plan__ep": 1}),
    row(
        "ep_divides_experts", {"plan__dp": 3, "plan__ep": 3, "batch__global": 12}, "plan.ep", {"plan__ep": 1}, model=MOE
    ),
    row(
        "etp_divides_expert_width",
        {"plan__dp": 5, "plan__etp": 5, "batch__global": 15},
        "plan.etp",
        {"plan__etp": 1},
        model=MOE,
    ),
    row(
        "experts_fold_into_a_stage",
        {"plan__dp": 4, "plan__ep": 4, "plan__etp": 2},
        "plan.ep",
        {"plan__etp": 1},
        model=MOE,
    ),
    row("mixtures_need_sp", {"plan__tp": 4}, "plan.sp", {"plan__sp": True}, model=MOE),
    row("shards_divide_replicas", {"plan__dp": 8, "plan__zero": 1, "plan__shard": 3}, "plan.shard", {"plan__shard": 4}),
    row("shards_divide_replicas", {"plan__dp": 8, "plan__shard": 4}, "plan.shard", {"plan__zero": 1}),
    row(
        "cp_divides_heads",
        {"plan__tp": 4, "plan__cp": 16, "plan__cp_method": "all_to_all"},
        "plan.cp_method",
        {"plan__cp_method": "ring"},
    ),
    row(
        "cp_needs_fused_attention",
        {"plan__cp": 2, "execution__attention": "unfused"},
        "plan.cp",
        {"execution__attention": "best"},
    ),
    row(
        "tp_and_cp_divide_the_sequence",
        {"plan__tp": 8, "plan__sp": True, "plan__cp": 8, "batch__seq_len": 1032},
        "batch.seq_len",
        {"batch__seq_len": 1088},
    ),
    row(
        "layers_are_split_in_one_way",
        {"plan__pp": 2, "plan__layout": "16,16", "plan__count_loss": 1},
        "plan.layout",
        {"plan__count_loss": 0},
    ),
    row(
        "layers_are_split_in_one_way",
        {"plan__pp": 2, "plan__first_stage_layers": 15, "plan__count_embedding": 1},
        "plan.layout",
        {"plan__count_embedding": 0},
    ),
    row("layers_fit_the_stages", {"plan__pp": 2, "plan__layout": "16,15"}, "plan.layout", {"plan__layout": "17,15"}),
    row(
        "layers_fit_the_stages",
        {"plan__pp": 4, "plan__first_stage_layers": 3},
        "plan.layout",
        {"plan__first_stage_layers": 5},
    ),
    row(
        "shared_experts_hide_the_exchange",
        {"plan__dp": 8, "plan__ep": 8, "execution__overlap_ep": "shared_expert"},
        "execution.overlap_ep",
        {"execution__overlap_ep": "microbatch"},
        model=MOE,
    ),
    row("recipe_needs_fp8", {"execution__fp8_recipe": "rowwise"}, "execution.fp8_recipe", {"precision": "fp8"}),
    row("fp8_weights_need_fp8", {"execution__fp8_weights": "primary"}, "execution.fp8_weights", {"precision": "fp8"}),
    row(
        "fp8_weights_need_fp8",
        {"execution__fp8_weights": "primary", "execution__framework": "torchtitan", "precision": "fp8"},
        "execution.fp8_weights",
        {"execution__framework": "nemo"},
    ),
    row(
        "leaner_masters_are_of_bf16_weights",
        {"execution__master_dtype": "remainder", "precision": "fp16"},
        "execution.master_dtype",
        {"precision": "bf16"},
    ),
    row(
        "leaner_masters_are_of_bf16_weights",
        {"execution__master_dtype": "fp16", "execution__framework": "fsdp"},
        "execution.master_dtype",
        {"execution__framework": "megatron-core"},
    ),
    row(
        "targets_are_matrices",
        {"adapters__kind": "lora", "adapters__targets": "q_proj,kv_b_proj"},
        "adapters.targets",
        {"adapters__targets": "q_proj,v_proj"},
    ),
    row(
        "several_adapters_are_adapters",
        {"adapters__kind": "none", "adapters__at_once": 4},
        "adapters.at_once",
        {"adapters__kind": "lora"},
    ),
    row(
        "a_base_in_few_bits_is_frozen",
        {"adapters__kind": "none", "adapters__base": "nf4"},
        "adapters.base",
        {"adapters__kind": "lora"},
    ),
    row(
        "a_base_in_few_bits_is_frozen",
        {"adapters__kind": "lora", "adapters__base": "mxfp4", "precision": "fp8"},
        "adapters.base",
        {"precision": "bf16"},
    ),
    row(
        "shards_are_of_zero_3",
        {"offload__shards_on": "host", "plan__zero": 1, "plan__dp": 2},
        "offload.shards_on",
        {"plan__zero": 3},
    ),
    *(
        row(
            "what_follows_the_optimizer_has_a_share",
            {f"offload__{key}": value, "plan__zero": 2, "plan__dp": 2},
            "offload.optimizer_share",
            {"offload__optimizer_share": 1.0},
        )
        for key, value in (("gradients_on_host", True), ("optimizer_on", "disk"), ("overlap_optimizer", True))
    ),
    row(
        "gradients_that_leave_are_sharded",
        {"offload__gradients_on_host": True, "offload__optimizer_share": 1.0, "plan__zero": 1, "plan__dp": 2},
        "offload.gradients_on_host",
        {"plan__zero": 2},
    ),
    row(
        "hosts_run_no_muon",
        {"offload__optimizer_share": 1.0, "execution__optimizer": "muon"},
        "offload.optimizer_share",
        {"execution__optimizer": "adamw"},
    ),
    row(
        "whole_blocks_stay",
        {"offload__activation_share": 1.0, "plan__recompute": "full", "plan__recompute_method": "block"},
        "offload.activation_share",
        {"plan__recompute_method": "uniform"},
    ),
    row(
        "tensors_of_graphs_stay",
        {"offload__activation_share": 1.0, "execution__cuda_graphs": "layers"},
        "offload.activation_share",
        {"execution__cuda_graphs": "none"},
    ),
    row(
        "nothing_is_offloaded",
        {**TORCH, "offload__optimizer_share": 1.0},
        "offload.optimizer_share",
        {"execution__framework": "fsdp"},
    ),
    row(
        "nothing_is_offloaded",
        {
            "cluster": {"hardware": "cpu", "profile": "nowhere"},
            "execution__framework": "fsdp",
            "offload__activation_share": 0.5,
        },
        "offload.optimizer_share",
        {"offload__activation_share": 0.0},
    ),
    row("distillation_has_a_teacher", {"tuning__task": "distill"}, "tuning.teacher", {"tuning__teacher": "llama3-8b"}),
    row("distillation_has_a_teacher", {"tuning__teacher": "llama3-8b"}, "tuning.teacher", {"tuning__task": "distill"}),
    row(
        "a_teacher_is_on_one_stage",
        {"tuning__task": "distill", "tuning__teacher": "llama3-8b", "plan__pp": 2},
        "tuning.teacher",
        {"plan__pp": 1},
    ),
    row(
        "the_plan_divides_the_teacher",
        {"tuning__task": "distill", "tuning__teacher": "gpt2-xl", "plan__tp": 8, "batch__seq_len": 1024},
        "tuning.teacher",
        {"tuning__teacher": "gpt2-medium"},
    ),
    row("images_need_a_tower", {"vision__images": 1}, "vision.images", {"vision__images": 0}),
    row(
        "images_have_a_size",
        {"vision__images": 1},
        "vision.image_tokens",
        {"vision__image_tokens": 64},
        "qwen3-vl-2b",
    ),
    row(
        "images_fit_into_the_sequence",
        {"vision__images": 17, "batch__seq_len": 4096},
        "vision.images",
        {"vision__images": 16},
        "gemma3-4b",
    ),
    row("sequences_have_patches", {"batch__seq_len": 512}, "batch.seq_len", {"batch__seq_len": 4608}, "flux.1-dev"),
    row("whole_layers_read_no_patches", TORCH, "execution.framework", {"execution__framework": "fsdp"}, "dit-l-2"),
    row(
        "plain_torch_reads_plain_images",
        {**TORCH, "vision__images": 1},
        "vision.images",
        {"execution__framework": "fsdp"},
        "internvl3-38b",
    ),
    row(
        "what_is_trained_of_a_tower_needs_images",
        {"vision__images": 0, "vision__trained": "none"},
        "vision.trained",
        {"vision__images": 1},
        "gemma3-4b",
    ),
    row(
        "layers_that_attend_to_images_have_some",
        {"vision__images": 0},
        "vision.images",
        {"vision__images": 1},
        "llama3.2-11b-vision",
    ),
    row(
        "what_is_attended_to_is_on_one_stage",
        {"vision__images": 1, "plan__pp": 2},
        "plan.pp",
        {"plan__pp": 1},
        "llama3.2-11b-vision",
    ),
    row(
        "encoders_have_a_length",
        {"batch__encoder_seq_len": 0},
        "batch.encoder_seq_len",
        {"batch__encoder_seq_len": 512},
        "t5-base",
    ),
    row(
        "the_kernel_adds_positions",
        {"batch__encoder_seq_len": 512, "execution__attention": "fa2"},
        "execution.attention",
        {"execution__attention": "sdpa"},
        "t5-base",
    ),
    row(
        "rows_beside_an_encoder_are_single",
        {"batch__encoder_seq_len": 512, "batch__lengths": "constant:100", "batch__padding": "packed"},
        "batch.padding",
        {"batch__padding": "max"},
        "t5-base",
    ),
    row("a_reward_model_is_on_one_stage", {"tuning__task": "reward", "plan__pp": 2}, "tuning.task", {"plan__pp": 1}),
    row(
        "answers_are_of_decoders",
        {"batch__seq_len": 512, "tuning__task": "dpo"},
        "tuning.task",
        {"tuning__task": "sft"},
        model=ENCODER,
    ),
    row(
        "whole_layers_train_alone",
        {**TORCH, "tuning__task": "dpo"},
        "tuning.task",
        {"execution__framework": "fsdp"},
    ),
    *(
        row(
            "plain_torch_trains_plain_adapters",
            {**TORCH, "adapters__kind": "lora", **special},
            "adapters.kind",
            {"execution__framework": "fsdp"},
        )
        for special in (
            {"adapters__kind": "dora"},
            {"adapters__base": "nf4"},
            {"adapters__joint": True},
            {"adapters__at_once": 2},
        )
    ),
    row(
        "other_layers_are_of_one_process",
        {**TORCH, "plan__dp": 2, "adapters__kind": "lora"},
        "plan.tp",
        {"execution__framework": "fsdp"},
    ),
    row(
        "hardware_runs_the_kernel",
        {"execution__attention": "fa3", "cluster": {"hardware": "b200", "profile": "nowhere"}},
        "execution.attention",
        {"execution__attention": "fa4", "execution__framework": "megatron-core"},
    ),
    row(
        "load_is_of_the_experts",
        {"plan__dp": 8, "plan__ep": 8, "execution__expert_load": "3,1"},
        "execution.expert_load",
        {"execution__expert_load": ",".join(["3", "1"] * 64)},
        model=MOE,
    ),
]
