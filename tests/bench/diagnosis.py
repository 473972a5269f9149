"""Runs with one thing wrong each, and whether the first suggestion of `predict diagnose` takes it away: `python -m tests.bench.diagnosis`.

A fault lies in the config, in the run behind it (its log has the step of another config), or in single steps of the log. Logs are made up:
predicted steps with a few per cent of noise. Nothing of a fault is known to the diagnosis.
"""

import copy
import random
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import predict
from predict.config.overrides import as_settings
from predict.diagnosis import Diagnosis

STEPS, NOISE = 120, 0.015
Times = Sequence[float]


def _cluster(nodes: int, **links: float) -> dict[str, Any]:
    return {"hardware": "h100-sxm", "nodes": nodes, "gpus_per_node": 8, **links}


def _config(model: str, nodes: int, plan: Mapping[str, Any], batch: Sequence[int], **rest: Any) -> dict[str, Any]:
    sizes = dict(zip(("global", "micro", "seq_len"), batch, strict=True))
    return {"model": model, "cluster": _cluster(nodes), "plan": dict(plan), "batch": sizes, "precision": "bf16", **rest}


MEGATRON = {"execution": {"framework": "megatron-core"}}
ONE_NODE = _config("llama3-8b", 1, {"tp": 2, "sp": True, "dp": 4, "zero": 1}, (64, 1, 8192), **MEGATRON)
FOUR_NODES = _config("llama3-8b", 4, {"tp": 2, "sp": True, "dp": 16, "zero": 1}, (64, 1, 8192), **MEGATRON)
LARGE = _config(
    "llama3-70b", 8, {"tp": 8, "sp": True, "pp": 4, "dp": 2, "zero": 1, "schedule": "1f1b"}, (128, 1, 8192), **MEGATRON
)
SMALL = _config("gpu-llama-1b", 1, {"dp": 8, "zero": 1}, (512, 1, 1024), **MEGATRON)
STATED = {**ONE_NODE, "plan": {**ONE_NODE["plan"], "recompute": "none"}}
SLOWER = {"execution.product_time": 2.0, "execution.memory_time": 2.0}
SHARDED = _config(
    "llama3-8b", 1, {"dp": 8, "zero": 3, "recompute": "full"}, (16, 1, 8192), execution={"framework": "fsdp-compile"}
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A run with one thing wrong."""

    name: str
    config: Mapping[str, Any]
    fault: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the config that are the fault."""
    hidden: Mapping[str, Any] = field(default_factory=dict)
    """Settings that the run has though its config does not say so."""
    steps: Callable[[random.Random, float], float] = lambda chance, place: 1.0
    """Factor on each step, by its share of the log."""
    removed_by: Mapping[str, Callable[[Any], bool]]
    """Keys of which the first suggestion sets one, and the values that take the fault away; none for a sound run."""


def stalls(chance: random.Random, place: float) -> float:
    return 4.0 if chance.random() < 0.1 else 1.0


def late_ranks(chance: random.Random, place: float) -> float:
    return 1.0 + chance.expovariate(1 / 0.25)


def is_any(value: Any) -> bool:
    return True


def below(limit: int) -> Callable[[Any], bool]:
    return lambda value: value < limit


CASES = (
    Case(name="recompute needless", config=ONE_NODE, fault={"plan.recompute": "full"}, removed_by={"plan.recompute": lambda mode: mode != "full"}),
    Case(name="micro too small", config=SMALL, removed_by={"batch.micro": lambda size: size > 1}),
    Case(name="fp32 by accident", config=SHARDED, fault={"precision": "fp32"}, removed_by={"precision": lambda name: name == "bf16"}),
    Case(name="fp32, the config says bf16", config=ONE_NODE, hidden={"precision": "fp32"}, removed_by={"precision": lambda name: name == "bf16"}),
    Case(name="tp across nodes", config=FOUR_NODES, fault={"plan.tp": 16, "plan.dp": 2}, removed_by={"plan.tp": below(9)}),
    Case(
        name="no overlap",
        config=FOUR_NODES,
        fault={"execution.overlap_gradients": False, "execution.overlap_parameters": False},
        removed_by={"execution.overlap_gradients": bool, "execution.overlap_parameters": bool},
    ),
    Case(
        name="slow link, in the config",
        config=FOUR_NODES,
        fault={"cluster.inter_node_gb_per_s": 2},
        removed_by={"cluster.inter_node_gb_per_s": lambda speed: speed > 20},
    ),
    Case(name="slow link", config=FOUR_NODES, hidden={"execution.between_nodes_time": 12.0}, removed_by={"execution.between_nodes_time": is_any}),
    Case(name="wrong attention", config=ONE_NODE, fault={"execution.attention": "unfused"}, removed_by={"execution.attention": lambda name: name != "unfused"}),
    Case(name="data stalls", config=ONE_NODE, steps=stalls, removed_by={"execution.step_overhead_us": is_any}),
    Case(name="straggler", config=LARGE, steps=late_ranks, removed_by={"execution.waiting_time": is_any}),
    Case(
        name="bubble",
        config=LARGE,
        fault={"plan.pp": 8, "plan.dp": 1, "plan.zero": 0, "batch.global": 16},
        removed_by={"plan.pp": below(8), "plan.vpp": lambda chunks: chunks > 1},
    ),
    Case(
        name="offload needless",
        config={**ONE_NODE, "offload": {"optimizer_share": 1.0}},
        removed_by={"offload.optimizer_share": lambda share: not share},
    ),
    Case(
        name="eager norms",
        config=ONE_NODE,
        fault={"execution.elementwise": "eager", "execution.fuse_rms_norm": False},
        removed_by={"execution.elementwise": is_any, "execution.fuse_rms_norm": is_any},
    ),
    Case(name="slower machine", config=STATED, hidden=SLOWER, removed_by={"execution.product_time": is_any}),
)  # fmt: skip
SOUND = (
    Case(name="a sound run of 8B", config=ONE_NODE, removed_by={}),
    Case(name="a sound run of 70B", config=LARGE, removed_by={}),
)


def with_values(config: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """A config under values by key path."""
    made = copy.deepcopy(dict(config))
    for path, value in values.items():
        section, _, key = path.partition(".")
        if key:
            made[section][key] = value
        else:
            made[section] = value
    return made


def log_of(case: Case) -> str:
    """The log of a case, as Megatron-LM writes it."""
    run = predict.load(with_values(case.config, case.fault), as_settings(case.hidden))
    step_us, chance = predict.estimate(run, require_fit=False).median_us, random.Random(case.name)
    lines = []
    for step in range(1, STEPS + 1):
        factor = case.steps(chance, step / STEPS) * (1 + NOISE * chance.gauss(0, 1)) * (3 if step == 1 else 1)
        lines.append(
            f" [2026-03-12 10:{step // 60:02d}:{step % 60:02d}] iteration {step:8d}/     500 | consumed samples: {run.batch.global_ * step:12d} | "
            f"elapsed time per iteration (ms): {step_us * factor / 1e3:.1f} | learning rate: 1.500000E-06 | global batch size: "
            f"{run.batch.global_:5d} | lm loss: 1.05E+01 | number of skipped iterations:   0 | number of nan iterations:   0 |"
        )
    return "\n".join(lines)


def diagnosed(case: Case, folder: Path) -> Diagnosis:
    log = folder / "train.log"
    log.write_text(log_of(case))
    return predict.diagnose(with_values(case.config, case.fault), log=str(log))


def is_removed(case: Case, found: Diagnosis) -> bool:
    """Whether the first suggestion takes the fault away."""
    if not found.changes:
        return False
    settings = found.changes[0].settings
    return any(path in settings and takes(settings[path]) for path, takes in case.removed_by.items())


def main() -> int:
    removed = 0
    with tempfile.TemporaryDirectory() as folder:
        for case in (*CASES, *SOUND):
            begun = time.perf_counter()
            found = diagnosed(case, Path(folder))
            took_s = time.perf_counter() - begun
            first = found.changes[0] if found.changes else None
            judged = found.judgement
            assert judged is not None
            is_right = judged.verdict == "normal" if case in SOUND else is_removed(case, found)
            removed += case not in SOUND and is_right
            change = f"{' '.join(as_settings(first.settings))} saves {first.gain.median:.1%}" if first else "nothing"
            print(
                f"{'ok' if is_right else 'NO':3} {case.name:28} {took_s:4.1f} s  {judged.verdict} ({judged.normal_probability:.0%})  {change}",
                flush=True,
            )
    print(f"{removed} of {len(CASES)} faults are taken away by the first suggestion")
    return 0


if __name__ == "__main__":
    sys.exit(main())
