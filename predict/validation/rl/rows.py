"""Published RL steps as RL configs. A row that leaves open what nothing usual tells is refused, with the reason."""

from __future__ import annotations

import re
from math import gcd
from pathlib import Path
from typing import Any

from predict.model.shipped import shipped_model
from predict.rl.config import RlRun, rl_run
from predict.rl.section import ASYNC, CHUNKS, COLOCATED, ONE_STEP_OFF
from predict.validation.published.row import NotExpressibleError, PublishedRow, of_cells
from predict.validation.published.runs import hardware_of
from predict.validation.rl.lengths import lognormal_of
from predict.validation.rl.sync_rows import is_of_transfers
from predict.validation.truth.rl_columns import STEPS, TRANSFERS
from predict.validation.truth.table import header_of, read_cells
from sampling.errors import ConfigError
from sampling.hardware.cluster import hardware_facts

PROMPT = 120
"""Tokens of a prompt of the usual mathematical data sets, where none are published."""
USUAL_RECOMPUTE = "full"
"""Recomputation where none is published: trainers that leave room for an engine recompute every layer (all but one of the rows that
state it; `activation_checkpointing: true` in NeMo-RL's performance recipes, `enable_gradient_checkpointing` by default in verl)."""
LIKELY_MEANS = (1000.0, 1800.0, 3200.0, 5700.0)
"""Tokens of a mean response where none is published, each as likely: published means of reasoning models lie between the first and the
last."""
USUAL_FETCHES = 4
"""Parts in which verl's asynchronous trainer takes a step where the row does not say (`trigger_parameter_sync_step` of its
fully_async_ppo_trainer.yaml)."""
REQUIRED_BATCHES = re.compile(r"require_batches (\d+)")
"""Mini batches that it takes at once, which the table keeps among its notes."""
TRAINER_SAMPLES = re.compile(r"T-GBS (\d+)")
"""NeMo-RL's samples of an optimizer step, which the table keeps among its notes."""
VARIANTS = re.compile(r"-(Base|Instruct|Math)\b")
"""Words of a model's name that do not change its shape."""
ALGORITHMS = {"GRPO": "grpo", "PPO": "ppo", "DAPO": "dapo", "REINFORCE++": "reinforce++"}
NEMO, VERL = "NeMo RL", "verl"
SHARDED = {"FSDP2": "fsdp", "FSDP": "fsdp1"}


def read_rl_rows(path: Path) -> list[PublishedRow]:
    """The rows of a table of steps, or of weight transfers; ConfigError where there is none, SamplesError where it cannot be read, or for
    its columns."""
    transfers = is_of_transfers(header_of(path))
    return [of_cells(row) for row in read_cells(path, TRANSFERS if transfers else STEPS)]


def rl_runs_of(row: PublishedRow) -> tuple[RlRun, ...]:
    """The RL run of a row, or where no mean length of responses is published one for each that is likely.

    NotExpressibleError for a row that cannot be expressed.
    """
    if row.fault:
        raise NotExpressibleError(row.fault)
    hardware = hardware_of(row)
    try:
        outside = {
            "model": _model(row),
            "cluster": _machines(row, hardware),
            "plan": _plan(row),
            "precision": row.text("precision_train") or "bf16",
            "execution": {"framework": _framework(row)},
        }
        sections = [_section(row, mean) for mean in _means(row)]
        return tuple(rl_run({**outside, "rl": section}, Path(f"{row.row_id}.yml")) for section in sections)
    except ConfigError as error:
        raise NotExpressibleError("; ".join(str(error).replace(f"{row.row_id}.yml: ", "").splitlines())) from None


def _means(row: PublishedRow) -> tuple[float, ...]:
    """Mean lengths of responses that a row may have."""
    if mean := row.number("response_mean"):
        return (mean,)
    likely = tuple(mean for mean in LIKELY_MEANS if mean < _longest_response(row))
    if not likely:
        raise NotExpressibleError("response_mean: not published, so that the work of a step is unknown")
    return likely


def _longest_response(row: PublishedRow) -> float:
    """Tokens to which responses are cut; 0 where they are not published."""
    return row.number("response_max") or max(0.0, (row.number("max_seq_len") or 0.0) - _prompt(row))


def _prompt(row: PublishedRow) -> int:
    return round(row.number("prompt_mean") or PROMPT)


def _model(row: PublishedRow) -> str:
    name = VARIANTS.sub("", row.text("model"))
    if shipped_model(name) is None:
        raise NotExpressibleError(f"model: {row.text('model')} is not in configs/models")
    return name


def _machines(row: PublishedRow, hardware: str) -> dict[str, Any]:
    """The trainer's machines."""
    gpus, usual = row.integer("train_gpus"), hardware_facts(hardware).gpus_per_node
    per_node = max(size for size in range(1, min(gpus, usual) + 1) if gpus % size == 0)
    return {"hardware": hardware, "nodes": gpus // per_node, "gpus_per_node": per_node}


def _framework(row: PublishedRow) -> str:
    engine = row.text("train_engine")
    if engine in SHARDED:
        return SHARDED[engine]
    if engine == "Megatron-Core":
        return "megatron-core"
    raise NotExpressibleError(f"train_engine: {engine or 'not published'} is not modelled")


def _plan(row: PublishedRow) -> dict[str, Any]:
    """The trainer's plan. Optimizer state is sharded as the engine does without being told."""
    ulysses = row.integer("sp_ulysses", 1)
    tp, pp, cp = (row.integer(name, 1) for name in ("tp", "pp", "cp"))
    gpus = row.integer("train_gpus")
    if gpus % (tp * pp * cp * ulysses):
        raise NotExpressibleError(f"train_gpus: {gpus} do not divide into tp {tp} · pp {pp} · cp {cp * ulysses}")
    sharded = row.text("train_engine").startswith("FSDP")
    plan: dict[str, Any] = {
        "tp": tp,
        "sp": tp > 1,
        "pp": pp,
        "cp": cp * ulysses,
        "ep": row.integer("ep", 1),
        "dp": gpus // (tp * pp * cp * ulysses),
        "zero": 3 if sharded else 1,
        "recompute": row.text("recompute") or USUAL_RECOMPUTE,
    }
    if ulysses > 1:
        plan["cp_method"] = "all_to_all"
    if sharded and row.text("fsdp_size"):
        plan["shard"] = row.integer("fsdp_size")
    return plan


def _section(row: PublishedRow, mean: float) -> dict[str, Any]:
    """The section `rl` for responses of this mean length."""
    prompts, n = row.integer("prompts"), row.integer("n", 1)
    prompt, longest = _prompt(row), _longest_response(row)
    if not longest:
        raise NotExpressibleError("response_max and max_seq_len: not published, so that the work of a step is unknown")
    section: dict[str, Any] = {
        "prompts": prompts,
        "n": n,
        "prompt": f"constant:{prompt}",
        "prompt_max": row.integer("prompt_max", prompt),
        "response": lognormal_of(mean, longest, row.number("clip_ratio")),
        "response_max": round(longest),
        "algorithm": ALGORITHMS.get(row.text("algorithm"), row.text("algorithm")),
        "mini_batch": _mini_batch(row, prompts, n),
        "epochs": row.integer("ppo_epochs", 1),
        "micro": row.integer("micro_batch_per_gpu", 1),
        "offload": [
            name for name, word in (("parameters", "param"), ("optimizer", "optim")) if word in row.text("offload")
        ],
        "weight_sync": {"method": "tensors" if row.text("framework") == VERL else "buckets"},
        "old_log_prob": row.text("framework") != VERL or row.text("mode") == COLOCATED,
    }
    return section | _microbatches(row) | _placement(row)


def _mini_batch(row: PublishedRow, prompts: int, n: int) -> int:
    samples = TRAINER_SAMPLES.search(row.text("notes"))
    of_note = int(samples[1]) // n if samples else 0
    return row.integer("mini_batch_prompts", min(of_note, prompts), least=0)


def _microbatches(row: PublishedRow) -> dict[str, Any]:
    """The filling of microbatches. NeMo-RL packs sequences into rows of the longest."""
    if row.text("max_tokens_per_gpu_train"):
        passes = row.integer("max_tokens_per_gpu_logprob", 0, least=0)
        return {"max_tokens": row.integer("max_tokens_per_gpu_train"), "passes": {"max_tokens": passes}}
    if row.text("padding") == "sequence packing":
        return {
            "max_tokens": -(-row.integer("max_seq_len") * row.integer("micro_batch_per_gpu", 1) // row.integer("cp", 1))
        }
    return {"passes": {"micro": row.integer("logprob_micro_batch", 0, least=0)}}


def _placement(row: PublishedRow) -> dict[str, Any]:
    colocated = row.text("mode") == COLOCATED
    rollout: dict[str, Any] = {
        "tp": row.integer("gen_tp", 1),
        "max_num_seqs": 1024,
        "memory_share": 0.6 if colocated else 0.9,
    }
    if "enforce_eager" in row.text("notes"):
        rollout["enforce_eager"] = True
    if colocated:
        if row.text("framework") == NEMO:
            rollout["dispatch"] = CHUNKS
        return {"placement": COLOCATED, "rollout": rollout}
    rollout["gpus"] = row.integer("gen_gpus")
    stated = row.number("staleness")
    staleness = stated or 0.0
    rollout["partial"] = staleness > 0 and row.text("framework") == VERL
    if stated is None:
        return {"placement": ONE_STEP_OFF, "rollout": rollout}
    return {"placement": ASYNC, "staleness": staleness, "fetches": _fetches(row), "rollout": rollout}


def _fetches(row: PublishedRow) -> int:
    """Parts in which the trainer takes a step's samples: verl as its responses end, others all at once."""
    prompts = row.integer("prompts")
    mini_batches = prompts // (row.integer("mini_batch_prompts", 0, least=0) or prompts)
    if row.text("framework") != VERL:
        return 1
    at_once = REQUIRED_BATCHES.search(row.text("notes"))
    return gcd(max(1, mini_batches // int(at_once[1])) if at_once else USUAL_FETCHES, mini_batches)
