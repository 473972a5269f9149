"""The named, bounded terms of a calibration, and what is known of them after measured runs."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from typing import Annotated, Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from predict.interval import width_of_step
from predict.run.execution import (
    BETWEEN_NODES_TIME,
    EXPOSED_TIME,
    IN_NODE_TIME,
    LAUNCH_TIME,
    MEMORY_TIME,
    PRODUCT_TIME,
    WAITING_TIME,
)
from sampling.files.faults import Fault
from sampling.files.schema import Count, Key, Text, keys_of

Covariance: TypeAlias = Annotated[float, Key(minimum=-100, maximum=100)]
SHORTEST_US, LONGEST_US = 1.0, 1e13
"""Bounds of a step's time: a step is no shorter than one kernel, and takes four months at most."""
Micros: TypeAlias = Annotated[float, Key(maximum=LONGEST_US)]
"""A step's time in µs: above 0, at most LONGEST_US."""
MOST_NOISE = 10.0
"""Largest noise of a step in log time: a step this noisy says nothing about the terms."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
    """Factors on times that are predicted without them; 1 changes nothing. Beyond its bounds a term stands for something else than
    its name says."""

    products: Annotated[float, PRODUCT_TIME] = 1.0
    """Time of matrix products, attention and whole layers: the clocks of a long run."""
    memory_bound: Annotated[float, MEMORY_TIME] = 1.0
    """Time of norms, activations and other passes: glue and fusion."""
    in_node: Annotated[float, IN_NODE_TIME] = 1.0
    """Time of communication between GPUs of a node."""
    between_nodes: Annotated[float, BETWEEN_NODES_TIME] = 1.0
    """Time of communication between nodes."""
    launch: Annotated[float, LAUNCH_TIME] = 1.0
    """The host's time to launch a layer."""
    stragglers: Annotated[float, WAITING_TIME] = 1.0
    """Waiting for the slowest rank, where the framework's settings have it."""
    exposed: Annotated[float, EXPOSED_TIME] = 1.0
    """The part of overlapped communication that compute does not hide."""

    @property
    def moved(self) -> Mapping[str, float]:
        """The terms that change something."""
        return {name: value for name, value in asdict(self).items() if value != 1}


TERMS = tuple(field.name for field in fields(Calibration))


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredTime:
    """A step time in µs as it was given: from where, and of when."""

    step_us: Micros
    source: Text
    date: str = ""
    """Date in ISO 8601; empty where it is not known."""
    noise: Annotated[float, Key(minimum=0, maximum=MOST_NOISE)] = 0.0
    """Standard deviation in log time that the noise of the steps leaves; 0 where it is unknown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CalibratedRun:
    """A measured run that a calibration rests on; times are µs."""

    run: str
    measured_us: Micros
    before_us: Micros
    """Predicted without the terms."""
    after_us: Micros
    """Predicted with them."""
    left_out_us: Micros
    """Predicted with terms that the other runs give."""
    times: tuple[MeasuredTime, ...] = ()
    """The times that `measured_us` is the median of."""
    described: Any = None
    """The whole run as JSON, from which a later fit predicts it again; None where it may be one of several."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EarlierFit:
    """A fit that a later one replaced, or that was forgotten."""

    date: Text
    runs: Count
    terms: Calibration
    left_out_percent: Annotated[float, Key(minimum=0)] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Posterior:
    """A Gaussian in the logarithms of the terms about the fitted ones, and what it rests on; without runs it says nothing."""

    HEADER: ClassVar[Mapping[str, Any]] = {"version": 2}

    terms: Calibration
    covariance: tuple[tuple[Covariance, ...], ...] = ()
    """Covariance of the logarithms, in the order of the terms."""
    runs: tuple[CalibratedRun, ...] = ()
    date: str = ""
    """Day of the fit, such as 2026-11-22."""
    left_out_percent: Annotated[float, Key(minimum=0)] | None = None
    """Mean error of each run predicted by the terms that the others give; None for a single run."""
    transfer_error: Annotated[float, Key(minimum=0, maximum=10)] = 0.0
    """Half-width in log time at 90 % that rows of another CPU added to the runs' steps, which the terms stand for too; 0 where the rows
    were those of the runs' own device."""
    machine_error: Annotated[float, Key(minimum=0, maximum=10)] = 0.0
    """Half-width in log time at 90 % that all runs of the machine share where nothing was published of its architecture, which the
    terms stand for too."""
    scatter: Annotated[float, Key(minimum=1, maximum=10)] = 1.0
    """Scatter of the runs about what the terms explain, over what was expected."""
    history: tuple[EarlierFit, ...] = ()

    def contradictions(self) -> Iterator[Fault]:
        """Faults of a covariance that the terms cannot have."""
        matrix, size = self.covariance, len(TERMS)
        if not (self.runs or matrix):
            return
        if len(matrix) != size or any(len(row) != size for row in matrix):
            yield Fault(path="covariance", problem=f"needs {size} rows of {size} numbers, one for each term")
        elif not _is_covariance(matrix):
            yield Fault(
                path="covariance",
                problem="is not symmetric, or has a negative variance in some direction; write the file anew with `predict calibrate`",
            )

    @property
    def shared_error(self) -> float:
        """Half-width in log time at 90 % of all that the runs' steps have in common beyond the terms' own priors."""
        return width_of_step(self.transfer_error, self.machine_error)

    @property
    def widths(self) -> Mapping[str, float]:
        """Standard deviation of each term's logarithm."""
        return {name: math.sqrt(self.covariance[place][place]) for place, name in enumerate(TERMS)}


def _is_covariance(matrix: Sequence[Sequence[float]]) -> bool:
    """Whether a matrix is symmetric and positive semidefinite, to the six digits that a file keeps."""
    import numpy as np

    values = np.array(matrix)
    close = 1e-5 * float(np.abs(values).max())
    return bool(np.allclose(values, values.T, rtol=0, atol=close) and np.linalg.eigvalsh(values).min() >= -close)


def bounds() -> dict[str, tuple[float, float]]:
    """Term → the smallest and largest value allowed."""
    return {key.name: (key.lowest, key.maximum) for key in keys_of(Calibration)}


PRIORS: Mapping[str, float] = {
    "products": 0.03,
    "memory_bound": 0.1,
    "in_node": 0.12,
    "between_nodes": 1.0,
    "launch": 0.08,
    "stragglers": 0.25,
    "exposed": 0.15,
}
"""Standard deviation of each term's logarithm about 0: half of what clusters that nobody described spread by, since few runs also differ
for reasons that no term names (on published sources, the full widths lead three runs astray more often).

- products: those of a long run over a short one, 1.12 ± 0.05
- memory_bound: eager over fused passes, 1.35 ± 0.3
- in_node: bus bandwidth of nodes with GPUs of one name, a quarter
- between_nodes: not halved, from one card of 1.2 GB/s per node to one of 50 GB/s per GPU
- launch: 1.0 to 1.3 ms for a layer in one software stack
- stragglers: waiting 0.3 to 1 % a doubling of the ranks (STRAGGLERS)
- exposed: assumed"""
NETWORK = "between_nodes"
NETWORKS: Mapping[float, float] = {0.36: 0.8, PRIORS[NETWORK]: 0.2}
"""Standard deviation of a network as its hardware file states it, which is the deviation of collectives between nodes that nobody
sampled, and of another one → the share of clusters that have it. Shares are assumed."""
FASTER = 0.136
"""The same below 0, where it cannot be as far off: 0.8 of the bandwidth that the file states is taken, and 90 % lie below all of it."""
COMMON = 0.03
"""Standard deviation that the device's own terms share: a board or a stack that is slow is slow in all its kernels. Assumed."""
NINETY = 1.645
"""Standard deviations of a Gaussian on either side of its median that hold 90 % of it."""
SHARING = ("products", "memory_bound", "launch")
OF_THE_MACHINE = (*SHARING, "in_node")
"""Terms of what a node runs, messages inside it too: where nothing like it was measured, all of them may be off."""
MACHINE_SHARED = 0.5
"""Share of the variance of a machine's error which these terms have in common: its clock moves all of them; vector units move
products alone, memory channels the passes. Assumed."""


@cache
def prior_covariance(machine_error: float = 0.0) -> NDArray[np.float64]:
    """Covariance of the terms' logarithms, in their order; `machine_error` is the half-width at 90 % that all steps of a machine
    share, since their times are of another CPU, or nothing was published of its architecture."""
    common = np.array([COMMON if name in SHARING else 0.0 for name in TERMS])
    moved = np.array([machine_error / NINETY if name in OF_THE_MACHINE else 0.0 for name in TERMS])
    found: NDArray[np.float64] = np.diag([PRIORS[name] ** 2 for name in TERMS]) + np.outer(common, common)
    found += MACHINE_SHARED * np.outer(moved, moved) + (1 - MACHINE_SHARED) * np.diag(moved**2)
    found.setflags(write=False)
    return found


def prior_at(logs: NDArray[np.float64], machine_error: float, network: float) -> NDArray[np.float64]:
    """`prior_covariance` on the side of 0 on which the terms' logarithms are, with a network of that standard deviation."""
    found = prior_covariance(machine_error).copy()
    place = TERMS.index(NETWORK)
    found[place, place] = (FASTER if logs[place] < 0 else network) ** 2
    return found


def prior_deviations(machine_error: float = 0.0) -> NDArray[np.float64]:
    """Standard deviations of the terms' logarithms, in their order."""
    found: NDArray[np.float64] = np.sqrt(prior_covariance(machine_error).diagonal())
    return found
