"""The options of a search beside the config: what is best, what is allowed, what else is computed, and who prices."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from predict.kinds import ServerOptions
from predict.run.model_flops import FROZEN_SHARE, model_flops_per_token
from predict.run.training_run import TrainingRun
from sampling.errors import Checks, UserError
from sampling.files.faults import did_you_mean, shown
from sampling.number_text import as_given

Backend = Literal["processes", "dask", "ray"]
BACKENDS: tuple[Backend, ...] = get_args(Backend)
OF_PLANS = (
    *("max_memory", "max_gpus", "min_interval_overlap", "clusters", "tokens", "front", "save"),
    *("jobs", "backend", "address"),
)
"""Options that only a search of training plans has."""


def not_of_plans(title: str) -> str:
    """Why the options of a search of training plans are refused beside another kind of config."""
    return f"does not apply to {title}, of which every combination is predicted; omit it"


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchOptions:
    """A search as its user asks for it. UserError, naming the option of the command, for what cannot be or does not go together."""

    objective: str | None = None
    """What is best, by its name; None for what is usual."""
    top: int = 20
    """Plans in the answer."""
    max_memory: float = 1.0
    """Share of the device's memory that a plan may take."""
    max_gpus: int | None = None
    """Clusters of more GPUs are left out."""
    min_interval_overlap: float | None = None
    """Share by which the interval of a plan in the answer overlaps the best one's at least; None keeps all of `top`."""
    clusters: tuple[str, ...] = ()
    """Names or files of clusters, each searched in place of the config's own."""
    tokens: str | float | None = None
    """Tokens of a whole training whose cost is reported, as `2T`."""
    price: str | None = None
    """Price of a GPU or node, as `2.5/gpu-h`."""
    slo: tuple[str, ...] = ()
    model: str = ""
    coefficients: Path | str | None = None
    """Questions on servers, as `kinds.ServerOptions` has them."""
    front: bool = False
    """Whether the front of time, memory and GPUs is found too."""
    save: Path | None = None
    """File that keeps what is priced, and from which a search goes on."""
    jobs: int | None = None
    """Processes; None for one per core."""
    backend: Backend = "processes"
    address: str | None = None
    """Address of the Dask scheduler or Ray cluster."""

    def __post_init__(self) -> None:
        with Checks() as checks:
            for name in ("top", "max_gpus", "jobs"):
                checks.run(self._check_positive, name)
            for check in (
                self._check_backend,
                self._check_memory,
                self._check_overlap,
                self._check_address,
            ):
                checks.run(check)

    def _check_positive(self, name: str) -> None:
        value = getattr(self, name)
        if value is not None and value < 1:
            raise UserError(f"--{name.replace('_', '-')}: {value} is not a positive number; give 1 or more")

    @property
    def of_servers(self) -> ServerOptions:
        return ServerOptions(slo=self.slo, price=self.price, model=self.model, coefficients=self.coefficients)

    def require_no_plans(self, title: str) -> None:
        """UserError for options that only a search of training plans has; `title` is what is searched instead."""
        usual = SearchOptions()
        if given := [name for name in OF_PLANS if getattr(self, name) != getattr(usual, name)]:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            raise UserError(f"{flags}: {not_of_plans(title)}")

    def _check_backend(self) -> None:
        if self.backend not in BACKENDS:
            near = did_you_mean(self.backend, BACKENDS) or f"; give one of {', '.join(BACKENDS)}"
            raise UserError(f"--backend: {shown(self.backend)} is unknown{near}")

    def _check_memory(self) -> None:
        if not 0 < self.max_memory <= 1:
            raise UserError(
                f"--max-memory: {as_given(self.max_memory)} is not a share of the device's memory; give a number above 0, 1 at most"
            )

    def _check_overlap(self) -> None:
        if self.min_interval_overlap is not None and not 0 <= self.min_interval_overlap <= 1:
            raise UserError(
                f"--min-interval-overlap: {as_given(self.min_interval_overlap)} is not a share; give a number from 0 (all ties) to 1"
            )

    def _check_address(self) -> None:
        if self.address and self.backend == "processes":
            raise UserError("--address: processes of this machine have none; give --backend dask or ray too")


# Objectives: what plans are ranked by, each with the floor that no plan undercuts.


@dataclass(frozen=True, kw_only=True, slots=True)
class Objective:
    """A figure of which less is better. `value` grows with both of its figures, so that their floors make a floor of it."""

    name: str
    meaning: str
    value: Callable[[TrainingRun, Any, Any, float | None], Any]
    """From a run of the cluster and model, its time per token in µs, its memory in bytes, and the mean W of its boards, None where it is
    not priced yet."""
    timed: bool = True
    """Whether it follows from the step's time, whose errors it then has."""


def _time(run: TrainingRun, us_per_token: Any, memory_bytes: Any, board_w: float | None) -> Any:
    return us_per_token


def _gpu_time(run: TrainingRun, us_per_token: Any, memory_bytes: Any, board_w: float | None) -> Any:
    return us_per_token * run.cluster.world_size


def _memory(run: TrainingRun, us_per_token: Any, memory_bytes: Any, board_w: float | None) -> Any:
    return memory_bytes


def _energy(run: TrainingRun, us_per_token: Any, memory_bytes: Any, board_w: float | None) -> Any:
    """µJ of all boards. Before a plan is priced, those of waiting, and what its products take on top at the peak of the device."""
    if run.cluster.gpu.power_w is None:
        raise UserError(
            f"--objective energy: the hardware file of {run.cluster.gpu.name} states no power_w; add it, or take cost"
        )
    gpu, gpus = run.cluster.gpu, run.cluster.world_size
    if board_w is not None:
        return us_per_token * gpus * board_w
    products_us = FROZEN_SHARE * model_flops_per_token(run.model, 0) / gpu.peak_flops_per_us(run.precision)
    waiting_w = gpu.watts("waiting")
    return us_per_token * gpus * waiting_w + products_us * (gpu.watts("products") - waiting_w)


def _peak_flops(run: TrainingRun, us_per_token: Any, memory_bytes: Any, board_w: float | None) -> Any:
    """FLOPs that the GPUs could do per token, over those of the model: 1 / MFU."""
    peak = run.cluster.gpu.peak_flops_per_us(run.precision) * run.cluster.world_size
    return us_per_token * peak / model_flops_per_token(run.model, run.batch.seq_len)


OBJECTIVES: Mapping[str, Objective] = {
    each.name: each
    for each in (
        Objective(name="time", meaning="time per token", value=_time),
        Objective(name="cost", meaning="GPU-hours per token", value=_gpu_time),
        Objective(name="memory", meaning="expected peak of memory", value=_memory, timed=False),
        Objective(name="energy", meaning="energy per token", value=_energy),
        Objective(name="mfu", meaning="model FLOPs utilisation", value=_peak_flops),
    )
}
