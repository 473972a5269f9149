"""Attention by a kernel that a framework names: sampled by the software's own choice, priced from the kernel that ran."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from predict import estimate, load
from predict.prices.collectives import CollectiveCorrection
from predict.prices.cost_model import CallPhase
from predict.prices.open import SpeedOfLight, open_prices
from predict.prices.price_list import HALVES, PriceList
from predict.prices.sampled import WithinSamples
from predict.run.execution import Execution
from predict.workload.decompose import decompose, requests_of_runs
from regressors.bank.times import Times
from regressors.train import train
from sampling.call import Call, Counted, Phase, State
from sampling.cells.layer import DenseLayer
from sampling.files.places import CONFIGS, DATA_VARIABLE
from sampling.hardware.cluster import Cluster, load_cluster
from sampling.operators.attention import Attention
from sampling.operators.gemm import Gemm
from sampling.store.profiles import Manifest, write_manifest
from sampling.store.sample import Sample
from sampling.store.tables import write_table
from tests.made_rows import row
from tests.predict.step.ledger_sums import assert_ledger_holds
from tests.predict.step.small_runs import run
from tests.regressors.few_trees import few_trees
from tests.tiny_runs import calls_of

HOPPER = load_cluster(hardware="h100-sxm", nodes=1, gpus_per_node=1, profile="test")
OWN_CHOICE = Attention(dtype="bf16", batch=1, seq_len=4096, heads=32, kv_heads=8, head_dim=128, causal=True)
FLASH_2 = 1.7
"""FlashAttention-2's time over the best kernel's on Hopper (predict/prices/kernels/attention.py)."""


class Sampled:
    """A model of attention by the software's own choice alone, 100 µs whatever its shape."""

    def times(self, calls: Sequence[CallPhase], cluster: Cluster) -> list[Times | None]:
        time = Times(median_us=100.0, low_us=90.0, high_us=110.0, source="measured")
        return [time if call == OWN_CHOICE else None for call, _ in calls]


@pytest.mark.parametrize(
    ("ran", "asked", "factor"),
    [
        ("", "fa2", FLASH_2),
        ("cudnn", "fa2", FLASH_2),
        ("flash", "fa2", 1.0),
        ("flash", "fa3", 1 / FLASH_2),
        ("cudnn", "cudnn", 1.0),
        ("flash", "", 1.0),
    ],
)
def test_a_kernel_is_priced_from_the_one_that_ran(ran: str, asked: str, factor: float) -> None:
    model = WithinSamples(Sampled(), CollectiveCorrection(Sampled()), ran)
    (time,) = model.times([(replace(OWN_CHOICE, kernel=asked), "forward")], HOPPER)
    assert time is not None
    assert time.median_us == pytest.approx(100.0 * factor)


@pytest.mark.parametrize("kernel", ["fa2", "fa3", "cudnn"])
def test_a_sampler_is_asked_for_attention_that_it_can_time(kernel: str) -> None:
    run = load(CONFIGS / "runs" / "llama3-70b-64xh100.yml", [f"execution.attention={kernel}"])
    calls = [request.call for requests in requests_of_runs([run]).values() for request in requests]
    attentions = [call for call in calls if isinstance(call, Attention)]
    assert attentions
    assert {call.kernel for call in attentions} == {""}


# The clocks of samples, from the rows of a profile to the price of a run: each effect counts one time.

SIZES = (1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288)
RATIO = 1.2
"""Sustained over burst time of the rows; the hardware file says 1.12."""
ASKED = Gemm(dtype="bf16", m=4096, n=4096, k=4096)


def burst_us(gemm: Gemm) -> float:
    return 5.0 + gemm.flops("forward") / 700e6


def of_size(size: int, state: State) -> Sample:
    call = replace(ASKED, m=size, n=size)
    time_us = burst_us(call) * (RATIO if state == "sustained" else 1.0)
    return row(call, "forward", time_us, spread=0.001, repeats=50, state=state)


ROWS = {
    "both": [of_size(size, state) for size in SIZES for state in ("burst", "sustained")],
    "burst": [of_size(size, "burst") for size in SIZES],
    "one sustained": [*(of_size(size, "burst") for size in SIZES), of_size(SIZES[0], "sustained")],
}


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The data folder of a profile with these rows, fitted when it is first asked for."""

    @cache
    def data_of(rows: str) -> Path:
        data = tmp_path_factory.mktemp("data")
        samples = data / "samples" / "mine"
        device = {"name": "NVIDIA H200", "count": 1, "memory_gib": 139.8}
        write_manifest(samples, Manifest(profile="mine", hardware="h200", device=device))
        write_table(samples, "gemm", ROWS[rows])
        output = data / "regressors" / "mine"
        with few_trees():
            train(samples=samples, output=output, fitted_at="", jobs=1, progress=lambda done, total, name: None)
        return data

    return data_of


@pytest.mark.parametrize(
    ("rows", "clocks", "factor"),
    [
        ("both", "sustained", RATIO),
        ("both", "burst", 1.0),
        ("burst", "sustained", 1.12),
        ("burst", "burst", 1.0),
        ("one sustained", "burst", 1.0),
    ],
)
def test_the_clocks_of_a_long_run_count_once(
    rows: str, clocks: str, factor: float, fitted: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DATA_VARIABLE, str(fitted(rows)))
    prices = open_prices(
        load_cluster(hardware="h200", nodes=1, gpus_per_node=1, profile="mine"), Execution(clocks=clocks)
    )
    (priced,) = prices.priced([Counted(call=ASKED, phase="forward")])
    assert priced.time.source == "measured"
    assert priced.time.median_us == pytest.approx(factor * burst_us(ASKED), rel=0.01)


# Halves of a backward where samples know the whole alone: its shares by FLOPs, never its parts.

WHOLE_US = 3000.0


class SampledPhases:
    """Cells whose listed phases were sampled."""

    def __init__(self, *phases: Phase) -> None:
        self.phases = phases

    def times(self, calls: Sequence[tuple[Call, Phase]], cluster: Cluster) -> list[Times | None]:
        return [self._time(phase) if call.NAME == "dense_layer" else None for call, phase in calls]

    def _time(self, phase: Phase) -> Times | None:
        time_us = {"backward": WHOLE_US, "backward_accumulate": WHOLE_US + 100.0}.get(phase, 1000.0)
        return (
            Times(median_us=time_us, low_us=time_us, high_us=time_us, source="measured")
            if phase in self.phases
            else None
        )


def layer(tp: int = 1) -> DenseLayer:
    (call,) = {
        counted.call
        for counted in calls_of(decompose(run(pp=2, tp=tp, schedule="zb-h1"))[0].chunks[0].forward)
        if isinstance(counted.call, DenseLayer)
    }
    return call


def halves_us(*phases: Phase, tp: int = 1) -> list[float]:
    subject = run(pp=2, tp=tp)
    prices = PriceList([SampledPhases(*phases), SpeedOfLight()], subject.cluster, profile_error=0.0)
    return [sum(unit.total_us for unit in prices.priced([Counted(call=layer(tp), phase=half)])) for half in HALVES]


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("also", [(), ("backward_input",), ("backward_weight",)])
def test_a_whole_without_both_of_its_halves_is_split_by_flops(tp: int, also: tuple[Phase, ...]) -> None:
    of_input, of_weight = halves_us("forward", "backward", *also, tp=tp)
    call = layer(tp)
    assert of_input + of_weight == pytest.approx(WHOLE_US)
    assert of_input / of_weight == pytest.approx(call.flops("backward_input") / call.flops("backward_weight"))
    assert of_input > of_weight


def test_sampled_halves_keep_their_own_prices() -> None:
    assert halves_us("backward", *HALVES) == [1000.0, 1000.0]


def test_without_a_sampled_whole_the_parts_are_taken() -> None:
    assert halves_us("forward") == pytest.approx(halves_us())


def test_a_split_whole_leaves_a_step_measured_and_no_shorter_than_its_work() -> None:
    """B and W of a layer take what BW does, accumulation included."""

    def priced(schedule: str) -> tuple[float, float]:
        subject = run(pp=2, tp=2, schedule=schedule)
        sampled = SampledPhases("forward", "backward", "backward_accumulate")
        result = estimate(subject, prices=PriceList([sampled, SpeedOfLight()], subject.cluster, profile_error=0.0))
        assert_ledger_holds(result)
        return float(result.timeline.busy.sum()), result.sources["measured"]

    (whole_us, whole_share), (parted_us, parted_share) = priced("1f1b"), priced("zb-h1")
    assert parted_us == pytest.approx(whole_us, rel=0.01)
    assert parted_share == pytest.approx(whole_share, rel=0.01)
