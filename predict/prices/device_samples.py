"""Facts that a profile's rows give of its device as a whole: clocks of a long run, the host's launching, compute beside communication."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from predict.interval import Interval
from predict.prices.conditions import Factor
from predict.prices.cost_model import CostModel
from predict.prices.published_constants import LAUNCH_FLOOR_WIDTH
from predict.run.execution import Execution
from predict.run.frameworks import framework_settings
from regressors.bank.bank import Bank
from regressors.bank.times import Times
from sampling.call import Phase
from sampling.cells.overlap import Overlap
from sampling.hardware.cluster import Cluster, hardware_facts

CONTENTION_SLOWDOWN = 0.1
"""Prior, until a profile holds `overlap` rows: on published GPUs a kernel loses the multiprocessors that NCCL's channels
take (8-20 of 108-148)."""
SIDE = 4096
"""Side of the square product that is asked about: about as long as one of a large layer."""
SIZE_BYTES = 2**26
"""Size of the all-reduce beside it, about as long."""
LAYERS_OF: Mapping[str, str] = {"torch-eager": "eager", "torch-compiled": "compiled"}
"""Frameworks whose layers are launched as the sampled ones are: plain torch modules, one kernel after the other or compiled."""
LEAST_LAYERS = 3
"""Layers whose spread tells how widely launch floors differ; fewer have the width of a published one."""


def sampled_facts(bank: Bank, cluster: Cluster) -> Mapping[str, Any]:
    """The bank's facts of its device; none for a run on another one, whose clocks and host differ."""
    sampled = hardware_facts(bank.facts["provenance"]["hardware"])
    facts: Mapping[str, Any] = bank.facts.get("device", {})
    return facts if sampled.name == cluster.gpu.name else {}


def sustained_factors(facts: Mapping[str, Any]) -> dict[str, Factor]:
    """Time of products in a long run over that of a short one, by dtype."""
    found = facts.get("sustained", {})
    return {dtype: Factor(value=each["value"], half_width=each["half_width"]) for dtype, each in found.items()}


def layers_launched(execution: Execution, architecture: str) -> str:
    """The way in which the run's layers are launched, if as sampled ones are: `eager` or `compiled`; '' where it states a floor of its own, or
    its layers are not plain torch."""
    stated = framework_settings(execution.framework, architecture).get("launch_floor_us", 0.0)
    return LAYERS_OF.get(execution.framework, "") if execution.launch_floor_us == stated else ""


def launch_floors(facts: Mapping[str, Any], layers: str) -> dict[Phase, Times]:
    """Times in which the host launches a phase of such layers."""
    return {phase: _floor(each) for phase, each in facts.get("launch_floor_us", {}).get(layers, {}).items()}


def _floor(fact: Mapping[str, Any]) -> Times:
    width = fact["half_width"] if fact["rows"] >= LEAST_LAYERS else math.log1p(LAUNCH_FLOOR_WIDTH.value)
    return Interval.from_log(fact["value"], width).as_times("measured")


def bounds(time: Times) -> dict[str, float]:
    """JSON of a time."""
    return {"median_us": time.median_us, "low_us": time.low_us, "high_us": time.high_us}


def sampled_contention_slowdown(fitted: CostModel, cluster: Cluster) -> float | None:
    """The slowdown of a product beside an all-reduce among a node's GPUs by the profile's samples; None where there are none."""
    ranks = cluster.gpus_per_node
    if ranks < 2:
        return None
    both = Overlap(
        dtype="bf16",
        m=SIDE,
        n=SIDE,
        k=SIDE,
        collective="all_reduce",
        size_bytes=SIZE_BYTES,
        ranks=ranks,
        ranks_per_node=ranks,
    )
    beside, alone = fitted.times([(both, "compute_beside"), (both.gemm, "forward")], cluster)
    if beside is None or alone is None:
        return None
    return min(1.0, max(0.0, beside.median_us / alone.median_us - 1))
