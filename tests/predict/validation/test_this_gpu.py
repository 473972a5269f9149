"""The runs of a GPU, predicted, then measured by a stub: every run has a row or a reason, what was measured is kept."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from predict import one_batch
from predict.cli import main
from predict.measurement import real_step, requirements
from predict.measurement.requirements import require_measurable
from predict.run.training_run import TrainingRun
from predict.validation.here import START_GPU_S, _measuring_s
from predict.validation.sessions import runs_of_this_gpu
from sampling.errors import SamplesError, UserError
from sampling.files.places import DATA_VARIABLE
from sampling.hardware import this_device
from sampling.hardware.cluster import hardware_facts
from sampling.units import GIB

MOST_SECONDS = 25 + START_GPU_S


class Gpu:
    """The worker of a GPU: steps of 100 ms, except that `broken` runs fail and `interrupts` counts down to a Ctrl-C."""

    def __init__(self) -> None:
        self.broken: set[str] = set()
        self.interrupts = -1
        self.trained: list[str] = []

    def train_alone(self, run: TrainingRun, *, steps: int | None, timeout_s: float) -> dict[str, Any]:
        assert steps is None
        if run.name in self.broken:
            raise UserError(f"{run.name}: the step failed: no kernel image")
        self.interrupts -= 1
        if self.interrupts == -1:
            raise KeyboardInterrupt
        self.trained.append(run.name)
        return {
            "wall_s": [0.1] * 100,
            "losses": [4.0, 3.0],
            "parameters": run.model.parameters,
            "versions": {"torch": "2.11"},
            "device": {
                "name": "NVIDIA H200",
                "clock_mhz": 1755.0,
                "power_w": 600.0,
                "peak_allocated_bytes": 30 * 2**30,
                "peak_reserved_bytes": 31 * 2**30,
                "attention": run.execution.attention,
                "expert_products": "grouped" if run.model.experts else "",
                "busiest_expert": None,
            },
        }


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gpu:
    stub = Gpu()
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    monkeypatch.setattr("predict.validation.sessions.device_name", lambda: "NVIDIA H200")
    monkeypatch.setattr(requirements, "device_name", lambda: "NVIDIA H200")
    monkeypatch.setattr(requirements, "detect_hardware", lambda: "h200")
    monkeypatch.setattr(real_step, "train_alone", stub.train_alone)
    return stub


def names() -> list[str]:
    return [each.config.stem for each in runs_of_this_gpu()]


@pytest.mark.parametrize("config", [each.config for each in runs_of_this_gpu()], ids=names())
def test_a_run_can_be_measured_fits_80_gb_and_takes_seconds(config: Path) -> None:
    prediction = one_batch(config)
    require_measurable(prediction.run, "torch")
    assert prediction.run.cluster.gpu.memory_gib == 80
    assert prediction.memory.verdict == "FITS"
    assert _measuring_s(prediction, prediction.median_us) <= MOST_SECONDS


def test_the_runs_show_each_way_to_train() -> None:
    runs = [one_batch(each.config).run for each in runs_of_this_gpu()]
    assert len(runs) >= 8
    assert {run.execution.framework for run in runs} == {"torch-eager", "torch-compiled"}
    assert {run.execution.attention for run in runs} == {"fa2", "cudnn"}
    assert {run.plan.recompute for run in runs} == {"none", "full"}
    assert {bool(run.model.experts) for run in runs} == {True, False}
    assert {run.microbatches > 1 for run in runs} == {True, False}


def test_all_are_measured_once_for_this_gpu_and_kept(
    gpu: Gpu, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", "this-gpu", "--keep", "--json"]) == 0
    printed = capsys.readouterr()
    rows = json.loads(printed.out)["rows"]
    assert gpu.trained == [row["run"] for row in rows] == names()
    assert rows[0]["device"]["name"] == "NVIDIA H200"
    assert rows[0]["plan"] == "torch-compiled, cudnn"
    assert (
        rows[0]["predicted_us"]["median"]
        == one_batch(runs_of_this_gpu()[0].config, ["cluster.hardware=h200"]).median_us
    )
    assert f"measured {len(rows)} of {len(rows)}: wide 100 ms" in printed.err
    kept = json.loads((tmp_path / "published" / "h200-steps.json").read_text())
    assert kept["rows"] == rows


def test_a_failed_run_is_told_left_out_and_tried_again(gpu: Gpu, capsys: pytest.CaptureFixture[str]) -> None:
    gpu.broken = {"cudnn"}
    assert main(["validate", "this-gpu"]) == 2
    printed = capsys.readouterr()
    assert "left out: cudnn: the step failed: no kernel image" in printed.err
    assert f"1 of {len(names())} runs failed and have no row: cudnn" in printed.err
    assert "30.00 GiB" in printed.out
    assert "1755 MHz" in printed.out
    assert "600 W" in printed.out
    gpu.broken, gpu.trained = set(), []
    assert main(["validate", "this-gpu"]) == 0
    assert gpu.trained == ["cudnn"]


def test_an_interrupted_validation_goes_on_where_it_was(gpu: Gpu, capsys: pytest.CaptureFixture[str]) -> None:
    gpu.interrupts = 3
    assert main(["validate", "this-gpu"]) == 130
    assert f"kept so far: 3 of {len(names())} measurements" in capsys.readouterr().err
    assert main(["validate", "this-gpu"]) == 0
    assert gpu.trained == names()


def test_what_does_not_fit_the_gpu_is_left_out(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(requirements, "device_name", lambda: hardware_facts("rtx-4090").device_name)
    monkeypatch.setattr(requirements, "detect_hardware", lambda: "rtx-4090")
    assert main(["validate", "this-gpu"]) == 0
    assert "left out, since it does not fit: larger" in capsys.readouterr().err
    assert "launches" in gpu.trained
    assert "larger" not in gpu.trained


@pytest.mark.parametrize("command", [["validate", "this-gpu"], ["validate", "this-gpu", "--keep"]])
def test_a_machine_without_a_gpu_is_told(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(requirements, "device_name", lambda: "")
    assert main(command) == 2
    assert "torch finds no GPU on this machine; use one that has a CUDA or ROCm GPU" in capsys.readouterr().err


def test_an_unknown_gpu_is_told_how_to_be_described(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA X1")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: device("NVIDIA X1", 39.4, 108))
    assert main(["validate", "this-gpu"]) == 3
    assert "this machine has a 'NVIDIA X1', which the catalogue does not describe" in capsys.readouterr().err
    assert this_device.detect_hardware is requirements.detect_hardware


def device(name: str, memory_gib: float, multiprocessors: int) -> SimpleNamespace:
    return SimpleNamespace(name=name, total_memory=memory_gib * GIB, multi_processor_count=multiprocessors)


@pytest.mark.parametrize(
    ("name", "memory_gib", "multiprocessors", "entry"),
    [
        ("NVIDIA A100-PG509-200", 39.4, 108, "a100-40gb"),
        ("NVIDIA A100-PG509-200", 79.3, 108, "a100-80gb"),
        ("NVIDIA GB200", 184.0, 148, "gb200"),
        ("AMD Instinct MI300X OAM", 191.7, 304, "mi300x"),
        ("NVIDIA A100-PCIE-40GB", 39.4, 108, ""),
        ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", 19.6, 42, ""),
    ],
)
def test_a_gpu_is_known_by_its_chip_memory_and_multiprocessors(
    monkeypatch: pytest.MonkeyPatch, name: str, memory_gib: float, multiprocessors: int, entry: str
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: device(name, memory_gib, multiprocessors))
    if entry:
        assert this_device.detect_hardware() == entry
    else:
        with pytest.raises(SamplesError, match=r"does not describe.*did you mean"):
            this_device.detect_hardware()


def test_rows_of_another_gpu_keep_no_figures(gpu: Gpu, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "this-gpu", "--keep", "--profile", "epyc-2-cores"]) == 3
    assert "profile epyc-2-cores: its rows were taken on AMD" in capsys.readouterr().err
    assert gpu.trained == []
