"""The books of an RL step: parts add up to phases, and phases to the step."""

from functools import cache
from pathlib import Path

import pytest

import predict
from predict.cli import main
from predict.reports.page.rl import rl_content
from predict.rl.books import RlLedger

PPO = """\
model: llama3-8b
cluster: {hardware: h100-sxm, nodes: 1, gpus_per_node: 8}
plan: {dp: 4, pp: 2, zero: 1}
precision: bf16
rl:
  algorithm: ppo
  prompts: 16
  n: 4
  prompt: "constant:64"
  prompt_max: 64
  response: "lognormal:128,0.8"
  response_max: 512
  mini_batch: 8
  offload: [parameters, optimizer]
  reward: {latency_s: 1, overlaps: false, model: llama3-8b}
  checkpoint: {every: 10}
  weight_sync: {wake_s: 2}
"""
APART = ("rl.rollout.gpus=8", "rl.rollout.tp=1")
PLACEMENTS = {
    "colocated": (),
    "one step off": ("rl.placement=one_step_off", *APART),
    "on policy": ("rl.placement=async", *APART),
    "streamed": ("rl.placement=async", "rl.fetches=2", *APART),
    "stale": ("rl.placement=async", "rl.staleness=0.3", "rl.fetches=2", "rl.rollout.partial=true", *APART),
}


@pytest.fixture(scope="module")
def ppo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rl") / "small.yml"
    path.write_text(PPO)
    return path


@cache
def ledger_of(path: Path, *settings: str) -> RlLedger:
    return predict.rl_ledger(path, settings)


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_parts_add_up_to_phases_and_phases_and_waiting_to_the_step(placement: str, ppo: Path) -> None:
    ledger = ledger_of(ppo, *PLACEMENTS[placement])
    step = ledger.step
    for phase in step.phases:
        assert sum(phase.parts.values()) == pytest.approx(phase.time.median_us, rel=1e-9), phase.name
        assert sum(phase.sources.values()) == pytest.approx(1 if phase.sources else 0)
    assert len(ledger.accounts_us) == (1 if placement == "colocated" else 2)
    assert ledger.sources["analytic"] + ledger.sources["assumed"] == pytest.approx(1)
    assert min(ledger.sources[each] for each in ("analytic", "assumed")) > 0
    for account in ledger.accounts_us.values():
        assert sum(account.values()) == pytest.approx(step.time.median_us, rel=1e-9)
    of_phases = sum(phase.time.median_us for phase in step.phases)
    assert sum(ledger.by_class_us.values()) == pytest.approx(of_phases, rel=1e-9)
    assert sum(ledger.by_source_us.values()) == pytest.approx(of_phases, rel=1e-9)


def test_headings_are_those_of_what_a_phase_does(ppo: Path) -> None:
    step = ledger_of(ppo).step
    parts = {phase.name: set(phase.parts) for phase in step.phases}
    assert {"gemm", "pp_bubble", "optimizer", "offload", "rl_framework"} <= parts["update_actor"]
    assert "driver" in parts["old_log_prob"] and "optimizer" not in parts["old_log_prob"]
    assert parts["gen"] == {"responses", "tail", "rl_framework"}
    assert parts["update_weights"] == {"transfer", "tensors", "wake"}
    assert (parts["reward"], parts["checkpoint"]) == ({"scoring"}, {"storage"})


def test_the_page_and_the_figures_have_the_phases(ppo: Path, tmp_path: Path) -> None:
    (view,) = rl_content([ledger_of(ppo, *PLACEMENTS["stale"]).step])["runs"]
    assert {span["lane"] for span in view["spans"]} == {"trainer", "engines"}
    assert [moment["phase"] for moment in view["memory"]["moments"]] == ["gen", "update_critic", "update_actor"]
    page = tmp_path / "rl.html"
    assert main(["report", str(ppo), str(ppo), "--set", "rl.n=2", "-o", str(page)]) == 0
    assert '"name":"small (2)"' in page.read_text(encoding="utf-8")
    assert main(["plot", "timeline", str(ppo), "-o", str(page)]) == 0
    assert '"sections":["rl_headline","placement"]' in page.read_text(encoding="utf-8")
