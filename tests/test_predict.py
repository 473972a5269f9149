"""The Python face: its names, its one path, and how little it imports."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from functools import lru_cache
from pathlib import Path

import pytest

import predict
from predict import kinds
from predict.kinds import RL, SERVING, TRAINING
from predict.memory.advice import smallest_cluster
from predict.prices import open as prices_module
from predict.schedules import order_files, registry
from predict.schedules.order_files import write_order
from predict.step.scheduling import compare_schedules
from predict.workload import decompose as decompose_module
from sampling.errors import InfeasibleError, UserError
from sampling.files.places import CONFIGS
from tests.predict.workload.parallel_runs import made

DEMO = CONFIGS / "runs" / "demo.yml"
OF_KIND = {
    TRAINING: DEMO,
    SERVING: CONFIGS / "serving" / "this-machine" / "quiet.yml",
    RL: CONFIGS / "rl" / "this-machine" / "grpo.yml",
}
OPEN = {TRAINING: "batch.micro=1,2", SERVING: "load.rate=1,2", RL: "rl.n=2,4"}
"""Keys of each kind that vary."""


def test_the_public_names_are_sorted_and_there() -> None:
    assert predict.__all__ == sorted(predict.__all__)
    assert all(getattr(predict, name) for name in predict.__all__)
    with pytest.raises(AttributeError, match="no attribute 'two_batches'"):
        predict.two_batches  # noqa: B018


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (
            lambda: predict.days(predict.one_batch(DEMO), [2e12]),
            "days: tokens: .* is not allowed; give text or a number",
        ),  # type: ignore[arg-type]
        (lambda: predict.days(predict.one_batch(DEMO), "2T", goodput="0.9"), "goodput: '0.9' is not allowed; give a"),  # type: ignore[arg-type]
        (lambda: predict.estimate(DEMO), "estimate: run: .* is not allowed; give a run, as predict.load makes it"),  # type: ignore[arg-type]
        (
            lambda: predict.load(DEMO, ["plan.tp=2", 3], target_nodes="2"),
            "(?s)give a list of KEY=VALUE.*target_nodes: '2'",
        ),  # type: ignore[arg-type, list-item]
        (
            lambda: predict.one_batch(DEMO, "plan.tp=2"),
            r"overrides: 'plan.tp=2' is not allowed; give a list of KEY=VALUE",
        ),
        (lambda: predict.report(str(DEMO)), "configs: .* is not allowed; give a list of paths"),
        (lambda: predict.compare(DEMO, DEMO, overrides={"plan.tp": 2}), "give a list of KEY=VALUE"),  # type: ignore[arg-type]
        (lambda: predict.schema("runs"), "give one of training, rl, serving, truth"),  # type: ignore[arg-type]
    ],
)
def test_an_argument_of_a_wrong_type_is_refused_with_what_to_give(call: Callable[[], object], problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        call()


def test_tokens_are_a_number_or_text() -> None:
    prediction = predict.one_batch(DEMO)
    assert predict.days(prediction, 2e12) == predict.days(prediction, "2T")


def test_importing_predict_loads_no_numeric_library() -> None:
    program = "import sys, predict; print([name for name in ('numpy', 'yaml', 'torch') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_prediction_has_what_renderers_show() -> None:
    prediction = predict.one_batch(DEMO)
    assert isinstance(prediction, predict.Prediction)
    assert prediction.median_us == prediction.step_time.median_us == predict.one_batch_predict(DEMO)
    assert prediction.memory.point_bytes == predict.one_batch_memory(DEMO).point_bytes
    assert prediction.smallest_cluster == smallest_cluster(prediction.memory)
    assert max(rank.total.max() for rank in prediction.memory_timeline) == pytest.approx(prediction.memory.point_bytes)
    assert prediction.provenance["profile"] == prediction.run.cluster.profile
    with pytest.raises(FrozenInstanceError):
        prediction.median_us = 0.0  # type: ignore[misc]


def test_a_loaded_run_stays_as_it_is() -> None:
    run = predict.load(DEMO)
    assert predict.load(run) is run
    assert predict.schedule(run, schedules="afab,1f1b").run is not None
    with pytest.raises(
        UserError, match=r"overrides: demo is loaded and stays as it is, so plan\.tp=2 cannot be set; give its config"
    ):
        predict.one_batch(run, ["plan.tp=2"])
    with pytest.raises(UserError, match="demo is loaded and stays as it is"):
        predict.load(run, target_nodes=2)


@pytest.mark.parametrize("kind", [TRAINING, SERVING, RL])
def test_a_loaded_run_of_any_kind_is_taken_where_a_config_is_read_once(kind: str) -> None:
    run = kinds.kind(kind).load(OF_KIND[kind], [])
    first, *others = predict.compare(run, OF_KIND[kind])
    assert others == [] and first.settings == {}
    assert predict.sensitivity(run).settings == ()
    assert predict.one_batch_memory(run)
    with pytest.raises(UserError, match="stays as it is"):
        predict.sweep(run, [OPEN[kind]])
    with pytest.raises(UserError, match=r"it is a loaded run of .* config; give the config itself"):
        predict.search(run)


def test_overrides_and_nodes_change_the_loaded_run() -> None:
    assert predict.load(DEMO, ["plan.pp=1", "plan.tp=2"]).plan.tp == 2
    large = predict.load(CONFIGS / "runs" / "llama3-70b-64xh100.yml", target_nodes=16)
    assert (large.cluster.nodes, large.cluster.world_size) == (16, 128)


def test_the_memory_of_a_plan_is_counted_when_it_is_asked_for() -> None:
    prediction = predict.estimate(made("llama3-8b"))
    assert not {"memory", "step_time", "breakdown_us"} & set(vars(prediction))
    assert prediction.memory is prediction.memory


def test_an_order_file_is_read_once_on_loading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = DEMO.read_text().replace("../", f"{CONFIGS}/").replace("schedule: 1f1b", "schedule: mine.csv")
    (tmp_path / "run.yml").write_text(text)
    write_order(registry.order("zb-h1", ranks=2, chunks=1, microbatches=4), tmp_path / "mine.csv")
    reads: list[Path] = []
    read = order_files._read.__wrapped__

    def counted(absolute: Path, *state: object) -> object:
        reads.append(absolute)
        return read(absolute, *state)

    monkeypatch.setattr(order_files, "_read", lru_cache(counted))
    run = predict.load(tmp_path / "run.yml")
    (tmp_path / "mine.csv").unlink()
    prediction = predict.estimate(run)
    assert prediction.memory.verdict == "FITS"
    assert prediction.median_us == predict.one_batch_predict(DEMO, ["plan.schedule=zb-h1"])
    assert len(reads) == 1


def test_best_prices_each_plan_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decomposed: list[str] = []
    original = decompose_module.decompose

    def counted(run: object) -> object:
        decomposed.append(run.plan.schedule)  # type: ignore[attr-defined]
        return original(run)  # type: ignore[arg-type]

    monkeypatch.setattr(decompose_module, "decompose", counted)
    chosen = predict.estimate(made("llama3-8b", plan__pp=4, plan__schedule="best"))
    assert chosen.run.plan.schedule in decomposed
    assert len(decomposed) == len(set(decomposed)) > 1


def test_best_is_the_fastest_schedule_that_fits_the_device() -> None:
    """The fastest schedule of all holds more than the device has; best takes the fastest of those that do not."""
    run = made("llama3-8b", plan__pp=4, plan__schedule="best", batch__global=64)
    free = predict.estimate(run)
    room = 0.99 * free.memory.point_bytes
    small = replace(run, cluster=replace(run.cluster, gpu=replace(run.cluster.gpu, memory_gib=room / 2**30 / 0.9948)))
    chosen = predict.estimate(small)
    assert chosen.memory.point_bytes <= room < free.memory.point_bytes
    assert chosen.median_us >= free.median_us
    prices = prices_module.open_prices(small.cluster, small.execution)
    outcomes, _ = compare_schedules(
        small, registry.names(), lambda named: predict.estimate_as_scheduled(named, prices=prices)
    )
    assert outcomes[0].name == chosen.run.plan.schedule
    assert next(each for each in outcomes if each.name == free.run.plan.schedule).why_not.startswith("needs")  # type: ignore[union-attr]


def test_where_no_schedule_fits_the_smallest_peak_is_named() -> None:
    with pytest.raises(
        InfeasibleError, match=r"the smallest peak is [\d.]+ GiB per device \(.+\), which has 79\.58 GiB"
    ) as found:
        predict.estimate(made("llama3-70b", plan__pp=4, plan__schedule="best"))
    assert found.value.exit_code == 4
