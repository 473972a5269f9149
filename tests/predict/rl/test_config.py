"""RL configs and verl's names; what is said of wrong settings is among the kept answers."""

from math import log
from pathlib import Path

import pytest

from predict.reports.rl_step import rl_step_text
from predict.reports.text import show
from predict.rl.config import load_rl
from predict.rl.phases import DRIVER, tensor_count
from sampling.errors import ConfigError, InfeasibleError
from sampling.files.places import CONFIGS
from tests.predict.rl.small_steps import SMALL, median, phase_of, step_of


def test_flops_by_convention() -> None:
    step = step_of()
    whole, forward = phase_of(step, "update_actor").mfu, phase_of(step, "old_log_prob").mfu
    assert whole["palm"].flops == pytest.approx(3 * (forward["palm"].flops or 0))
    peak = 8 * step.rl.base.cluster.gpu.peak_flops_per_us("bf16")
    assert whole["palm"].mfu == pytest.approx((whole["palm"].flops or 0) / (peak * median(step, "update_actor")))
    assert 0 < (whole["verl"].mfu or 0) < 1


def test_mfu_leaves_out_the_time_of_the_driver_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """Of the one phase that waits for the samples: as verl times it, inside the workers."""
    step = step_of()
    passed = phase_of(step, "old_log_prob")
    figure, peak = passed.mfu["palm"], 8 * step.rl.base.cluster.gpu.peak_flops_per_us("bf16")
    assert figure.mfu == pytest.approx((figure.flops or 0) / (peak * (passed.time.median_us - passed.parts[DRIVER])))
    show(rl_step_text(step))
    assert capsys.readouterr().out.count("MFU of ") == 1


def test_tensors_of_a_checkpoint() -> None:
    run = load_rl(CONFIGS / "rl" / "qwen3-30b-a3b-grpo.yml")
    assert tensor_count(run.base.model) == 48 * (128 * 3 + 9) + 3


def test_verls_names_stand_for_ours(tmp_path: Path) -> None:
    path = tmp_path / "verl.yml"
    path.write_text(
        SMALL.read_text().replace("prompts: 16, n: 4, ", "").replace(", mini_batch: 8", "")
        + "data: {train_batch_size: 16}\n"
        + "actor_rollout_ref: {actor: {ppo_mini_batch_size: 8}, rollout: {n: 4, tensor_model_parallel_size: 2}}\n"
    )
    ours = load_rl(SMALL, ["rl.rollout.tp=2"])
    assert load_rl(path).section == ours.section
    assert load_rl(SMALL, ["actor_rollout_ref.rollout.n=8"]).section.n == 8
    path.write_text(SMALL.read_text() + "data: {train_batch_size: 32}\ntrainer: {nnode: 1}\n")
    with pytest.raises(ConfigError) as error:
        load_rl(path)
    assert "data.train_batch_size: 32, but rl.prompts" in str(error.value)
    assert "did you mean 'trainer.nnodes'" in str(error.value)
    path.write_text(
        SMALL.read_text()
        + "trainer: {total_epochs: 3}\nactor_rollout_ref: {actor: {optim: {lr: 1e-6}}, rollout: {name: vllm}}\n"
    )
    run = load_rl(path, ["data.val_batch_size=8"])
    assert list(run.not_read) == [
        *("trainer.total_epochs", "actor_rollout_ref.actor.optim.lr", "actor_rollout_ref.rollout.name"),
        "data.val_batch_size",
    ]
    assert run.section == load_rl(SMALL).section


@pytest.mark.parametrize(
    ("settings", "dp"),
    [
        (["actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2"], 4),
        (["cluster=slurm-h100"], 16),
        (["plan={tp: 2}"], 4),
        (["plan.tp=2", "plan.dp=4"], 4),
    ],
)
def test_dp_is_left_as_in_a_training_run(settings: list[str], dp: int) -> None:
    assert load_rl(SMALL, settings).base.plan.dp == dp


def test_a_cache_too_small_for_a_response_is_infeasible() -> None:
    with pytest.raises(InfeasibleError, match=r"rl\.rollout\.tp"):
        step_of("rl.rollout.memory_share=0.22", "rl.response=constant:8000", "rl.response_max=8000")


def test_another_engine_or_architecture_widens_generation() -> None:
    """Half-widths in log time: an engine that the steps' coefficients do not know is off by more, and may be faster by its host's time; a
    device of another architecture either way."""

    def widths(*settings: str) -> tuple[float, float]:
        time = step_of(*settings).rollout.time
        return log(time.median_us / time.low_us), log(time.high_us / time.median_us)

    usual, engine, device = widths(), widths("rl.rollout.engine=sglang"), widths("cluster.hardware=B200")
    assert engine[0] > engine[1] > usual[1] + 0.05
    assert min(device) > max(usual) + 0.05


VPP = ("plan.pp=2", "plan.dp=4", "plan.vpp=16", "plan.schedule=interleaved-1f1b")


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        # a model beside the actor is held to the trainer's plan
        (("rl.algorithm=ppo", "rl.critic=t5-large"), "rl.critic: t5-large reads more than a text"),
        (
            ("rl.algorithm=ppo", "rl.critic=qwen2.5-0.5b", "plan.tp=4"),
            "rl.critic: qwen2.5-0.5b breaks plan.tp: 4 does not",
        ),
        (("rl.algorithm=ppo", "rl.critic=qwen2.5-0.5b", *VPP), "rl.critic: qwen2.5-0.5b breaks plan.vpp: 16 with"),
        (
            ("rl.reward.model=bert-base-uncased", "rl.response_max=1024"),
            "rl.reward.model: bert-base-uncased breaks rl.prompt_max + rl.response_max: 1088 is longer than",
        ),
        # the trainer's batch is a stand-in, of which no fault speaks
        (("model=gpt2", "rl.response_max=2000"), "rl.prompt_max + rl.response_max: 2064 is longer than"),
        (("model=t5-large",), "model: an encoder-decoder, which RL steps do not model"),
        (("tuning.task=dpo",), "tuning.task: dpo, but an RL step has a loss of its own"),
        (("tuning.evaluated_share=0.5",), "tuning.evaluated_share: 0.5, but evaluations between RL steps"),
        (("rl.response=file:nowhere.txt",), "--set: rl.response: "),
        (("rl.prompt=uniform:9..1",), "--set: rl.prompt: uniform:9..1 ends below its start"),
        (("rl.prompts=200000", "rl.mini_batch=0"), "rl.prompts: 200000 with n 4 make 800,000 responses, more than"),
        (
            ("rl.unknown=[rl.respons]",),
            "rl.unknown: 'rl.respons' is not a key of an RL config; did you mean 'rl.response'",
        ),
    ],
)
def test_a_fault_names_its_key(settings: tuple[str, ...], fault: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_rl(SMALL, settings)
    assert fault in str(error.value)
    assert "batch." not in str(error.value)


@pytest.mark.parametrize("settings", [("rl.n=x", "plan.tp=2", "plan.sp=true"), ("plan=3",)])
def test_a_fault_brings_none_of_the_stand_in(settings: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as error:
        load_rl(SMALL, settings)
    assert len(str(error.value).splitlines()) == 1


def test_sequences_of_any_length_divide_among_ranks_that_share_one() -> None:
    step = step_of("plan.tp=4", "plan.sp=true", "rl.prompt_max=63", "rl.prompt=constant:63")
    assert step.actor.run.batch.seq_len % 4 == 0


def test_keys_inside_a_model_or_a_cluster_may_be_unknown() -> None:
    names = ("cluster", "cluster.nodes", "model.head_dim", "plan.tp", "rl.reward.model")
    assert load_rl(SMALL, [f"rl.unknown=[{', '.join(names)}]"]).section.unknown == names


def test_a_dense_critic_beside_a_mixture_has_no_experts_to_spread() -> None:
    run = load_rl(CONFIGS / "rl" / "qwen3-30b-a3b-grpo.yml", ["rl.algorithm=ppo", "rl.critic=qwen2.5-0.5b"])
    assert run.critic is not None
    assert (run.base.plan.ep, run.critic.plan.ep) == (8, 1)
