"""Whether the verdict names what is wrong: `PYTHONPATH=. python tests/bench/faults.py FOLDER [CASE…]`, about half a minute a case.

Real steps of two ranks (or of one), traced, each with a fault put into them: a rank that sleeps, a rank without a core of its own, all
ranks on one core, an attention kernel that is not fused, a link that carries everything several times. A case counts where its
cause stands in the verdict; the runs without a fault show what this machine's other work adds to it.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parallel import DistributedDataParallel

from predict import load
from predict.layers.run_json import dump_run, load_run
from predict.measured_runs.explain.explanation import explain
from predict.measurement.decoder import Training
from predict.measurement.timed_training import trace_steps
from predict.measurement.training import build_training
from sampling.ranks.launch import die_with_launcher, launch, leave

CONFIGS = Path("configs/runs/this-machine")
WARMUP = 2
SLEEP_SHARE = 0.3
"""Share of a step that a sleeping rank sleeps."""
TIMES = 8
"""Times that a slow link carries each message."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A config, the fault put into its steps, and the causes in a verdict that name it."""

    config: str
    fault: str
    causes: tuple[str, ...]


COMPUTE = ("slow_compute", "slow_rank")
CASES = {
    "sleep-dp": Case(config="data-parallel", fault="sleep", causes=("standstill",)),
    "sleep-tp": Case(config="tensor-parallel", fault="sleep", causes=("standstill",)),
    "sleep-pp": Case(config="pipeline-afab", fault="sleep", causes=("standstill",)),
    "share-dp": Case(config="data-parallel", fault="share", causes=("slow_rank",)),
    "one-core-dp": Case(config="data-parallel", fault="one-core", causes=COMPUTE),
    "attention-1": Case(config="long-sequences", fault="attention", causes=("attention",)),
    "attention-gpt": Case(config="gpt", fault="attention", causes=("attention",)),
    "attention-dp": Case(config="data-parallel", fault="attention", causes=("attention",)),
    "link-dp": Case(config="data-parallel", fault="link", causes=("communication",)),
    "link-tp": Case(config="tensor-parallel", fault="link", causes=("communication",)),
    "none-dp": Case(config="data-parallel", fault="none", causes=()),
    "none-tp": Case(config="tensor-parallel", fault="none", causes=()),
}


def main() -> None:
    folder = Path(sys.argv[1])
    named = 0
    cases = {name: CASES[name] for name in sys.argv[2:]} or CASES
    for name, case in cases.items():
        run = load(CONFIGS / f"{case.config}.yml")
        place = folder / name
        if not list(place.glob("*.json.gz")):
            place.mkdir(parents=True, exist_ok=True)
            (place / "run.txt").write_text(dump_run(run))
            launch(
                [__file__, "--worker", str(place), case.fault],
                name=name,
                processes=run.cluster.world_size,
                threads=run.cluster.threads,
                timeout_s=580,
            )
        found = explain(run, trace=place)
        causes = [finding.cause for finding in found.verdict]
        hit = any(cause in case.causes for cause in causes)
        named += hit
        said = "named" if hit else "no fault" if not case.causes else "MISSED"
        print(f"{name:16}{said:10}{', '.join(causes)}", flush=True)
        for finding in found.verdict[:3]:
            print(f"    {finding.text} [{finding.cost_us / found.measured.step_us:.0%}]")
    faulty = sum(bool(case.causes) for case in cases.values())
    print(f"{named} of {faulty} faults named")


def sleep(training: Training, step_s: float) -> Training:
    """The last rank sleeps before its passes."""
    if dist.get_rank() != dist.get_world_size() - 1:
        return training

    def passes() -> Any:
        time.sleep(SLEEP_SHARE * step_s)
        return training.passes()

    return replace(training, passes=passes)


def share(training: Training, _: float) -> Training:
    """The last rank has a core on which another process spins."""
    cores = sorted(os.sched_getaffinity(0))
    rank = dist.get_rank()
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    if rank == dist.get_world_size() - 1:
        for _spinner in range(3):
            subprocess.Popen(["timeout", "120", sys.executable, "-c", "while True: pass"])
    return training


def one_core(training: Training, _: float) -> Training:
    """All ranks share one core."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    return training


def attention(training: Training, _: float) -> Training:
    """Attention runs products with a softmax between them."""

    def passes() -> Any:
        with sdpa_kernel(SDPBackend.MATH):
            return training.passes()

    return replace(training, passes=passes)


def link(training: Training, _: float) -> Training:
    """Every all-reduce crosses the link several times."""
    import torch.distributed._functional_collectives as functional

    once = functional.all_reduce

    def all_reduce(tensor: torch.Tensor, *arguments: Any, **named: Any) -> Any:
        for _again in range(TIMES - 1):
            functional.wait_tensor(once(tensor, *arguments, **named))
        return once(tensor, *arguments, **named)

    functional.all_reduce = all_reduce  # type: ignore[assignment]

    def hook(_state, bucket):  # type: ignore[no-untyped-def]  # DDP refuses annotations that are text
        buffer = bucket.buffer().div_(dist.get_world_size())
        for _again in range(TIMES - 1):
            dist.all_reduce(buffer.clone())
        future = dist.all_reduce(buffer, async_op=True).get_future()
        return future.then(lambda done: done.value()[0])

    for module in training.module.modules():
        if isinstance(module, DistributedDataParallel):
            module.register_comm_hook(None, hook)
    return training


FAULTS: dict[str, Callable[[Training, float], Training]] = {
    "sleep": sleep,
    "share": share,
    "one-core": one_core,
    "attention": attention,
    "link": link,
    "none": lambda training, _: training,
}


def worker() -> None:
    die_with_launcher()
    parser = argparse.ArgumentParser()
    parser.add_argument("--worker", type=Path)
    parser.add_argument("fault", choices=FAULTS)
    arguments = parser.parse_args()
    dist.init_process_group("gloo", timeout=timedelta(seconds=600))
    training = build_training(load_run((arguments.worker / "run.txt").read_text()))
    for _ in range(WARMUP):
        start = time.perf_counter()
        training.step()
        dist.barrier()
    training = FAULTS[arguments.fault](training, time.perf_counter() - start)
    trace_steps(training, arguments.worker, {}, steps=2)
    dist.barrier()
    dist.destroy_process_group()
    leave()


if __name__ == "__main__":
    worker() if "--worker" in sys.argv else main()
