"""Servers side by side: every row is the config's own answer, the best first, and a combination that cannot run keeps its reason."""

import csv
import json
from dataclasses import replace
from math import hypot, log
from pathlib import Path

import pytest

import predict
from predict.kinds import ServerOptions
from predict.plan_search.serving import KIND, ORDERS, carried
from predict.plan_search.sweep import SweptRows, opened, swept_space
from predict.plan_search.ties import REPEATS
from predict.reports.search_columns import server_columns
from predict.serving.coefficients import coefficients_json, shipped_coefficients
from predict.serving.config import load_serving
from predict.serving.loaded_server import LoadedServer
from predict.serving.questions import ServerAnswer
from predict.serving.stepper import Stepper
from sampling.errors import InfeasibleError, UserError
from tests.predict.command import Command
from tests.predict.serving.servers import CONFIG, SHORT

FORMULA = shipped_coefficients("formula")
SMALL = (*SHORT, "engine.max_num_seqs=8", "load.rate=2")


def options(settings: tuple[str, ...]) -> list[str]:
    return [part for each in settings for part in ("--set", each)]


def swept(vary: list[str], settings: tuple[str, ...] = (), slo: tuple[str, ...] = ()) -> SweptRows[ServerAnswer]:
    asked = ServerOptions(slo=slo, price="$2/gpu-h", model="formula")
    return swept_space(CONFIG, vary, settings, predict.estimate, asked).rows()


def opened_keys(config: Path, settings: list[str]) -> tuple[dict[str, tuple[object, ...]], list[str]]:
    """The open keys with their values, none for those of `auto`, and the other settings."""
    varied, others = opened(KIND, config, settings)
    return {each.path: each.values for each in varied}, others


@pytest.fixture(scope="module")
def found() -> SweptRows[ServerAnswer]:
    return swept(["placement.tp=1,2,3", "engine.max_num_seqs=4,8"], SHORT)


def test_rows_are_the_configs_own_answers(found: SweptRows[ServerAnswer]) -> None:
    row = next(row for row in found.rows if row.settings == {"placement.tp": 2, "engine.max_num_seqs": 4})
    run = load_serving(CONFIG, [*SHORT, "placement.tp=2", "engine.max_num_seqs=4"])
    alone = LoadedServer(run, Stepper(run.server, FORMULA))
    assert row.prediction is not None
    assert row.prediction.capacity == alone.capacity()
    assert row.prediction.outcomes[0].latency == alone.as_configured().latency
    reasons = [row.reason for row in found.rows if row.prediction is None]
    assert [reason.partition(" does")[0] for reason in reasons] == ["--vary: placement.tp: 3"] * 2


@pytest.mark.parametrize("name", list(ORDERS))
def test_the_best_come_first_and_what_cannot_run_last(found: SweptRows[ServerAnswer], name: str) -> None:
    rows = found.ordered(name).rows
    values = [ORDERS[name].value(row.prediction) for row in rows if row.prediction]
    assert values == sorted(values)
    assert [row.prediction is None for row in rows] == [False] * 4 + [True] * 2


def test_cost_orders_as_the_money_does() -> None:
    """Where answers differ in length, the least GPU time per request is not the least money per token."""
    rows = swept(["load.output=10,50"], SMALL)
    first = {name: rows.ordered(name).rows[0] for name in ("cost", "gpu-time")}
    assert [each.settings["load.output"] for each in first.values()] == [50, 10]
    costs = [row.prediction.capacity_cost for row in rows.ordered("cost").rows if row.prediction]
    money = [cost.output.median for cost in costs if cost]
    assert len(money) == 2
    assert money == sorted(money)


def test_an_objective_that_a_placement_cannot_keep_leaves_it_out() -> None:
    rows = swept(["placement.tp=1,2"], SMALL, ("tpot_mean=6ms",)).rows
    assert [bool(row.prediction) for row in rows] == [False, True]
    assert "no rate keeps it" in rows[0].reason
    with pytest.raises(InfeasibleError, match="none of 2 combinations can run"):
        swept(["placement.tp=1,2"], SMALL, ("e2e_p90=1ms",))


def test_open_keys_of_a_config_and_of_settings() -> None:
    assert opened_keys(CONFIG, ["load.rate=3"]) == ({"placement.tp": ()}, ["load.rate=3"])
    keys, others = opened_keys(CONFIG, ["placement.tp=[1, 2]", "engine.max_num_seqs=64..256", "load.rate=3"])
    assert keys == {"placement.tp": (1, 2), "engine.max_num_seqs": (64, 128, 256)}
    assert others == ["load.rate=3"]
    with pytest.raises(UserError, match=r"placement\.dp: auto is for placement\.tp"):
        opened_keys(CONFIG, ["placement.dp=auto"])


def test_a_key_with_one_value_by_a_setting_is_not_open(tmp_path: Path) -> None:
    config = tmp_path / "open.yml"
    config.write_text(CONFIG.read_text().replace("tp: 1", "tp: [1, 2], dp: [1, 2]"))
    assert opened_keys(config, []) == ({"placement.tp": (1, 2), "placement.dp": (1, 2)}, [])
    assert opened_keys(config, ["placement.tp=4"]) == ({"placement.dp": (1, 2)}, ["placement.tp=4"])
    assert opened_keys(config, ["placement.tp=4", "placement.tp=1..2"])[0]["placement.tp"] == (1, 2)
    for setting in ("placement.tp=4", "placement={tp: 4}"):
        with pytest.raises(UserError, match=r"placement\.tp: --set gives it, and no other key is open"):
            opened_keys(CONFIG, [setting])


@pytest.mark.parametrize(("hardware", "most"), [("GB200", 64), ("GH200", 1), (["GB200", "H100"], 64)])
def test_auto_goes_up_to_the_gpus_of_a_node(hardware: str | list[str], most: int) -> None:
    chosen = KIND.automatic(CONFIG, (), {"hardware": hardware}, ["placement.tp"])
    assert chosen["placement.tp"][-1] == most


def test_fitted_weights_alone_are_independent_between_servers_of_one_model() -> None:
    """That no weight was fitted to an architecture moves both alike."""
    first, other = swept(["placement.tp=1,2"], (*SMALL, "hardware=B200")).predictions
    stepper = first.server.stepper
    assert stepper.half_width > stepper.coefficients.half_width > 0
    share = stepper.coefficients.half_width / stepper.half_width
    widths = [share * carried(each).half_width_log for each in (first, other)]
    assert KIND.rate_ratio(first, other).half_width_log == pytest.approx(hypot(*widths))
    assert KIND.rate_ratio(first, first).half_width_log == pytest.approx(REPEATS)


def test_unknown_keys_are_reported_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r"'placement\.t' is not a key of a serving config.*'placement\.tp'"):
        swept(["placement.t=1"])


def test_commands_sweep_search_and_compare(tmp_path: Path, command: Command) -> None:
    table = tmp_path / "servers.csv"
    swept = ["sweep", str(CONFIG), "--vary", "placement.tp=1,2", *options(SMALL), "--price", "2EUR/gpu-h"]
    command.run(*swept, "--output", str(table))
    rows = list(csv.DictReader(table.open()))
    assert [(row["tp"], row["n_cards"], row["reason"]) for row in rows] == [("1", "1", ""), ("2", "2", "")]
    assert float(rows[1]["e2e_s"]) < float(rows[0]["e2e_s"])
    searched = ["search", str(CONFIG), "--set", "placement.tp=[1, 2]", *options(SMALL)]
    (best,) = command.json(*searched, "--objective", "tpot", "--top", "1")["best"]
    assert best["settings"] == {"placement.tp": 2}
    compared = command.json("compare", str(CONFIG), str(CONFIG), *options(SMALL))
    (between,) = compared["carried_ratios"]
    assert between["median"] == 1
    assert log(between["high"]) == pytest.approx(REPEATS)  # one server beside itself
    own = tmp_path / "own.json"
    own.write_text(json.dumps(coefficients_json(replace(FORMULA, source="my own"))))
    for asked in (swept, searched, ["compare", str(CONFIG), str(CONFIG), *options(SMALL)]):
        for given in (["--coefficients", str(own)], ["--coefficients", str(own), "--model", "formula"]):
            assert "step by formula; coefficients: my own" in command.text(*asked, *given)
        assert "own.json is for the model formula, not kernels" in command.refused(
            *asked, "--coefficients", str(own), "--model", "kernels"
        )


def test_the_gpus_of_a_row_are_those_of_all_replicas() -> None:
    settings = [*SMALL, "load.duration_s=5", "fleet.replicas=3", "placement.tp=2"]
    found = predict.serving_answer(CONFIG, settings, model="formula")
    gpus = next(column for column in server_columns(found) if column.heading == "GPUs")
    assert gpus.value(found) == 6


def test_a_table_has_yes_and_no_and_every_fault_of_a_combination_under_it(command: Command) -> None:
    keys = ("--vary", "placement.expert_parallel=true,false", "--vary", "placement.tp=1,3")
    text = command.text("sweep", str(CONFIG), *options((*SMALL, "model=qwen3-30b-a3b")), *keys, "--model", "formula")
    assert "True" not in text and "False" not in text
    assert "\n  yes · 3: --vary: placement.tp: 3 does not divide" in text
    assert "\n    --vary: placement.expert_parallel: the 128 experts" in text
