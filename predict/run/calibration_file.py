"""Calibration of a run: its terms applied, and the file that holds them.

None of them is used unasked: a prediction without a calibration file rests on samples and stated priors alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from predict.run.calibration import Calibration
from predict.run.training_run import TrainingRun
from sampling.files.keys import keys_of
from sampling.files.schema import read
from sampling.hardware.cluster import Link


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
    """The run with the terms applied, which it names; unchanged by terms that are all 1."""
    if calibration == Calibration():
        return run
    cluster, execution = run.cluster, run.execution
    return replace(
        run,
        calibration=calibration,
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
