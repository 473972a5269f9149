"""Time to cost a plan, warm: `python tests/bench/plans.py` (part of `make bench`).

Prices of a cluster are asked for once; then a large mixture's whole estimate, many plans of one model with and without their
intervals, and what more microbatches or pipeline ranks cost.
Seconds are of this process's own work, so that other load on the machine does not count.
"""

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from stopwatch import seconds

from predict import estimate
from predict.config.load import build, load
from predict.huggingface.config_json import load_model
from predict.run.training_run import TrainingRun
from sampling.errors import ConfigError

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
REPEATS = 9


def plans() -> Iterator[TrainingRun]:
    """Every legal plan of a grid for Llama 3 70B on 64 H100."""
    model = load_model(CONFIGS / "models" / "llama3-70b.json")
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


def growing(*, pp: int = 4, vpp: int = 1, microbatches: int = 256) -> TrainingRun:
    """As many layers of Llama 3 70B's as the longest pipeline needs, on one node per pipeline rank."""
    model = replace(load_model(CONFIGS / "models" / "llama3-70b.json"), layers=320 if vpp > 1 else 256)
    sections = {
        "cluster": {"hardware": "h100-sxm", "nodes": pp, "gpus_per_node": 8, "profile": "none"},
        "plan": {"tp": 8, "sp": True, "pp": pp, "vpp": vpp, "schedule": "interleaved-1f1b" if vpp > 1 else "1f1b"},
        "batch": {"global": microbatches, "micro": 1, "seq_len": 8192},
        "precision": "bf16",
    }
    return build("growing", model, sections)


def growth(name: str, runs: dict[int, TrainingRun]) -> None:
    """Print the time of an estimate with its interval, first and warm, over runs that differ in one size."""
    timed = []
    for size, run in runs.items():
        first = _seconds(lambda run=run: estimate(run).step_time)
        warm = min(_seconds(lambda run=run: estimate(run).step_time) for _ in range(REPEATS))
        timed.append((size, first, warm))
    shown = ", ".join(f"{size:,}: {1e3 * warm:.1f} ({1e3 * first:.1f} first)" for size, first, warm in timed)
    print(f"{name}, ms with interval: {shown}; {timed[-1][2] / timed[0][2]:.1f} × (at most 2)")


def main() -> None:
    many = list(plans())
    first, again = (_seconds(lambda: [estimate(run).median_us for run in many]) for _ in range(2))
    interval, settled = (_seconds(lambda: [estimate(run).step_time for run in many]) for _ in range(2))
    print(
        f"{len(many)} plans of Llama 3 70B: {len(many) / first:.0f} a second (at least 400), again {len(many) / again:.0f}, "
        f"with interval {len(many) / interval:.0f}, once loops are compiled {len(many) / settled:.0f} (at least 700)"
    )
    # after them, when loops are machine code: a process that makes few estimates is quicker without
    large = load(CONFIGS / "runs" / "deepseek-v3-1024xh100.yml")
    whole(large)
    taken = [_seconds(lambda: whole(large)) for _ in range(REPEATS)]
    print(f"DeepSeek-V3 on 1,024 GPUs, whole estimate from warm: {1e3 * statistics.median(taken):.1f} ms (limit 12)")
    growth("microbatches, vpp 5", {count: growing(vpp=5, microbatches=count) for count in (16, 256, 4096)})
    growth("pipeline ranks", {pp: growing(pp=pp) for pp in (1, 4, 16, 64, 256)})


def whole(run: TrainingRun) -> object:
    """A prediction with its interval, its ledger and its sources."""
    prediction = estimate(run)
    return prediction.step_time, prediction.breakdown_us, prediction.stages


def _seconds(work: Callable[[], object]) -> float:
    return seconds(work, time.process_time)


if __name__ == "__main__":
    main()
