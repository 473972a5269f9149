"""The figures of a validation, kept as the error of the profile that its runs are predicted from."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from predict.prices.sample_provenance import require_rows_of_this_cpu
from predict.prices.sampled import LEAST_ROWS, validation_path
from predict.validation.session_steps import SessionSteps
from predict.validation.this_gpu import profile_of_this_gpu
from predict.validation.validation_rows import ValidationRow, validation_json
from sampling.errors import UserError
from sampling.files.disk import MAKE_WRITABLE, require_place, write_atomically
from sampling.store.profiles import OWN

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


def keep(path: Path, rows: Sequence[ValidationRow], *, of: int, tell: Callable[[str], None]) -> None:
    """Keep the runs that are not noisy, if they are enough to tell a profile's error; `of` runs were asked for."""
    quiet = [row for row in rows if not row.noisy]
    if len(quiet) < LEAST_ROWS:
        tell(f"not kept: {of - len(quiet)} of {of} runs are noisy or have no steps; repeat it on a quiet machine")
        return
    write_atomically(path, json.dumps(validation_json(quiet), indent=1).encode())
    tell(f"kept {len(quiet)} of {of} runs, those that are not noisy and have steps, in {path}")
