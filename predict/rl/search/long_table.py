"""The long table of RL steps: one row per combination, in SI units, with the columns that tables of training estimates share and a
column for each phase.

Times in compute, memory, comm and idle add up to the phases, each on its own GPUs: to the step where all take turns, and to more where
trainer and engines work side by side. Parts of memory but for `kv_gb`, the engine's cache in generation, add up to the update of the
actor; `peak_gb` is that of the fullest moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from predict.ledger.shared_columns import SHARED, calibration_note
from predict.ledger.waterfall import COMPUTE, MEMORY
from predict.rl.books import COMMUNICATED, WAITED, RlLedger
from predict.rl.memory import RlMemory
from predict.rl.phases import NAMES
from predict.rl.search.search import Candidate
from predict.rl.step import RlStep
from sampling.units import GB, SECOND_US

CLASSES = {"compute": COMPUTE, "memory": MEMORY, "comm": COMMUNICATED, "idle": WAITED}
"""End of a column's name → the class of headings that it has."""
OURS = """
algorithm placement staleness gen_cards gen_tp n t_idle t_step_low t_step_high t_wait_gen t_idle_gen gradient_gb other_models_gb engine_reserved_gb
peak_gb capacity_gb verdict reason
"""
"""Columns beside them and those of phases, which are named t_ and verl's name; `reason` says why a combination cannot run."""


def rl_columns(varied: Sequence[str]) -> list[str]:
    """The names of the columns, the varied keys last."""
    return [*SHARED.split(), *(f"t_{name}" for name in NAMES), *OURS.split(), *varied]


def rl_long_table(rows: Sequence[Candidate], varied: Sequence[str], *, commit: str) -> list[dict[str, Any]]:
    """The rows, each with every column; None where there is no figure. `commit` is the version of this program."""
    empty = dict.fromkeys(rl_columns(varied))
    return [
        {**empty, **{name: one.settings[name] for name in varied}, "reason": one.reason}
        | ({**_setup(one.step), **_figures(one.step), **_memory(one.step.memory), "commit": commit} if one.step else {})
        for one in rows
    ]


def _setup(step: RlStep) -> dict[str, Any]:
    run, section = step.rl.base, step.rl.section
    return {
        "model": run.model.name,
        "device": run.cluster.gpu.name,
        "n_cards": step.rl.gpus,
        **{key: getattr(run.plan, key) for key in ("ep", "tp", "pp", "cp")},
        "sp": run.plan.tp if run.plan.sp else 1,
        "seq_prompt": float(step.rl.samples.prompt.mean()),
        "seq_response": float(step.rl.samples.response.mean()),
        "global_batch": section.samples,
        "micro_batch": section.micro,
        "algorithm": section.algorithm,
        "placement": section.placement,
        "staleness": section.staleness,
        "gen_cards": step.rl.rollout_gpus,
        "gen_tp": section.rollout.tp,
        "n": section.n,
    }


def _figures(step: RlStep) -> dict[str, Any]:
    flops = sum(phase.mfu["palm"].flops or 0.0 for phase in step.phases if "palm" in phase.mfu)
    actor = step.phase("update_actor")
    per_card = step.tokens_per_second_per_gpu
    times = {f"t_{phase.name}": phase.time.median_us / SECOND_US for phase in step.phases}
    ledger = RlLedger(step=step)
    classes = {f"t_{name}": ledger.by_class_us[found] / SECOND_US for name, found in CLASSES.items()}
    return {
        **times,
        **classes,
        "calibration_note": calibration_note(ledger.sources, step.rl.base.calibration),
        "flops_required": flops,
        "t_step": step.time.median_us / SECOND_US,
        "t_step_low": step.time.low_us / SECOND_US,
        "t_step_high": step.time.high_us / SECOND_US,
        "t_wait_gen": step.wait_gen_us / SECOND_US,
        "t_idle_gen": step.idle_gen_us / SECOND_US,
        "tokens_per_s": per_card * step.rl.gpus,
        "tokens_per_s_per_card": per_card,
        "mfu": actor.mfu["palm"].mfu if actor else None,
    }


def _memory(memory: RlMemory) -> dict[str, Any]:
    """GB of the update of the actor, the cache of generation, and the peak of the fullest moment."""
    terms: Mapping[str, float] = memory.updating.terms
    sizes = {
        "param_gb": terms.get("parameters", 0.0),
        "gradient_gb": terms.get("gradients", 0.0),
        "optim_gb": terms.get("optimizer", 0.0),
        "activation_gb": terms.get("activations", 0.0),
        "kv_gb": memory.generating.terms.get("kv_cache", 0.0),
        "buffer_gb": terms.get("buffers", 0.0),
        "other_models_gb": terms.get("other_models", 0.0),
        "engine_reserved_gb": terms.get("engine_reserved", 0.0),
        "peak_gb": memory.worst.peak,
        "capacity_gb": memory.capacity,
    }
    return {name: size / GB for name, size in sizes.items()} | {"verdict": memory.verdict}
