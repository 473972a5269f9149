"""Pipeline ranks with the same calls share one object, so that each is priced once however many there are."""

from __future__ import annotations

from predict import estimate
from predict.workload.decompose import decompose
from tests.predict.workload.parallel_runs import made

DENSE = "llama3-70b"


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
