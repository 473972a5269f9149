"""verl's table of device peaks (verl/utils/flops_counter.py, `_DEVICE_FLOPS`), by which its MFU divides."""

from __future__ import annotations

from collections.abc import Mapping

from sampling.errors import UserError
from sampling.hardware.cluster import Gpu

TFLOPS: Mapping[str, float] = {
    "CPU": 0.448,
    "GB200": 2500,
    "B200": 2250,
    "MI300X": 1307,
    "MI350X": 2300,
    "MI355X": 2500,
    "H100": 989,
    "H800": 989,
    "H200": 989,
    "A100": 312,
    "A800": 312,
    "L40S": 362.05,
    "L40": 181.05,
    "A40": 149.7,
    "L20": 119.5,
    "H20": 148,
    "RTX 3070 Ti": 21.75,
}
"""Dense 16-bit TFLOP/s by a part of the device's name; the first part that the name contains counts. CPU stands for every
CPU, whatever its cores."""
MOST_OFF = 0.15
"""Share by which the table may differ from the device's own 16-bit peak; beyond it the name stands for another board."""


def verl_peak_flops_per_us(gpu: Gpu) -> float:
    """The peak that verl divides by for a device.

    UserError for a device that the table lacks, for which verl divides by infinity and reports 0, and for one that it takes for
    another board of a similar name (an H100 PCIe for an H100 SXM).
    """
    part = next((part for part in TFLOPS if part in gpu.name), None)
    if part is None:
        raise UserError(f"cluster.hardware: verl's table of peaks has no {gpu.name}, so that verl reports an MFU of 0")
    own_tflops = gpu.peak_tflops.get("bf16", TFLOPS[part])
    if gpu.kind != "cpu" and abs(TFLOPS[part] - own_tflops) > MOST_OFF * own_tflops:
        raise UserError(
            f"cluster.hardware: verl takes {gpu.name} for {part} of {TFLOPS[part]:g} TFLOP/s in bf16; its own peak is {own_tflops:g}"
        )
    return TFLOPS[part] * 1e6
