"""What the keys of other tools' files say of offloading, and of a base in few bits beside it."""

import pytest

from predict.convert.arguments import Arguments
from predict.convert.offload import offload_of
from predict.convert.tool import BaseKeys, base_of


@pytest.mark.parametrize(("stage", "leave"), [(1, False), (2, True), (3, True)])
def test_gradients_leave_where_deepspeed_shards_them(stage: int, leave: bool) -> None:
    given = Arguments(values={"zero_optimization.stage": stage, "zero_optimization.offload_optimizer.device": "cpu"})
    assert offload_of(given)["offload"].get("gradients_on_host", False) == leave


@pytest.mark.parametrize(("bits", "refused"), [(1, True), (8, True), (4, False), ("4", False), (True, False)])
def test_one_bit_is_no_switch(bits: object, refused: bool) -> None:
    given = Arguments(values={"quantization_bit": bits})
    base_of(given, BaseKeys(bits="quantization_bit", refused=()))
    assert bool(given.faults) == refused
