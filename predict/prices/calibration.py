"""A handful of named, bounded terms that a user may fit to measured runs, and name when they are to be used.

None of them is used unasked: a prediction without a calibration file rests on samples and stated priors alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from predict.run.training_run import TrainingRun
from sampling.errors import ConfigError
from sampling.hardware.cluster import Link

VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
    """Factors on what is predicted without them; 1 leaves it as it is."""

    products: float = 1.0
    """Time of matrix products and attention: the clocks of a long run."""
    memory_bound: float = 1.0
    """Time of norms, activations and other passes: glue and fusion."""
    in_node: float = 1.0
    """Bandwidth between GPUs of a node."""
    between_nodes: float = 1.0
    """Bandwidth between nodes."""
    launch: float = 1.0
    """The host's time to launch a layer."""


BOUNDS: Mapping[str, tuple[float, float]] = {
    "products": (0.7, 1.6),
    "memory_bound": (0.5, 2.0),
    "in_node": (0.25, 1.25),
    "between_nodes": (0.1, 1.25),
    "launch": (0.6, 1.6),
}
"""Beyond these a term stands for something else than its name says."""


def calibrated(run: TrainingRun, calibration: Calibration) -> TrainingRun:
    """The run under the terms."""
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
    """The terms in a file that `predict validate published --calibrate-on` wrote; ConfigError for another file."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"--calibration: {path} cannot be read ({error}); give a file that --calibrate-on wrote"
        ) from None
    terms = content.get("terms") if isinstance(content, dict) else None
    if not isinstance(terms, dict) or content.get("version") != VERSION:
        raise ConfigError(
            f"--calibration: {path} is no calibration of version {VERSION}; write it anew with --calibrate-on"
        )
    known = {field.name for field in fields(Calibration)}
    for name, value in terms.items():
        if name not in known:
            raise ConfigError(f"--calibration: {path}: terms.{name}: unknown; allowed: {', '.join(sorted(known))}")
        low, high = BOUNDS[name]
        if type(value) not in (int, float) or not low <= value <= high:
            raise ConfigError(f"--calibration: {path}: terms.{name}: {value!r} is out of bounds; give {low} to {high}")
    return Calibration(**terms)


def calibration_json(calibration: Calibration, fit: Mapping[str, Any]) -> dict[str, Any]:
    return {"version": VERSION, "terms": asdict(calibration), "bounds": dict(BOUNDS), "fit": dict(fit)}
