"""The stages of each pipeline rank: every layer once, in its place, with its kind and the ends of the model."""

from __future__ import annotations

import pytest

from predict.run.stages import stages_of_ranks
from tests.predict.workload.parallel_runs import made, spec


@pytest.mark.parametrize(("schedule", "vpp"), [("1f1b", 1), ("interleaved-1f1b", 2), ("zbv", 2)])
def test_the_stages_hold_every_layer_once(schedule: str, vpp: int) -> None:
    run = made("llama3-70b", 8, plan__pp=4, plan__vpp=vpp, plan__schedule=schedule, batch__global=16)
    stages = [stage for own in stages_of_ranks(run) for stage in own]
    assert sum(len(stage.kinds) for stage in stages) == run.model.layers
    assert sum(stage.first for stage in stages) == sum(stage.last for stage in stages) == 1


def test_kinds_follow_the_model_s_own_order() -> None:
    run = made(spec("deepseek-v3", 8), plan__pp=2, plan__layout="3,5", plan__tp=1)
    first, last = (own[0] for own in stages_of_ranks(run))
    assert [kind.sparse for kind in first.kinds] == [False] * 3
    assert [kind.sparse for kind in last.kinds] == [True] * 5
    assert (first.first, first.last, last.first, last.last) == (True, False, False, True)


@pytest.mark.parametrize(("schedule", "vpp", "shared"), [("1f1b", 1, False), ("zbv", 2, True)])
def test_a_v_shaped_placement_lets_the_first_rank_share_a_tied_table(schedule: str, vpp: int, shared: bool) -> None:
    run = made("gemma3-27b", 8, plan__pp=2, plan__vpp=vpp, plan__schedule=schedule)
    assert run.model.tied
    assert any(stage.shared_table for stage in stages_of_ranks(run)[0]) == shared
