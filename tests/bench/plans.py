"""Time to cost a plan, warm: `python tests/bench/plans.py` (part of `make bench`).

Prices of a cluster are asked for once; then a large mixture's whole estimate, and the medians of many plans of one model.
Seconds are of this process's own work, so that other load on the machine does not count.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from predict import estimate
from predict.config.load import build, load
from predict.model.spec import ModelSpec
from predict.run.training_run import TrainingRun
from sampling.errors import ConfigError

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
REPEATS = 9


def plans() -> Iterator[TrainingRun]:
    """Every legal plan of a grid for Llama 3 70B on 64 H100."""
    model = ModelSpec.from_hf_config(CONFIGS / "models" / "llama3-70b.json")
    grid = itertools.product((1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4), (1, 2, 4), (0, 1, 3), ("none", "full", "selective"))
    for tp, pp, vpp, micro, zero, recompute in grid:
        plan = {
            "tp": tp,
            "sp": tp > 1,
            "pp": pp,
            "vpp": vpp,
            "dp": 64 // (tp * pp),
            "zero": zero,
            "recompute": recompute,
        }
        sections = {
            "cluster": {"hardware": "h100-sxm", "nodes": 8, "gpus_per_node": 8, "profile": "none"},
            "plan": plan | {"schedule": "interleaved-1f1b" if vpp > 1 else "1f1b"},
            "batch": {"global": 512, "micro": micro, "seq_len": 8192},
            "precision": "bf16",
        }
        try:
            yield build("plan", model, sections)
        except ConfigError:
            continue


def main() -> None:
    large = load(CONFIGS / "runs" / "deepseek-v3-1024xh100.yml")
    whole(large)
    taken = [_seconds(lambda: whole(large)) for _ in range(REPEATS)]
    print(f"DeepSeek-V3 on 1,024 GPUs, whole estimate from warm: {1e3 * statistics.median(taken):.1f} ms (limit 20)")
    many = list(plans())
    first, again = (_seconds(lambda: [estimate(run).median_us for run in many]) for _ in range(2))
    print(
        f"{len(many)} plans of Llama 3 70B: {len(many) / first:.0f} a second, again {len(many) / again:.0f} (at least 300)"
    )


def whole(run: TrainingRun) -> object:
    """A prediction with its interval, its ledger and its sources."""
    prediction = estimate(run)
    return prediction.step_time, prediction.breakdown_us, prediction.stages


def _seconds(work: object) -> float:
    start = time.process_time()
    work()  # type: ignore[operator]
    return time.process_time() - start


if __name__ == "__main__":
    main()
