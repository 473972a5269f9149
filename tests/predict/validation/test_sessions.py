"""Real steps that a GPU session brought home, beside their predictions, on a machine without a GPU."""

import json
from pathlib import Path
from typing import Any

import pytest

from predict import one_batch
from predict.measurement.measurement import DeviceRecord, settings_of
from predict.run.training_run import TrainingRun
from predict.validation import sessions as session_steps
from predict.validation.sessions import runs_of_this_gpu
from sampling.files.places import DATA_VARIABLE
from sampling.session.import_archive import STEPS
from sampling.store.profiles import Manifest, write_manifest
from tests.predict.command import Command
from tests.predict.measurement.measured_steps import measured

CONFIGS = {each.config.stem: each.config for each in runs_of_this_gpu()}
COMMAND = ["validate", "this-gpu", "--profile", "lent"]
H200 = "cluster.hardware=h200"


def answer(run: TrainingRun, step_us: float, *, parameters: int = 0) -> dict[str, Any]:
    """The answer of `predict measure --json` after 40 steps."""
    device = DeviceRecord(
        **{"name": "NVIDIA H200", "clock_mhz": 1755.0, "power_w": 600.0, "expert_products": ""},
        attention=run.execution.attention,
        **{"peak_allocated_bytes": 30 * 2**30, "peak_reserved_bytes": 31 * 2**30, "busiest_expert": None},
    )
    made = measured(
        (step_us,) * 40,
        run=run.name,
        tokens_per_step=run.batch.global_ * run.batch.seq_len,
        parameters_per_rank=(parameters or run.model.parameters,),
        device=device,
        settings=settings_of(run),
    )
    return json.loads(json.dumps(made.to_json()))


def run_of(name: str, *changes: str) -> TrainingRun:
    return one_batch(CONFIGS[name], [H200, *changes]).run


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    monkeypatch.setattr(session_steps, "device_name", lambda: "")
    folder = tmp_path / "samples" / "lent"
    device = {"name": "NVIDIA H200", "count": 1, "memory_gib": 139.8}
    write_manifest(folder, Manifest(profile="lent", hardware="h200", device=device))
    return folder


def keep(profile: Path, *archives: dict[str, Any]) -> None:
    (profile / STEPS).write_text(json.dumps({f"archive-{at}": steps for at, steps in enumerate(archives)}))


def test_steps_of_sessions_stand_beside_predictions(profile: Path, command: Command) -> None:
    names = ["dense", "launches", "wide", "recompute", "cudnn"]
    steps = {name: answer(run_of(name), 1e5) for name in names}
    again = {"dense": answer(run_of("dense"), 1.2e5), "mixture": {"error": "was not done after 60 s"}}
    keep(profile, steps, again)
    printed = command.run(*COMMAND, "--json", "--keep")
    rows = {row["run"]: row for row in json.loads(printed.out)["rows"]}
    assert sorted(rows) == sorted(names)
    assert (rows["dense"]["steps"], rows["dense"]["measured_us"]) == (80, 1.1e5)
    predicted_us = one_batch(CONFIGS["wide"], [H200, "cluster.profile=lent"]).median_us
    assert rows["wide"]["predicted_us"]["median"] == predicted_us
    assert rows["wide"]["error"] == pytest.approx(predicted_us / 1e5 - 1)
    assert rows["wide"]["device"]["power_w"] == 600.0
    assert "left out: mixture: was not done after 60 s" in printed.err
    assert "left out: larger: no session measured it" in printed.err
    kept = json.loads((profile.parents[1] / "published" / "lent-steps.json").read_text())
    assert len(kept["rows"]) == len(names)


@pytest.mark.parametrize(
    ("changes", "parameters"),
    [((), 7), (("plan.recompute=full",), 0), (("execution.attention=cudnn",), 0), (("batch.micro=1",), 0)],
)
def test_steps_of_a_config_that_has_changed_are_left_out(
    changes: tuple[str, ...], parameters: int, profile: Path, command: Command
) -> None:
    keep(profile, {"dense": answer(run_of("dense", *changes), 1e5, parameters=parameters)})
    printed = command.refused(*COMMAND, code=3)
    assert "left out: dense: its config has changed since a session measured it" in printed
    assert "profile lent: its sessions measured none of" in printed


@pytest.mark.parametrize("text", ["[]", "{", '{"a": {"dense": {"step_time_us": 3}}}', '{"a": 3}'])
def test_a_damaged_file_is_reported(text: str, profile: Path, command: Command) -> None:
    (profile / STEPS).write_text(text)
    assert f"{STEPS}: cannot be read" in command.refused(*COMMAND, code=3)


def test_a_gpu_takes_steps_of_its_own_and_a_profile_without_steps_has_none(
    profile: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    assert session_steps.steps_of_sessions("lent") is None
    assert "torch finds no GPU" in command.refused(*COMMAND)
    keep(profile, {"dense": answer(run_of("dense"), 1e5)})
    monkeypatch.setattr(session_steps, "device_name", lambda: "NVIDIA H200")
    assert session_steps.steps_of_sessions("lent") is None
