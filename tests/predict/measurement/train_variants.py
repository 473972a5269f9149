"""Ranks of the parallelism test: every variant of two runs trained in one process group, what each rank saw written down.

torchrun … -m tests.predict.measurement.train_variants FOLDER
"""

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from predict.measurement.training import build_training, to_local
from predict.model.spec import ModelSpec
from predict.run.plan import Plan
from predict.run.training_run import TrainingRun
from tests import tiny_runs
from tests.tiny_runs import tiny_run

STEPS = 2
LLAMA = replace(tiny_runs.LLAMA, layers=5, hidden=32, head_dim=8, ffn=48, vocab=64, max_positions=32)
GPT = replace(
    LLAMA,
    name="gpt-like",
    gated=False,
    norm="layer",
    rope=False,
    attention_bias=True,
    mlp_bias=True,
    kv_heads=4,
    tied=True,
)
VARIANTS = {
    "tp": Plan(tp=2),
    "tp sp": Plan(tp=2, sp=True),
    "tp sp recompute": Plan(tp=2, sp=True, recompute="full"),
    "dp": Plan(dp=2),
    "dp zero": Plan(dp=2, zero=1),
    "pp afab": Plan(pp=2, schedule="afab"),
    "pp 1f1b": Plan(pp=2, schedule="1f1b"),
    "pp 1f1b recompute": Plan(pp=2, schedule="1f1b", recompute="full"),
    "pp zb-h1": Plan(pp=2, schedule="zb-h1"),
    "pp interleaved": Plan(pp=2, vpp=2, schedule="interleaved-1f1b"),
    "pp interleaved recompute": Plan(pp=2, vpp=2, schedule="interleaved-1f1b", recompute="full"),
    "pp zbv": Plan(pp=2, vpp=2, schedule="zbv"),
    "pp dualpipev": Plan(pp=2, vpp=2, schedule="dualpipev"),
}


def run_of(plan: Plan, model: ModelSpec = LLAMA) -> TrainingRun:
    """A run of 4 microbatches, of which each replica takes its share; of 2 as large ones where tensors are sharded, whose many
    operators take long to dispatch."""
    micro = 4 if plan.tp > 1 else 2
    return tiny_run(model, cores=max(2, plan.tp * plan.pp * plan.dp), batch=(8, micro, 16), **asdict(plan))


def trajectory(run: TrainingRun) -> dict[str, Any]:
    """Losses (null where this rank has none), and the parts of the last gradient that this rank holds, squared."""
    training = build_training(run)
    losses = [training.step() for _ in range(STEPS)]
    squares = [to_local(p.grad).square().sum().item() for p in training.module.parameters() if p.grad is not None]
    return {
        "losses": [None if loss is None else loss.item() for loss in losses],
        "gradient_square": sum(squares),
        "parameters": training.parameters,
    }


def main() -> None:
    import torch.distributed as dist

    from sampling.ranks.launch import die_with_launcher, leave

    die_with_launcher()
    dist.init_process_group("gloo")
    seen = {
        f"{model.name} {name}": trajectory(run_of(plan, model))
        for model in (LLAMA, GPT)
        for name, plan in VARIANTS.items()
        if not (model.tied and plan.pp > 1)
    }
    Path(sys.argv[1], f"{dist.get_rank()}.json").write_text(json.dumps(seen))
    dist.barrier()
    dist.destroy_process_group()
    leave()


if __name__ == "__main__":
    main()
