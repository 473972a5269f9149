"""The runs that `predict validate this-gpu` holds against real steps on this machine's GPU, and the GPU's name in them."""

from __future__ import annotations

from collections.abc import Sequence

from predict.measurement.gpu.at_hand import device_name, hardware_at_hand
from predict.validation.measured_runs import ValidatedRun
from predict.validation.session_steps import SessionSteps
from sampling.errors import SamplesError
from sampling.files.places import CONFIGS
from sampling.store.manifest import read_manifest
from sampling.store.profiles import default_profile, home_of, known_profiles, samples_directory


def runs_of_this_gpu() -> list[ValidatedRun]:
    """The runs of `configs/runs/this-gpu`, each of one GPU with 80 GB; they name an H100, in whose place this machine's is put."""
    folder = CONFIGS / "runs" / "this-gpu"
    return [ValidatedRun(config=path, implementation="torch") for path in sorted(folder.glob("*.yml"))]


def settings_of_this_gpu(steps: SessionSteps | None) -> list[str]:
    """The settings that put this machine's GPU in a run, or that of the steps of sessions. UserError without a GPU, SamplesError
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
