"""A run's peak memory, restored from a memory benchmark of its reduced run: Primus "Projection", Benchmark-Based Memory
Projection.

    overhead = max(0, reserved − allocated − comm(reduced))
    excess   = max(0, allocated − Σ analytic(reduced))
    point    = Σ analytic(run) + comm(run) + overhead + excess;   the upper bound adds a margin of the last two

Analytic activations are scaled by measured / analytic of each unit, in the run and in the reduced run. Primus scales the
run's activations only, and so counts what they were short of twice: in the scale and in the excess.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from predict.memory.estimate import (
    MemoryEstimate,
    MemoryModel,
    Verdict,
    memory_of,
    probability_of,
    upper_of,
    verdict_of,
)
from predict.reduced_benchmark.benchmark_file import MemoryBenchmark
from predict.run.training_run import TrainingRun

MARGIN = 0.05
"""Share of the two residuals that the upper bound adds: Primus's `--memory-safety-margin`."""
COMM_BASE_BYTES, COMM_BYTES_PER_RANK, MOST_COMM_BYTES = 96 * 2**20, 2 * 2**20, 2**30
"""Buffers of NCCL or RCCL: Primus's baseline grows with the world size up to 1 GB."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AnalyticBytes:
    """Estimated bytes of a run's fullest rank in the three terms that a benchmark corrects."""

    state: float
    """Weights, gradients and optimizer, with the buffers among tensors."""
    activations_by_unit: Mapping[str, float]
    """Live activations by unit (embedding, full_dense, full_moe, head, …)."""
    working: float

    @property
    def activations(self) -> float:
        return sum(self.activations_by_unit.values())


@dataclass(frozen=True, kw_only=True, slots=True)
class RestoredMemory:
    """The peak of a run's fullest rank, in bytes; `terms` are the addends of the point, and the shares that explain it."""

    point_bytes: float
    upper_bytes: float
    terms: Mapping[str, float]

    def on_device(self, estimate: MemoryEstimate) -> RestoredMemory:
        """The peak with what lies outside the allocator, which a benchmark's tensors do not show. The upper bound is the
        benchmark's own, or the simulated estimate's where its margin and widths are wider."""
        device = estimate.worst.device
        point = self.point_bytes + device
        upper = upper_of(point, estimate.safety_margin * point, estimate.worst.width)
        return RestoredMemory(
            point_bytes=point,
            upper_bytes=max(self.upper_bytes + device, upper),
            terms={**self.terms, "device_bytes": device},
        )

    def verdict(self, capacity_bytes: float) -> Verdict:
        return verdict_of(self.point_bytes, self.upper_bytes, capacity_bytes)

    def fits_probability(self, capacity_bytes: float) -> float:
        return probability_of(self.point_bytes, self.upper_bytes, capacity_bytes)

    def sizes(self) -> Iterator[tuple[str, float]]:
        """The terms in bytes that are above 0."""
        return ((name, size) for name, size in self.terms.items() if name.endswith("_bytes") and size > 0)

    def to_json(self, capacity_bytes: float) -> dict[str, Any]:
        return {
            "point_bytes": self.point_bytes,
            "upper_bytes": self.upper_bytes,
            "capacity_bytes": capacity_bytes,
            "headroom_bytes": capacity_bytes - self.point_bytes,
            "verdict": self.verdict(capacity_bytes),
            "fits_probability": self.fits_probability(capacity_bytes),
            "terms": dict(self.terms),
        }


def analytic_bytes(run: TrainingRun) -> AnalyticBytes:
    """The terms of the rank that allocates most; its live activations are shared among units as one microbatch's are."""
    fullest = max(memory_of(run).ranks, key=lambda rank: rank.allocated)
    model = MemoryModel(run)
    kept: dict[str, float] = {}
    for unit in (unit for chunk in model.units[fullest.rank] for unit in chunk.units):
        kept[unit.name] = kept.get(unit.name, 0.0) + model.counter.unit(unit).kept
    microbatches = fullest.activations / (sum(kept.values()) or 1.0)
    return AnalyticBytes(
        state=fullest.state,
        activations_by_unit={name: microbatches * size for name, size in kept.items()},
        working=fullest.working,
    )


def restore_memory(
    run: TrainingRun,
    benchmark: MemoryBenchmark,
    *,
    margin: float = MARGIN,
    source: str = "benchmark",
    analytic: Callable[[TrainingRun], AnalyticBytes] = analytic_bytes,
) -> RestoredMemory:
    """The peak of the run's fullest rank, without its device's own share.

    At the benchmark's own plan, on one device, the point is the reserved peak that was measured, unless the analytic sum
    exceeds what was allocated (`analytic_over_measured` is above 1 then). Raises SamplesError, naming the `source` of the
    benchmark, where it is of another model.
    """
    benchmark.require_same_model(run, source)
    reduced = benchmark.reduced_run(run)
    of_reduced, of_run, measured = analytic(reduced), analytic(run), benchmark.bytes
    scales = {
        unit: _ratio(size, of_reduced.activations_by_unit.get(unit, 0.0))
        for unit, size in benchmark.saved_by_unit.items()
    }
    activations = _scaled(of_run, scales)
    explained = of_reduced.state + _scaled(of_reduced, scales) + of_reduced.working
    beside_tensors = measured.reserved - measured.allocated - communicator_bytes(reduced, benchmark.world_size)
    residuals = {
        "framework_overhead_bytes": max(0.0, beside_tensors),
        "live_tensor_excess_bytes": max(0.0, measured.allocated - explained),
    }
    terms = {
        "state_bytes": of_run.state,
        "activation_bytes": activations,
        "working_bytes": of_run.working,
        "comm_bytes": communicator_bytes(run, run.cluster.world_size),
        **residuals,
    }
    point, residual = sum(terms.values()), sum(residuals.values())
    shares = {
        "activation_correction": _ratio(activations, of_run.activations),
        "analytic_over_measured": explained / measured.allocated,
        "analytic_share": (point - residual) / point if point else 0.0,
    }
    return RestoredMemory(point_bytes=point, upper_bytes=point + margin * residual, terms=terms | shares)


def communicator_bytes(run: TrainingRun, world_size: int) -> float:
    """Buffers of a rank's communicators; 0 for a single rank and on a CPU."""
    if world_size == 1 or run.cluster.gpu.kind == "cpu":
        return 0.0
    return float(min(COMM_BASE_BYTES + COMM_BYTES_PER_RANK * world_size, MOST_COMM_BYTES))


def _scaled(analytic: AnalyticBytes, scales: Mapping[str, float]) -> float:
    """Activations with each unit's scale; a unit without one keeps its analytic bytes."""
    return sum(size * scales.get(unit, 1.0) for unit, size in analytic.activations_by_unit.items())


def _ratio(measured: float, analytic: float) -> float:
    """1 where there are no analytic bytes to be corrected."""
    return measured / analytic if analytic else 1.0
