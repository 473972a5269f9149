"""slime's launch scripts: Megatron-LM's arguments with those of rollouts (slime, utils/arguments.py)."""

from dataclasses import replace
from typing import Any

from predict.convert.arguments import Arguments
from predict.convert.offload import offload_of
from predict.convert.tool import Reading, Sections, Tool, key_lists, model_named
from predict.convert.tools import megatron_lm


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
        keys=megatron_lm.KEYS | megatron_lm.FLAGS | key_lists("slime"),
    ),
)
