"""A target's peak memory from a benchmark of its reduced run, by the seed's decomposition (Primus "Projection",
Benchmark-Based Memory Projection):

    overhead = max(0, reserved − allocated − comm(bench))
    excess   = max(0, allocated − Σ analytic(bench))
    point    = Σ analytic(target) + comm(target) + overhead + excess;   upper adds a margin of the last two

with activations × measured / analytic, at the bench as at the target: the seed corrects the target's activations only, and
so counts what they were short of twice, in the correction and in the excess.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from predict.anchor.memory_part import memory_faults, parameters_of, run_measured
from predict.run.training_run import TrainingRun
from sampling.errors import SamplesError

MARGIN = 0.05
"""Of the two residuals, in the upper bound: the seed's `--memory-safety-margin`."""
COMM_BASE_BYTES, COMM_BYTES_A_RANK, MOST_COMM_BYTES = 96 * 2**20, 2 * 2**20, 2**30
"""Buffers of NCCL or RCCL: the seed's baseline grows with the world up to 1 GB (facts/memory.md)."""
ANALYTIC = ("state_bytes", "activation_bytes", "working_bytes")
BY_UNIT = "activation_bytes_by_unit"
FIX = "benchmark the run anew with `predict benchmark CONFIG --gpus N --output FILE`"

Analytic = Callable[[TrainingRun], Mapping[str, Any]]
"""Bytes of a run's fullest rank: `state_bytes`, `activation_bytes`, `working_bytes` and, where it can tell,
`activation_bytes_by_unit` (embedding, full_dense, full_moe, head, …), which corrects each kind of layer by its own measure."""
Terms = dict[str, float]


def restore(
    run: TrainingRun,
    artifact: Mapping[str, Any],
    analytic: Analytic,
    *,
    margin: float = MARGIN,
    place: str = "benchmark",
) -> tuple[int, int, Terms]:
    """Point estimate and upper bound in bytes of the run's fullest rank, and the terms of the point.

    At the benchmark's own plan, on one device, the point is the reserved peak that was measured, unless the analytic sum
    is above what was allocated already (`analytic_over_measured`, at the benchmark, is above 1 then). Raises SamplesError, with `place`, the key
    and the fix, for an artifact that is damaged or of another model.
    """
    measured = _measured(run, artifact, place)
    bench, sizes = run_measured(run, artifact), measured["bytes"]
    at_bench, at_target = analytic(bench), analytic(run)
    corrected, correction = _corrected(at_bench, at_target, measured)
    activations_at_bench, _ = _corrected(at_bench, at_bench, measured)
    explained = at_bench["state_bytes"] + activations_at_bench + at_bench["working_bytes"]
    unexplained = sizes["allocated"] - explained
    reserved_beside = sizes["reserved"] - sizes["allocated"] - comm_bytes(bench, measured["world_size"])
    terms: Terms = {
        "state_bytes": at_target["state_bytes"],
        "activation_bytes": corrected,
        "working_bytes": at_target["working_bytes"],
        "comm_bytes": comm_bytes(run, run.cluster.world_size),
        "framework_overhead_bytes": max(0.0, reserved_beside),
        "live_tensor_excess_bytes": max(0.0, unexplained),
    }
    point = sum(terms.values())
    residual = terms["framework_overhead_bytes"] + terms["live_tensor_excess_bytes"]
    terms |= {
        "activation_correction": correction,
        "analytic_over_measured": explained / sizes["allocated"],
        "analytic_share": (point - residual) / point if point else 0.0,
    }
    return round(point), round(point + margin * residual), terms


def comm_bytes(run: TrainingRun, world: int) -> float:
    """Buffers of the communicators of a rank; none without another rank, nor on a CPU."""
    if world == 1 or run.cluster.gpu.kind == "cpu":
        return 0.0
    return float(min(COMM_BASE_BYTES + COMM_BYTES_A_RANK * world, MOST_COMM_BYTES))


def _corrected(
    at_bench: Mapping[str, Any], subject: Mapping[str, Any], measured: Mapping[str, Any]
) -> tuple[float, float]:
    """The subject's activations times measured / analytic, unit by unit where both sides tell them; and the factor."""
    whole = float(subject["activation_bytes"])
    overall = _ratio(measured["bytes"]["saved"], at_bench["activation_bytes"])
    if BY_UNIT not in at_bench or BY_UNIT not in subject:
        return whole * overall, overall
    found, of_units = measured["saved_by_unit"], at_bench[BY_UNIT]
    ratios = {unit: _ratio(size, of_units.get(unit, 0)) for unit, size in found.items()}
    units: Mapping[str, float] = subject[BY_UNIT]
    total = whole + sum(size * (ratios.get(unit, 1.0) - 1) for unit, size in units.items())
    return total, total / whole if whole else 1.0


def _ratio(measured: float, analytic: float) -> float:
    """1 where the analytic side knows of nothing to be corrected."""
    return measured / analytic if analytic else 1.0


def _measured(run: TrainingRun, artifact: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    faults = list(memory_faults(artifact))
    if not faults:
        expected = parameters_of(run_measured(run, artifact))
        if artifact.get("parameters") != expected:
            faults.append(
                f"memory.parameters: {artifact.get('parameters')!r}, but the reduced model of this run has {expected}"
            )
    if faults:
        raise SamplesError("\n".join(f"{place}: {fault}" for fault in faults) + f"; {FIX}")
    return artifact
