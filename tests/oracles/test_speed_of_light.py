"""The speed of light of five modules by SOLAR's rule is what SOLAR said: counts, cycles and times; and what of ours differs, and why."""

import json
from functools import cache
from typing import Any

import pytest

from predict.bounds.analysis import Analysis, analyse
from predict.bounds.device import Device
from predict.bounds.kernels import Graph
from predict.bounds.read_module import read_module
from predict.reports.bounds import analysis_content, perf_content
from sampling.units import MIB
from tests.oracles.shared import SHARED

ORACLES = SHARED / "oracles" / "speed_of_light"
PEAKS = {"H100_PCIe": (1019.4, 378_000, 2.0, 50), "B200": (5111.6, 603_751, 1.5, 126), "A6000": (427.0, 86_016, 1.8, 6)}
"""SOLAR's own: bytes per cycle, bf16 multiply-accumulates per cycle, GHz; and the MiB of the last-level cache."""
CASES = {case["module"]: case for case in json.loads((ORACLES / "solar.json").read_text())}
COUNTED_HERE = {"orojenesis_elements", "num_orphaned_layers"}
"""Totals that are null or 0 in all five and stand for passes that are not made here."""
MODELS = {"unfused_ms": "unfused", "fused_ms": "fused", "fused_prefetched_ms": "fused_prefetched"}


@cache
def _graph(module: str) -> Graph:
    return read_module(ORACLES / "modules" / f"{module}.py", "bf16")


def _analysis(module: str, arch: str = "H100_PCIe") -> Analysis:
    bytes_per_cycle, macs, clock_ghz, cache_mib = PEAKS[arch]
    device = Device(
        entry=arch,
        name=arch,
        clock_ghz=clock_ghz,
        bytes_per_cycle=bytes_per_cycle,
        macs_per_cycle={"bf16": macs},
        vector_macs_per_cycle=1.0,
        on_chip_bytes=cache_mib * MIB,
        memory_bytes=80 * 2**30,
    )
    return analyse(_graph(module), device)


@pytest.mark.parametrize("module", CASES)
def test_counts_are_solars(module: str) -> None:
    content, case = analysis_content(_analysis(module)), CASES[module]
    assert {name: content["total"][name] for name in case["total"] if name not in COUNTED_HERE} == {
        name: count for name, count in case["total"].items() if name not in COUNTED_HERE
    }
    assert [*content["layers"]] == sorted(case["layers"], key=[*content["layers"]].index)
    for name, layer in case["layers"].items():
        # the letters of a view are not stated: it moves nothing
        known = {key: value for key, value in layer.items() if key != "einsum_equation" or layer["unfused_elements"]}
        assert {key: content["layers"][name][key] for key in known} == known, name


@pytest.mark.parametrize("arch", PEAKS)
@pytest.mark.parametrize("module", CASES)
def test_times_are_solars(module: str, arch: str) -> None:
    perf, solar = perf_content(_analysis(module, arch)), CASES[module]["perf"][arch]
    for name, model in MODELS.items():
        assert perf[model]["runtime_ms"] == pytest.approx(solar[name], rel=1e-12)
    assert [perf[model]["bottleneck"] for model in MODELS.values()] == solar["bottleneck"]
    intended: dict[str, Any] = perf["intended"]
    assert intended["unfused"]["runtime_ms"] == pytest.approx(solar["intended_unfused_perop_sum_ms"], rel=1e-12)
    assert intended["fused"]["runtime_ms"] == pytest.approx(solar["intended_fused_perop_sum_ms"], rel=1e-12)


def test_what_differs_in_kernels_has_a_reason_each() -> None:
    """MACs and bytes of the whole module in one kernel, beside SOLAR's fused ones."""
    item_bytes = 2
    norm, index = 2 * 1024 * item_bytes, 512 * 8
    attention = {"m2_attn_sdpa": 2**30, "m4_layer": 2**30}
    differences = {
        "m1_mlp": 0,
        "m2_attn_sdpa": 0,
        "m4_layer": 2 * norm,  # scales and offsets of two norms, which SOLAR leaves out
        "m5_elementwise": 0,
        "m6_gemm_lmhead": norm + index,  # those of one, and the token ids, 8 bytes each
    }
    for module, more in differences.items():
        models = _analysis(module).models
        ours, solars = models["kernels"].fused_prefetched.work, models["documented"].fused_prefetched.work
        assert ours.size_bytes - solars.size_bytes == more
        # what lies above the diagonal of causal attention is not computed: 511 of 2 · 512 pairs
        assert solars.macs - ours.macs == pytest.approx(attention.get(module, 0) * 511 / 1024)
