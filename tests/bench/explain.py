"""Accuracy of explanations and replays of real steps here: `PYTHONPATH=. python tests/bench/explain.py FOLDER [CONFIG…]`, about a minute a config.

Each run of configs/runs/this-machine is measured with traces, which FOLDER keeps: what lies there is not measured again. Printed are, by
run, the measured ledger without its unexplained row over the step by the wall clock, the kernels' time that has an operator, the
cost of the profiler, the rest of the trace that its calls and schedule leave, over the step, and the traced half of the steps over the
first half, which is noise: a replay of the traced run is its step by construction. Then the error of each trace replayed as every other run
of its model, beside that of the models alone, and whether it lies in its 90 % interval. Runs that other processes disturbed are reported, and
count in no mean.
"""

import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from predict import load
from predict.measured_runs.explain.explanation import Explanation, explain
from predict.measured_runs.explain.timeline import UNNAMED
from predict.measured_runs.replay.pace import REPLAYED
from predict.measured_runs.replay.replay import replayed
from predict.measurement.real_step import measure
from predict.run.training_run import TrainingRun

CONFIGS = Path("configs/runs/this-machine")
STEPS = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Traced:
    """A config that was run, its steps by the wall clock in µs, and its ledgers."""

    config: Path
    run: TrainingRun
    step_times_us: tuple[float, ...]
    traced_us: tuple[float, ...]
    noisy: bool
    explanation: Explanation

    @property
    def earlier_us(self) -> float:
        """The median of the first half of the steps; the replay rests on the other."""
        return median(self.step_times_us[: max(1, len(self.step_times_us) // 2)])

    @property
    def median_us(self) -> float:
        return median(self.step_times_us)


def traced(config: Path, folder: Path) -> Traced:
    run, kept = load(config), folder / f"{config.stem}.json"
    if not kept.is_file():
        kept.write_text(json.dumps(measure(run, steps=STEPS, trace=folder / config.stem).to_json()))
    content = json.loads(kept.read_text())
    return Traced(
        config=config,
        run=run,
        step_times_us=tuple(content["step_time_us"]["all"]),
        traced_us=tuple(content["traced_us"]),
        noisy=content["noisy"],
        explanation=explain(run, trace=folder / config.stem),
    )


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    configs = sorted([Path(each) for each in sys.argv[2:]] or CONFIGS.glob("*.yml"), key=model_and_name)
    found = [traced(config, folder) for config in configs]
    print(f"{'run':28}{'ledger/step':>12}{'matched':>9}{'profiler':>10}{'rest':>9}{'halves':>9}{'models':>9}")
    rests, halves, models = [], [], []
    for each in found:
        headings = each.explanation.traced.headings
        named_us = sum(time_us for name, time_us in headings.items() if name != UNNAMED)
        replay = replayed(each.run, each.run, each.explanation.traced)
        rest, half = replay.rest_us / replay.traced_us, replay.traced_us / each.earlier_us - 1
        alone = replay.modelled.median_us / each.median_us - 1
        print(
            f"{each.config.stem:28}{named_us / fmean(each.traced_us):12.4f}{each.explanation.measured.matched_share:9.1%}"
            f"{fmean(each.traced_us) / each.median_us - 1:+10.1%}{rest:+9.1%}{half:+9.1%}{alone:+9.1%}{'  noisy' * each.noisy}"
        )
        if not each.noisy:
            rests.append(rest)
            halves.append(half)
            models.append(alone)
    print(f"mean absolute rest {mean_percent(rests)}, difference of the halves {mean_percent(halves)}")
    print(f"mean absolute error of the models alone {mean_percent(models)}")
    pairs([each for each in found if not each.noisy])


def model_and_name(config: Path) -> tuple[str, str]:
    """The key by which runs of one model follow one another, so that the machine drifts least between those that are compared."""
    return repr(load(config).model), config.stem


def pairs(found: list[Traced]) -> None:
    """The errors of traces replayed as other plans of their model, and of the models alone."""
    errors, alone, widths, inside = [], [], [], 0
    print(f"\n{'trace of':28}{'replayed as':28}{'error':>9}{'90 %':>16}{'models':>9}{'replayed':>10}")
    for source in found:
        for target in found:
            if source is target or source.run.model != target.run.model:
                continue
            replay = replayed(source.run, target.run, source.explanation.traced)
            step = replay.step_time
            low, high = (bound / step.median_us - 1 for bound in (step.low_us, step.high_us))
            widths.append(math.log(step.high_us / step.low_us) / 2)
            inside += step.low_us <= target.median_us <= step.high_us
            errors.append(replay.median_us / target.median_us - 1)
            alone.append(replay.modelled.median_us / target.median_us - 1)
            print(
                f"{source.config.stem:28}{target.config.stem:28}{errors[-1]:+9.1%}{low:+8.0%}{high:+8.0%}"
                f"{alone[-1]:+9.1%}{replay.share(REPLAYED):10.0%}"
            )
    if errors:
        print(f"mean absolute error on other plans {mean_percent(errors)}, of the models alone {mean_percent(alone)}")
        print(f"{inside} of {len(errors)} steps lie in their 90 % intervals, of half-width {mean_percent(widths)}")


def mean_percent(errors: list[float]) -> str:
    return f"{fmean(abs(error) for error in errors):.1%} (median {median(abs(error) for error in errors):.1%})"


if __name__ == "__main__":
    main()
