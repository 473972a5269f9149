"""Who is in which group, on any cluster."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sampling.cells.data_parallel import ShardedAdamW
from sampling.collectives.kinds import AllReduce
from sampling.collectives.topology import GroupPlacement, covers, groups_of, placement_of, placements
from sampling.hardware.cluster import Machine
from sampling.operators.gemm import Gemm

MACHINES = st.builds(Machine, nodes=st.integers(1, 9), gpus_per_node=st.integers(1, 12))
PLACEMENTS = st.builds(GroupPlacement, ranks=st.integers(2, 40), ranks_per_node=st.integers(1, 16))
TWO_OF_EIGHT = Machine(nodes=2, gpus_per_node=8)


@given(PLACEMENTS, MACHINES)
def test_groups_are_disjoint_and_hold_the_right_ranks_on_each_node(placement: GroupPlacement, machine: Machine) -> None:
    groups = groups_of(placement, machine)
    members = [rank for group in groups for rank in group]
    assert len(set(members)) == len(members)
    assert set(members) <= set(range(machine.ranks))
    for group in groups:
        assert list(group) == sorted(group)
        assert len(group) == placement.ranks
        on_nodes = [rank // machine.gpus_per_node for rank in group]
        counts = [on_nodes.count(node) for node in sorted(set(on_nodes))]
        assert len(counts) == placement.nodes
        assert set(counts[:-1]) <= {placement.on_a_node}
        assert 0 < counts[-1] <= placement.on_a_node


@given(PLACEMENTS, MACHINES)
def test_no_further_group_would_fit(placement: GroupPlacement, machine: Machine) -> None:
    share_a_node = machine.gpus_per_node // placement.on_a_node
    assert len(groups_of(placement, machine)) == share_a_node * (machine.nodes // placement.nodes)


@given(MACHINES)
def test_every_placement_that_a_cluster_offers_is_distinct_and_fits_it(machine: Machine) -> None:
    offered = list(placements(machine))
    assert len(set(offered)) == len(offered)
    assert all(groups_of(placement, machine) for placement in offered)
    if machine.ranks > 1:
        whole = GroupPlacement(ranks=machine.ranks, ranks_per_node=machine.gpus_per_node)
        assert groups_of(whole, machine) == [tuple(range(machine.ranks))]
        assert whole in offered


@pytest.mark.parametrize(
    ("ranks", "on_a_node", "first", "how_many"),
    [
        (2, 8, (0, 1), 8),  # tensor parallelism: neighbours
        (8, 4, (0, 2, 4, 6, 8, 10, 12, 14), 2),  # data parallelism around tp = 2
        (2, 1, (0, 8), 8),  # a pipeline's neighbours, one on each node
        (16, 8, tuple(range(16)), 1),
    ],
)
def test_groups_stand_as_the_parallel_groups_of_training_do(
    ranks: int, on_a_node: int, first: tuple[int, ...], how_many: int
) -> None:
    groups = groups_of(GroupPlacement(ranks=ranks, ranks_per_node=on_a_node), TWO_OF_EIGHT)
    assert groups[0] == first
    assert len(groups) == how_many


def test_calls_say_where_their_ranks_stand() -> None:
    assert placement_of(AllReduce(size_bytes=1, ranks=4, ranks_per_node=2)) == GroupPlacement(ranks=4, ranks_per_node=2)
    spread = ShardedAdamW(dtype="fp32", parameters=8, tensors=1, dp=4, group_nodes=2)
    assert placement_of(spread) == GroupPlacement(ranks=4, ranks_per_node=2)
    assert placement_of(Gemm(dtype="fp32", m=1, n=1, k=1)) == GroupPlacement(ranks=1, ranks_per_node=1)


def test_groups_that_leave_ranks_out_do_not_cover_a_node() -> None:
    node = Machine(nodes=1, gpus_per_node=8)
    assert covers(GroupPlacement(ranks=4, ranks_per_node=4), node)
    assert not covers(GroupPlacement(ranks=3, ranks_per_node=3), node)
