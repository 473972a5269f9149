"""The A40 as its data sheet describes it."""

from __future__ import annotations

import pytest

from sampling.hardware.cluster import load_cluster


def test_peaks_follow_from_the_cores_and_the_boost_clock() -> None:
    gpu = load_cluster(hardware="a40", nodes=1, gpus_per_node=8, profile="test").gpu
    # 128 FP32 cores per SM, 2 FLOPs each per cycle, at 1,740 MHz
    assert gpu.peak_tflops["fp32"] == pytest.approx(gpu.multiprocessors * 128 * 2 * 1.740e-3, rel=0.01)
    assert gpu.peak_tflops["bf16"] == pytest.approx(4 * gpu.peak_tflops["fp32"], rel=0.01)
