"""A prediction beside traces: made ones with a fault in them, and one that torch's profiler recorded here."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from predict import estimate, load
from predict.measured_runs.explain.explanation import Explanation, explain
from predict.measured_runs.explain.explanation import explained as explained_step
from predict.measured_runs.explain.predicted import predicted_step
from predict.measured_runs.explain.read_traces import read_measured
from predict.measurement.real_step import measure
from predict.measurement.system_noise import OTHERS
from predict.prices.cost_model import CallPhase
from predict.prices.open import forget_prices
from predict.prices.sampled import WithinSamples
from predict.reports.explanation import explanation_report, measured_text
from predict.step.breakdown import BUBBLE
from regressors.bank.times import Times
from sampling.errors import UserError
from sampling.hardware.cluster import Cluster
from sampling.number_text import signed_percent
from sampling.operators.attention import Attention
from tests.predict.command import Command
from tests.predict.measured_runs.explain.made_traces import CONFIG, event, prediction, step_events, write

TENTH_OF_STEP_US = 40_000.0
FAULTS: dict[str, tuple[list[dict[str, float]], str]] = {
    "none": ([{}, {}], "none"),
    "sleeping rank": ([{"idle_us": TENTH_OF_STEP_US}, {"late_us": TENTH_OF_STEP_US}], "standstill"),
    "one slow rank": ([{"compute": 2.0}, {}], "slow_rank"),
    "all slow": ([{"compute": 2.0}, {"compute": 2.0}], "slow_compute"),
    "all 1.5 times": ([{"compute": 1.5}, {"compute": 1.5}], "slow_compute"),
    "attention": ([{"attention": 4.0}, {"attention": 4.0}], "attention"),
    "unfused attention": ([{"unfused": True}, {}], "attention"),
    "collective": ([{"collective": 3.0}, {"collective": 3.0}], "communication"),
}


def explained(folder: Path, ranks: list[dict[str, float]]) -> Explanation:
    of = prediction()
    return explain(of.run, trace=write(folder, [step_events(of, **fault) for fault in ranks]))


@pytest.mark.parametrize(("ranks", "cause"), FAULTS.values(), ids=FAULTS)
def test_the_first_cause_is_the_fault_that_was_put_in(
    tmp_path: Path, ranks: list[dict[str, float]], cause: str
) -> None:
    found = explained(tmp_path, ranks)
    assert found.verdict[0].cause == cause, found.verdict
    assert sum(term.measured_us for term in found.terms) + found.unexplained_us == pytest.approx(found.measured.step_us)
    assert sum(term.predicted_us for term in found.terms) == pytest.approx(found.predicted.step_us)


def test_the_profilers_time_and_kernels_without_an_operator_are_reported(tmp_path: Path) -> None:
    of = prediction()
    steps = step_events(of)
    last = steps[-1]
    steps[-1] = last | {"dur": 1.25 * last["dur"]}
    steps.append(event("aten::own_kernel", last["ts"] + last["dur"], 0.25 * last["dur"]))
    found = explain(of.run, trace=write(tmp_path, [steps, steps]), log=f"{last['dur']}us")
    costs = {finding.cause: finding.cost_us for finding in found.verdict}
    assert costs["profiler"] == found.profiler_us == pytest.approx(0.25 * last["dur"])
    assert costs["unexplained"] == pytest.approx(found.unexplained_us)
    assert found.unexplained_us == pytest.approx(0.8 * 0.25 * last["dur"], rel=0.05)
    assert found.measured.step_us == pytest.approx(last["dur"])
    assert sum(term.measured_us for term in found.terms) + found.unexplained_us == pytest.approx(last["dur"])


@pytest.mark.parametrize(("noted", "is_noisy"), [(OTHERS, True), ("", False), (["spread"], False)])
def test_a_noisy_run_says_so_in_its_header_and_after_its_causes(tmp_path: Path, noted: object, is_noisy: bool) -> None:
    of = prediction()
    measured = replace(read_measured(write(tmp_path, [step_events(of)]), of.run), facts={"noise": noted})
    assert ("noise" in {finding.cause for finding in explained_step(of, measured).verdict}) is is_noisy
    assert any("NOISY: other processes" in line for line in measured_text(measured)) is is_noisy


def test_waiting_for_a_late_rank_is_distinguished_from_the_transfer(tmp_path: Path) -> None:
    found = explained(tmp_path, [{"idle_us": TENTH_OF_STEP_US}, {"late_us": TENTH_OF_STEP_US}])
    messages = [rank.messages["dp_exposed"] for rank in found.measured.ranks]
    assert [each.waiting_us for each in messages] == pytest.approx([0, TENTH_OF_STEP_US])
    assert "Rank 0 stood still for 40.0 ms" in found.verdict[0].text


def device(name: str, start: float, duration: float, launch: int, **arguments: Any) -> dict[str, Any]:
    return event(name, start, duration, "kernel", correlation=launch, **arguments) | {"pid": 0, "tid": 7}


def launch(start: float, number: int) -> dict[str, Any]:
    return event("cudaLaunchKernel", start, 2.0, "cuda_runtime", correlation=number)


DEVICE_STEP = [
    event("ProfilerStep#7", 0, 4000, "user_annotation"),
    event("aten::mm", 5, 20, **{"Input Dims": [[768, 256], [256, 704]], "Input type": ["float", "float"]}),
    launch(10, 1),
    device("gemm", 100, 300, 1),
    launch(40, 2),
    device("ncclDevKernel_AllReduce", 300, 200, 2, **{"Collective name": "allreduce"}),
    launch(520, 3),
    device("elementwise", 600, 50, 3),
    launch(530, 4),
    device("elementwise", 3000, 100, 4),
    launch(540, 5),
    device("elementwise", 3110, 40, 5),
]


def test_on_a_device_a_long_pause_is_idle_unless_the_next_kernel_was_launched_late(tmp_path: Path) -> None:
    on_gpu = ["cluster.hardware=h100-sxm", "cluster.profile=analytic", "execution.fuse_gate=false"]
    measured = read_measured(write(tmp_path, [DEVICE_STEP]), load(CONFIG, on_gpu))
    seen = measured.headings
    # from the first kernel's start: compute, the part of the message that it does not hide, launches, and a device that waits;
    # the 10 µs between two kernels are a launch's
    assert seen == {"gemm": 300.0, "dp_exposed": 100.0, "host": 110.0, "unnamed": 190.0, "idle": 2350.0}
    assert measured.step_us == 3050.0
    assert measured.messages("dp_exposed").hidden_us == 100.0  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("config", "settings", "device_step", "fault"),
    [
        (CONFIG, ["plan.dp=1", "cluster.gpus_per_node=1"], False, "a world size of 2, the config one of 1"),
        (CONFIG, [], True, "holds kernels of a GPU, the config is for a CPU"),
        (
            CONFIG,
            ["batch.seq_len=112"],
            False,
            "0 % of the time of its matrix products is of shapes that the config has",
        ),
        (
            "configs/runs/llama3-70b-64xh100.yml",
            [],
            False,
            "a world size of 2, the config one of 64; it holds no kernels of a GPU",
        ),
    ],
)
def test_a_trace_of_another_run_is_refused(
    config: str, settings: list[str], device_step: bool, fault: str, tmp_path: Path, command: Command
) -> None:
    folder = write(tmp_path, [DEVICE_STEP if device_step else step_events(prediction())])
    for name in ("explain", "what-if"):
        assert fault in command.refused(name, config, "--trace", str(folder), *(f"--set={each}" for each in settings))
        if settings:
            break  # those of what-if are the question, not the traced run


@pytest.mark.parametrize(
    ("times", "scale", "log", "fault"),
    [
        (1, 1000.0, "", " s, about a thousand times the "),
        (2, 1.0, "", "run 2 times as often in a step as the config's"),
        (1, 1.0, "400s", "--log: a step of 400 s, where the traced one takes "),
    ],
)
def test_a_trace_in_another_unit_or_of_more_steps_and_a_log_of_another_run_are_refused(
    times: int, scale: float, log: str, fault: str, tmp_path: Path, command: Command
) -> None:
    step = step_events(prediction())
    whole_us = step[-1]["dur"]
    events = [
        each | {"ts": scale * (each["ts"] + turn * whole_us), "dur": scale * each["dur"]}
        for turn in range(times)
        for each in step[:-1]
    ]
    events.append(event("ProfilerStep#1", 0.0, scale * times * whole_us, "user_annotation"))
    asked = ["explain", CONFIG, "--trace", str(write(tmp_path, [events, events])), *(["--log", log] if log else [])]
    assert fault in command.refused(*asked)


def test_parts_of_layers_that_were_sampled_whole_alone_are_marked_and_not_accused(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(tmp_path, [step_events(prediction(), attention=4.0)] * 2)
    known = WithinSamples.times

    def layers_alone(self: WithinSamples, calls: Sequence[CallPhase], cluster: Cluster) -> list[Times | None]:
        found = known(self, calls, cluster)
        return [None if isinstance(call, Attention) else time for (call, _), time in zip(calls, found, strict=True)]

    monkeypatch.setattr(WithinSamples, "times", layers_alone)
    forget_prices()
    is_noisy = command.json("explain", CONFIG, "--trace", str(folder))
    forget_prices()
    assert [term["name"] for term in is_noisy["terms"] if term.get("guessed")] == ["attention"]
    assert "attention" not in is_noisy["causes"]


def test_one_rank_accuses_no_network(tmp_path: Path) -> None:
    alone = explained(tmp_path, [{"late_us": 10 * TENTH_OF_STEP_US}])
    assert "communication" not in {finding.cause for finding in alone.verdict}
    error = alone.predicted.step_us / alone.measured.step_us - 1  # the sign that `validate` gives it
    assert error < -0.01
    text = "\n".join(map(str, explanation_report(alone).renderables))  # type: ignore[attr-defined]
    assert f"; error {signed_percent(error)})" in text


def test_the_predicted_ledger_is_that_of_the_traced_pipeline_ranks() -> None:
    of = estimate(load("configs/runs/llama3-70b-64xh100.yml"))
    first, last = (predicted_step(of, [rank]) for rank in (0, 3))
    assert "cross_entropy" not in first.headings and last.headings["cross_entropy"] > 0
    assert first.headings[BUBBLE] != last.headings[BUBBLE]
    whole = predicted_step(of)
    of_each = [predicted_step(of, [rank]).headings.get("gemm", 0.0) for rank in range(4)]
    assert whole.headings["gemm"] == pytest.approx(sum(of_each) / 4)


def test_two_traces_of_one_rank_and_a_trace_without_a_step_are_refused(tmp_path: Path) -> None:
    of = prediction()
    twice = write(tmp_path / "twice", [step_events(of)])
    (twice / "again.json").write_bytes((twice / "rank0.json").read_bytes())
    with pytest.raises(UserError, match="both of rank 0"):
        explain(of.run, trace=twice)
    with pytest.raises(UserError, match="holds no operators or kernels"):
        explain(of.run, trace=write(tmp_path / "empty", [[]]))


@pytest.mark.usefixtures("starts_warm")
def test_a_recorded_step_closes_and_its_operators_have_names(tmp_path: Path, command: Command) -> None:
    small = ["batch.global=2", "batch.micro=1"]
    run = load(CONFIG, small)
    timed = measure(run, steps=2, warmup=1, trace=tmp_path)
    found = explain(run, trace=tmp_path)
    assert (found.traced.untraced_us, found.traced.noise) == (pytest.approx(timed.median_us), timed.noise)
    named_us = sum(term.measured_us for term in found.terms)
    assert named_us == pytest.approx(found.measured.step_us, rel=0.05)
    assert found.measured.matched_share > 0.95
    printed = command.json("explain", CONFIG, "--trace", str(tmp_path), *(f"--set={each}" for each in small))
    assert printed["version"] == 1 and printed["verdict"]
    assert sum(term["measured_us"] for term in printed["terms"]) + printed["unexplained_us"] == pytest.approx(
        printed["step_us"]["measured"]
    )
