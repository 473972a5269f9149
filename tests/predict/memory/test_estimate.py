"""The verdict: the device's capacity, the worst rank, and the direction in which each setting moves the estimate."""

from dataclasses import replace
from random import Random
from statistics import NormalDist, fmean
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from predict import estimate
from predict.memory.advice import changed, smallest_cluster
from predict.memory.buffers import communicators_of, device_buffers
from predict.memory.estimate import (
    MemoryEstimate,
    MemoryModel,
    capacity_bytes,
    memory_of,
    probability_of,
    upper_of,
    verdict_of,
)
from predict.memory.peak import peak_of_order
from predict.run.frameworks import memory_profile_of
from predict.run.training_run import TrainingRun
from predict.schedules import registry
from sampling.errors import ConfigError
from sampling.hardware.cluster import load_cluster
from sampling.units import GIB
from tests.predict.memory.counted_layers import PROFILES
from tests.predict.workload.parallel_runs import made, spec


def peak(run: TrainingRun) -> float:
    return memory_of(run).point_bytes


def allocated(run: TrainingRun) -> float:
    """Tensors of the worst rank, without the communicators that more groups bring."""
    return max(rank.allocated for rank in memory_of(run).ranks)


@pytest.mark.parametrize(
    ("point", "upper", "verdict"),
    [(70, 79, "FITS"), (80, 80, "FITS"), (79, 81, "AT RISK"), (81, 90, "AT RISK"), (81, 81, "OOM"), (90, 99, "OOM")],
)
def test_verdicts_are_those_of_the_probability(point: float, upper: float, verdict: str) -> None:
    assert verdict_of(point, upper, 80) == verdict
    probability = probability_of(point, upper, 80)
    assert verdict == ("FITS" if probability >= 0.95 else "OOM" if probability <= 0.05 else "AT RISK")


def test_a_run_fits_where_the_larger_of_two_peaks_does() -> None:
    assert probability_of(80, 84, 80) == 0.25
    assert probability_of(80, 84, 84) == pytest.approx(0.95)
    upper, random = upper_of(80, 3, 4), Random(1)
    deviation = 5 / NormalDist().inv_cdf(0.95)
    fitting = fmean(max(random.gauss(80, deviation) for _ in range(2)) <= 82 for _ in range(20_000))
    assert probability_of(80, upper, 82) == pytest.approx(fitting, abs=0.01)


def test_what_does_not_fit_never_fits() -> None:
    """A whole 70B model on one GPU of 288 GB."""
    memory = memory_of(made("llama3-70b", cluster__hardware="mi355x"))
    assert memory.point_bytes > 582e9
    assert memory.capacity_bytes <= 288 * GIB
    assert memory.verdict == "OOM"
    assert memory.headroom_bytes < 0


@pytest.mark.parametrize(("hardware", "gib"), [("h100-sxm", 80), ("b200", 180), ("mi300x", 192), ("a100-40gb", 40)])
def test_capacity_is_the_devices_own(hardware: str, gib: float) -> None:
    memory = memory_of(made("llama3-8b", cluster__hardware=hardware))
    assert 0.99 * gib * GIB < memory.capacity_bytes < gib * GIB


def test_a_cpu_rank_has_the_memory_of_its_cores() -> None:
    two, four = (
        load_cluster(hardware="cpu", nodes=1, gpus_per_node=2, profile="test", cores=cores) for cores in (2, 4)
    )
    assert capacity_bytes(four.gpu) == 2 * capacity_bytes(two.gpu)


def test_the_terms_add_up() -> None:
    run = made("mixtral-8x7b", plan__pp=4, plan__dp=8, plan__ep=8)
    model = MemoryModel(run)
    order = registry.order("1f1b", ranks=4, chunks=1, microbatches=run.microbatches)
    for rank, row, chunks in zip(memory_of(run).ranks, order.rows, model.chunks, strict=True):
        baseline = model.baseline(rank.rank)
        buffers = sum(buffer.size_bytes for buffer in baseline.tensors)
        tensors = baseline.state.total + buffers + peak_of_order(row, chunks).total
        assert rank.allocated == pytest.approx(tensors)
        device = sum(buffer.size_bytes for buffer in device_buffers(run, model.profile))
        assert rank.peak == pytest.approx(1.048 * tensors + device)


def test_what_graphs_of_layers_save_is_counted_while_they_are_captured_alone() -> None:
    settings = {"plan__pp": 2, "plan__dp": 8, "plan__ep": 8, "execution__attention": "unfused"}
    eager, graphed = (
        memory_of(made("mixtral-8x7b", **settings, execution__cuda_graphs=graphs)).ranks[0]
        for graphs in ("none", "layers")
    )
    assert (eager.in_graphs, eager.counted) == (0.0, eager.allocated)
    others = graphed.activations - graphed.in_graphs + graphed.working
    assert graphed.in_graphs > others > 0  # scores of unfused attention
    assert graphed.counted == pytest.approx(graphed.state + graphed.in_graphs)
    assert graphed.peak == eager.peak


def test_a_graph_of_the_whole_step_is_counted_in_capture_as_the_step_itself() -> None:
    eager, graphed = (memory_of(made("llama3-8b", execution__cuda_graphs=graphs)).worst for graphs in ("none", "full"))
    assert graphed.counted == eager.allocated


def test_the_upper_bound_grows_with_the_margin() -> None:
    run = made("llama3-8b", plan__dp=8, plan__zero=1)
    uppers = [memory_of(run, safety_margin=margin).upper_bytes for margin in (0.0, 0.05, 0.2)]
    assert memory_of(run).point_bytes < uppers[0] < uppers[1] < uppers[2]


FRAMEWORKS = st.sampled_from(["megatron-core", "torchtitan", "fsdp", "megatron-deepspeed", "nemo"])
RECOMPUTE = st.sampled_from(["none", "selective", "full"])
MODELS = st.sampled_from(["llama3-8b", "llama3-70b", "qwen3-30b-a3b", "deepseek-v2", "gemma3-27b", "gpt-neox-20b"])
CASES = settings(max_examples=40)


def legal(*arguments: Any, **keywords: Any) -> TrainingRun:
    try:
        return made(*arguments, **keywords)
    except ConfigError:
        assume(False)
        raise


def plan_of(framework: str, tp: int, model: str) -> dict[str, Any]:
    profile = memory_profile_of(made("llama3-8b", execution__framework=framework))
    sequence = tp > 1 and (profile.sequence_parallelism or spec(model).experts is not None)
    return {"execution__framework": framework, "plan__tp": tp, "plan__sp": sequence}


@CASES
@given(
    model=MODELS,
    framework=FRAMEWORKS,
    recompute=RECOMPUTE,
    pp=st.sampled_from([1, 2, 4]),
    zero=st.sampled_from([0, 1, 3]),
    grown=st.sampled_from(["micro", "seq_len", "layers"]),
)
def test_never_less_with_more_of_anything(
    model: str, framework: str, recompute: str, pp: int, zero: int, grown: str
) -> None:
    def sized(micro: int = 1, seq_len: int = 1024, layers: int = 16) -> float:
        plan = {"plan__pp": pp, "plan__dp": 2, "plan__zero": zero, "plan__recompute": recompute}
        batch = {"batch__micro": micro, "batch__global": 16 * micro, "batch__seq_len": seq_len}
        return peak(legal(model, layers=layers, **plan, **batch, **plan_of(framework, 1, model)))

    larger = {"micro": 2, "seq_len": 1536, "layers": 17}
    assert sized() <= sized(**{grown: larger[grown]})


@CASES
@given(
    model=MODELS,
    framework=FRAMEWORKS,
    recompute=RECOMPUTE,
    tp=st.sampled_from([1, 2, 4]),
    zero=st.sampled_from([0, 1, 3]),
)
def test_never_more_with_tensor_parallelism(model: str, framework: str, recompute: str, tp: int, zero: int) -> None:
    """The number of replicas, and so the shard group, stays the same."""
    common = {"plan__dp": 2, "plan__zero": zero, "plan__recompute": recompute}
    less, more = (legal(model, **common, **plan_of(framework, ranks, model)) for ranks in (tp, 2 * tp))
    assert allocated(more) <= allocated(less)


def test_recompute_of_some_layers_lies_between() -> None:
    common = {"plan__recompute": "full", "plan__recompute_method": "block", "plan__pp": 4, "batch__seq_len": 8192}
    sizes = [peak(made("llama3-8b", plan__recompute_layers=layers, **common)) for layers in (1, 4, 8)]
    assert sizes == sorted(sizes, reverse=True)
    whole = peak(made("llama3-8b", plan__recompute="full", plan__pp=4, batch__seq_len=8192))
    assert sizes[2] == pytest.approx(whole)


def test_communicators_are_the_groups_of_more_than_one_rank() -> None:
    alone, in_groups = made("llama3-8b"), made("llama3-8b", plan__tp=2, plan__sp=True, plan__pp=2, plan__dp=2)
    counted = [communicators_of(run, memory_profile_of(run)) for run in (alone, in_groups)]
    assert counted == [0, 3]
    # instead of the pipeline's group, that of all ranks and one of a pair
    assert communicators_of(in_groups, PROFILES["aa-scaling"]) == 4


def test_plain_torch_keeps_buckets_beside_its_gradients() -> None:
    (bucket,) = [
        buffer
        for buffer in memory_of(made("llama3-8b", plan__dp=2, execution__framework="torch")).buffers
        if buffer.name == "gradient buckets"
    ]
    assert bucket.size_bytes == 2 * memory_of(made("llama3-8b", execution__framework="torch")).worst.elements


def test_dummy_gradients_are_two_bytes_of_each_distinct_shape() -> None:
    """Transformer Engine keeps them for four shapes of a B200 run: query-key-value, output, and the two of the MLP."""
    memory = memory_of(made("llama3-70b", plan__pp=8))
    (dummies,) = [buffer for buffer in memory.buffers if buffer.name == "dummy gradients"]
    assert dummies.size_bytes == 2 * 8192 * (8192 + 2 * 1024 + 8192 + 2 * 28672 + 28672)


def test_measured_peaks_of_megatron_on_b200() -> None:
    """SimuMax's runs (allocated bytes, max over ranks): 12 layers of 70B, 4 of 405B."""
    measured = [
        (("llama3-70b", 12), {"plan__pp": 2, "plan__dp": 4}, 4096, 66.55),
        (("llama3-70b", 12), {"plan__tp": 2, "plan__sp": True, "plan__dp": 4}, 4096, 60.68),
        (("llama3-70b", 12), {"plan__tp": 8, "plan__sp": True}, 4096, 28.29),
        (("llama3.1-405b", 4), {"plan__tp": 4, "plan__sp": True, "plan__dp": 2}, 4096, 52.89),
        (("llama3.1-405b", 4), {"plan__cp": 8}, 32768, 139.22),
    ]
    for (model, layers), plan, seq_len, gib in measured:
        zero = 0 if plan.get("plan__tp") == 8 else 1
        cluster = {"cluster__hardware": "b200", "plan__zero": zero, "batch__seq_len": seq_len}
        run = made(model, layers, **plan, **cluster, batch__global=4 * plan.get("plan__dp", 1))
        assert allocated(run) == pytest.approx(gib * GIB, rel=0.015)


# The smallest cluster that an answer names is one on which the plan fits.


def large(**settings: object) -> TrainingRun:
    return made("llama3-70b", **({"plan__tp": 4, "plan__sp": True, "plan__pp": 4, "plan__dp": 4} | settings))  # type: ignore[arg-type]


def with_memory(run: TrainingRun, gib: float) -> MemoryEstimate:
    gpu = replace(run.cluster.gpu, memory_gib=gib)
    return memory_of(replace(run, cluster=replace(run.cluster, gpu=gpu)))


def on_replicas(run: TrainingRun, dp: int) -> MemoryEstimate:
    gpus = run.plan.tp * run.plan.pp * run.plan.cp * dp
    nodes = -(-gpus // run.cluster.gpus_per_node)
    settings = {"plan.dp": dp, "plan.zero": run.plan.zero if dp > 1 else 0}
    return memory_of(changed(run, settings | {"cluster.nodes": nodes, "cluster.gpus_per_node": gpus // nodes}))


def test_one_replica_where_it_fits() -> None:
    found = smallest_cluster(with_memory(large(), 1e4))
    assert found is not None
    assert (found.gpus, found.dp, found.verdict) == (16, 1, "FITS")
    assert found.nodes * large().cluster.gpus_per_node == 16


def test_as_many_replicas_as_sharding_needs() -> None:
    run = large(plan__zero=1, plan__dp=16)
    peaks = {dp: on_replicas(run, dp).point_bytes for dp in (1, 2, 4, 8, 16)}
    assert list(peaks.values()) == sorted(peaks.values(), reverse=True)
    between = (peaks[4] + peaks[2]) / 2 / GIB
    found = smallest_cluster(with_memory(run, between / (1 - 0.0052)))
    assert found is not None
    assert (found.dp, found.gpus) == (4, 64)


def test_more_nodes_than_the_run_has_where_only_those_do() -> None:
    run = large(plan__zero=1, plan__dp=2)
    between = (on_replicas(run, 4).point_bytes + on_replicas(run, 2).point_bytes) / 2 / GIB
    estimate = with_memory(run, between / (1 - 0.0052))
    found = smallest_cluster(estimate)
    assert not estimate.feasible
    assert found is not None
    assert found.dp == 4


def test_none_where_no_number_of_replicas_does() -> None:
    assert smallest_cluster(with_memory(large(plan__zero=1), 1.0)) is None


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_the_named_cluster_fits(recompute: str) -> None:
    run = large(plan__zero=1, plan__recompute=recompute)
    found = smallest_cluster(memory_of(run))
    assert found is not None
    assert on_replicas(run, found.dp).feasible


# The memory of Aleph Alpha's trainer: bf16 gradients, whole logits on every rank, joint query, key and value, fragmentation.

MODEL = spec("llama2-13b", 4)
TOKENS = 4096


def memory(framework: str = "aa-scaling", **settings: object) -> MemoryEstimate:
    return estimate(made(MODEL, **{"execution__framework": framework, **settings})).memory


def kept(result: MemoryEstimate, role: str) -> dict[str, float]:
    (found,) = (activations for unit, _, activations in result.units if unit.role == role)
    return dict(found.components)


def test_gradients_have_the_weights_dtype_and_exist_from_the_first_backward() -> None:
    rank = memory().worst
    assert rank.gradients <= rank.parameters == 2 * rank.elements
    assert memory("megatron-core").worst.gradients == 2 * rank.parameters


def test_every_tensor_rank_keeps_the_loss_of_all_logits() -> None:
    one, four = (kept(memory(plan__tp=tp), "head")["loss"] for tp in (1, 4))
    assert one == four == pytest.approx(4 * TOKENS * MODEL.vocab, rel=1e-3)  # log-probabilities in fp32


def test_the_last_stage_holds_the_logits_of_two_microbatches() -> None:
    (held,) = (buffer for buffer in memory().buffers if buffer.name == "held logits")
    assert held.size_bytes == 2 * 2 * TOKENS * MODEL.vocab
    first = memory(plan__pp=2, batch={"global": 2, "micro": 1, "seq_len": 64})
    names = {buffer.name for buffer in first.buffers}
    assert ("held logits" in names) == (first.worst.rank == 1)


def test_the_joint_product_and_the_tables_looked_up_stay_beside_the_rotated_queries_and_keys() -> None:
    own, eager = kept(memory(), "layer"), kept(memory("torch-eager"), "layer")
    assert own["qkv"] - eager["qkv"] == 2 * 2 * TOKENS * MODEL.hidden
    assert own["positions"] == 4 * 2 * TOKENS * MODEL.head_dim
    assert "positions" not in eager


def test_stages_hold_their_outputs_and_the_inputs_that_no_layer_keeps() -> None:
    def held(**settings: bool) -> list[float]:
        model = MemoryModel(made(MODEL, execution__framework="aa-scaling", plan__pp=2, **settings))
        own = [sum(model.counter.unit(unit).kept for unit in chunk.units) for (chunk,) in model.units]
        return [chunk.kept - units for (chunk,), units in zip(model.chunks, own, strict=True)]

    stream = 2 * TOKENS * MODEL.hidden
    assert held() == [stream, 0]
    assert held(execution__fuse_rms_norm=False) == [stream, stream]


def test_sequence_parallelism_keeps_the_gathered_inputs() -> None:
    layers = {
        name: kept(memory(name, plan__tp=4, plan__sp=True), "layer")["mlp"] for name in ("aa-scaling", "megatron-core")
    }
    gathered = 2 * TOKENS * MODEL.hidden * (1 - 1 / 4)
    silu = 2 * TOKENS * MODEL.ffn / 4  # Transformer Engine's activation keeps its inputs alone
    assert layers["aa-scaling"] - layers["megatron-core"] == pytest.approx(gathered + silu)


def test_fragments_are_of_tensor_parallelism_and_do_not_fall_on_the_state() -> None:
    rank, alone = (memory(plan__tp=tp).worst for tp in (2, 1))
    fragmentation = PROFILES["aa-scaling"].fragmentation
    assert fragmentation is not None
    assert rank.slack == pytest.approx(fragmentation * (rank.activations + rank.working + rank.buffers))
    assert alone.slack == pytest.approx(0.048 * (alone.activations + alone.working + alone.buffers))
    megatron = memory("megatron-core").worst
    assert megatron.slack == pytest.approx(0.048 * megatron.allocated, rel=0.01)
