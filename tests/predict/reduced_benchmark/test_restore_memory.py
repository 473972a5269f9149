"""A peak restored from a memory benchmark: at its own plan the measured one."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from predict.memory.estimate import memory_of
from predict.reduced_benchmark.benchmark_file import MemoryBenchmark
from predict.reduced_benchmark.reduced_run import reduced_for_memory
from predict.reduced_benchmark.restore_memory import AnalyticBytes, communicator_bytes, restore_memory
from predict.run.training_run import TrainingRun
from sampling.errors import SamplesError
from tests.predict.reduced_benchmark import priced_machines
from tests.predict.reduced_benchmark.memory_runs import benchmark_of, run
from tests.tiny_runs import LLAMA, MOE


@pytest.fixture(scope="module")
def benchmark() -> MemoryBenchmark:
    return benchmark_of(run())


def share_of_truth(benchmark: MemoryBenchmark, share: float) -> Callable[[TrainingRun], AnalyticBytes]:
    """An analytic side that knows the state and a share of the activations, as many per layer in every run."""
    sizes = benchmark.bytes

    def analytic(subject: TrainingRun) -> AnalyticBytes:
        layers = subject.model.layers / 2
        return AnalyticBytes(
            state=(sizes.parameters + sizes.gradients + sizes.optimizer) * layers,
            activations_by_unit={unit: share * size * layers for unit, size in benchmark.saved_by_unit.items()},
            working=0.0,
        )

    return analytic


@pytest.mark.parametrize("share", [0.1, 0.8, 1.0, 1.3])
def test_restoring_at_the_plan_that_was_measured_gives_its_peak(share: float, benchmark: MemoryBenchmark) -> None:
    subject = reduced_for_memory(run(), 1)
    found = restore_memory(subject, benchmark, analytic=share_of_truth(benchmark, share))
    assert found.point_bytes == pytest.approx(benchmark.bytes.allocated, rel=1e-12)
    assert found.terms["activation_correction"] == pytest.approx(1 / share)
    excess = found.terms["live_tensor_excess_bytes"]
    assert found.upper_bytes == pytest.approx(found.point_bytes + 0.05 * excess)


def test_the_estimate_of_the_run_restores_its_own_peak(benchmark: MemoryBenchmark) -> None:
    """Reduced to what was measured, with nothing stubbed: the analytic bytes are those of the estimate."""
    subject = reduced_for_memory(run(), 1)
    assert restore_memory(subject, benchmark).point_bytes >= benchmark.bytes.allocated
    longer = run(replace(LLAMA, layers=8))
    found = restore_memory(longer, benchmark)
    assert found.point_bytes == pytest.approx(memory_of(longer).worst.allocated, rel=0.25)
    assert found.terms["state_bytes"] == max(rank.state for rank in memory_of(longer).ranks)


def test_restoring_keeps_what_an_allocator_reserves_beside_tensors(benchmark: MemoryBenchmark) -> None:
    reserved = replace(benchmark.bytes, reserved=benchmark.bytes.reserved + 1_000_000)
    fragmented, subject = replace(benchmark, bytes=reserved), reduced_for_memory(run(), 1)
    narrow, wide = (
        restore_memory(subject, fragmented, analytic=share_of_truth(benchmark, 1.0), margin=margin)
        for margin in (0.05, 0.2)
    )
    assert narrow.terms["framework_overhead_bytes"] == 1_000_000
    assert narrow.point_bytes == wide.point_bytes == pytest.approx(reserved.reserved, rel=1e-12)
    residual = 1_000_000 + narrow.terms["live_tensor_excess_bytes"]
    for found, margin in ((narrow, 0.05), (wide, 0.2)):
        assert found.upper_bytes == pytest.approx(found.point_bytes + margin * residual)


def test_a_run_grows_with_its_analytic_terms_alone(benchmark: MemoryBenchmark) -> None:
    analytic = share_of_truth(benchmark, 0.5)
    small, large = (
        restore_memory(run(replace(LLAMA, layers=layers)), benchmark, analytic=analytic) for layers in (4, 8)
    )
    sizes = benchmark.bytes
    per_two_layers = sizes.parameters + sizes.gradients + sizes.optimizer + sizes.saved
    assert large.point_bytes - small.point_bytes == pytest.approx(2 * per_two_layers)
    for name in ("framework_overhead_bytes", "live_tensor_excess_bytes"):
        assert small.terms[name] == large.terms[name]


def test_an_analytic_sum_above_the_measured_one_is_not_lowered(benchmark: MemoryBenchmark) -> None:
    def analytic(subject: TrainingRun) -> AnalyticBytes:
        return replace(share_of_truth(benchmark, 1.0)(subject), working=10e6)

    found = restore_memory(reduced_for_memory(run(), 1), benchmark, analytic=analytic)
    assert found.terms["live_tensor_excess_bytes"] == 0
    assert found.terms["analytic_over_measured"] > 1
    assert found.point_bytes == found.upper_bytes > benchmark.bytes.allocated


def test_each_kind_of_layer_is_corrected_by_its_own_measure() -> None:
    subject = run(MOE)
    benchmark = benchmark_of(subject)
    saved = benchmark.saved_by_unit

    def analytic(target: TrainingRun) -> AnalyticBytes:
        """Half of the truth of a dense layer, twice that of a sparse one."""
        sparse = sum(kind.sparse for kind in target.model.kinds())
        units = {
            "embedding": saved["embedding"],
            "full_dense": saved["full_dense"] * (target.model.layers - sparse) / 2 / 2,
            "full_moe": saved["full_moe"] * sparse / 2 * 2,
            "head": saved["head"],
        }
        return AnalyticBytes(state=0.0, activations_by_unit=units, working=0.0)

    found = restore_memory(subject, benchmark, analytic=analytic)
    truth = saved["embedding"] + saved["full_dense"] / 2 + saved["full_moe"] * 1.5 + saved["head"]
    assert found.terms["activation_bytes"] == pytest.approx(truth)


def test_buffers_of_communicators_grow_with_the_world_up_to_a_limit() -> None:
    on_gpus = priced_machines.run()
    assert communicator_bytes(on_gpus, 1) == communicator_bytes(run(), 8) == 0
    assert communicator_bytes(on_gpus, 8) == (96 + 2 * 8) * 2**20
    assert communicator_bytes(on_gpus, 100_000) == 2**30


def test_a_benchmark_of_another_model_is_refused(benchmark: MemoryBenchmark) -> None:
    with pytest.raises(
        SamplesError, match=r"b\.json: memory\.parameters: \d+, but the reduced model of this run has \d+"
    ):
        restore_memory(run(replace(LLAMA, ffn=128)), benchmark, source="b.json")
