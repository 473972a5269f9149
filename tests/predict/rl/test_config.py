"""RL configs: their names and verl's, their faults, and what the command prints of a step."""

from __future__ import annotations

from math import log
from pathlib import Path

import pytest

from predict.rl.config import load_rl
from predict.rl.phases import tensor_count
from sampling.errors import ConfigError, InfeasibleError
from sampling.files.places import CONFIGS
from tests.predict.rl.small_steps import SMALL, median, phase_of, step_of


def test_flops_by_convention(small: Path) -> None:
    step = step_of(small)
    whole, forward = phase_of(step, "update_actor").mfu, phase_of(step, "old_log_prob").mfu
    assert whole["palm"].flops == pytest.approx(3 * (forward["palm"].flops or 0))
    peak = 8 * step.rl.base.cluster.gpu.peak_flops_per_us("bf16")
    assert whole["palm"].mfu == pytest.approx((whole["palm"].flops or 0) / (peak * median(step, "update_actor")))
    assert 0 < (whole["verl"].mfu or 0) < 1


def test_tensors_of_a_checkpoint() -> None:
    run = load_rl(CONFIGS / "rl" / "qwen3-30b-a3b-grpo.yml")
    assert tensor_count(run.base.model) == 48 * (128 * 3 + 9) + 3


def test_verls_names_stand_for_ours(small: Path, tmp_path: Path) -> None:
    path = tmp_path / "verl.yml"
    path.write_text(
        SMALL.replace("prompts: 16, n: 4, ", "").replace(", mini_batch: 8", "")
        + "data: {train_batch_size: 16}\n"
        + "actor_rollout_ref: {actor: {ppo_mini_batch_size: 8}, rollout: {n: 4, tensor_model_parallel_size: 2}}\n"
    )
    ours = load_rl(small, ["rl.rollout.tp=2"])
    assert load_rl(path).section == ours.section
    assert load_rl(small, ["actor_rollout_ref.rollout.n=8"]).section.n == 8
    path.write_text(SMALL + "data: {train_batch_size: 32}\ntrainer: {nnode: 1}\n")
    with pytest.raises(ConfigError) as error:
        load_rl(path)
    assert "data.train_batch_size: 32, but rl.prompts" in str(error.value)
    assert "did you mean 'trainer.nnodes'" in str(error.value)
    path.write_text(
        SMALL + "trainer: {total_epochs: 3}\nactor_rollout_ref: {actor: {optim: {lr: 1e-6}}, rollout: {name: vllm}}\n"
    )
    run = load_rl(path, ["data.val_batch_size=8"])
    assert list(run.not_read) == [
        *("trainer.total_epochs", "actor_rollout_ref.actor.optim.lr", "actor_rollout_ref.rollout.name"),
        "data.val_batch_size",
    ]
    assert run.section == load_rl(small).section
    for setting, part in (
        ("actor_rollout_ref.rollout.nn=8", r"--set: .*did you mean 'actor_rollout_ref.rollout.n'"),
        ("trainer=8", "not a mapping"),
    ):
        with pytest.raises(ConfigError, match=part):
            load_rl(small, [setting])


@pytest.mark.parametrize(
    ("settings", "dp"),
    [
        (["actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2"], 4),
        (["cluster=slurm-h100"], 16),
        (["plan={tp: 2}"], 4),
        (["plan.tp=2", "plan.dp=4"], 4),
    ],
)
def test_dp_is_left_as_in_a_training_run(small: Path, settings: list[str], dp: int) -> None:
    assert load_rl(small, settings).base.plan.dp == dp


def test_all_faults_at_once(small: Path) -> None:
    wrong = [
        "rl.placement=asynk",
        "rl.rollout.tp=3",
        "plan.tp=3",
        "rl.response=gamma:3",
        "batch.micro=1",
        "rl.rollout.gpu=8",
    ]
    with pytest.raises(ConfigError) as error:
        load_rl(small, wrong)
    message = str(error.value)
    for part in ("rl.placement: 'asynk'", "plan.tp", "rl.response: 'gamma:3'", "batch: follows", "did you mean 'gpus'"):
        assert part in message
    for setting, part in (
        ("rl.rollout.tp=3", "rl.rollout.tp: 3"),
        ("rl.rollout.expert_parallel=true", "has no experts"),
        ("rl.rollout.engine=vlm", "'vllm-v1'"),
        ("rl.placement=one_step_off", "rl.rollout.gpus: 0"),
        ("rl.staleness=1", "rl.staleness: 1"),
        ("rl.fetches=2", "rl.fetches: 2 needs placement: async"),
        ("rl.rollout.partial=true", "rl.rollout.partial: true needs"),
        ("rl.critic=llama2-7b", "rl.critic: grpo has none"),
        ("rl.reward.model=llama2-7", "rl.reward.model: 'llama2-7' is not a shipped model"),
        ("rl.mini_batch=5", "rl.mini_batch: 5"),
        ("rl.max_tokens=64", "rl.max_tokens: 64 tokens · cp 1 do not hold"),
        ("rl.passes.max_tokens=64", "rl.passes.max_tokens: 64 tokens"),
        ("rl.passes={micro: 2, max_tokens: 512}", "rl.passes.micro: 2 sequences"),
        ("rl.response=file:none.txt", "none.txt"),
        ("rl.response=''", "rl.response: '' is not allowed"),
        ("rl=null", "rl: null is not a mapping"),
        ("model.num_hidden_layer=3", "did you mean 'num_hidden_layers'"),
    ):
        with pytest.raises(ConfigError, match=part.replace("[", r"\[")):
            load_rl(small, [setting])


def test_images_are_refused() -> None:
    config, model = CONFIGS / "rl" / "qwen3-30b-a3b-grpo.yml", "model=qwen3-vl-30b-a3b"
    assert load_rl(config, [model]).base.model.tower
    with pytest.raises(ConfigError, match=r"vision\.images: 1, but an RL step is of text alone"):
        load_rl(config, [model, "vision={images: 1, image_tokens: 64}"])


def test_adapters_are_refused_in_plain_torch() -> None:
    with pytest.raises(ConfigError, match=r"adapters\.kind: lora, but an RL step in plain torch trains every weight"):
        load_rl(CONFIGS / "rl" / "this-machine" / "grpo.yml", ["adapters.kind=lora"])


def test_padding_that_is_kept_takes_no_budget_of_tokens(small: Path) -> None:
    with pytest.raises(ConfigError, match=r"rl\.passes\.max_tokens: 512 .* needs padding: removed"):
        load_rl(small, ["rl.passes.max_tokens=512", "rl.padding=kept"])


def test_a_training_config_is_reported_from_an_rl_config() -> None:
    with pytest.raises(ConfigError) as error:
        load_rl(CONFIGS / "runs" / "demo.yml")
    (line,) = str(error.value).splitlines()
    assert "rl: missing: this is a training config; predict it with `predict one-batch`" in line


def test_a_cache_too_small_for_a_response_is_infeasible(small: Path) -> None:
    with pytest.raises(InfeasibleError, match=r"rl\.rollout\.tp"):
        step_of(small, "rl.rollout.memory_share=0.22", "rl.response=constant:8000", "rl.response_max=8000")


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        (
            ("rl.response_max=9000",),
            "rl.response_max: 9,000 and rl.prompt_max, 64, are more tokens than the 8,192 positions of llama3-8b",
        ),
        (
            ("rl.rollout.max_num_batched_tokens=64", "rl.rollout.max_num_seqs=256"),
            "rl.rollout.max_num_batched_tokens: 64 is less than rl.rollout.max_num_seqs, 256",
        ),
    ],
)
def test_engines_refuse_what_a_server_refuses(small: Path, settings: tuple[str, ...], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault.replace(".", r"\.")):
        load_rl(small, settings)


def test_another_engine_or_architecture_widens_generation(small: Path) -> None:
    """Half-widths in log time: an engine that the steps' coefficients do not know is off by more, and may be faster by its host's time; a
    device of another architecture either way."""

    def widths(*settings: str) -> tuple[float, float]:
        time = step_of(small, *settings).rollout.time
        return log(time.median_us / time.low_us), log(time.high_us / time.median_us)

    usual, engine, device = widths(), widths("rl.rollout.engine=sglang"), widths("cluster.hardware=B200")
    assert engine[0] > engine[1] > usual[1] + 0.05
    assert min(device) > max(usual) + 0.05
