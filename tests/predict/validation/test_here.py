"""Runs of this machine, predicted and measured: noise is reported and not kept, an interrupted validation goes on."""

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

import predict
from predict import one_batch
from predict.cli import main
from predict.interval import Interval
from predict.measurement import real_step, requirements
from predict.measurement.measurement import Measurement
from predict.measurement.pace import Pace
from predict.measurement.requirements import require_measurable
from predict.measurement.system_noise import OTHERS, SPREAD
from predict.prices.sampled import validation_path
from predict.reports.validation_here import validation_text
from predict.run.training_run import TrainingRun
from predict.validation.here import START_GPU_S, ValidationRow, _measuring_s, _repeated
from predict.validation.sessions import keep, runs_of_this_gpu
from sampling.errors import SamplesError, UserError
from sampling.files.places import DATA_VARIABLE
from sampling.hardware import this_device
from sampling.hardware.cluster import device_names, hardware_facts, known_hardware
from sampling.units import GIB
from tests.predict.command import Command
from tests.predict.measurement.measured_steps import measured

DEMO = "configs/runs/demo.yml"


def row(*, noise: str = "") -> ValidationRow:
    return ValidationRow(
        run="a",
        plan="1 process",
        predicted=Interval(median=100.0, low=90.0, high=110.0),
        measured=300.0,
        measured_low_us=290.0,
        measured_high_us=310.0,
        calls_half_width=0.05,
        steps=24,
        dropped_steps=0,
        noise=noise,
    )


def shown(*rows: ValidationRow) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(validation_text(rows))
    return captured.get()


def test_noise_is_reported_beside_the_error() -> None:
    noisy = shown(row(noise=OTHERS))
    assert re.search(r"−66\.7 % .* NOISY", noisy)
    assert "NOISY: other processes disturbed most steps of a; none could be dropped: repeat" in noisy
    assert "1 run: mean error" in noisy
    assert "dropped; " not in noisy and "0 noisy steps" not in noisy
    assert "the steps of a differ widely (standard deviation above 20 %)" in shown(row(noise=SPREAD))
    quiet = shown(row())
    assert "NOISY" not in quiet and "0 noisy steps dropped" in quiet


def test_noisy_runs_are_not_kept(tmp_path: Path) -> None:
    printed: list[str] = []
    path = tmp_path / "kept.json"
    keep(path, [*[row()] * 4, row(noise=SPREAD)], of=6, report=printed.append)
    assert not path.exists()
    assert "2 of 6 runs are noisy or have no steps" in printed[0]
    keep(path, [row()] * 5, of=6, report=printed.append)
    assert len(json.loads(path.read_text())["rows"]) == 5


def test_an_interrupted_validation_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    calls = 0

    def measure(run: TrainingRun, *, steps: int, implementation: str) -> Measurement:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        return measured((1e5,) * steps, run=run.name, implementation=implementation)

    monkeypatch.setattr(real_step, "measure", measure)
    printed = command.refused("validate", DEMO, "--rounds", "3", code=130)
    assert re.search(
        r"3 measurements, [0-9,]+ to [0-9,]+ s in all: 3 of each run, and up to 2 more of one that is noisy", printed
    )
    assert "s left" in printed
    assert "kept so far: 1 of 3 measurements" in printed
    assert len([*(tmp_path / "published").iterdir()]) == 1
    assert main(["validate", DEMO, "--rounds", "3"]) == 0
    assert calls == 4  # the first, the interrupted one, and the two that were left
    assert [*(tmp_path / "published").iterdir()] == []


def test_the_profile_to_validate_may_be_named(command: Command) -> None:
    for named in (["--profile", "nowhere"], ["--set", "cluster.profile=nowhere"]):
        assert "profile nowhere: has no samples" in command.refused(
            "validate", "this-machine", "--keep", *named, code=3
        )
    assert main(["validate", DEMO, "--profile", "nowhere"]) == 2
    assert validation_path("nowhere").name == "nowhere-steps.json"


def test_a_noisy_measurement_is_repeated_until_it_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    run = predict.load(DEMO)
    noisy = measured((1e5,) * 8, run=run.name, others_shares=(0.9,) * 8)
    rounds = iter([noisy, measured((1e5,) * 8, run=run.name)])
    monkeypatch.setattr(real_step, "measure", lambda *_, **__: next(rounds))
    reported: list[str] = []
    assert not _repeated((run, "torch"), noisy, 8, reported.append).noise
    assert reported.count(f"{run.name}: noisy, measured again") == 2


def test_the_verdict_on_a_single_run_parts_its_error() -> None:
    paced = replace(row(), pace=Pace(by_resource={"compute": 0.5}, of_step=0.5))
    text = " ".join(shown(paced).split())
    assert "measured 300 µs, outside the 90 % interval" in text
    assert "the pace makes −50.0 %, other work 0.0 % and the models −33.3 %" in text
    assert "this machine now runs at 0.500 of the pace of its rows (compute 0.500)" in text


def test_a_noisy_measurement_is_not_parted() -> None:
    text = " ".join(shown(replace(row(noise=OTHERS), pace=Pace(by_resource={"compute": 0.5}, of_step=0.5))).split())
    assert "its steps were too disturbed to say why" in text and "the pace makes" not in text


# The runs of a GPU, predicted, then measured by a stub: every run has a row or a reason, what was measured is kept.

MOST_SECONDS = 25 + START_GPU_S


class Gpu:
    """The worker of a GPU: steps of 100 ms, except that `broken` runs fail."""

    def __init__(self) -> None:
        self.broken: set[str] = set()
        self.trained: list[str] = []

    def train_alone(self, run: TrainingRun, *, steps: int | None, timeout_s: float) -> dict[str, Any]:
        assert steps is None
        if run.name in self.broken:
            raise UserError(f"{run.name}: the step failed: no kernel image")
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


def test_all_are_measured_once_for_this_gpu_and_kept(gpu: Gpu, tmp_path: Path, command: Command) -> None:
    printed = command.run("validate", "this-gpu", "--keep", "--json")
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


def test_a_failed_run_is_reported_left_out_and_tried_again(gpu: Gpu, command: Command) -> None:
    gpu.broken = {"cudnn"}
    printed = command.run("validate", "this-gpu", code=2)
    assert "left out: cudnn: the step failed: no kernel image" in printed.err
    assert f"1 of {len(names())} runs failed and have no row: cudnn" in printed.err
    assert "30.00 GiB" in printed.out
    assert "1,755 MHz" in printed.out
    assert "600 W" in printed.out
    gpu.broken, gpu.trained = set(), []
    assert main(["validate", "this-gpu"]) == 0
    assert gpu.trained == ["cudnn"]


def test_what_does_not_fit_the_gpu_is_left_out(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, command: Command) -> None:
    monkeypatch.setattr(requirements, "device_name", lambda: hardware_facts("rtx-4090").device_name)
    monkeypatch.setattr(requirements, "detect_hardware", lambda: "rtx-4090")
    assert "left out, since it does not fit: larger" in command.notes("validate", "this-gpu")
    assert "launches" in gpu.trained
    assert "larger" not in gpu.trained


@pytest.mark.parametrize("options", [[], ["--keep"]])
def test_a_machine_without_a_gpu_is_reported(
    options: list[str], monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.setattr(requirements, "device_name", lambda: "")
    assert "torch finds no GPU on this machine; use one that has a CUDA or ROCm GPU" in command.refused(
        "validate", "this-gpu", *options
    )


def test_an_unknown_gpu_gets_advice_how_to_describe_it(monkeypatch: pytest.MonkeyPatch, command: Command) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA X1")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: device("NVIDIA X1", 39.4, 108))
    assert "this machine has a 'NVIDIA X1', which the catalogue does not describe" in command.refused(
        "validate", "this-gpu", code=3
    )
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
        ("NVIDIA A100-PCIE-40GB", 39.4, 108, r"does not describe.*did you mean"),
        (
            "NVIDIA A100-SXM4-40GB MIG 3g.20gb",
            19.6,
            42,
            r"part of a100-40gb with 42 of 108 multiprocessors and 19\.6 of 40 GiB",
        ),
    ],
)
def test_a_gpu_is_known_by_its_chip_memory_and_multiprocessors(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    memory_gib: float,
    multiprocessors: int,
    entry: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: device(name, memory_gib, multiprocessors))
    this_device._report_taken.cache_clear()
    if entry in known_hardware():
        assert this_device.detect_hardware() == entry
        known = name in device_names(entry)
        assert (f"'{name}' is taken for {entry}" in capsys.readouterr().err) != known
    else:
        with pytest.raises(SamplesError, match=entry):
            this_device.detect_hardware()


def test_rows_of_another_gpu_keep_no_figures(gpu: Gpu, tmp_path: Path, command: Command) -> None:
    assert "profile epyc-2-cores: its rows were taken on AMD" in command.refused(
        "validate", "this-gpu", "--keep", "--profile", "epyc-2-cores", code=3
    )
    assert gpu.trained == []
