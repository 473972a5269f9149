"""Time to count a plan's memory, warm: `python tests/bench/memory.py`.

Seconds are of this process's own work, so that other load on the machine does not count.
"""

import statistics
import time
from dataclasses import replace
from pathlib import Path

from stopwatch import seconds

from predict.config.load import build, load
from predict.huggingface.config_json import load_model
from predict.memory.estimate import memory_of
from predict.run.training_run import TrainingRun

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
REPEATS = 15


def large_dense() -> TrainingRun:
    """Llama 3.1 405B on 1,024 H100."""
    model = load_model(CONFIGS / "models" / "llama3.1-405b.json")
    sections = {
        "cluster": {"hardware": "h100-sxm", "nodes": 128, "gpus_per_node": 8, "profile": "none"},
        "plan": {"tp": 8, "sp": True, "pp": 16, "dp": 8, "zero": 1},
        "batch": {"global": 2048, "micro": 1, "seq_len": 8192},
        "precision": "bf16",
    }
    return build("405b", model, sections)


def main() -> None:
    dense = large_dense()
    interleaved = load(CONFIGS / "runs" / "llama3-70b-64xh100.yml")
    mixture = load(CONFIGS / "runs" / "deepseek-v3-1024xh100.yml")
    chunked = replace(
        dense, plan=replace(dense.plan, vpp=3, schedule="interleaved-1f1b", count_embedding=1, count_loss=1)
    )
    for name, run, limit in (
        ("Llama 3.1 405B, pp 16, 256 microbatches, 1f1b", dense, "5"),
        ("with 142 layers, interleaved in chunks of 3", replace(chunked, model=replace(dense.model, layers=142)), ""),
        (f"{interleaved.model.name}, {interleaved.plan.schedule}", interleaved, ""),
        ("DeepSeek-V3 on 1,024 GPUs", mixture, ""),
    ):
        taken = [seconds(lambda run=run: memory_of(run), time.process_time) for _ in range(REPEATS)]  # type: ignore[misc]
        print(f"{name}: {1e3 * statistics.median(taken[1:]):.2f} ms{f' (limit {limit})' if limit else ''}")


if __name__ == "__main__":
    main()
