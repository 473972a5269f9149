"""A measured run in a terminal, on a CPU and on a GPU."""

from dataclasses import replace

from predict.measurement.measurement import DeviceRecord, pool
from predict.reports.measurement import measurement_text
from tests.predict.measurement.measured_steps import measured

GPU = DeviceRecord(
    name="NVIDIA H200",
    clock_mhz=1755.0,
    power_w=612.0,
    peak_allocated_bytes=24 * 2**30,
    peak_reserved_bytes=25 * 2**30,
    attention="fa2",
    expert_products="",
    busiest_expert=None,
)
MEASURED = measured((1e5, 1.1e5, 1.2e5))


def test_a_cpu_tells_of_ranks_and_dropped_steps() -> None:
    assert "3 steps on 1 rank of 2 threads, 0 dropped" in measurement_text(MEASURED)


def test_a_gpu_tells_of_clock_power_and_memory() -> None:
    text = measurement_text(replace(MEASURED, device=GPU))
    line = "3 steps on NVIDIA H200: 1,755 MHz, 612 W, 24.00 GiB allocated at most, 25.00 GiB reserved, attention fa2"
    assert f"  {line}\n" in text
    silent = replace(GPU, clock_mhz=None, power_w=None, peak_allocated_bytes=None, peak_reserved_bytes=None)
    mixture = replace(silent, expert_products="loop", busiest_expert=1.25)
    text = measurement_text(replace(MEASURED, device=mixture))
    assert "on NVIDIA H200: attention fa2, experts loop, busiest expert 1.25 × the mean\n" in text


def test_rounds_are_pooled_with_their_largest_peaks_and_mean_clock() -> None:
    later = replace(GPU, clock_mhz=1745.0, power_w=None, peak_allocated_bytes=26 * 2**30)
    pooled = pool([replace(MEASURED, device=GPU), replace(MEASURED, device=later)])
    assert pooled.device == replace(GPU, clock_mhz=1750.0, peak_allocated_bytes=26 * 2**30)
    assert len(pooled.step_times_us) == 6
