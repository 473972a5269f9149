"""`predict.validate`: one function for every source of measurements."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

import predict
from predict.step.prediction import Prediction
from predict.validation.published import SHIPPED_RUNS
from sampling.files.places import CONFIGS
from tests.predict.command import Command

DEMO = CONFIGS / "runs" / "demo.yml"


@pytest.fixture
def two_rows(tmp_path: Path) -> Path:
    """The first two of the published runs that ship."""
    table = tmp_path / "two.csv"
    table.write_text("".join(SHIPPED_RUNS.read_text().splitlines(keepends=True)[:3]))
    return table


def test_content_is_what_the_command_prints(two_rows: Path, command: Command) -> None:
    found = predict.validate("published", truth=str(two_rows))
    assert len(found.found[0]) == 2
    assert command.json("validate", "published", "--truth", str(two_rows)) == json.loads(json.dumps(found.content))


def test_all_faults_of_the_parameters_are_reported_at_once() -> None:
    with pytest.raises(predict.UserError) as error:
        predict.validate("memory", rounds=0, keep=True)
    first, second, third = str(error.value).splitlines()
    assert first.startswith("--keep: does not apply to `predict validate memory`, which takes --truth")
    assert second.startswith("--rounds: 0 is not a positive number")
    assert third.startswith("--truth: missing")


def test_a_check_looks_at_the_predictions_before_anything_is_measured() -> None:
    def refuse(predictions: Sequence[Prediction]) -> None:
        raise predict.InfeasibleError(f"{len(predictions)} of {predictions[0].run.name}")

    with pytest.raises(predict.InfeasibleError, match="1 of demo"):
        predict.validate(DEMO, check=refuse)
