"""TRL's GRPO, as YAML, JSON, a command line or a call of `GRPOConfig`: TrainingArguments with those of rollouts (trl,
trainer/grpo_config.py and grpo_trainer.py)."""

from typing import Any

from predict.convert.arguments import Arguments
from predict.convert.tool import OFF, SAMPLES, Reading, Sections, Tool, aliases_of, key_lists
from predict.convert.tools.transformers_trainer import ALIASES, FLAGS, KEYS, TABLE, sections_of
from predict.rl.section import ASYNC, COLOCATED

PLACEMENTS = {"colocate": COLOCATED, "server": ASYNC}
"""Mode of vLLM → placement: a server generates on GPUs of its own, while the trainer waits."""
USUAL_MICRO, USUAL_RESPONSES, USUAL_LONGEST = 8, 8, 256


def _read(reading: Reading) -> Sections:
    given = reading.given
    sections = sections_of(reading)
    batch = sections.pop("batch", {})
    usual = sections.pop("usual")
    usual = {"execution": usual["execution"], "plan": {"recompute": "full", **usual.get("plan", {})}}
    sections.pop("tuning", None)
    return {**sections, "rl": _rl(given, batch.get("micro", USUAL_MICRO), batch["accumulation"]), "usual": usual}


def _rl(given: Arguments, micro: int, accumulation: int) -> dict[str, Any]:
    """The section `rl`. Samples are padded, all of a generation to its longest."""
    rounds, generated = given.count("steps_per_generation") or 0, given.count("generation_batch_size") or 0
    if rounds and generated:
        given.fault(
            "generation_batch_size", "is another way to give steps_per_generation, and TRL refuses both; remove one"
        )
    given.notes.append(
        "padding: predicted to the longest prompt and response allowed, where TRL pads to the longest of the batch; time and memory are upper "
        "bounds"
    )
    rl: dict[str, Any] = {
        "algorithm": "grpo",
        "n": given.count("num_generations") or USUAL_RESPONSES,
        "micro": micro,
        "epochs": given.count("num_iterations") or 1,
        "padding": "kept",
        "response_max": given.count("max_completion_length") or USUAL_LONGEST,
        "reference": given.number("beta", 0.0) != 0,
        SAMPLES: {
            "accumulation": accumulation,
            "rounds": rounds,
            "generated": generated,
            "corrects": given.switch("vllm_importance_sampling_correction", True),
        },
    }
    if longest := given.count("max_prompt_length"):
        rl["prompt_max"] = longest
    return rl | _engines(given)


def _engines(given: Arguments) -> dict[str, Any]:
    """The placement and the engines."""
    if given.values.get("use_vllm") in OFF or not given.switch("use_vllm"):
        given.fault("use_vllm", "generation by transformers is not modelled; that by vLLM is")
    mode = given.text("vllm_mode", "")
    if mode not in PLACEMENTS:
        problem = f"{mode} is unknown" if mode else "missing, and its usual value depends on TRL's version"
        given.fault("vllm_mode", f"{problem}; write {' or '.join(PLACEMENTS)}")
    rollout: dict[str, Any] = {"engine": "vllm-v1"}
    tp, share = given.count("vllm_tensor_parallel_size") or 1, given.number("vllm_gpu_memory_utilization", 0.3)
    if mode != "server":
        rollout |= {"tp": tp, "memory_share": share}
        if not given.switch("vllm_enable_sleep_mode"):
            given.notes.append(
                "vllm_enable_sleep_mode: off, with which the engine's weights and cache stay during the update too; its memory is predicted as "
                "of engines that sleep"
            )
    else:
        given.notes.append(
            "vllm_mode: the server's own arguments are not in this file; --set rl.rollout.KEY=VALUE gives them"
        )
        given.passed_over("vllm_enable_sleep_mode")
    return {"placement": PLACEMENTS.get(mode, COLOCATED), "rollout": rollout}


TOOLS = (
    Tool(
        name="TRL's GRPO",
        marks=(
            "num_generations per_device_train_batch_size",
            "num_generations max_completion_length",
            "num_generations gradient_accumulation_steps learning_rate",
            "num_generations model_name_or_path learning_rate",
        ),
        programs=r"^(GRPOConfig|trl grpo)$",
        read=_read,
        keys=KEYS | FLAGS | key_lists("trl_grpo"),
        arguments_file="config",
        aliases=(*aliases_of(TABLE), *ALIASES),
    ),
)
