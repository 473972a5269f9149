"""Kernels: what joins, what stays on the chip, and the order of the three models."""

from pathlib import Path

import pytest

from predict.bounds.analysis import RULES, analyse
from predict.bounds.device import device_of
from predict.bounds.kernels import kernels_of
from sampling.errors import ConfigError
from tests.predict.bounds.modules import device, graph_of

LINEAR = "self.a, self.b = nn.Linear(64, 64, bias=False), nn.Linear(64, 64, bias=False)"
ROWS = "torch.randn(32, 64)"
WIDTH = 2
CASES = {
    "an epilogue": ("F.relu(self.a(x))", ["linear + relu"], 32 * 64 + 64 * 64 + 32 * 64),
    "a product after a product": ("self.b(self.a(x))", ["linear", "linear"], 4 * 32 * 64 + 2 * 64 * 64),
    "a prologue": ("self.a(F.gelu(x))", ["gelu + linear"], 32 * 64 + 64 * 64 + 32 * 64),
    "elementwise work": ("F.gelu(x) * 2 + x", ["gelu + mul + add"], 2 * 32 * 64),
    "a norm after a product": ("F.softmax(self.a(x), -1)", ["linear", "softmax"], 4 * 32 * 64 + 64 * 64),
    "a norm written out": (
        "x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1)",
        ["mul + mean + add + rsqrt"],
        2 * 32 * 64,
    ),
    "views": ("self.a(x).view(64, 32).t()", ["linear"], 2 * 32 * 64 + 64 * 64),
    "a slice": ("x[:8] + 1", ["add"], 2 * 8 * 64),
    "rows of a table": ("x[torch.tensor([1, 2])] * 2", ["index + mul"], 2 * 2 * 64),
}


@pytest.mark.parametrize("case", CASES)
def test_a_kernel_moves_what_enters_and_what_leaves_it(case: str, tmp_path: Path) -> None:
    expression, names, elements = CASES[case]
    kernels = kernels_of(graph_of(tmp_path, expression, ROWS, parts=LINEAR), on_chip_bytes=2**20)
    assert [kernel.name for kernel in kernels] == names
    assert sum(kernel.work.size_bytes for kernel in kernels) == pytest.approx(WIDTH * elements, abs=32)


def test_a_row_too_long_for_the_chip_is_read_twice(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, "F.softmax(x * 2, -1)", ROWS)
    fits, not_ = (kernels_of(graph, on_chip_bytes=size) for size in (64 * WIDTH, 64 * WIDTH - 1))
    moved = [sum(kernel.work.size_bytes for kernel in kernels) / (WIDTH * 32 * 64) for kernels in (fits, not_)]
    assert moved == [2, 3]


def test_a_mask_halves_attention_and_gives_it_one_kernel(tmp_path: Path) -> None:
    heads = "torch.randn(1, 2, 64, 16)"
    works = []
    for causal in (False, True):
        expression = f"F.scaled_dot_product_attention(x, y, z, is_causal={causal})"
        (kernel,) = kernels_of(graph_of(tmp_path, expression, heads, heads, heads), on_chip_bytes=2**20)
        works.append(kernel.work)
    assert works[0].size_bytes == works[1].size_bytes == 4 * WIDTH * 2 * 64 * 16
    assert works[1].macs / works[0].macs == pytest.approx((64 + 1) / (2 * 64))


@pytest.mark.parametrize("macs", [1.0, 30.0, 1e4])
def test_each_model_is_no_slower_than_the_one_before(macs: float, tmp_path: Path) -> None:
    graph = graph_of(tmp_path, "self.b(F.gelu(self.a(x))) + F.softmax(x, -1)", ROWS, parts=LINEAR)
    analysis = analyse(graph, device(macs=macs))
    for rule in RULES:
        models = analysis.models[rule]
        assert models.unfused.time_us >= models.fused.time_us >= models.fused_prefetched.time_us > 0
    documented, intended = analysis.models["documented"], analysis.models["intended"]
    assert intended.unfused.time_us >= documented.unfused.time_us
    assert intended.fused.time_us >= documented.fused.time_us


# Devices: our hardware files and SOLAR's architecture files become the same thing.

SOLAR = """
name: Some card
SRAM_capacity: 50000000
SRAM_byte_per_cycle: 5000
DRAM_capacity: 80000000000
DRAM_byte_per_cycle: 1000
freq_GHz: 2
MAC_per_cycle_fp16_tc: 400
MAC_per_cycle_int8_tc: 800
MAC_per_cycle_fp32_sm: 50
comment: their own
"""


def test_a_file_of_solar_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "Some_card.yaml"
    path.write_text(SOLAR)
    device = device_of(str(path))
    assert (device.entry, device.name, device.on_chip_bytes) == ("Some_card", "Some card", 5e7)
    assert device.macs_in("bf16") == device.macs_in("fp16") == 400  # one stands for the other
    assert device.time_us(device.cycles_to_move(4e6)) == 2
    assert device.ridge("bf16") == 0.4


def test_a_hardware_file_gives_the_same_peaks_as_it_states() -> None:
    device = device_of("H100-PCIe")
    assert device.entry == "h100-pcie"
    assert device.time_us(device.cycles_of(756.5e6 / 2, "bf16")) == pytest.approx(1)
    assert device.time_us(device.cycles_to_move(2e6)) == pytest.approx(1)


def test_a_precision_that_the_device_lacks_is_reported() -> None:
    with pytest.raises(ConfigError, match=r"fp8: NVIDIA A100.* has no such peak"):
        device_of("a100-80gb").macs_in("fp8")
