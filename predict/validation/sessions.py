"""Real steps that GPU sessions took, kept with their profile's rows: predictions are compared with them on any machine."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from predict.measurement.measurement import DeviceRecord, Measurement, pool, settings_of
from predict.measurement.requirements import device_name, hardware_at_hand
from predict.prices.sample_provenance import require_rows_of_this_cpu
from predict.prices.sampled import LEAST_ROWS, validation_path
from predict.run.training_run import TrainingRun
from predict.step.prediction import Prediction
from predict.validation.here import ValidatedRun, Validation, ValidationRow, row_of, validation_json
from sampling.errors import UNREADABLE, SamplesError, UserError
from sampling.files.disk import MAKE_WRITABLE, NotReadError, read_bytes, require_place, write_atomically
from sampling.files.places import CONFIGS
from sampling.session.import_archive import STEPS
from sampling.store.pace_log import References
from sampling.store.profiles import OWN, default_profile, home_of, known_profiles, read_manifest, samples_directory


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
        references=tuple(References(**one) for one in answer.get("references", ())),
    )


def against_sessions(
    runs: Sequence[ValidatedRun], predicted: Sequence[Prediction], steps: SessionSteps, *, report: Callable[[str], None]
) -> Validation:
    """The runs compared with the steps of sessions. A run without any, or whose config has changed since, is reported and left out.

    SamplesError where none is left.
    """
    rows = []
    for each, prediction in zip(runs, predicted, strict=True):
        measured = steps.measured.get(prediction.run.name)
        if measured is None:
            report(
                f"left out: {prediction.run.name}: {steps.failed.get(prediction.run.name, 'no session measured it')}"
            )
        elif not _is_of(prediction.run, measured):
            report(f"left out: {prediction.run.name}: its config has changed since a session measured it")
        else:
            rows.append(row_of(each, prediction, measured))
    if not rows:
        raise SamplesError(
            f"profile {steps.profile}: its sessions measured none of {len(runs)} runs; run another session"
        )
    return Validation(predictions=predicted, rows=rows, failed=[])


def _is_of(run: TrainingRun, measured: Measurement) -> bool:
    """Whether a run's parameters, tokens and settings are those that were measured; of the settings, an older session kept the
    attention kernel alone."""
    same_tokens = measured.tokens_per_step == run.batch.global_ * run.batch.seq_len
    same_kernel = measured.device is None or measured.device.attention == run.execution.attention
    same_settings = measured.settings in ({}, settings_of(run))
    return same_tokens and same_kernel and same_settings and sum(measured.parameters_per_rank) == run.model.parameters


# The runs that `predict validate this-gpu` holds against real steps on this machine's GPU, and the GPU's name in them.


def runs_of_this_gpu() -> list[ValidatedRun]:
    """The runs of `configs/runs/this-gpu`, each of one GPU with 80 GB; they name an H100, in whose place this machine's is put."""
    folder = CONFIGS / "runs" / "this-gpu"
    return [ValidatedRun(config=path, implementation="torch") for path in sorted(folder.glob("*.yml"))]


def settings_of_this_gpu(steps: SessionSteps | None) -> list[str]:
    """The settings that put this machine's GPU in a run, or the GPU of the steps of sessions. UserError without a GPU, SamplesError
    for one that no file describes."""
    return [f"cluster.hardware={steps.hardware if steps else hardware_at_hand()}"]


def profile_of_this_gpu(named: Sequence[str]) -> str:
    """The profile that answers for this machine's GPU, the last of `named` or the GPU's own; SamplesError if its rows are another
    device's. One without rows is answered analytically."""
    profile = named[-1] if named else default_profile(hardware_at_hand())
    if profile in known_profiles():
        sampled_on = read_manifest(samples_directory(profile, home_of(profile))).device.get("name")
        if sampled_on != device_name():
            raise SamplesError(
                f"profile {profile}: its rows were taken on {sampled_on}, not on {device_name()}; name a profile of this GPU "
                "with --profile, or sample it"
            )
    return profile


# The figures of a validation, kept as the error of the profile that its runs are predicted from.

PROFILE_KEY = "cluster.profile="


def named_profiles(overrides: Sequence[str]) -> list[str]:
    """The profiles that settings name, in their order."""
    return [text.removeprefix(PROFILE_KEY) for text in overrides if text.startswith(PROFILE_KEY)]


def kept_file(overrides: Sequence[str], *, here: str, on_gpu: bool, steps: SessionSteps | None) -> Path:
    """The file that keeps the figures of a profile; UserError where they would be those of other runs or of another machine. `here`
    names the runs, '' for configs; `steps` are those of sessions where they stand for new ones."""
    named = named_profiles(overrides)
    if not here or len(named) < len(overrides):
        raise UserError(
            f"--keep: keeps the figures of `predict validate {here or OWN} [--profile NAME]` as they are; omit other --set and configs"
        )
    if on_gpu:
        profile = steps.profile if steps else profile_of_this_gpu(named)
    else:
        profile = require_rows_of_this_cpu(named[-1] if named else OWN)
    path = validation_path(profile)
    require_place(path, MAKE_WRITABLE)
    return path


def keep(path: Path, rows: Sequence[ValidationRow], *, of: int, report: Callable[[str], None]) -> None:
    """Keep the runs that are not noisy, if they are enough to know a profile's error; `of` runs were asked for."""
    quiet = [row for row in rows if not row.noisy]
    if len(quiet) < LEAST_ROWS:
        report(f"not kept: {of - len(quiet)} of {of} runs are noisy or have no steps; repeat it on a quiet machine")
        return
    write_atomically(path, json.dumps(validation_json(quiet), indent=1).encode())
    report(f"kept {len(quiet)} of {of} runs, those that are not noisy and have steps, in {path}")
