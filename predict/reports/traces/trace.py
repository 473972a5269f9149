"""The predicted step as a trace in files, for Perfetto or for simulators of networks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from predict import estimate, load
from predict.config.document import Config
from predict.reports.traces.chakra import save_chakra
from predict.reports.traces.chrome import save_step_trace
from predict.step.prediction import Prediction
from sampling.errors import UserError
from sampling.files.faults import shown

Format = Literal["chrome", "chakra"]
FORMATS = get_args(Format)


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenTrace:
    """A predicted step and the files of its trace."""

    prediction: Prediction
    files: Sequence[Path]
    detailed: int = 0
    """Actions of each rank that a Chrome trace has with their operators."""


def trace(
    config: Config,
    overrides: Sequence[str] = (),
    *,
    output: Path | str,
    format: Format = "chrome",  # noqa: A002
    every_gpu: bool = False,
) -> WrittenTrace:
    """Write the predicted step of a config as a Chrome trace (.json or .json.gz), or as execution traces of MLCommons Chakra, a folder with
    a file per pipeline rank, or with `every_gpu` per GPU, and the groups. ConfigError lists every fault of the config."""
    if format not in FORMATS:
        raise UserError(f"--format: {shown(format)} is not known; give one of {', '.join(FORMATS)}")
    prediction, place = estimate(load(config, overrides), require_fit=False), Path(output)
    if format == "chakra":
        return WrittenTrace(prediction=prediction, files=tuple(save_chakra(prediction, place, every_gpu=every_gpu)))
    detailed = save_step_trace(prediction, place)
    return WrittenTrace(prediction=prediction, files=(place,), detailed=detailed)
