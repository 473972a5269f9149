"""A real RL step on this machine: measured in a fresh process, phase by phase."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from predict.measurement.real_step import STEPS, WARMUP
from predict.measurement.requirements import require_measurable_rl
from predict.measurement.system_noise import StepUsage, noise_of, others_shares_here, quiet_steps, waited_share
from predict.measurement.worker import run_in_processes
from predict.rl.config import load_rl
from predict.serialise import version_of
from sampling.store.pace_log import References
from sampling.units import SECOND_US

STEP = "step"
TIMEOUT_S = 600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredSpread:
    """The middle of measured times, and how far they scatter, in µs."""

    median_us: float
    p10_us: float
    p90_us: float


@dataclass(frozen=True, kw_only=True, slots=True)
class RlMeasurement:
    """Steps in the order they ran, without the warm-up. `rewards` are those of all steps, the warm-up's first."""

    run: str
    phase_times_us: Mapping[str, tuple[float, ...]]
    """Phase under verl's name, `step` for all together → its time in every step."""
    others_shares: tuple[float, ...]
    """Share of the CPU that other processes took during each step, 0 to 1."""
    rewards: tuple[float, ...]
    threads: int
    versions: Mapping[str, str]
    references: tuple[References, ...] = ()
    """The reference calls beside the steps of each round, which show the machine's pace."""

    @property
    def noise(self) -> str:
        """The kind of noise that makes the medians say little; empty for a quiet measurement. CPU time is not disturbed
        by other processes."""
        shares = [0.0] * len(self.others_shares) if self.by_cpu_time else self.others_shares
        return noise_of(shares, [self.phase_times_us[STEP][place] for place in self.kept])

    @property
    def by_cpu_time(self) -> bool:
        """Whether times are CPU time of the one thread, which no other process adds to, rather than wall time."""
        return self.threads == 1

    @property
    def kept(self) -> list[int]:
        """Steps that other processes did not disturb; all if those are fewer than half, and all that CPU time was taken of."""
        return list(range(len(self.others_shares))) if self.by_cpu_time else quiet_steps(self.others_shares)[0]

    def spread(self, phase: str) -> MeasuredSpread:
        """Over the steps that are kept."""
        times = [self.phase_times_us[phase][place] for place in self.kept]
        p10, median, p90 = np.percentile(times, (10, 50, 90))
        return MeasuredSpread(median_us=float(median), p10_us=float(p10), p90_us=float(p90))

    def to_json(self) -> dict[str, Any]:
        """The stable shape that `predict measure --json` prints."""
        return {
            "version": version_of("measure-rl"),
            "run": self.run,
            "phases_us": {
                name: {"median": found.median_us, "p10": found.p10_us, "p90": found.p90_us, "all": list(times)}
                for name, times in self.phase_times_us.items()
                for found in [self.spread(name)]
            },
            "clock": "thread" if self.by_cpu_time else "wall",
            "others_shares": list(self.others_shares),
            "noisy": bool(self.noise),
            "noise": self.noise,
            "reward": {"first": self.rewards[0], "last": self.rewards[-1]},
            "threads": self.threads,
            "versions": dict(self.versions),
            **({"references": list(map(asdict, self.references))} if self.references else {}),
        }


def measure_rl(config: Path | str, overrides: Sequence[str] = (), *, steps: int | None = None) -> RlMeasurement:
    """Run the steps of an RL config and time every phase of `steps` steps after a warm-up.

    ConfigError lists the faults of the config; UserError for a step that cannot be run here, before anything starts.
    """
    rl = load_rl(config, overrides)
    require_measurable_rl(rl)
    report = run_in_processes(
        "rl",
        {"config": str(Path(config).resolve()), "overrides": list(overrides), "steps": WARMUP + (steps or STEPS)},
        name=rl.name,
        processes=1,
        threads=rl.base.cluster.threads,
        timeout_s=TIMEOUT_S,
    )
    return _summarize(rl.name, report, rl.base.cluster.threads)


def _summarize(name: str, result: Mapping[str, Any], threads: int) -> RlMeasurement:
    timed = result["steps"][WARMUP:]
    times = {phase: tuple(SECOND_US * step["phases"][phase] for step in timed) for phase in timed[0]["phases"]}
    times[STEP] = tuple(map(sum, zip(*times.values(), strict=True)))
    usage = [
        StepUsage(
            wall_s=whole / SECOND_US,
            machine_s=step["machine_s"],
            ranks_s=step["own_s"],
            waited_s=max(step["waiting_s"].values(), default=0.0),
        )
        for whole, step in zip(times[STEP], timed, strict=True)
    ]
    shares, references = others_shares_here(usage), References(**result["references"])
    if threads > 1:  # CPU time of one thread contains no waiting
        kept = [usage[place] for place in quiet_steps(shares)[0]]
        references = replace(references, waited_share=waited_share(kept))
    return RlMeasurement(
        run=name,
        phase_times_us=times,
        others_shares=tuple(shares),
        rewards=tuple(step["reward"] for step in result["steps"]),
        threads=threads,
        versions=result["versions"],
        references=(references,),
    )


def pool_rl(rounds: Sequence[RlMeasurement]) -> RlMeasurement:
    """The steps of several rounds of one run as one measurement."""
    return replace(
        rounds[0],
        phase_times_us={
            name: tuple(time for each in rounds for time in each.phase_times_us[name])
            for name in rounds[0].phase_times_us
        },
        others_shares=tuple(share for each in rounds for share in each.others_shares),
        rewards=tuple(reward for each in rounds for reward in each.rewards),
        references=tuple(one for each in rounds for one in each.references),
    )
