"""Offloading: what a GPU no longer holds, what its host holds instead, and what moving it takes."""

from dataclasses import replace
from typing import Any

import pytest

from predict.layers.layer import waiting_on_host
from predict.memory.estimate import memory_of
from predict.plan_search.training import with_companions
from predict.prices.kernels import operator_us
from predict.rank.blocks import Blocks
from predict.rank.share import RankShare
from predict.reports.memory import memory_json, misfit, summary
from predict.run.training_run import TrainingRun
from predict.workload.step_end import update_on_host
from sampling.hardware.cluster import load_cluster
from sampling.number_text import size
from sampling.operators.host import HostAdamW, HostCopy
from sampling.operators.memory_bound import Stream
from sampling.operators.optimizer import AdamW
from sampling.units import GIB
from tests.predict.workload.parallel_runs import counted, estimated, made, ranks

ZERO_OFFLOAD = {"offload__optimizer_share": 1.0, "offload__gradients_on_host": True}
PLAN = {"plan__dp": 8, "plan__zero": 2, "execution__framework": "deepspeed"}


def run_of(**settings: Any) -> TrainingRun:
    return made("llama3-8b", 8, **{**PLAN, **settings})


def updated(run: TrainingRun) -> tuple[int, int]:
    """Parameters that the GPU and the host update."""
    (rank,) = ranks(run)
    on_host = [each.call for repeated in rank.end.on_host for each in repeated.block.calls]
    return (
        sum(each.call.parameters for each in rank.end.optimizer if isinstance(each.call, AdamW)),
        sum(call.parameters for call in on_host if isinstance(call, HostAdamW)),
    )


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_gpu_and_host_update_all_weights_between_them(share: float) -> None:
    whole, _ = updated(run_of())
    on_gpu, on_host = updated(run_of(offload__optimizer_share=share))
    assert on_gpu + on_host == whole
    assert on_host == round(share * whole)


def copied_bytes(blocks: Blocks) -> float:
    return sum(each.call.size_bytes * many for each, many in counted(blocks) if isinstance(each.call, HostCopy))


def test_an_offloaded_optimizer_leaves_the_gpu_and_lies_on_the_host() -> None:
    plain, away = memory_of(run_of()), memory_of(run_of(**ZERO_OFFLOAD))
    gone = plain.worst.optimizer + plain.worst.gradients - away.worst.optimizer - away.worst.gradients
    assert away.worst.optimizer == 0
    # of each parameter: an fp32 master, both moments, and a 16-bit gradient
    assert away.host_bytes == (3 * 4 + 2) * updated(run_of())[0]
    assert gone > 0.9 * plain.worst.optimizer
    assert plain.host_bytes == 0


@pytest.mark.parametrize("settings", [{}, {"plan__zero": 3, "offload__shards_on": "host"}], ids=["ZeRO-2", "ZeRO-3"])
def test_one_rank_s_shards_are_whole_and_leave(settings: dict[str, Any]) -> None:
    alone = run_of(**{**ZERO_OFFLOAD, "plan__dp": 1, "batch__micro": 1, **settings})
    few = memory_of(alone)
    parameters, weights = updated(alone)[1], (2 if settings else 0)
    assert updated(alone)[0] == 0
    assert few.host_bytes == (3 * 4 + 2 + weights) * parameters
    assert few.worst.optimizer == 0
    assert few.worst.gradients == 0
    assert few.worst.parameters == (0 if settings else 2 * parameters)
    # what leaves is on the GPU, unit by unit, while it is used: as much as where many ranks gather and reduce it
    many = memory_of(run_of(**{**ZERO_OFFLOAD, "batch__micro": 1, **settings}))
    assert few.worst.working == many.worst.working


def test_a_plan_of_one_replica_keeps_the_shards_that_a_host_takes() -> None:
    two = {"plan__dp": 2, "plan__tp": 1}
    assert with_companions(run_of(**two), "plan.tp", 2)["plan.zero"] == 0
    assert "plan.zero" not in with_companions(run_of(**two, **ZERO_OFFLOAD), "plan.tp", 2)


def test_the_update_waits_for_copies_unless_they_overlap() -> None:
    steps = {
        overlap: estimated(run_of(**ZERO_OFFLOAD, offload__overlap_optimizer=overlap)).step_time.median_us
        for overlap in (False, True)
    }
    plain = estimated(run_of()).step_time.median_us
    assert plain < steps[True] < steps[False]


def test_the_hosts_update_is_bound_by_its_memory() -> None:
    """30 bytes a parameter: four fp32 read, three written, and a 16-bit weight."""
    host = load_cluster(hardware="h100-sxm", nodes=1, gpus_per_node=8, profile="nowhere").gpu
    us, _ = operator_us(HostAdamW(dtype="fp32", parameters=10**9), "step", host)
    assert us == pytest.approx(30e9 / (0.5 * 76.8e3))


@pytest.mark.parametrize(("hardware", "gb_per_s"), [("a100-80gb", 25), ("h100-sxm", 50), ("gh200", 360)])
def test_copies_run_at_the_rate_of_the_devices_own_link(hardware: str, gb_per_s: float) -> None:
    gpu = load_cluster(hardware=hardware, nodes=1, gpus_per_node=1, profile="nowhere").gpu
    us, _ = operator_us(HostCopy(dtype="bf16", size_bytes=10**9, to_host=True), "forward", gpu)
    assert us == pytest.approx(1e6 / gb_per_s, rel=0.01)


def test_disks_take_the_state_out_of_the_hosts_memory_and_longer() -> None:
    runs = [run_of(**ZERO_OFFLOAD, offload__optimizer_on=where) for where in ("host", "disk")]
    in_memory, on_disks = map(memory_of, runs)
    assert on_disks.host_bytes < in_memory.host_bytes / 3
    assert on_disks.disk_bytes == pytest.approx(in_memory.host_bytes - on_disks.host_bytes)
    assert f"{size(on_disks.disk_bytes)} on its disks" in summary(on_disks) and "disks" not in summary(in_memory)
    assert memory_json(on_disks)["disk_bytes"] == on_disks.disk_bytes and "disk_bytes" not in memory_json(in_memory)
    assert estimated(runs[1]).step_time.median_us > 1.5 * estimated(runs[0]).step_time.median_us
    (copies,) = [each.block.overlapped[0].communication for each in update_on_host(runs[1], ranks_weights(runs[1]))]
    assert sum(each.call.disk for each in copies if isinstance(each.call, HostCopy)) == 2
    assert estimated(runs[1]).step_time.half_width_log > 1.2 * estimated(runs[0]).step_time.half_width_log


def ranks_weights(run: TrainingRun) -> Any:
    from predict.run.stages import stages_of_ranks
    from predict.workload.step_end import trained_end_weights_of, trained_layer_weights_of

    (stages,) = stages_of_ranks(run)
    return trained_layer_weights_of(run, stages) + trained_end_weights_of(run, stages)


SHARDED = {"plan__dp": 8, "plan__zero": 3, "execution__framework": "fsdp"}


def test_shards_on_the_host_are_copied_before_each_gathering() -> None:
    run = made("llama3-8b", 8, **SHARDED, offload__shards_on="host")
    (rank,) = ranks(run)
    moved = [each.call for each, _ in counted(rank.chunks[0].forward) if isinstance(each.call, HostCopy)]
    layer = next(call for call in moved)
    assert layer.size_bytes == pytest.approx(2 * 218_112_000 / 8, rel=0.001)
    assert not layer.to_host
    assert memory_of(run).worst.parameters == 0
    assert memory_of(run).host_bytes > memory_of(made("llama3-8b", 8, **SHARDED)).worst.parameters * 0.99


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_activations_on_the_host_leave_the_gpu_and_come_back(recompute: str) -> None:
    settings = {"plan__recompute": recompute, "execution__framework": "torchtitan"}
    plain, away = (made("llama3-8b", 8, **settings, offload__activation_share=share) for share in (0.0, 1.0))
    gone = memory_of(plain).worst.activations - memory_of(away).worst.activations
    assert memory_of(away).host_bytes == gone
    (rank,) = ranks(away)
    there, back = map(copied_bytes, (rank.chunks[0].forward, rank.chunks[0].backward))
    assert there == back == gone > 0


@pytest.mark.parametrize(
    "beside", [{"tuning__task": "dpo"}, {"tuning__task": "distill", "tuning__teacher": "llama3-8b"}]
)
def test_passes_without_a_backward_leave_nothing_on_the_host(beside: dict[str, Any]) -> None:
    (rank,) = ranks(made("llama3-8b", 8, **beside, offload__activation_share=1.0))
    there, back = map(copied_bytes, (rank.chunks[0].forward, rank.chunks[0].backward))
    assert there == back > 0


def test_frozen_models_keep_their_shards_on_the_host() -> None:
    plain, dpo = (
        memory_of(made("llama3-8b", 8, **SHARDED, tuning__task=task, offload__shards_on="host"))
        for task in ("sft", "dpo")
    )
    shards = memory_of(made("llama3-8b", 8, **SHARDED, tuning__task="dpo")).worst.parameters / 2
    assert plain.worst.parameters == dpo.worst.parameters == 0
    # the reference is as large as the model that trains
    assert dpo.host_bytes - plain.host_bytes == pytest.approx(shards, rel=1e-6)


def test_gradients_on_the_host_are_not_clipped_by_the_gpu() -> None:
    def streamed(**settings: Any) -> float:
        (rank,) = ranks(run_of(offload__optimizer_share=1.0, **settings))
        return sum(each.call.size_bytes for each in rank.end.optimizer if isinstance(each.call, Stream))

    assert streamed(offload__gradients_on_host=True) == 1 < streamed()


def test_layers_that_are_recomputed_leave_their_inputs_on_the_host() -> None:
    run = made("llama3-8b", 8, plan__recompute="full", offload__activation_share=1.0)
    assert waiting_on_host(RankShare(run=run), run.model.kinds()[0]) == 2 * 4096 * 4096


def test_copies_of_activations_hide_behind_the_layers_or_make_them_wait() -> None:
    settings = {"plan__recompute": "full", "offload__activation_share": 1.0}
    hidden, waits = (
        estimated(made("llama3-8b", 8, **settings, offload__overlap_activations=overlap)).step_time.median_us
        for overlap in (True, False)
    )
    plain = estimated(made("llama3-8b", 8, plan__recompute="full")).step_time.median_us
    assert plain <= hidden < 1.02 * plain < waits


def test_a_host_without_room_is_out_of_memory() -> None:
    run = made("llama3-70b", 80, plan__dp=1, plan__recompute="full", offload__optimizer_share=1.0)
    little = replace(run.cluster.gpu, host=replace(run.cluster.gpu.of_host, memory_gib=16))
    memory = memory_of(replace(run, cluster=replace(run.cluster, gpu=little)))
    assert memory.host_bytes > 700 * GIB > memory.host_capacity_bytes
    assert memory.verdict == "OOM" and not memory.feasible and memory.fits_probability == 0
    assert "in its host's memory" in misfit(memory)


def test_the_hosts_share_is_reported_where_something_lies_there() -> None:
    away, plain = memory_of(run_of(**ZERO_OFFLOAD)), memory_of(run_of())
    assert "in the host's memory" in summary(away) and "host" not in summary(plain)
    assert memory_json(away)["host_bytes"] == away.host_bytes
    assert "host_bytes" not in memory_json(plain)
