"""Memory of an RL step: engine beside trainer, and what offload moves."""

from dataclasses import replace
from functools import cache

import pytest

from predict import rl_step
from predict.reports.rl_step import rl_misfit
from predict.rl.memory import RlMemory
from sampling.files.places import CONFIGS
from tests.predict.rl.small_steps import step_of

CONFIG = CONFIGS / "rl" / "qwen3-30b-a3b-grpo.yml"


@cache
def memory(*settings: str) -> RlMemory:
    return rl_step(CONFIG, settings).memory


def test_an_engine_takes_its_share_and_leaves_its_reserve_while_it_sleeps() -> None:
    found = memory()
    engine = {name: found.generating.terms[name] for name in ("engine_weights", "kv_cache", "engine_reserved")}
    assert sum(engine.values()) == pytest.approx(0.6 * found.capacity, rel=0.01)
    assert found.updating.terms["engine_reserved"] == engine["engine_reserved"]
    assert "kv_cache" not in found.updating.terms
    assert 0 < found.kv_used <= engine["kv_cache"]


def test_offload_frees_generation_and_crosses_the_host_link_in_each_phase_that_needs_it() -> None:
    nothing, all_away = memory("rl.offload=[]"), memory("rl.offload=[parameters,optimizer]")
    freed = nothing.generating.peak - all_away.generating.peak
    terms = nothing.generating.terms
    away = ("parameters", "gradients", "optimizer", "other_models")
    assert freed == pytest.approx(sum(terms[name] for name in away))
    assert nothing.moved == ()
    ways = {(each.phase, each.state): each.bytes_moved for each in all_away.moved}
    assert set(ways) == {
        ("old_log_prob", "parameters"),
        ("ref", "reference"),
        ("update_actor", "parameters"),
        ("update_actor", "optimizer"),
    }
    assert ways["update_actor", "optimizer"] == pytest.approx(2 * terms["optimizer"])


def test_a_reference_of_its_own_place_costs_its_pass_alone() -> None:
    here, away = (rl_step(CONFIG, [f"rl.offload={value}"]) for value in ("[]", "[reference]"))
    times = {step: {phase.name: phase.time.median_us for phase in step.phases} for step in (here, away)}
    assert [name for name in times[here] if times[away][name] != times[here][name]] == ["ref"]
    assert times[away]["ref"] > times[here]["ref"]


def test_gradient_buffers_stay_where_the_framework_keeps_them_and_go_with_the_parameters() -> None:
    nothing, sharded = memory("rl.offload=[]"), memory("rl.offload=[]", "execution.framework=fsdp", "plan.zero=3")
    assert nothing.generating.terms["gradients"] == nothing.updating.terms["gradients"] > 0
    assert "gradients" not in memory("rl.offload=[parameters,optimizer]").generating.terms
    assert "gradients" not in sharded.generating.terms


def test_the_update_of_a_critic_larger_than_the_actor_is_the_fullest_moment() -> None:
    found = memory("rl.algorithm=ppo", "rl.critic=llama2-70b", "rl.offload=[]")
    critic, actor = found.updating_critic, found.updating
    assert critic is not None and found.worst is critic
    assert critic.terms["parameters"] > 4 * actor.terms["parameters"]
    # each stands beside the other's state, and both beside the reference
    state = ("parameters", "gradients", "optimizer")
    for one, other in ((critic, actor), (actor, critic)):
        beside = sum(other.terms[name] for name in state) + actor.terms["parameters"]
        assert one.terms["other_models"] == pytest.approx(beside)


def test_engines_of_their_own_hold_nothing_of_the_trainer() -> None:
    apart = memory("rl.placement=one_step_off", "rl.rollout.gpus=16")
    assert set(apart.generating.terms) == {"engine_weights", "kv_cache", "engine_reserved"}
    assert "engine_reserved" not in apart.updating.terms


def test_beside_adapters_the_reference_is_the_base_without_them() -> None:
    lora = ("adapters.kind=lora", "plan.ep=1", "model=qwen3-8b", "rl.offload=[]")
    step, plain = rl_step(CONFIG, lora), rl_step(CONFIG, lora[1:])
    assert "other_models" not in step.memory.generating.terms and "other_models" in plain.memory.generating.terms
    times = {phase.name: phase.time.median_us for phase in step.phases}
    assert times["ref"] < times["old_log_prob"]
    assert times["ref"] == pytest.approx({each.name: each.time.median_us for each in plain.phases}["ref"], rel=1e-6)
    away = rl_step(CONFIG, [*lora[:-1], "rl.offload=[parameters, reference]"]).memory.moved
    assert [each.state for each in away if each.phase == "ref"] == ["parameters"]


def test_a_reference_is_fetched_beside_an_actor_that_stays() -> None:
    """A small batch, whose activations are less than the weights."""
    fetched = step_of("rl.offload=[reference]").memory
    (reference,) = fetched.passing
    assert reference.phase == "ref"
    assert reference.terms["other_models"] == pytest.approx(reference.terms["parameters"])
    assert "other_models" not in fetched.updating.terms
    for settings in (
        ("rl.offload=[]",),
        ("rl.offload=[parameters, reference]",),
        ("rl.offload=[reference]", "rl.reference=false"),
    ):
        assert step_of(*settings).memory.passing == ()
    full = replace(fetched, generating=fetched.updating, capacity=0.9 * reference.peak)
    assert full.worst is reference and "offload state" in rl_misfit(full)


def test_passes_in_larger_microbatches_than_the_update_may_be_the_fullest_moment() -> None:
    usual, larger = memory(), memory("rl.passes.max_tokens=131072")
    assert usual.passing == ()
    (passing,) = larger.passing
    assert larger.worst is passing
    assert "smaller (rl.passes), or shard more" in rl_misfit(larger)
    assert [moment.phase for moment in larger.moments] == ["gen", "old_log_prob", "update_actor"]
    # gradients and optimizer are offloaded; the logits of a microbatch take more than all else
    assert {"gradients", "optimizer"}.isdisjoint(passing.terms)
    (twice,) = memory("rl.passes.max_tokens=262144").passing
    assert twice.terms["activations"] == pytest.approx(2 * passing.terms["activations"], rel=0.01)
    (without,) = memory("rl.passes.max_tokens=131072", "rl.old_log_prob=false").passing
    assert without.phase == "ref"
    assert memory("rl.passes.max_tokens=131072", "rl.old_log_prob=false", "rl.reference=false").passing == ()


def test_values_in_larger_microbatches_than_the_critics_update_may_be_fuller_than_it() -> None:
    """The pass holds the tensors of one layer, of half a million tokens."""
    longer = ("rl.response=constant:8128", "rl.response_max=8128", "rl.prompts=128", "rl.max_tokens=8192")
    sharded = ("execution.framework=fsdp", "plan.zero=3", "rl.algorithm=ppo", "rl.offload=[optimizer]")
    found = step_of(*longer, *sharded, "rl.rollout.max_num_seqs=64", "rl.passes.max_tokens=524288").memory
    phases = ["gen", "old_log_prob", "values", "update_critic", "update_actor"]
    assert [moment.phase for moment in found.moments] == phases
    values, critic = found.passing[1], found.updating_critic
    assert critic is not None and values.peak > critic.peak
    assert "optimizer" not in values.terms and values.terms["parameters"] == critic.terms["parameters"]
    assert values.terms["other_models"] == critic.terms["other_models"] > 0
    usual = step_of(*longer, *sharded, "rl.rollout.max_num_seqs=64").memory
    assert usual.passing == ()


def test_a_reward_model_that_holds_more_than_every_update_is_shown() -> None:
    small = memory("rl.reward.model=qwen3-8b")
    assert small.passing == ()
    large = memory("rl.reward.model=llama3.1-405b")
    (scoring,) = large.passing
    assert scoring.phase == "reward_model" and large.moments[1] is scoring
    assert scoring.peak > large.updating.peak
    # offloaded until it scores, and alone then
    assert scoring.terms["parameters"] > 10 * large.updating.terms["parameters"] and "other_models" not in scoring.terms
