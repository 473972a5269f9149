"""More work takes longer, more ranks take less, and links and nodes count, each by itself, under a cost model without noise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sampling.hardware.cluster import Link, load_cluster
from tests.predict.step.small_runs import predicted, run, step_us

LONGER = {
    "layers": run(model={"layers": 16}),
    "hidden": run(model={"hidden": 512}),
    "heads": run(model={"heads": 16}),
    "kv_heads": run(model={"kv_heads": 8}),
    "ffn": run(model={"ffn": 1536}),
    "vocab": run(model={"vocab": 8192}),
    "positions": run(model={"rope": False, "max_positions": 4096}),
    "global batch": run(batch={"global_": 32}),
    "sequence": run(batch={"seq_len": 256}),
    "full recompute": run(recompute="full"),
}


@pytest.mark.parametrize("knob", LONGER)
def test_more_work_takes_longer(knob: str) -> None:
    if knob == "positions":
        assert step_us(LONGER[knob]) > step_us(run(model={"rope": False, "max_positions": 128}))
    else:
        assert step_us(LONGER[knob]) > step_us(run())


SHORTER_MODELS = {"tied": {"tied": True}, "plain MLP": {"gated": False}}


@pytest.mark.parametrize("knob", SHORTER_MODELS)
def test_less_work_takes_less_time(knob: str) -> None:
    assert step_us(run(model=SHORTER_MODELS[knob])) < step_us(run())


@pytest.mark.parametrize("degree", ["tp", "pp", "dp"])
def test_more_ranks_of_the_same_speed_shorten_the_step(degree: str) -> None:
    alone, spread = run(), run(**{degree: 2})
    spread = replace(spread, cluster=replace(spread.cluster, gpu=alone.cluster.gpu))
    assert step_us(alone) / 2 < step_us(spread) < step_us(alone)


def test_layer_norm_takes_longer_than_rms_norm() -> None:
    rms, layer = run(), run(model={"norm": "layer"})
    assert step_us(layer) > step_us(rms)


def test_sequence_parallelism_shrinks_norms_and_residuals() -> None:
    plain, sequence = (predicted(run(tp=2, sp=sp)).breakdown_us for sp in (False, True))
    for name in ("rms_norm", "residual_add"):
        assert sequence[name] < plain[name]


def test_a_smaller_microbatch_shortens_the_bubble() -> None:
    small, large = (predicted(run(pp=4, batch={"micro": micro})) for micro in (1, 4))
    assert small.bubble_fraction < large.bubble_fraction


def test_zero_shards_the_optimizer() -> None:
    instant = Link(latency_us=0.0, gb_per_s=1e9)
    plain, sharded = (
        predicted(replace(subject, cluster=replace(subject.cluster, intra_node=instant))).stages[0].step_us
        for subject in (run(dp=4), run(dp=4, zero=1))
    )
    assert sharded == pytest.approx(plain / 4, rel=1e-3)


def test_afab_takes_no_longer_than_1f1b() -> None:
    assert step_us(run(pp=4, schedule="afab")) <= step_us(run(pp=4, schedule="1f1b")) * (1 + 1e-9)


def test_precision_moves_the_step() -> None:
    assert step_us(replace(run(), precision="bf16")) < step_us(run())


@pytest.mark.parametrize("plan", [{"pp": 2}, {"tp": 2}, {"dp": 2}])
def test_a_slower_link_lengthens_the_step(plan: dict[str, Any]) -> None:
    subject = run(**plan)
    slow = replace(subject, cluster=replace(subject.cluster, intra_node=Link(latency_us=300, gb_per_s=0.1)))
    assert step_us(slow) > step_us(subject)


def test_ranks_on_several_nodes_pay_the_link_between_them() -> None:
    subject = run(pp=2)
    apart = replace(subject, cluster=replace(subject.cluster, nodes=2, gpus_per_node=1))
    assert predicted(apart).breakdown_us["p2p"] > predicted(subject).breakdown_us["p2p"]


@pytest.mark.parametrize(
    "plan", [{"tp": 8}, {"tp": 8, "sp": True}, {"dp": 8}, {"dp": 8, "zero": 1}, {"tp": 2, "dp": 4}]
)
def test_groups_over_nodes_pay_for_the_network(plan: dict[str, Any]) -> None:
    def on(nodes: int) -> float:
        machines = load_cluster(hardware="h100-sxm", nodes=nodes, gpus_per_node=8 // nodes, profile="none")
        return step_us(replace(run(**plan), cluster=machines, precision="bf16"))

    assert on(1) < on(2) <= on(8)
