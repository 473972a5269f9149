"""Devices: our hardware files and SOLAR's architecture files become the same thing."""

from __future__ import annotations

from pathlib import Path

import pytest

from predict.bounds.device import device_of
from sampling.errors import ConfigError

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


FAULTS = {
    "no clock": (SOLAR.replace("freq_GHz: 2", ""), r"freq_GHz: missing"),
    "a text for a number": (SOLAR.replace("freq_GHz: 2", "freq_GHz: fast"), r"freq_GHz: 'fast' is not a number"),
    "no bandwidth": (SOLAR.replace("DRAM_byte_per_cycle: 1000", "DRAM_byte_per_cycle: 0"), r"DRAM_byte_per_cycle: 0"),
    "no peak": ("\n".join(line for line in SOLAR.splitlines() if "MAC" not in line), r"MAC_per_cycle_bf16_tc: missing"),
    "something else": ("a: 1\n", r"missing"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_faults_of_a_file_are_told(fault: str, tmp_path: Path) -> None:
    text, told = FAULTS[fault]
    path = tmp_path / "card.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=told):
        device_of(str(path))


def test_a_precision_that_the_device_lacks_is_told() -> None:
    with pytest.raises(ConfigError, match=r"fp8: NVIDIA A100.* has no such peak"):
        device_of("a100-80gb").macs_in("fp8")
