"""Constants read off published runs, judged on sources left out."""

import math

import pytest

from predict import estimate, load
from predict.prices.published_constants import CONSTANTS, PublishedConstant
from predict.validation.left_out import Moved, judge_constants, judged, tried
from predict.validation.published import compare
from predict.validation.published_row import PublishedRow
from sampling.files.places import CONFIGS
from tests.predict.validation.published_rows import MIXTURE

CONSTANT = PublishedConstant(value=1.0, low=0.5, high=2.0, source="a test", moves="a test")


def _moved(source: str, best: float) -> Moved:
    """A configuration whose error is the logarithm of the constant over `best`."""
    low, stated, high = (math.log(value / best) for value in (CONSTANT.low, CONSTANT.value, CONSTANT.high))
    return Moved(source=source, errors=(low, stated, high))


def test_a_constant_is_learnt_from_the_others_and_judged_on_the_source_left_out() -> None:
    found = judged("one", CONSTANT, [_moved("a", 1.25), _moved("a", 1.25), _moved("b", 0.75)])
    assert (found.least, found.greatest) == pytest.approx((0.75, 1.25), abs=0.08)
    assert found.error_left_out > found.error_stated
    alike = judged("one", CONSTANT, [_moved("a", 1.25), _moved("b", 1.25)])
    assert alike.learnt == alike.least == alike.greatest == pytest.approx(1.25, abs=0.08)  # errors are interpolated
    assert alike.error_left_out < alike.error_stated


def test_a_source_without_others_keeps_the_stated_value() -> None:
    found = judged("one", CONSTANT, [_moved("a", 1.5)])
    assert (found.least, found.greatest) == (1.0, 1.0)
    assert found.error_left_out == found.error_stated


@pytest.mark.parametrize("name", [name for name, one in CONSTANTS.items() if one.scope != "interval"])
def test_every_constant_that_moves_times_can_be_tried_and_is_itself_again(name: str) -> None:
    constant, run = CONSTANTS[name], load(CONFIGS / "runs" / "deepseek-v3-1024xh100.yml")
    before = estimate(run).median_us
    other = constant.high if constant.value < constant.high else constant.low
    with tried(constant, other) as change:
        moved = estimate(change(run)).median_us
    assert estimate(run).median_us == before
    if name in ("STRAGGLERS", "FP8_SHARE", "EXPERT_LAUNCH", "ATTENTION_BACKWARD_HOPPER", "FP8_EXPERT_KERNELS"):
        assert moved != before


def test_only_constants_that_move_a_row_are_reported() -> None:
    names = {one.name for one in judge_constants(compare([PublishedRow(cells=MIXTURE)]))}
    assert "STRAGGLERS" in names
    assert "LAUNCH_FLOOR_2021" not in names
