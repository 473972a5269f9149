"""The catalogue of hardware: what its files say is physical and sourced, and what is wrong with a file is reported at once."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml

from regressors.features.digests import hardware_digest
from sampling.errors import ConfigError, SamplesError
from sampling.files.places import CONFIGS
from sampling.hardware import this_device
from sampling.hardware.cluster import Gpu, device_names, hardware_facts, known_hardware, load_cluster
from sampling.hardware.hardware_file import OPTIONAL_FIGURES, REQUIRED_FIGURES, read_hardware
from sampling.hardware.this_device import detect_hardware
from sampling.units import GIB
from tests.tested_names import untested

STATED: dict[str, tuple[float, float | None]] = {
    "a100-40gb": (40, 624),
    "a100-80gb": (80, 624),
    "a10g": (24 * 15 / 16, 140),  # ECC takes a sixteenth of GDDR6
    "a6000": (48, 309.7),
    "a800": (80, 624),
    "b200": (180, 4500),
    "b300": (270, 4500),
    "c550": (64, None),
    "gb200": (186, 5000),
    "gb300": (278, 5000),
    "gh200": (96, 1979),
    "h100-96gb": (96, 1979),
    "h100-pcie": (80, 1513),
    "h100-sxm": (80, 1979),
    "h20": (96, 296),
    "h200": (141, 1979),
    "h800": (80, 1979),
    "l4": (24 * 15 / 16, 242),
    "l40s": (48 * 15 / 16, 733),
    "mi250x": (128 / 2, None),  # one die of two
    "mi300x": (192, 2614.9),
    "mi325x": (256, 2614.9),
    "mi350x": (288, 4613.8),
    "mi355x": (288, 5033.2),
    "rtx-4090": (24, 330.4),
    "rtx-5090": (32, 419),
    "rtx-pro-6000": (96, 1007.6),
}
"""What the makers state: GB of memory, and TFLOP/s in bf16 with two of four weights zero, twice the dense peak and a usual slip."""
GPUS = sorted(STATED)


def gpu(hardware: str) -> Gpu:
    return load_cluster(hardware=hardware, nodes=1, gpus_per_node=1, profile="none", cores=1).gpu


def test_the_catalogue_has_every_device_and_the_cpu() -> None:
    assert set(known_hardware()) >= {*GPUS, "cpu"}
    assert untested(set(known_hardware()) - {*GPUS, "cpu"}) == []


@pytest.mark.parametrize("hardware", [*GPUS, "cpu"])
def test_every_entry_loads_with_a_source_for_each_figure(hardware: str) -> None:
    facts = hardware_facts(hardware)
    assert set(facts.sources) == {*REQUIRED_FIGURES, *(figure for figure in OPTIONAL_FIGURES if getattr(facts, figure))}
    assert gpu(hardware).multiprocessors > 0
    assert bool(device_names(hardware)) == (facts.kind != "cpu")


def test_no_two_entries_claim_one_device() -> None:
    claims = Counter(name for hardware in known_hardware() for name in device_names(hardware))
    assert max(claims.values()) == 1


@pytest.mark.parametrize("hardware", GPUS)
def test_figures_are_physical(hardware: str) -> None:
    device, facts = gpu(hardware), hardware_facts(hardware)
    peaks, (memory_gb, sparse) = device.peak_tflops, STATED[hardware]
    assert device.memory_gib == pytest.approx(memory_gb, rel=0.01)
    assert peaks["fp32"] <= peaks.get("tf32", peaks["bf16"]) <= peaks["bf16"] == peaks["fp16"]
    assert peaks["bf16"] < peaks.get("fp8", peaks["bf16"] + 1) < peaks.get("fp4", float("inf"))
    if "tf32" in peaks:
        assert peaks["tf32"] == pytest.approx(peaks["bf16"] / 2, rel=0.02)
    if "fp8" in peaks:
        assert peaks["fp8"] == pytest.approx(2 * peaks["bf16"], rel=0.02)
    if sparse:
        assert peaks["bf16"] == pytest.approx(sparse / 2, rel=0.02)
    # FLOPs a byte of memory that a bf16 product needs to be bound by its peak; a slip of units leaves this range
    assert 30 < peaks["bf16"] * 1e3 / device.memory_gb_per_s < 450
    assert facts.inter_node.gb_per_s < facts.intra_node.gb_per_s < device.memory_gb_per_s
    assert facts.inter_node.latency_us >= facts.intra_node.latency_us


def test_devices_stand_in_the_order_that_is_known_of_them() -> None:
    assert gpu("a100-40gb").memory_gb_per_s < gpu("a100-80gb").memory_gb_per_s < gpu("h100-sxm").memory_gb_per_s
    assert gpu("h100-sxm").memory_gb_per_s < gpu("h200").memory_gb_per_s < gpu("b200").memory_gb_per_s
    for whole, limited in (("a100-80gb", "a800"), ("h100-sxm", "h800")):
        assert gpu(whole).peak_tflops == gpu(limited).peak_tflops
        assert hardware_facts(limited).intra_node.gb_per_s == 200 < hardware_facts(whole).intra_node.gb_per_s


def test_figures_that_trained_regressors_rest_on_are_unchanged() -> None:
    """A change here makes every fitted artifact of a CPU stale; do it on purpose or not at all."""
    cluster = load_cluster(hardware="cpu", nodes=1, gpus_per_node=2, profile="none", cores=2)
    assert hardware_digest(cluster) == "205bd006-e7d0c76d"


def described(changes: dict[Any, Any]) -> dict[Any, Any]:
    """A sound description, with keys changed, or left out where the value is None."""
    facts = yaml.safe_load((CONFIGS / "hardware" / "h200.yml").read_text()) | changes
    return {key: value for key, value in facts.items() if value is not None}


def written(path: Path, facts: Any) -> Path:
    path.write_text(yaml.safe_dump(facts))
    return path


def test_a_file_of_ones_own_is_read_like_an_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "mine.yml", described({"name": "my GPU", "memory_gib": 7}))
    monkeypatch.chdir(tmp_path)
    for path in ("mine.yml", "./mine.yml", str(tmp_path / "mine.yml")):
        device = gpu(path)
        assert (device.name, device.memory_gib) == ("my GPU", 7)


SOURCES = hardware_facts("h200").sources
PEAKS = hardware_facts("h200").peak_tflops
BAD: list[tuple[dict[Any, Any], str]] = [
    ({"peak_tflops": {**PEAKS, "bf61": 1}}, "peak_tflops.bf61: unknown key; did you mean 'bf16'?"),
    ({"peak_tflops": {}}, "peak_tflops: {} is too short; give a mapping of any of fp64, fp32"),
    ({"device_name": []}, "device_name: missing"),
    ({"device_name": None}, "device_name: missing"),
    ({"sources": {**SOURCES, "cache_mib": " "}}, "sources.cache_mib: ' ' is not allowed; give text: the data sheet"),
    ({"sources": {**SOURCES, "colour": "seen"}}, "sources.colour: unknown key"),
    ({"fastest_tflops": {"bf16": 1000}}, "sources.fastest_tflops: missing; name the data sheet"),
]


@pytest.mark.parametrize(("changes", "fault"), BAD)
def test_a_fault_is_reported_with_its_key_value_and_fix(tmp_path: Path, changes: dict[Any, Any], fault: str) -> None:
    path = written(tmp_path / "mine.yml", described(changes))
    with pytest.raises(ConfigError) as error:
        read_hardware(path)
    assert any(line.startswith(f"{path}: {fault}") for line in str(error.value).splitlines()), error.value


@pytest.mark.parametrize("hardware", ["none.yml", "x" * 5000 + ".yml"])
def test_a_file_that_is_not_there_is_reported(hardware: str) -> None:
    with pytest.raises(ConfigError, match=r"\.yml"):
        hardware_facts(hardware)


@pytest.mark.parametrize("hardware", ["h300", "../hardware/cpu", "a\0b"])
def test_an_unknown_name_is_an_error_that_says_how_to_describe_it(hardware: str) -> None:
    with pytest.raises(ConfigError) as error:
        hardware_facts(hardware)
    reported = str(error.value)
    assert "\n" not in reported
    for word in ("configs/hardware/", ".yml", "peak_tflops", "sources", "mi300x"):
        assert word in reported
    if hardware == "h300":
        assert "did you mean 'h" in reported
        assert "hardware/h300.yml" in reported


def machine_with(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    properties = SimpleNamespace(name=name, total_memory=80 * GIB, multi_processor_count=132)
    cuda = SimpleNamespace(is_available=lambda: True, get_device_properties=lambda _: properties)
    monkeypatch.setattr(torch, "cuda", cuda)


@pytest.mark.parametrize("hardware", GPUS)
def test_a_gpu_is_found_by_each_of_its_names(hardware: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in device_names(hardware):
        machine_with(name, monkeypatch)
        assert detect_hardware() == hardware


def test_an_unknown_gpu_is_an_error_that_says_how_to_describe_it(monkeypatch: pytest.MonkeyPatch) -> None:
    machine_with("NVIDIA H300", monkeypatch)
    with pytest.raises(SamplesError) as error:
        detect_hardware()
    for word in ("'NVIDIA H300'", "did you mean 'NVIDIA H", "configs/hardware/NAME.yml", "peak_tflops", "--hardware"):
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"memory_gib": 139.8}, True),
        ({"memory_gib": 139.4}, True),
        ({"memory_gib": 79.6}, False),
        ({"count": 4}, False),
        ({"name": "NVIDIA H20"}, False),
    ],
)
def test_a_gpu_stays_the_same_under_another_driver(change: dict[str, Any], same: bool) -> None:
    device = {"name": "NVIDIA H200", "count": 8, "memory_gib": 139.8}
    assert this_device.same_device(device, {**device, **change}) is same
    assert this_device.same_device({**device, **change}, device) is same
