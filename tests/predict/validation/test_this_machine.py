"""Runs of this machine, predicted and measured: noise is told and not kept, an interrupted validation goes on."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

import predict
from predict.cli import main
from predict.interval import Interval
from predict.measurement import real_step
from predict.measurement.measurement import Measurement
from predict.measurement.pace import Pace
from predict.measurement.system_noise import OTHERS, SPREAD
from predict.prices.sampled import validation_path
from predict.reports.validation_here import validation_text
from predict.run.training_run import TrainingRun
from predict.validation.here import ValidationRow, _repeated
from predict.validation.sessions import keep
from sampling.files.places import DATA_VARIABLE

DEMO = "configs/runs/demo.yml"


def row(*, noise: str = "") -> ValidationRow:
    return ValidationRow(
        run="a",
        plan="1 process",
        predicted=Interval(median=100.0, low=90.0, high=110.0),
        measured=300.0,
        measured_low_us=290.0,
        measured_high_us=310.0,
        steps=24,
        dropped_steps=0,
        noise=noise,
    )


def shown(*rows: ValidationRow) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(validation_text(rows))
    return captured.get()


def test_noise_is_told_beside_the_error() -> None:
    noisy = shown(row(noise=OTHERS))
    assert re.search(r"−66\.7% .* NOISY", noisy)
    assert "NOISY: other processes disturbed most steps of a; none could be dropped: repeat" in noisy
    assert "1 run: mean error" in noisy
    assert "dropped; " not in noisy and "0 noisy steps" not in noisy
    assert "the steps of a differ widely (standard deviation above 20%)" in shown(row(noise=SPREAD))
    quiet = shown(row())
    assert "NOISY" not in quiet and "0 noisy steps dropped" in quiet


def test_noisy_runs_are_not_kept(tmp_path: Path) -> None:
    told: list[str] = []
    path = tmp_path / "kept.json"
    keep(path, [*[row()] * 4, row(noise=SPREAD)], of=6, report=told.append)
    assert not path.exists()
    assert "2 of 6 runs are noisy or have no steps" in told[0]
    keep(path, [row()] * 5, of=6, report=told.append)
    assert len(json.loads(path.read_text())["rows"]) == 5


def test_an_interrupted_validation_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    calls = 0

    def measure(run: TrainingRun, *, steps: int, implementation: str) -> Measurement:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        return Measurement(
            run=run.name,
            implementation=implementation,
            step_times_us=(1e5,) * steps,
            others_shares=(0.0,) * steps,
            losses=(2.0, 1.0),
            tokens_per_step=1,
            parameters_per_rank=(1,),
            threads=1,
            versions={"torch": "2"},
        )

    monkeypatch.setattr(real_step, "measure", measure)
    assert main(["validate", DEMO, "--rounds", "3"]) == 130
    told = capsys.readouterr().err
    assert re.search(r"3 measurements, [0-9,]+ to [0-9,]+ s in all", told)
    assert "s left" in told
    assert "kept so far: 1 of 3 measurements" in told
    assert len([*(tmp_path / "published").iterdir()]) == 1
    assert main(["validate", DEMO, "--rounds", "3"]) == 0
    assert calls == 4  # the first, the interrupted one, and the two that were left
    assert [*(tmp_path / "published").iterdir()] == []


def test_the_profile_to_validate_may_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    for named in (["--profile", "nowhere"], ["--set", "cluster.profile=nowhere"]):
        assert main(["validate", "this-machine", "--keep", *named]) == 3
        assert "profile nowhere: has no samples" in capsys.readouterr().err
    assert main(["validate", DEMO, "--profile", "nowhere"]) == 2
    assert validation_path("nowhere").name == "nowhere-steps.json"


def test_a_noisy_measurement_is_repeated_until_it_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    run = predict.load(DEMO)
    noisy = measurement_of(run, others=0.9)
    rounds = iter([noisy, measurement_of(run, others=0.0)])
    monkeypatch.setattr(real_step, "measure", lambda *_, **__: next(rounds))
    reported: list[str] = []
    assert not _repeated((run, "torch"), noisy, 8, reported.append).noise
    assert reported.count(f"{run.name}: noisy, measured again") == 2


def test_the_verdict_on_a_single_run_parts_its_error() -> None:
    paced = replace(row(), pace=Pace(by_resource={"compute": 0.5}, of_step=0.5))
    text = " ".join(shown(paced).split())
    assert "measured 300 µs, outside the 90 % interval" in text
    assert "the pace makes −50.0% and the models −33.3%" in text
    assert "this machine now runs at 0.50 of the pace of its rows (compute 0.50)" in text


def measurement_of(run: TrainingRun, *, others: float) -> Measurement:
    return Measurement(
        run=run.name,
        implementation="torch",
        step_times_us=(1e5,) * 8,
        others_shares=(others,) * 8,
        losses=(2.0, 1.0),
        tokens_per_step=1,
        parameters_per_rank=(1, 1),
        threads=1,
        versions={"torch": "2"},
    )
