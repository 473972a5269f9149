"""slime's launch scripts: Megatron-LM's arguments with those of rollouts (slime, utils/arguments.py)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from predict.convert.arguments import Arguments
from predict.convert.offload import offload_of
from predict.convert.tool import Cost, Reading, Sections, Tool, model_named
from predict.convert.tools import megatron_lm

OWN_SWITCHES = frozenset(
    [
        "colocate",
        "use_dynamic_batch_size",
        "use_kl_loss",
        "apply_chat_template",
        "rollout_shuffle",
        "balance_data",
        "debug_train_only",
        "debug_rollout_only",
        "use_wandb",
        "use_tis",
        "sglang_enable_dp_attention",
        "sglang_enable_ep_moe",
        "optimizer_cpu_offload",
        "overlap_cpu_optimizer_d2h_h2d",
        "use_precision_aware_optimizer",
        "calculate_per_token_loss",
        "attention_softmax_in_fp32",
        "disable_compute_advantages_and_returns",
        "partial_rollout",
    ]
)


def _read(reading: Reading) -> Sections:
    given = reading.given
    outside = {
        name: value for name, value in given.values.items() if name not in ("global_batch_size", "micro_batch_size")
    }
    # the model's arguments stand in a file that the script sources; the checkpoint's name says as much
    named = model_named(reading, "hf_checkpoint") if "num_layers" not in outside else {}
    inner = replace(
        reading,
        given=replace(given, values={"bf16": True, **outside}),
        chosen_model=reading.chosen_model or named.get("model"),
    )
    sections = {**megatron_lm.read_arguments(inner), **offload_of(given)}
    given.passed_over("hf_checkpoint", "bf16")
    actor = {
        "nodes": given.count("actor_num_nodes") or 1,
        "gpus_per_node": given.count("actor_num_gpus_per_node") or 8,
    }
    sections["cluster"] = actor
    sections.pop("batch", None)
    if not given.count("n_samples_per_prompt") and given.switch("debug_train_only"):
        return {**sections, **named, "batch": _fine_tuning(given)}
    return {**sections, **named, "rl": _rl(given, actor["nodes"] * actor["gpus_per_node"])}


def _fine_tuning(given: Arguments) -> dict[str, Any]:
    """The batch of a run that trains alone, whose microbatches are filled by tokens."""
    if tokens := given.count("max_tokens_per_gpu"):
        given.notes.append(
            f"max_tokens_per_gpu: microbatches of up to {tokens} tokens are read as one row of that many"
        )
        given.fault(
            "max_tokens_per_gpu",
            "rows of packed sequences follow from their lengths; give batch.lengths and batch.seq_len",
        )
    return {"global": given.count("global_batch_size"), "micro": given.count("micro_batch_size") or 1}


def _rl(given: Arguments, world: int) -> dict[str, Any]:
    n = given.count("n_samples_per_prompt") or 1
    prompts = given.count("rollout_batch_size") or 0
    rl: dict[str, Any] = {
        "algorithm": "ppo" if given.text("advantage_estimator", "grpo") == "ppo" else "grpo",
        "prompts": prompts,
        "n": n,
        "reference": given.switch("use_kl_loss") or given.number("kl_coef", 0.0) > 0,
        "rollout": {
            "engine": "sglang",
            "tp": given.count("rollout_num_gpus_per_engine") or 1,
            "memory_share": given.number("sglang_mem_fraction_static", 0.88),
        },
        "weight_sync": {"method": "buckets"},
    }
    if longest := given.count("rollout_max_response_len"):
        rl["response_max"] = longest
    if longest := given.count("rollout_max_prompt_len"):
        rl["prompt_max"] = longest
    samples = given.count("global_batch_size")
    steps = given.count("num_steps_per_rollout")
    if samples and samples % n == 0:
        rl["mini_batch"] = min(samples // n, prompts)
    elif steps and prompts % steps == 0:
        rl["mini_batch"] = prompts // steps
    if given.switch("use_dynamic_batch_size"):
        rl["max_tokens"] = given.count("max_tokens_per_gpu") or 0
    else:
        rl["micro"] = given.count("micro_batch_size") or 1
    given.passed_over("micro_batch_size", "max_tokens_per_gpu")
    if given.switch("colocate"):
        rl["offload"] = ["parameters", "optimizer"]
    else:
        rl["placement"] = "one_step_off"
        rl["rollout"]["gpus"] = given.count("rollout_num_gpus") or world
    given.passed_over("colocate", "rollout_num_gpus")
    if dtype := given.text("sglang_dtype", ""):
        rl["rollout"]["precision"] = "fp16" if dtype in ("float16", "half") else "bf16"
    if concurrency := given.count("sglang_max_running_requests"):
        rl["rollout"]["max_num_seqs"] = concurrency
    return rl


TOOLS = (
    Tool(
        name="slime",
        marks=(
            "rollout_batch_size actor_num_nodes actor_num_gpus_per_node",
            "rollout_batch_size n_samples_per_prompt num_rollout",
        ),
        read=_read,
        harmless=f"""
            {megatron_lm.HARMLESS} hf_checkpoint ref_load prompt_data *_key apply_chat_template* rollout_shuffle rm_type rm_url custom_* num_rollout
            num_epoch rollout_temperature rollout_top* rollout_stop* rollout_seed rollout_skip* rollout_global* balance_data eval* n_samples_per_eval*
            advantage_estimator kl_* entropy_coef eps_clip* use_tis tis_* use_wandb loss_type debug* sglang_server_concurrency sglang_cuda_graph*
            sglang_log* sglang_disable_radix* sglang_mem* sglang_router* update_weight* normalize* whiten* rewards* qkv_format
            dynamic_sampling_filter* disable_compute* rollout_function* metadata* label* reward* *seed use_slime* sglang_watchdog* start_rollout*
            colocate rollout_num* use_rollout* num_gpus_per_node rollout_max_context* no_offload* *offload_train *offload_rollout ref_ckpt*
            sglang_attention_backend sglang_context_length sglang_decode* sglang_random* qwen* megatron_to_hf* model_name sglang_fp8* use_fault* rollout_health*
        """,
        costs={
            **megatron_lm.COSTS,
            "over_sampling_batch_size": "dynamic sampling is not read; give --set rl.rollout.kept_share=SHARE",
            "partial_rollout": "partial rollouts are not read from slime",
            "sglang_enable_dp_attention": "attention in replicas inside an engine is not modelled",
            "sglang_dp_size": Cost(why="attention in replicas inside an engine is not modelled", neutral=(1, "1")),
            "sglang_ep_size": Cost(why="give --set rl.rollout.expert_parallel=true", neutral=(1, "1")),
            "sglang_expert_parallel_size": Cost(why="give --set rl.rollout.expert_parallel=true", neutral=(1, "1")),
            "sglang_enable_ep_moe": "give --set rl.rollout.expert_parallel=true",
            "sglang_enable_deepep_moe": "DeepEP between engines' GPUs is not modelled",
            "sglang_moe_a2a_backend": "DeepEP between engines' GPUs is not modelled",
            "sglang_deepep_mode": "DeepEP between engines' GPUs is not modelled",
            "sglang_enable_dp_lm_head": "attention in replicas inside an engine is not modelled",
            "sglang_moe_dense_tp_size": "attention in replicas inside an engine is not modelled",
            "sglang_speculative*": "speculation is not read from slime",
            "sglang_quantization": "engines with weights in fewer bits are not read; give --set rl.rollout.precision=fp8",
            "critic_*": "a critic's own settings are not read; give --set rl.critic=NAME",
            "use_opsm": "masks of whole sequences are not modelled",
            "train_backend": Cost(why="slime's FSDP is not read", neutral=("megatron",)),
        },
        switches=megatron_lm.SWITCHED | OWN_SWITCHES,
    ),
)
