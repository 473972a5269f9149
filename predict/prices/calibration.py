"""A handful of named, bounded terms that a user may fit to measured runs, and name when they are to be used.

None of them is used unasked: a prediction without a calibration file rests on samples and stated priors alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

from predict.run.training_run import TrainingRun
from sampling.files.keys import Key, keys_of
from sampling.files.schema import read
from sampling.hardware.cluster import Link


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
    """Factors on what is predicted without them; 1 changes nothing. Beyond its bounds a term stands for something else than
    its name says."""

    products: Annotated[float, Key(minimum=0.7, maximum=1.6)] = 1.0
    """Time of matrix products and attention: the clocks of a long run."""
    memory_bound: Annotated[float, Key(minimum=0.5, maximum=2.0)] = 1.0
    """Time of norms, activations and other passes: glue and fusion."""
    in_node: Annotated[float, Key(minimum=0.25, maximum=1.25)] = 1.0
    """Bandwidth between GPUs of a node."""
    between_nodes: Annotated[float, Key(minimum=0.1, maximum=1.25)] = 1.0
    """Bandwidth between nodes."""
    launch: Annotated[float, Key(minimum=0.6, maximum=1.6)] = 1.0
    """The host's time to launch a layer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CalibrationFile:
    """The keys of the file that `predict validate published --calibrate-on` writes: terms, their bounds, and how well they fit."""

    HEADER: ClassVar[Mapping[str, Any]] = {"version": 1}

    terms: Calibration
    bounds: Mapping[str, Any] = field(default_factory=dict)
    fit: Mapping[str, Any] = field(default_factory=dict)


def bounds() -> dict[str, tuple[float, float]]:
    """Term → the smallest and largest value allowed."""
    return {key.name: (key.lowest, key.maximum) for key in keys_of(Calibration)}


def calibrated(run: TrainingRun, calibration: Calibration) -> TrainingRun:
    """The run with the terms applied."""
    cluster, execution = run.cluster, run.execution
    return replace(
        run,
        cluster=replace(
            cluster,
            intra_node=_wider(cluster.intra_node, calibration.in_node),
            inter_node=_wider(cluster.inter_node, calibration.between_nodes),
        ),
        execution=replace(
            execution,
            launch_floor_us=execution.launch_floor_us * calibration.launch,
            product_time=execution.product_time * calibration.products,
            memory_time=execution.memory_time * calibration.memory_bound,
        ),
    )


def _wider(link: Link, factor: float) -> Link:
    return replace(link, gb_per_s=link.gb_per_s * factor)


def read_calibration(path: Path) -> Calibration:
    """The terms in a calibration file; ConfigError lists every fault of it."""
    return read(CalibrationFile, path, fix="write it anew with `predict validate published --calibrate-on`").terms


def calibration_json(calibration: Calibration, fit: Mapping[str, Any]) -> dict[str, Any]:
    return {**CalibrationFile.HEADER, "terms": asdict(calibration), "bounds": bounds(), "fit": dict(fit)}
