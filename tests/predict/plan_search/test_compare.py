"""Differences of runs: they close, heading by heading and term by term."""

from pathlib import Path

import pytest

import predict
from predict.plan_search.compare import setting_text
from predict.reports.compare import differences_json
from sampling.errors import UserError
from sampling.files.places import CONFIGS
from tests.predict.command import Command

RUNS = CONFIGS / "runs"
DENSE, MIXTURE = RUNS / "llama3-70b-64xh100.yml", RUNS / "deepseek-v3-1024xh100.yml"


def test_differences_close_and_name_the_settings() -> None:
    (difference,) = predict.compare(DENSE, MIXTURE)
    assert sum(difference.change_us.values()) == pytest.approx(difference.step_change_us)
    peaks = [each.memory.point_bytes for each in (difference.first, difference.other)]
    assert sum(difference.memory_bytes.values()) == pytest.approx(peaks[1] - peaks[0])
    first, other = difference.first.run, difference.other.run
    assert difference.settings["plan.pp"] == (first.plan.pp, other.plan.pp)
    assert difference.settings["batch.global"] == (first.batch.global_, other.batch.global_)
    assert difference.settings["model"] == ("llama3-70b", "deepseek-v3")
    assert "plan.sp" not in difference.settings
    assert difference.change_us["ep"] > 0 > difference.change_us["cp"]


def test_times_are_reported_per_tokens_of_the_first_run(tmp_path: Path) -> None:
    other = tmp_path / "larger.yml"
    other.write_text(DENSE.read_text().replace("global: 128", "global: 256"))
    (difference,) = predict.compare(DENSE, other)
    first, larger = difference.first.median_us, difference.other.median_us
    assert difference.step_change_us == pytest.approx(larger / 2 - first)
    assert larger - first > 0 > difference.step_change_us  # the same tokens fill the pipeline better
    assert sum(difference.change_us.values()) == pytest.approx(difference.step_change_us)
    assert differences_json([difference])["per_tokens"] == 128 * 8192


def test_a_run_does_not_differ_from_itself() -> None:
    first, second = predict.compare(DENSE, DENSE, DENSE)
    assert first.settings == second.settings == {}
    assert set(first.change_us.values()) == set(first.memory_bytes.values()) == {0.0}
    assert (first.speed, first.overlap) == (1.0, True)
    low, high = first.speed_bounds or (0.0, 0.0)
    assert 0.97 < low < 1 < high < 1.03  # repeated measurements alone


def test_intervals_far_apart_do_not_overlap() -> None:
    (difference,) = predict.compare(DENSE, RUNS / "demo.yml")
    assert not difference.overlap
    assert difference.speed < 0.1
    assert difference.speed_bounds is None


def test_settings_are_reported_as_a_config_writes_them() -> None:
    assert [setting_text(value) for value in (True, "", 0.5, "1f1b")] == ["true", "default", "0.5", "1f1b"]


@pytest.mark.parametrize(("source", "is_shown"), [(DENSE, False), (MIXTURE, True)])
def test_settings_of_mixtures_are_reported_of_mixtures_alone(source: Path, is_shown: bool, tmp_path: Path) -> None:
    other = tmp_path / source.name
    other.write_text(source.read_text().replace("framework: nemo", "framework: torchtitan"))
    (difference,) = predict.compare(source, other)
    assert "execution.framework" in difference.settings
    assert any("expert" in path or "permute" in path for path in difference.settings) == is_shown


def test_settings_over_one_config_come_with_how_to_see_what_they_change(command: Command) -> None:
    demo = str(RUNS / "demo.yml")
    sweep = f"`predict sweep {demo} --vary batch.micro=2,4`"
    assert sweep in command.refused("compare", demo, "--set", "batch.micro=4")
    assert f"nothing differs; to see what it changes, write {sweep}" in command.notes(
        "compare", demo, demo, "--set", "batch.micro=4"
    )
    assert "nothing differs" not in command.notes("compare", demo, demo)


def test_one_config_alone_is_refused() -> None:
    with pytest.raises(UserError, match="has nothing beside it; give two or more"):
        predict.compare(DENSE)
