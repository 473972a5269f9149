"""Formulas for copies between a GPU and its host, and for AdamW on the host's cores."""

from predict.prices.kernels.formulas import formula_of
from sampling.call import Phase
from sampling.hardware.cluster import Gpu
from sampling.operators.host import HostAdamW, HostCopy

START_US = 15.0
"""Start of a copy by the GPU's copy engines, and of waiting for it; assumed."""
COPY_WIDTH = 0.5
"""Log half-width at 90 %: pageable memory copies at half the rate of pinned memory, and GPUs of one switch may share its link."""
DISK_WIDTH = 1.4
"""The same on disks, a factor of four: a machine of eight GPUs has one NVMe disk or eight, which write at a half or a third of the 3 to 7
GB/s at which they read, and less once their cache is full."""
ADAM_SHARE = 0.5
"""Share of the host's memory bandwidth that its AdamW reaches, with its seven streams of fp32; assumed."""
ADAM_WIDTH = 0.9
"""Between all of the bandwidth, and few cores of it without their own memory."""
BYTES_PER_US = 1e3
"""Of a GB/s."""


@formula_of(HostCopy)
def host_copy_us(call: HostCopy, phase: Phase, gpu: Gpu) -> tuple[float, float]:
    host = gpu.of_host
    gb_per_s = min(host.gb_per_s, host.disk_gb_per_s) if call.disk else host.gb_per_s
    return START_US + call.size_bytes / (gb_per_s * BYTES_PER_US), DISK_WIDTH if call.disk else COPY_WIDTH


@formula_of(HostAdamW)
def host_adamw_us(call: HostAdamW, phase: Phase, gpu: Gpu) -> tuple[float, float]:
    return call.bytes_moved(phase) / (ADAM_SHARE * gpu.of_host.memory_gb_per_s * BYTES_PER_US), ADAM_WIDTH
