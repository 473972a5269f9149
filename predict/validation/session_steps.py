"""Real steps that GPU sessions took, kept beside their profile's rows: predictions are held against them on any machine."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from predict.measurement.gpu.at_hand import device_name
from predict.measurement.measurement import DeviceRecord, Measurement, pool, settings_of
from predict.run.training_run import TrainingRun
from predict.step.prediction import Prediction
from predict.validation.measured_runs import ValidatedRun, Validation, row_of
from sampling.errors import UNREADABLE, SamplesError
from sampling.files.regular import NotReadError, read_bytes
from sampling.gpu_session.import_archive import STEPS
from sampling.store.manifest import read_manifest
from sampling.store.profiles import home_of, samples_directory


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionSteps:
    """The real steps of a profile: each run by its name, over the steps of all sessions, and why others have none."""

    profile: str
    hardware: str
    measured: Mapping[str, Measurement]
    failed: Mapping[str, str]


def steps_of_sessions(profile: str) -> SessionSteps | None:
    """The real steps of a profile; None for a profile without any, and on a machine with a GPU, which can take its own.

    SamplesError for a file that no import wrote.
    """
    directory = samples_directory(profile, home_of(profile))
    path = directory / STEPS
    if not path.is_file() or (find_spec("torch") and device_name()):
        return None
    rounds: dict[str, list[Measurement]] = {}
    failed: dict[str, str] = {}
    try:
        for of_archive in json.loads(read_bytes(path)).values():
            for name, answer in of_archive.items():
                if "step_time_us" in answer:
                    rounds.setdefault(answer["run"], []).append(_measurement(answer))
                else:
                    failed[name] = str(answer.get("error", "it measured no step"))
    except (NotReadError, *UNREADABLE) as error:
        raise SamplesError(f"{path}: cannot be read ({error}); import the archive of the session again") from None
    return SessionSteps(
        profile=profile,
        hardware=read_manifest(directory).hardware,
        measured={run: pool(each) for run, each in rounds.items()},
        failed=failed,
    )


def _measurement(answer: Mapping[str, Any]) -> Measurement:
    """The inverse of `Measurement.to_json`, which keeps the first and the last of the losses."""
    times = answer["step_time_us"]
    return Measurement(
        run=answer["run"],
        implementation=answer["implementation"],
        step_times_us=tuple(map(float, times["all"])),
        others_shares=tuple(map(float, answer["others_shares"])),
        losses=(answer["loss"]["first"], answer["loss"]["last"]),
        tokens_per_step=round(answer["tokens_per_s"] * times["median"] / 1e6),
        parameters_per_rank=tuple(answer["parameters_per_rank"]),
        threads=answer["threads"],
        versions=answer["versions"],
        device=DeviceRecord(**answer["device"]),
        settings=dict(answer.get("settings", {})),
    )


def against_sessions(
    runs: Sequence[ValidatedRun], predicted: Sequence[Prediction], steps: SessionSteps, *, tell: Callable[[str], None]
) -> Validation:
    """The runs held against the steps of sessions. A run without any, or whose config has changed since, is told and left out.

    SamplesError where none is left.
    """
    rows = []
    for each, prediction in zip(runs, predicted, strict=True):
        measured = steps.measured.get(prediction.run.name)
        if measured is None:
            tell(f"left out: {prediction.run.name}: {steps.failed.get(prediction.run.name, 'no session measured it')}")
        elif not _is_of(prediction.run, measured):
            tell(f"left out: {prediction.run.name}: its config has changed since a session measured it")
        else:
            rows.append(row_of(each, prediction, measured))
    if not rows:
        raise SamplesError(
            f"profile {steps.profile}: its sessions measured none of {len(runs)} runs; run another session"
        )
    return Validation(rows=rows, failed=[])


def _is_of(run: TrainingRun, measured: Measurement) -> bool:
    """Whether a run's parameters, tokens and settings are those that were measured; of the settings, an older session kept the
    attention kernel alone."""
    same_tokens = measured.tokens_per_step == run.batch.global_ * run.batch.seq_len
    same_kernel = measured.device is None or measured.device.attention == run.execution.attention
    same_settings = measured.settings in ({}, settings_of(run))
    return same_tokens and same_kernel and same_settings and sum(measured.parameters_per_rank) == run.model.parameters
