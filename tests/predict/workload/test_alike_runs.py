"""Blocks that runs share are those that each would make alone."""

from typing import Any

import pytest

from predict import estimate
from predict.rank.blocks import Block
from predict.rank.share import RankShare
from predict.run.stages import stages_of_ranks
from predict.run.training_run import TrainingRun
from predict.workload import alike_runs, step_end
from predict.workload.alike_runs import KeptByRun
from predict.workload.decompose import decompose
from predict.workload.layer import LayerBlocks, embedding_blocks, head_blocks, layer_blocks
from predict.workload.step_end import step_ends
from tests.predict.workload.parallel_runs import made

DENSE, MOE = "llama3-70b", "qwen3-30b-a3b"
HALVES = ("forward", "again", "backward", "backward_input", "backward_weight", "accumulation")
RUNS: list[tuple[str, dict[str, Any]]] = [
    (DENSE, {"plan__pp": 4, "plan__tp": 2, "plan__dp": 2}),
    (DENSE, {"plan__pp": 2, "plan__dp": 4, "plan__zero": 2}),
    (DENSE, {"plan__dp": 8, "plan__zero": 3, "plan__shard": 4}),
    (DENSE, {"plan__cp": 2, "plan__tp": 4, "plan__sp": True, "plan__recompute": "selective"}),
    (DENSE, {"plan__pp": 4, "execution__fuse_gradients": False}),
    (DENSE, {"plan__dp": 4, "plan__zero": 1, "execution__fuse_gradients": False}),
    (MOE, {"plan__dp": 8, "plan__ep": 8}),
    (MOE, {"plan__dp": 8, "plan__ep": 4, "plan__zero": 3}),
    (MOE, {"plan__pp": 2, "plan__dp": 4, "plan__ep": 4, "execution__overlap_ep": "microbatch"}),
    (MOE, {"plan__dp": 4, "plan__ep": 4, "plan__zero": 3, "execution__overlap_ep": "microbatch"}),
    (
        MOE,
        {"plan__pp": 2, "plan__dp": 4, "plan__tp": 2, "plan__sp": True, "plan__etp": 2, "plan__ep": 2, "plan__zero": 1},
    ),
]


def content(block: Block) -> tuple[object, ...]:
    beside = [(each.heading, each.communication, each.work, each.share, each.most) for each in block.overlapped]
    return block.calls, beside, block.launching, block.synchronous, block.heading, block.whole


def assert_alike(one: LayerBlocks, other: LayerBlocks) -> None:
    for half in HALVES:
        assert content(getattr(one, half)) == content(getattr(other, half)), half


@pytest.mark.parametrize(("model", "settings"), RUNS, ids=str)
def test_shared_blocks_are_those_of_the_run_alone(model: str, settings: dict[str, Any]) -> None:
    run = made(model, 8, **settings)
    shared, rank = alike_runs.block_cache(run), RankShare(run=run)
    for kind in dict.fromkeys(run.model.kinds()):
        assert_alike(shared.layer(kind), layer_blocks(rank, kind))
    assert_alike(shared.embedding(), embedding_blocks(rank))
    assert_alike(shared.head(shares_embedding=False), head_blocks(rank, shares_embedding=False))


@pytest.mark.parametrize(
    ("model", "settings"), [*RUNS, (DENSE, {"plan__dp": 8, "execution__optimizer": "muon"})], ids=str
)
def test_shared_ends_are_those_of_the_run_alone(model: str, settings: dict[str, Any]) -> None:
    run = made(model, 8, **settings)
    for stages in stages_of_ranks(run):
        end, weights = step_ends(run)(stages, ()), step_end.sharded_weights_of(run, stages)
        of_layers = step_end.layer_weights_of(run, stages)
        assert end.gradient_reduction == step_end.sharded_gradient_reduction(run, weights)
        assert end.parameter_all_gather == step_end.parameter_all_gather(run, weights, of_layers)
        assert end.optimizer == step_end.sharded_optimizer(run, weights)
        assert 0 <= end.exposed_bucket_share < 1


def forward(run: TrainingRun) -> Block:
    return alike_runs.block_cache(run).layer(run.model.kinds()[0]).forward


def test_pipelines_and_replicas_share_their_layers() -> None:
    one = made(DENSE, 8, plan__tp=2, plan__pp=4, plan__dp=1)
    other = made(DENSE, 8, plan__tp=2, plan__pp=1, plan__dp=4, plan__zero=1, batch__global=32)
    assert forward(one) is forward(other)
    known = {id(each.priced) for each in estimate(one).ranks[0].chunks[0].forward.blocks}
    assert known & {id(each.priced) for each in estimate(other).ranks[0].chunks[0].forward.blocks}


@pytest.mark.parametrize("setting", [{"plan__tp": 4}, {"batch__micro": 2}, {"plan__dp": 4, "plan__zero": 3}])
def test_what_changes_a_layer_is_not_shared(setting: dict[str, Any]) -> None:
    assert forward(made(DENSE, 8, plan__tp=2)) is not forward(made(DENSE, 8, **{"plan__tp": 2, **setting}))


def test_few_runs_are_kept() -> None:
    kept = KeptByRun(lambda run: run.name, most=2)
    runs = [made(DENSE, 8, batch__micro=micro, batch__global=16) for micro in (1, 2, 4, 8)]
    assert [kept.of(run) for run in (*runs, runs[-1])] == [run.name for run in (*runs, runs[-1])]
    assert len(kept) == 2


# Pipeline ranks with the same calls share one object, so that each is priced once however many there are.


def test_ranks_in_the_middle_of_a_pipeline_are_one_object() -> None:
    ranks = decompose(made(DENSE, 16, plan__pp=8, plan__tp=8))
    assert len({id(rank) for rank in ranks}) == 3
    assert len({id(rank) for rank in ranks[1:-1]}) == 1
    priced = estimate(made(DENSE, 16, plan__pp=8, plan__tp=8)).ranks
    assert len({id(chunk) for rank in priced for chunk in rank.chunks}) == 3


def test_a_rank_whose_result_goes_to_another_node_is_not_as_the_others() -> None:
    ranks = decompose(made(DENSE, 16, plan__pp=8, plan__tp=4))
    between, within = (ranks[index].chunks[0].send[0].call.fields()["ranks_per_node"] for index in (1, 2))
    assert (between, within) == (1, 2)
    assert ranks[1] is ranks[3] is ranks[5]
    assert ranks[2] is ranks[4] is ranks[6]


def test_ranks_that_hold_copies_of_the_same_weights_reduce_them_with_each_other() -> None:
    run = made(DENSE, 16, plan__pp=4, plan__vpp=2, plan__schedule="dualpipe", plan__tp=4)
    near, far = (decompose(run)[rank].end.shared_weights_reduction[0] for rank in (1, 0))
    assert (near.call.fields()["ranks_per_node"], far.call.fields()["ranks_per_node"]) == (1, 1)
    assert near.call.fields()["size_bytes"] < far.call.fields()["size_bytes"]
