"""The file of a calibration: what writes, uses and forgets it, what is added to it, and a damaged one."""

from pathlib import Path

import numpy as np
import pytest

from predict import load
from predict.cli import main
from predict.measured_runs.fit_terms import MeasuredRun, fit
from predict.run.calibration_file import calibration_text, read_calibration
from predict.run.calibration_terms import Calibration, Posterior
from predict.serving.coefficients import read_coefficients
from sampling.errors import ConfigError
from tests.predict.command import Command
from tests.predict.measured_runs.calibration_runs import CONFIG, run, step_us


def test_a_dry_run_shows_the_fit_and_writes_nothing(tmp_path: Path, command: Command) -> None:
    place = tmp_path / "a.yml"
    arguments = ["calibrate", CONFIG, "--measured", "14.9s", "--output", str(place)]
    dry = command.json(*arguments, "--dry-run")
    assert not place.exists()
    written = command.json(*arguments)
    assert (dry.pop("written"), written.pop("written")) == (False, True)
    assert dry == written
    assert "14.9 s (14.9s as given), 14.9 ms (14.9ms as given) for one config differ" in command.refused(
        *arguments[:3], "14.9ms", *arguments[4:]
    )


def test_a_cluster_that_names_the_file_uses_it_until_it_is_forgotten(tmp_path: Path, command: Command) -> None:
    (tmp_path / "mine.yml").write_text("{hardware: h100-sxm, nodes: 8, gpus_per_node: 8}")
    config = tmp_path / "run.yml"
    config.write_text(Path(CONFIG).read_text().replace("../", f"{Path('configs').absolute()}/"))
    cluster = "cluster=mine.yml"
    before = step_us(load(config, [cluster]))
    arguments = ["calibrate", str(config), "--set", cluster, "--measured", f"{before * 1.05:.0f}us"]
    command.run(*arguments)
    content, place = command.json(*arguments), tmp_path / "mine.calibration.yml"
    assert content["file"] == str(place)
    assert [each["runs"] for each in content["history"]] == [1]
    (tmp_path / "mine.yml").write_text(
        "{hardware: h100-sxm, nodes: 8, gpus_per_node: 8, calibration: mine.calibration.yml}"
    )
    run_it = ["one-batch", str(config), "--set", cluster]
    assert "Calibrated to 1 measured run" in command.text(*run_it)
    after = step_us(load(config, [cluster]))
    assert before < after < 1.05 * before
    by_option = ["one-batch", str(config), "--set", cluster, "--calibration", str(place)]
    # in place of the cluster's, not on top of it
    assert command.json(*by_option)["step_time_us"]["median"] == pytest.approx(after)
    assert main(["calibrate", "--forget", str(place)]) == 0
    assert step_us(load(config, [cluster])) == before
    assert len(read_calibration(place).history) == 2


def test_runs_given_later_are_added_to_those_that_the_file_holds(tmp_path: Path, command: Command) -> None:
    place, other = tmp_path / "mine.yml", "batch.global=256"
    us = {setting: step_us(run(setting)) for setting in ("batch.global=128", other)}

    def calibrate(measured: str, *settings: str, code: int = 0) -> str:
        overrides = [text for setting in settings for text in ("--set", setting)]
        words = ("calibrate", CONFIG, *overrides, "--measured", measured, "--output", str(place))
        return command.run(*words, code=code).err

    log = tmp_path / "train.log"
    log.write_text(
        "\n".join(
            f" iteration {step}/ 9 | elapsed time per iteration (ms): {us['batch.global=128'] * 1.05 / 1e3:.1f} | global batch size: 128 |"
            for step in range(1, 9)
        )
    )
    calibrate(str(log))
    alone = read_calibration(place)
    assert "holds 1 earlier measurement; none of those given is new" in calibrate(str(log))
    assert read_calibration(place).runs == alone.runs
    calibrate(f"{us[other] * 1.06:.0f}us", other)
    both = read_calibration(place)
    assert [each.times[0].source for each in both.runs] == [
        f"{log} (Megatron, 4 of 8 lines)",
        f"{us[other] * 1.06:.0f}us as given",
    ]
    assert [each.runs for each in both.history] == [1, 1]
    asked = [MeasuredRun(name="a", runs=(run(),), measured_us=us["batch.global=128"] * 1.05)]
    asked.append(MeasuredRun(name="b", runs=(run(other),), measured_us=us[other] * 1.06))
    assert both.terms.products == pytest.approx(fit(asked).terms.products, rel=1e-4)
    assert "differ by more than repeats do" in calibrate(f"{us[other] * 1.6:.0f}us", other, code=2)
    assert read_calibration(place) == both
    place.write_text(place.read_text().replace("tied", "bound"))
    assert f"--forget {place}" in calibrate("14s", code=2)
    assert main(["calibrate", "--forget", str(place)]) == 0
    assert f"--calibration: {place} holds no runs" in command.notes("one-batch", CONFIG, "--calibration", str(place))
    calibrate("14s")
    calibrate("14000ms")
    assert [len(each.times) for each in read_calibration(place).runs] == [1]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("[]", "must be a mapping"),
        ("{version: 2, terms: {products: 9}}", "out of range; give a number from 0.3 to 3"),
        ("{version: 2, terms: {products: true}}", "true is not a number"),
        ("{version: 2, terms: {prod: 1}}", "terms.prod: unknown"),
        ("{version: 2, terms: {}, covariance: [[1]]}", "needs 7 rows of 7 numbers"),
        (f"{{version: 2, terms: {{}}, covariance: {[[1.0] + [2.0] * 6] * 7}}}", "is not symmetric"),
        (
            f"{{version: 2, terms: {{}}, covariance: {(1 - 2 * np.eye(7)).tolist()}}}",
            "negative variance in some direction",
        ),
    ],
)
def test_a_damaged_calibration_is_refused(tmp_path: Path, content: str, fault: str) -> None:
    path = tmp_path / "terms.yml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=fault):
        read_calibration(path)
    sound = Posterior(terms=Calibration(products=1.1))
    path.write_text(calibration_text(sound))
    assert read_calibration(path) == sound
    with pytest.raises(ConfigError, match="is a calibration of `predict calibrate`, which --calibration takes, not"):
        read_coefficients(path)
