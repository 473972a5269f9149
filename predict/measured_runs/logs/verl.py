"""Logs of verl, whose console line has every metric of an RL step.

Source: `concat_dict_to_str` of verl/utils/logger/aggregate_logger.py (`step:12 - actor/entropy:0.41 - perf/time_per_step:97.2 -
perf/throughput:812.4 - timing_s/gen:41.0 - …`), `compute_throughout_metrics` of verl/trainer/ppo/metric_utils.py: seconds, and tokens per
second and GPU. Newer versions write `np.float64(97.2)`."""

import re
from collections.abc import Iterable, Iterator

from predict.measured_runs.logs import figure, times
from predict.measured_runs.steady_state import LoggedStep
from sampling.units import GIB

FRAMEWORK = "verl"
STEP = re.compile(r"(?:^|[\s)])step:(\d+) - ")
TYPE = re.compile(r":np\.\w+\(([^)]*)\)")


def read(lines: Iterable[str]) -> Iterator[LoggedStep]:
    for line in lines:
        if found := STEP.search(line):
            plain = TYPE.sub(r":\1", line)
            yield LoggedStep(
                step=int(found[1]),
                time_us=times(figure(plain, "perf/time_per_step") or figure(plain, "timing_s/step"), 1e6),
                tokens_per_s_per_gpu=figure(plain, "perf/throughput"),
            )


def peak_bytes(line: str) -> float | None:
    return times(figure(TYPE.sub(r":\1", line), "perf/max_memory_allocated_gb"), GIB) if STEP.search(line) else None
