"""Real steps beside the calls that their predictions count: `PYTHONPATH=. python tests/bench/steps_beside_calls.py [CONFIG…]`.

Step and calls run in one process on one thread, in turns, and are timed by its CPU time, so that other work on the machine, which takes
the core from both alike, does not stand between them. What is left is what the calls miss of a step, or count too much. Printed are, by run, both
times and their error, then the calls' time by operator. About two minutes of a quiet core for the configs of `configs/runs/this-machine-kinds`.
"""

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import torch

from predict import load
from predict.measurement.requirements import require_measurable
from predict.measurement.training import build_training
from predict.run.training_run import TrainingRun
from predict.workload.decompose import decompose
from sampling.arithmetic.operator import Operator
from sampling.call import Phase
from sampling.torch_work.build import build

CONFIGS = Path("configs/runs/this-machine-kinds")
ROUNDS, STEPS_A_ROUND, CALLS_A_ROUND = 5, 2, 3
Counts = dict[tuple[Operator, Phase], float]


def cpu_ms(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return (time.process_time() - start) * 1e3


def calls_of_step(run: TrainingRun) -> Counts:
    """How often a step of one process runs each call, by its operators where its layers were priced whole too."""
    (rank,) = decompose(run)
    (chunk,) = rank.chunks
    counts: Counts = defaultdict(float)
    for repeated in (*chunk.forward, *chunk.backward):
        for one in repeated.block.calls:
            assert isinstance(one.call, Operator)
            counts[one.call, one.phase] += repeated.count * one.count * run.microbatches
    for one in rank.end.optimizer:
        assert isinstance(one.call, Operator)
        counts[one.call, one.phase] += one.count
    return counts


def timed_in_turns(run: TrainingRun) -> tuple[float, dict[str, float]]:
    """Medians of the CPU time of a step, and of its calls' by the operator's name, in ms."""
    require_measurable(run, "torch")
    training, counts = build_training(run), calls_of_step(run)
    workloads = {call: build(call, torch.device("cpu")) for call, _ in counts}
    steps: list[float] = []
    times: dict[tuple[Operator, Phase], list[float]] = defaultdict(list)
    training.step()
    for _ in range(ROUNDS):
        steps += [cpu_ms(training.step) for _ in range(STEPS_A_ROUND)]
        for call, phase in counts:
            workload = workloads[call]
            for _ in range(CALLS_A_ROUND):
                workload.prepare(phase)
                times[call, phase].append(cpu_ms(lambda: workload.run(phase)))  # noqa: B023  (runs at once)
    by_name: dict[str, float] = defaultdict(float)
    for (call, phase), count in counts.items():
        by_name[call.NAME] += count * median(times[call, phase])
    return median(steps), by_name


def main(paths: Sequence[str]) -> None:
    torch.set_num_threads(1)
    for path in paths or sorted(map(str, CONFIGS.glob("*.yml"))):
        step_ms, by_name = timed_in_turns(load(path, ["cluster.cores=1"]))
        calls_ms = sum(by_name.values())
        print(
            f"{Path(path).stem:<12} step {step_ms:6.0f} ms  its calls {calls_ms:6.0f} ms  {calls_ms / step_ms - 1:+.1%}"
        )
        largest = sorted(by_name.items(), key=lambda item: -item[1])
        print("  " + "  ".join(f"{name} {time_ms:.0f}" for name, time_ms in largest), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
