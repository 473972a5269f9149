"""Tuning: passes beside the one that trains, the models that they hold, and heads of one number."""

from typing import Any

import pytest

from predict.layers.head import saved_by_head
from predict.layers.saved_tensors import Sizes
from predict.memory.estimate import memory_of
from predict.rank.share import RankShare
from predict.run.frameworks import memory_profile_of
from predict.run.training_run import TrainingRun
from predict.run.tuning import Tuning
from predict.workload.layer import RECOMPUTE
from sampling.errors import ConfigError
from sampling.operators.vocabulary import CrossEntropy
from tests.predict.workload.parallel_runs import counted, estimated, flops, made, ranks

LAYERS = 4


def run_of(task: str = "sft", **settings: Any) -> TrainingRun:
    return made("llama3-8b", LAYERS, tuning__task=task, **settings)


def forwards(run: TrainingRun) -> float:
    """FLOPs of a chunk's forward over those of the pass that trains."""
    (rank,) = ranks(run)
    (plain,) = ranks(run_of())
    return flops(rank.chunks[0].forward) / flops(plain.chunks[0].forward)


@pytest.mark.parametrize(
    ("settings", "passes"),
    [
        ({"tuning__task": "sft"}, 1.0),
        ({"tuning__task": "dpo"}, 2.0),
        ({"tuning__task": "dpo", "tuning__reference": "precomputed"}, 1.0),
        ({"tuning__task": "dpo", "tuning__reference": "none"}, 1.0),
        ({"tuning__task": "kto"}, 4.0),
        ({"tuning__task": "kto", "tuning__reference": "precomputed"}, 2.0),
        ({"tuning__evaluated_share": 0.25}, 1.25),
    ],
    ids=str,
)
def test_a_step_has_the_forwards_of_its_reference_and_of_evaluation(settings: dict[str, Any], passes: float) -> None:
    run = made("llama3-8b", LAYERS, **settings)
    assert forwards(run) == pytest.approx(passes)


def test_passes_without_a_gradient_have_no_backward_and_are_not_repeated() -> None:
    plain, dpo = (run_of(task, plan__recompute="full") for task in ("sft", "dpo"))
    backwards = [flops(ranks(run)[0].chunks[0].backward) for run in (plain, dpo)]
    assert backwards[0] == backwards[1]
    assert RECOMPUTE in {each.block.heading for each in ranks(dpo)[0].chunks[0].backward}


def test_a_reference_takes_a_third_of_the_time_of_its_policy() -> None:
    """Forward, and twice as much backward; the ledger names it."""
    plain, dpo = (estimated(run_of(task)) for task in ("sft", "dpo"))
    assert 1.25 < dpo.step_time.median_us / plain.step_time.median_us < 1.4
    assert dpo.breakdown_us["reference"] == pytest.approx(dpo.median_us - plain.median_us, rel=0.05)


def test_the_ledger_tells_evaluation_and_the_own_pass_of_kto_from_a_reference() -> None:
    kto = estimated(run_of("kto", tuning__evaluated_share=0.5)).breakdown_us
    assert kto["reference"] == pytest.approx(2 * kto["kl_estimate"]) == pytest.approx(4 * kto["evaluation"])
    assert not {"reference", "kl_estimate"} & estimated(run_of(tuning__evaluated_share=0.5)).breakdown_us.keys()


def test_a_reference_is_held_beside_its_policy_unless_adapters_leave_it() -> None:
    plain, dpo = (memory_of(run_of(task)).worst for task in ("sft", "dpo"))
    assert dpo.parameters == 2 * plain.parameters
    assert dpo.optimizer == plain.optimizer
    adapted = [memory_of(run_of(task, adapters__kind="lora")).worst.parameters for task in ("sft", "dpo")]
    assert adapted[0] == adapted[1]


def test_a_sharded_reference_is_sharded_too() -> None:
    settings = {"plan__dp": 8, "plan__zero": 3}
    plain, dpo = (memory_of(run_of(task, **settings, execution__framework="fsdp")).worst for task in ("sft", "dpo"))
    assert dpo.parameters == pytest.approx(2 * plain.parameters)


def test_a_reward_model_has_neither_logits_nor_a_matrix_of_them() -> None:
    plain, reward = run_of(), run_of("reward")
    assert plain.model.parameters - reward.model.parameters == plain.model.vocab * plain.model.hidden
    assert not any(isinstance(each.call, CrossEntropy) for each, _ in counted(ranks(reward)[0].chunks[0].forward))
    memories = [memory_of(run).worst for run in (plain, reward)]
    assert memories[1].activations < memories[0].activations
    assert estimated(reward).step_time.median_us < estimated(plain).step_time.median_us


def test_a_policys_head_holds_chunks_of_its_logits_and_makes_them_twice() -> None:
    plain, policy = (run_of(task, execution__framework="fsdp") for task in ("sft", "policy"))
    logits = 4 * 4096 * plain.model.vocab
    held = [memory_of(run).worst.activations + memory_of(run).worst.working for run in (plain, policy)]
    assert held[0] - held[1] > 2 * logits
    product = 2 * 4096 * plain.model.hidden * plain.model.vocab
    (before,), (after,) = ranks(plain), ranks(policy)
    assert flops(after.chunks[0].backward) - flops(before.chunks[0].backward) == pytest.approx(product, rel=0.01)
    assert not any(isinstance(each.call, CrossEntropy) for each, _ in counted(after.chunks[0].forward))
    assert estimated(policy).step_time.median_us > estimated(plain).step_time.median_us


@pytest.mark.parametrize(
    ("stack", "tokens", "entries"),
    [("", 8192, 8192), ("2026-12", 8192, 8192), ("2026-03", 1024, 8192), ("2026-02", 16_384, 2048)],
)
def test_the_chunks_of_a_policys_logits_are_those_of_its_software(stack: str, tokens: int, entries: int) -> None:
    run = run_of("policy", execution__framework="prime-rl", execution__stack=stack, batch__seq_len=16_384)
    sizes = Sizes(rank=RankShare(run=run), profile=memory_profile_of(run))
    loss = next(step for step in saved_by_head(sizes) if step.component == "loss")
    assert loss.in_forward == 14 * tokens * entries
    # the gradient of the hidden states; that of the matrix waits with those of other sharded weights
    assert loss.in_backward == 22 * tokens * entries + 2 * 16_384 * run.model.hidden


def test_a_teacher_adds_its_forward_and_its_weights() -> None:
    plain = run_of()
    taught = run_of("distill", tuning__teacher="llama3-8b")
    assert taught.taught_by is not None and taught.taught_by.model.layers == 32
    # the teacher has 32 layers and a head, the student 4 and a head
    assert 1 + 32 / LAYERS * 0.6 < forwards(taught) < 1 + 32 / LAYERS
    added = memory_of(taught).worst.parameters - memory_of(plain).worst.parameters
    assert added == pytest.approx(2 * taught.taught_by.model.parameters, rel=0.001)
    assert estimated(taught).breakdown_us["teacher"] > 0


def test_a_teachers_positions_heads_and_experts_are_held_to_the_plan() -> None:
    refused = r"tuning\.teacher: gpt2-xl breaks batch\.seq_len: 4096 is longer than the model's 1024 learnt positions"
    with pytest.raises(
        ConfigError, match=rf"(?s){refused}.*gpt2-xl breaks plan\.tp: 8 does not divide the 25 attention heads"
    ):
        run_of("distill", tuning__teacher="gpt2-xl", plan__tp=8)
    # a dense teacher runs beside a mixture whose experts are spread
    assert made(
        "qwen3-30b-a3b", 2, plan__dp=8, plan__ep=8, tuning__task="distill", tuning__teacher="llama3-8b"
    ).taught_by


def test_nothing_runs_beside_plain_tuning() -> None:
    assert Tuning().own_passes == {}
    assert run_of().taught_by is None
