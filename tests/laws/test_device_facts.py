"""What rows say of a GPU as a whole, from the rows of a profile to the estimate of a run and its lines."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from predict import Prediction, one_batch
from predict.ledger.books import ledger_of
from predict.prices.kernels.memory_bound import joined_us
from predict.reports.text import last_lines
from regressors.dataset.device_facts import LAUNCH_NORM, MOST_TOO_LONG, device_facts
from regressors.train import train
from sampling.call import Phase, State
from sampling.cells.layer import DenseLayer
from sampling.files.places import DATA_VARIABLE
from sampling.operators.gemm import Gemm
from sampling.store.profiles import Manifest, write_manifest
from sampling.store.sample import Sample
from sampling.store.tables import write_table
from tests import made_rows

GEMM = Gemm(dtype="bf16", m=4096, n=4096, k=4096)
LAYER = DenseLayer(
    **{"dtype": "bf16", "batch": 1, "seq_len": 128, "hidden": 512, "heads": 8, "kv_heads": 8, "head_dim": 64, "ffn": 1536},
    **{"gated": True, "norm": "rms", "rope": True, "qkv_bias": False, "bias": False, "tp": 1, "sp": False},
)  # fmt: skip
RUN = """\
model:
  {model_type: llama, hidden_size: 512, num_hidden_layers: 8, num_attention_heads: 8, intermediate_size: 1536, vocab_size: 32000}
cluster: {hardware: h200, nodes: 1, gpus_per_node: 1, profile: mine}
plan: {}
batch: {global: 1, micro: 1, seq_len: 128}
precision: bf16
execution: {framework: torch-eager}
"""


def row(call: Gemm | DenseLayer, phase: Phase, time_us: float, state: State = "burst", **more: float) -> Sample:
    return made_rows.row(call, phase, time_us, spread=0.001, repeats=50, state=state, **more)


def gemms(ratio: float) -> list[Sample]:
    rows = []
    for size in (2048, 3072, 4096, 6144, 8192):
        call = replace(GEMM, m=size, n=size)
        burst_us = 5.0 + call.flops("forward") / 700e6
        rows.append(row(call, "forward", burst_us, clock_mhz=1980.0, power_w=500.0))
        rows.append(row(call, "forward", ratio * burst_us, "sustained", clock_mhz=1755.0, power_w=690.0))
    return rows


def layers(forward_us: float, backward_us: float) -> list[Sample]:
    """Layers of 60 and 120 µs on the device, of 45 and 90 µs as graphs, that the host launches in the times given."""
    return [
        row(LAYER, "forward", 60.0, launch_us=forward_us - 45.0, exposed_us=forward_us),
        row(LAYER, "backward", 120.0, launch_us=backward_us - 90.0, exposed_us=backward_us),
    ]


def unlike_layers(*floors_us: float) -> list[Sample]:
    """Layers of several widths, of which the host launches each in a time of its own, the backward in twice that."""
    rows = [(replace(LAYER, ffn=1536 + 64 * at), us) for at, us in enumerate(floors_us)]
    return [replace(each, call=call) for call, us in rows for each in layers(us, 2 * us)]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    (tmp_path / "run.yml").write_text(RUN)
    return tmp_path


def predicted(data: Path, *rows: Sample, settings: tuple[str, ...] = ()) -> Prediction:
    samples = data / "samples" / "mine"
    session = {"id": 0, "date": "2026-11-22", "versions": {"torch": "2.11"}}
    device = {"name": "NVIDIA H200", "count": 1, "memory_gib": 139.8}
    write_manifest(samples, Manifest(profile="mine", hardware="h200", device=device, sessions=[session]))
    for name in ("gemm", "dense_layer"):
        if of_kind := [each for each in rows if name == each.call.NAME]:
            write_table(samples, name, of_kind)
    fitted = data / "regressors" / "mine"
    train(samples=samples, output=fitted, fitted_at="", jobs=1, progress=lambda done, total, name: None)
    return one_batch(data / "run.yml", settings)


def test_the_launch_floor_of_sampled_layers_comes_before_that_of_the_framework(data: Path) -> None:
    stated = predicted(data, *gemms(1.1))
    sampled = predicted(data, *gemms(1.1), *layers(500.0, 1000.0))
    assert stated.provenance["device"]["launch_floor_us"] == {}
    floors = sampled.provenance["device"]["launch_floor_us"]
    assert {phase: floor["median_us"] for phase, floor in floors.items()} == {"forward": 500.0, "backward": 1000.0}
    # 8 layers whose kernels take less: 250 µs each way are stated, 500 and 1,000 µs sampled; kernels and launches add in a norm
    longer_us = sampled.step_time.median_us - stated.step_time.median_us
    assert longer_us == pytest.approx(8 * (500 + 1000 - 2 * 250), rel=0.1)
    assert sampled.sources["measured"] > stated.sources["measured"] + 0.3
    assert any("the host launches a layer in 500 µs forward" in line for line in lines(sampled))
    assert not any("the host launches" in line for line in lines(stated))


def test_a_floor_that_the_run_states_and_other_frameworks_keep_theirs(data: Path) -> None:
    rows = (*gemms(1.1), *layers(500.0, 1000.0))
    for settings in (
        ("execution.launch_floor_us=90",),
        ("execution.framework=torch-compiled",),
        ("execution.framework=fsdp",),
    ):
        assert predicted(data, *rows, settings=settings).provenance["device"]["launch_floor_us"] == {}


def test_the_clocks_of_a_long_run_are_the_sampled_ones(data: Path) -> None:
    prediction = predicted(data, *gemms(1.3))
    ratio = prediction.provenance["device"]["sustained"]["bf16"]
    assert (ratio["value"], ratio["rows"]) == (pytest.approx(1.3), 4)
    burst, sustained = (
        predicted(data, *gemms(1.3), settings=(f"execution.clocks={clocks}", "execution.launch_floor_us=0"))
        for clocks in ("burst", "sustained")
    )
    products = [each.breakdown_us["gemm"] for each in (burst, sustained)]
    assert products[1] / products[0] == pytest.approx(1.3, rel=0.01)
    assert any(
        "bf16 products take 1.30 as long" in line and "sustained at 1,755 MHz and 690 W" in line
        for line in lines(prediction)
    )


def test_the_interval_of_a_sampled_floor_is_how_widely_layers_differ_or_the_published_one(data: Path) -> None:
    def shares(prediction: Prediction) -> list[float]:
        floor = prediction.provenance["device"]["launch_floor_us"]["forward"]
        return [floor["low_us"] / floor["median_us"], floor["high_us"] / floor["median_us"]]

    one, alike, apart = (
        predicted(data, *gemms(1.1), *unlike_layers(*floors_us))
        for floors_us in ([500.0], [500.0, 500.0, 500.0], [350.0, 500.0, 700.0])
    )
    assert shares(one) == pytest.approx([1 / 1.15, 1.15])
    assert shares(alike) == pytest.approx([0.98, 1.02], abs=1e-3)
    assert shares(apart)[1] > 1.5
    widths = [each.step_time.high_us / each.step_time.low_us for each in (alike, one, apart)]
    assert widths == sorted(widths)
    assert widths[2] > 1.1 * widths[0]
    published = ["LAUNCH_FLOOR_WIDTH" in ledger_of(each).calibration.constants for each in (one, alike, apart)]
    assert published == [True, False, False]


def test_another_device_keeps_its_own_figures(data: Path) -> None:
    there = predicted(data, *gemms(1.3), *layers(500.0, 1000.0), settings=("cluster.hardware=h100-sxm",))
    assert there.provenance["device"] == {"launch_floor_us": {}}


def test_layers_that_the_device_takes_longer_for_tell_nothing_of_the_host() -> None:
    long = row(LAYER, "forward", 5000.0, launch_us=30.0, exposed_us=5030.0)
    older = row(LAYER, "forward", 60.0, launch_us=440.0)
    assert "launch_floor_us" not in device_facts([long, older])
    assert device_facts([long, *layers(300.0, 600.0)])["launch_floor_us"]["eager"]["forward"]["rows"] == 1


def test_a_layer_is_a_launch_floor_where_its_kernels_add_next_to_nothing() -> None:
    """The least share that counts is that of a layer whose kernels lengthen its launches by what medians repeat to."""
    kernels_us = 100.0

    def found(floor_us: float) -> dict[str, Any]:
        exposed_us = joined_us(kernels_us, floor_us, LAUNCH_NORM)
        return device_facts([row(LAYER, "forward", 110.0, launch_us=exposed_us - kernels_us, exposed_us=exposed_us)])

    least_us = kernels_us / ((1 + MOST_TOO_LONG) ** LAUNCH_NORM - 1) ** (1 / LAUNCH_NORM)
    assert found(0.99 * least_us) == {}
    (floor,) = found(1.01 * least_us)["launch_floor_us"]["eager"].values()
    assert floor["value"] == pytest.approx(1.01 * least_us, rel=MOST_TOO_LONG)


def test_rows_of_a_cpu_imported_and_quarantined_ones_tell_nothing() -> None:
    rows = [*gemms(1.3), *layers(500.0, 1000.0)]
    assert device_facts(rows)
    for change in ({"threads": 1}, {"origin": "imported"}, {"quarantine": "noisy"}):
        assert device_facts([replace(each, **change) for each in rows]) == {}  # type: ignore[arg-type]


def lines(prediction: Prediction) -> list[str]:
    return last_lines(prediction.provenance, analytic=False)
