"""Calibration by one's own runs: the terms, their widths, and what is refused."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from predict import estimate, load
from predict.cli import main
from predict.layers.run_json import dump_run
from predict.measured_runs.calibrate import medoids
from predict.measured_runs.fit_terms import FAR, Fit, MeasuredRun, at_odds, fit, posterior_of, reach, require_explained
from predict.measured_runs.measured_step import measured_runs
from predict.run.calibration_file import calibrated, calibration_text, scaled
from predict.run.calibration_terms import PRIORS, TERMS, CalibratedRun, Calibration, MeasuredTime, Posterior
from sampling.errors import UserError
from tests.predict.command import Command
from tests.predict.measured_runs.calibration_runs import CONFIG, run, step_us

WIDE_GRADIENTS = "execution.gradient_dtype=fp32"
"""With them a step depends on the network by enough for a calibration to find it."""
IN_A_NODE = ["cluster.nodes=1", "plan.dp=1", "plan.pp=1", "plan.vpp=1", "plan.schedule=1f1b"]
OFF = "further off than the terms of a calibration may stand for"


def measured(factors: Sequence[float]) -> list[MeasuredRun]:
    """Runs that took these times what is predicted of them."""
    runs = [
        run("plan.schedule=1f1b", "plan.vpp=1", f"batch.global={64 * place}", WIDE_GRADIENTS)
        for place in range(1, len(factors) + 1)
    ]
    return [
        MeasuredRun(name=f"run {place}", runs=(one,), measured_us=factor * step_us(one))
        for place, (one, factor) in enumerate(zip(runs, factors, strict=True))
    ]


@cache
def fitted(*factors: float) -> tuple[list[MeasuredRun], Fit]:
    """The same runs, and the terms that are fitted to them."""
    runs = measured(factors)
    return runs, fit(runs)


def test_a_noisy_run_moves_terms_less(tmp_path: Path, command: Command) -> None:
    one = run()

    def moved(p10_to_p90: float, share: float) -> tuple[float, str]:
        median_us = 1.15 * step_us(one)
        times = {"median": median_us, "p10": 0.98 * median_us, "p90": 0.98 * median_us * p10_to_p90}
        place = tmp_path / "step.json"
        place.write_text(json.dumps({"step_time_us": times, "others_shares": [share] * 4}))
        arguments = ["calibrate", CONFIG, "--measured", str(place), "--output", str(tmp_path / "a.yml"), "--json"]
        answer = command.run(*arguments, "--dry-run")
        return json.loads(answer.out)["runs"][0]["after_us"] - step_us(one), answer.err

    (quiet, said), (spread, spread_said), (beside, beside_said) = moved(1.05, 0.0), moved(2.5, 0.0), moved(1.05, 0.5)
    assert quiet > 3 * spread > 0
    assert spread > beside > 0
    assert "noisy:" not in said
    assert "noisy: its steps leave the time uncertain by 36 % (standard deviation)" in spread_said
    assert "noisy: its steps leave the time uncertain by 69 %" in beside_said
    given = [(one, MeasuredTime(step_us=us, source="a", noise=noise)) for us, noise in ((1e7, 0.0), (2e7, 0.5))]
    (repeats,), (alone,) = measured_runs(given), measured_runs(given[1:])
    assert (repeats.measured_us, repeats.noise, len(repeats.times)) == (1e7, 0.0, 2)
    assert (alone.measured_us, alone.noise) == (2e7, 0.5)


@pytest.mark.parametrize("term", TERMS)
def test_each_term_moves_a_step_that_it_has_a_part_in(term: str) -> None:
    one = run()
    floors = replace(one, execution=replace(one.execution, launch_floor_us=50_000.0, stragglers=True))
    slower = step_us(scaled(floors, Calibration(**{term: 1.2})))
    assert step_us(floors) < slower < 1.2001 * step_us(floors)
    assert scaled(one, Calibration()) == one


def test_one_run_moves_the_step_a_part_of_the_way_and_widens_nothing() -> None:
    asked, found = fitted(1.1)
    (one,) = asked
    require_explained(asked, found)
    before = estimate(one.runs[0])
    after = step_us(scaled(one.runs[0], found.terms))
    assert before.median_us < after < one.measured_us
    posterior = Posterior(
        terms=found.terms, covariance=tuple(map(tuple, found.covariance.tolist())), runs=(known(),), date="2026-11-22"
    )
    prediction = estimate(calibrated(one.runs[0], posterior))
    assert prediction.median_us == pytest.approx(after)
    width = math.log(prediction.step_time.high_us / prediction.step_time.low_us) / 2
    assert 0.5 * before.own_half_width < width < before.own_half_width
    assert math.hypot(*prediction.unknowns.values()) == pytest.approx(width, rel=0.1)


@pytest.mark.usefixtures("on_another_cpu")
def test_a_step_of_a_cpu_whose_rows_are_anothers_moves_its_terms_and_narrows_its_other_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, other = (load("configs/runs/demo.yml", [f"batch.global={size}"]) for size in (8, 16))
    before = estimate(other)
    asked = [MeasuredRun(name="one", runs=(one,), measured_us=1.6 * step_us(one))]
    found = fit(asked)
    assert reach(found) is None
    require_explained(asked, found)
    answer = calibrated(other, posterior_of(asked, found))
    after = estimate(answer)
    assert after.median_us == pytest.approx(1.6 * before.median_us, rel=0.1)
    assert after.step_time.low_us < 1.6 * before.median_us < after.step_time.high_us
    assert after.share_left < 0.6
    monkeypatch.setattr("predict.prices.sample_provenance.cpu_name", lambda: "AMD EPYC family 26 model 2")
    with pytest.raises(UserError, match="rest on no rows of this CPU, and the step's on rows of this CPU"):
        estimate(answer)
    of_own_rows = calibrated(other, replace(posterior_of(asked, found), transfer_error=0.0))
    monkeypatch.setattr("predict.prices.sample_provenance.cpu_name", lambda: "Abacus 1")
    with pytest.raises(UserError, match="rest on rows of this CPU, and the step's on rows of another CPU"):
        estimate(of_own_rows)
    nobody_sampled = replace(of_own_rows, cluster=replace(of_own_rows.cluster, profile="nobody-sampled"))
    with pytest.raises(UserError, match="and the step's on stated peaks"):
        estimate(nobody_sampled)


def test_a_calibration_of_another_cluster_is_refused(tmp_path: Path, command: Command) -> None:
    place, width = tmp_path / "terms.yml", (0.01 * np.eye(len(TERMS))).tolist()
    known_run = replace(known(), described=dump_run(run()))
    place.write_text(calibration_text(Posterior(terms=Calibration(products=1.1), covariance=width, runs=(known_run,))))
    faults = {"configs/runs/demo.yml": "it has CPU core", CONFIG: "its links between nodes are others"}
    for config, fault in faults.items():
        links = ["--set", "cluster.inter_node_gb_per_s=7"] if config == CONFIG else []
        assert fault in command.refused("one-batch", config, *links, "--calibration", str(place))
    assert main(["one-batch", CONFIG, "--target-nodes", "16", "--calibration", str(place)]) == 0


def known() -> CalibratedRun:
    return CalibratedRun(run="a", measured_us=1.0, before_us=1.0, after_us=1.0, left_out_us=1.0)


def test_more_runs_narrow_the_terms_and_tell_the_error_of_each_left_out() -> None:
    (_, one), (_, three) = fitted(1.1), fitted(1.1, 1.1, 1.1)
    assert np.all(np.diag(three.covariance) <= np.diag(one.covariance) + 1e-12)
    assert np.all(np.abs(three.after) < np.abs(three.left_out))
    assert np.all(np.abs(three.left_out) < np.abs(three.before))


def test_runs_that_scatter_more_than_expected_leave_wider_intervals() -> None:
    assert fitted(1.05, 1.02, 1.06)[1].scatter == 1
    apart, found = fitted(0.9, 1.0, 1.15)
    require_explained(apart, found)
    assert found.scatter > 1.2
    one = apart[0].runs[0]
    answer, expected = (
        estimate(calibrated(one, replace(posterior_of(apart, found), scatter=scatter)))
        for scatter in (found.scatter, 1.0)
    )
    assert answer.share_left == pytest.approx(found.scatter * expected.share_left, rel=0.15)
    assert expected.share_left <= 1


def test_a_network_is_hardly_faster_than_its_hardware_file_says() -> None:
    slightly, slower, faster = (fitted(*[factor] * 3)[1].terms.between_nodes for factor in (1.1, 1.4, 1 / 1.1))
    assert 0.85 < faster < 1 < slightly < 1.3  # the one of its file
    assert slower > 5  # another one


def test_runs_of_a_machine_of_which_nothing_was_published_move_it_further() -> None:
    def moved(hardware: str) -> float:
        one = run(f"cluster.hardware={hardware}", *IN_A_NODE)
        found = fit([MeasuredRun(name="one", runs=(one,), measured_us=1.3 * step_us(one))])
        return math.log(step_us(scaled(one, found.terms)) / step_us(one))

    assert moved("mi300x") > 2 * moved("h100-sxm") > 0


def test_a_run_that_contradicts_the_others_is_named() -> None:
    asked, found = fitted(1.0, 1.0, 1.7)
    assert at_odds(found) == 2
    with pytest.raises(UserError, match=r"run 2: predicted from the other runs with an error of −\d\d %"):
        require_explained(asked, found)
    assert at_odds(fitted(1.05, 1.02, 1.06)[1]) is None


def test_a_network_may_be_far_slower_where_more_than_one_run_says_so() -> None:
    _, found = fitted(1.4, 1.4, 1.4)
    assert reach(found) is None
    assert found.terms.between_nodes > 7
    in_a_node = run(*IN_A_NODE, "batch.global=64", WIDE_GRADIENTS)
    beside = [*measured([1.4]), MeasuredRun(name="in a node", runs=(in_a_node,), measured_us=step_us(in_a_node))]
    within = reach(fit(beside))
    assert within is not None
    held = fit(beside, within=within).terms
    assert 1.1 < held.between_nodes <= math.exp(FAR / 2 * PRIORS["between_nodes"]) + 1e-9


def test_chosen_runs_are_one_of_each_group() -> None:
    slopes = np.zeros((7, len(TERMS)))
    slopes[:, 0] = [0.50, 0.51, 0.52, 0.90, 0.91, 0.92, 3.0]
    assert sorted(place // 3 for place in medoids(slopes, 3)) == [0, 1, 2]
    assert medoids(slopes, 0) == []


@pytest.mark.parametrize(
    ("times", "fault"),
    [
        (["14.2ms"], "a thousandth of the time that is predicted; give it in the unit that it is in"),
        (["234ms"], "about 1/64 of it, as where the tokens/s of all 64 GPUs are taken for those of one"),
        (["40s"], OFF),
        (["20s"], OFF),
        (["4.6s"], OFF),  # a forward alone
        (["-3s"], "--measured: -3s is below 0; give a value above 0"),
    ],
)
def test_measurements_that_cannot_be_are_refused(
    times: list[str], fault: str, tmp_path: Path, command: Command
) -> None:
    place = tmp_path / "a.yml"
    answer = command.refused("calibrate", CONFIG, "--measured", *times, "--output", str(place))
    assert fault in answer
    assert ("; besides, no samples for profile" in answer) is (fault == OFF)
    assert not place.exists()
