"""The result of running a config for real: the time of every step, and the evidence that it trained."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import fmean
from typing import Any, TypeVar

import numpy as np

from predict.measurement.system_noise import noise_of, quiet_steps
from predict.run.training_run import TrainingRun
from sampling.store.pace_log import References

Number = TypeVar("Number", int, float)


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceRecord:
    """The state of the one GPU that trained, during the timed steps; None for what nothing reported."""

    name: str
    clock_mhz: float | None
    """Mean clock of the multiprocessors."""
    power_w: float | None
    """Mean power of the board."""
    peak_allocated_bytes: int | None
    """torch.cuda.max_memory_allocated: tensors."""
    peak_reserved_bytes: int | None
    """torch.cuda.max_memory_reserved: tensors and the allocator's slack."""
    attention: str
    """The attention kernel that was pinned, as `execution.attention` names it."""
    expert_products: str
    """`grouped` for torch's grouped product, `loop` for one product after the other, empty without experts."""
    busiest_expert: float | None
    """Rows of the busiest expert over the mean expert's, after the last step; None without experts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """Steps in the order they ran, without the warm-up. `losses` are those of all steps, the warm-up's first."""

    run: str
    implementation: str
    step_times_us: tuple[float, ...]
    others_shares: tuple[float, ...]
    """Share of the CPU that other processes took during each step, 0 to 1; 0 on a GPU, whose steps are not dropped for it."""
    losses: tuple[float, ...]
    tokens_per_step: int
    parameters_per_rank: tuple[int, ...]
    threads: int
    """CPU threads of one rank."""
    versions: dict[str, str]
    traced_us: tuple[float, ...] = ()
    """Times of the steps that a profiler recorded, which slows them; not among `step_times_us`."""
    device: DeviceRecord | None = None
    """The GPU; None for steps on a CPU."""
    references: tuple[References, ...] = ()
    """The reference calls beside the steps of each round, which show the machine's pace."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """The run's settings that change what a step computes (`settings_of`); none where an older version measured."""

    @property
    def kept_us(self) -> tuple[float, ...]:
        """Times of the steps that other processes did not disturb; of all steps if those are fewer than half."""
        return tuple(self.step_times_us[index] for index in quiet_steps(self.others_shares)[0])

    @property
    def noise(self) -> str:
        """The kind of noise that makes the median say little (`predict.measurement.system_noise`); empty for a quiet measurement."""
        return noise_of(self.others_shares, self.kept_us)

    @property
    def dropped_steps(self) -> int:
        return len(self.step_times_us) - len(self.kept_us)

    @property
    def median_us(self) -> float:
        return self._percentile_us(50)

    @property
    def p10_us(self) -> float:
        return self._percentile_us(10)

    @property
    def p90_us(self) -> float:
        return self._percentile_us(90)

    @property
    def tokens_per_s(self) -> float:
        return self.tokens_per_step / self.median_us * 1e6

    def _percentile_us(self, percent: float) -> float:
        return float(np.percentile(self.kept_us, percent))

    def to_json(self) -> dict[str, Any]:
        """The stable shape that `--json` prints."""
        return {
            "run": self.run,
            "implementation": self.implementation,
            "step_time_us": {
                "median": self.median_us,
                "p10": self.p10_us,
                "p90": self.p90_us,
                "all": list(self.step_times_us),
            },
            "tokens_per_s": self.tokens_per_s,
            "others_shares": list(self.others_shares),
            "dropped_steps": self.dropped_steps,
            "noisy": bool(self.noise),
            "noise": self.noise,
            "loss": {"first": self.losses[0], "last": self.losses[-1]},
            "parameters_per_rank": list(self.parameters_per_rank),
            "threads": self.threads,
            "versions": self.versions,
            **({"traced_us": list(self.traced_us)} if self.traced_us else {}),
            **({"references": list(map(asdict, self.references))} if self.references else {}),
            **({"device": asdict(self.device)} if self.device else {}),
            **({"settings": dict(self.settings)} if self.settings else {}),
        }


def settings_of(run: TrainingRun) -> dict[str, str]:
    """The settings of a run that change what a step computes while its tokens and its parameters stay the same, as text."""
    plan, execution = run.plan, run.execution
    of_plan = ("recompute", "recompute_method", "recompute_layers", "recompute_modules")
    return {
        "precision": run.precision,
        "batch.micro": str(run.batch.micro),
        "batch.seq_len": str(run.batch.seq_len),
        "execution.framework": execution.framework,
        "execution.attention": execution.attention,
        **{f"plan.{key}": str(getattr(plan, key)) for key in of_plan},
    }


def pool(rounds: Sequence[Measurement]) -> Measurement:
    """The steps of several rounds of one run as one measurement."""
    return replace(
        rounds[0],
        step_times_us=tuple(time for each in rounds for time in each.step_times_us),
        others_shares=tuple(share for each in rounds for share in each.others_shares),
        losses=tuple(loss for each in rounds for loss in each.losses),
        references=tuple(one for each in rounds for one in each.references),
        device=_pooled([each.device for each in rounds if each.device]),
    )


def _pooled(records: Sequence[DeviceRecord]) -> DeviceRecord | None:
    """The largest peaks of several rounds, and the mean of their clocks and powers."""
    if not records:
        return None
    return replace(
        records[0],
        clock_mhz=_over(fmean, [each.clock_mhz for each in records]),
        power_w=_over(fmean, [each.power_w for each in records]),
        peak_allocated_bytes=_over(max, [each.peak_allocated_bytes for each in records]),
        peak_reserved_bytes=_over(max, [each.peak_reserved_bytes for each in records]),
        busiest_expert=_over(max, [each.busiest_expert for each in records]),
    )


def _over(how: Callable[[list[Number]], Number], values: Sequence[Number | None]) -> Number | None:
    known = [value for value in values if value is not None]
    return how(known) if known else None
