"""Steps of reinforcement learning: closed forms, what each setting moves, and how phases add up."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import predict
from predict.rl.phases import FACTORS, TERMS, TRAINING
from predict.rl.rollout import rollout_server
from predict.serving.batch import Chunk, StepBatch
from predict.serving.stepper import stepper
from sampling.errors import UserError
from sampling.files.places import CONFIGS
from tests.predict.rl.small_steps import SMALL, median, phase_of, step_of

SHIPPED = sorted((CONFIGS / "rl").glob("*.yml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_config_runs_and_its_phases_add_up(path: Path) -> None:
    step = predict.rl_step(path)
    assert step.time.median_us == pytest.approx(sum(phase.time.median_us for phase in step.phases), rel=1e-12)
    assert step.time.low_us < step.time.median_us < step.time.high_us
    assert all(phase.time.low_us <= phase.time.median_us <= phase.time.high_us for phase in step.phases)
    assert step.rl.section.unknown


def test_one_engine_with_constant_lengths_takes_the_sum_of_its_steps() -> None:
    settings = ("rl.n=1", "rl.prompts=8", "rl.mini_batch=0", "rl.rollout.tp=8", "rl.rollout.max_num_seqs=8")
    step = step_of(*settings)
    one = stepper(rollout_server(step.rl))
    batches = [StepBatch(chunks=tuple(Chunk(tokens=64) for _ in range(8)))]
    batches += [StepBatch(decodes=(64 + made,) * 8) for made in range(127)]
    steps_us = sum(time.median_us for time in one.step_times(batches))
    assert median(step, "gen") == pytest.approx(FACTORS.rollout * steps_us, rel=1e-9)
    assert step.rollout.tail_share == 0


def test_an_update_is_its_optimizer_steps() -> None:
    step = step_of()
    prediction = predict.estimate(predict.load(predict.default_config("llama3-8b", "8xh100", overrides=PLAIN), PLAIN))
    assert median(step, "update_actor") == pytest.approx(FACTORS.update * 2 * prediction.median_us, rel=1e-9)
    # one pipeline stage: the forwards of its microbatches, one after the other
    forwards = 16 * 4 // 8 * prediction.stages[0].forward_us
    moved = TERMS["padded_token_us"].value * 16 * 4 * 192
    passes = FACTORS.passes * forwards * stragglers(prediction)
    assert median(step, "old_log_prob") == pytest.approx(passes + moved, rel=1e-9)
    assert median(step, "ref") == pytest.approx(passes, rel=1e-9)
    assert median(step, "old_log_prob") != pytest.approx(median(step, "update_actor") / 3, rel=0.02)


PLAIN = (
    "plan.tp=1", "plan.sp=false", "plan.pp=1", "plan.dp=8", "plan.zero=1", "plan.recompute=none", "plan.schedule=1f1b",
    "batch.global=32", "batch.micro=1", "batch.seq_len=192", "execution.framework=megatron-core", "precision=bf16",
)  # fmt: skip
"""The optimizer step of the small config, as a run of its own."""


def stragglers(prediction: Any) -> float:
    from predict.step.priced_rank import stragglers_factor

    return stragglers_factor(prediction.run)


MOVES = [
    ("rl.n=8", "gen old_log_prob update_actor", "update_weights"),
    ("rl.epochs=2", "update_actor", "gen old_log_prob"),
    ("rl.mini_batch=4", "update_actor", "gen old_log_prob update_weights"),
    ("rl.prompt_max=256 rl.padding=kept", "update_actor old_log_prob", "gen update_weights"),
    ("rl.offload=[parameters,optimizer]", "update_actor old_log_prob", "gen"),
    ("rl.rollout.kept_share=0.5", "gen", "update_actor old_log_prob"),
    ("rl.rollout.max_num_seqs=1", "gen", "update_actor old_log_prob"),
    ("rl.rollout.max_num_batched_tokens=16", "gen", "update_actor"),
    ("rl.reward.latency_s=1 rl.reward.overlaps=false", "reward step", "gen update_actor"),
    ("rl.rollout.enforce_eager=true", "gen", "update_actor old_log_prob update_weights"),
    ("rl.weight_sync.wake_s=5", "update_weights step", "gen"),
    ("plan.recompute=full", "update_actor", "gen old_log_prob"),
    ("model.num_hidden_layers=64", "gen old_log_prob update_actor update_weights", ""),
    ("plan.tp=4 plan.dp=2", "update_actor old_log_prob", "gen"),
    ("rl.response=lognormal:128,0.8 rl.response_max=512", "gen update_actor old_log_prob", "update_weights"),
]
"""Settings, the phases that take longer with them, and those that stay."""


@pytest.mark.parametrize(("settings", "longer", "same"), MOVES, ids=[settings for settings, *_ in MOVES])
def test_a_setting_moves_its_phases_alone(settings: str, longer: str, same: str) -> None:
    before, after = step_of(), step_of(*settings.split())
    for name in longer.split():
        assert median(after, name) > (median(before, name) if name != "reward" else 0)
    for name in same.split():
        assert median(after, name) == pytest.approx(median(before, name), rel=1e-12)


def test_settings_that_shorten() -> None:
    before = step_of()
    few = ("rl.n=1", "rl.prompts=8", "rl.mini_batch=0")  # one response to each engine: sliced weights are read faster
    assert median(step_of(*few, "rl.rollout.tp=4"), "gen") < median(step_of(*few), "gen")
    assert median(step_of("rl.passes.micro=8"), "old_log_prob") < median(before, "old_log_prob")
    assert median(step_of("rl.passes.micro=8"), "update_actor") == median(before, "update_actor")
    assert median(step_of("rl.max_tokens=4096"), "update_actor") < median(before, "update_actor")
    assert median(step_of("rl.weight_sync.method=buckets"), "update_weights") < median(before, "update_weights")
    assert step_of("rl.reference=false").phase("ref") is None
    assert step_of("rl.algorithm=dapo").phase("ref") is None


def test_models_of_one_value_per_token() -> None:
    """A critic is the actor without its head over the vocabulary; other shapes take their own time."""
    critic, twice = step_of("rl.algorithm=ppo"), step_of("rl.algorithm=ppo", "rl.critic=llama2-13b")
    assert 0.8 * median(critic, "ref") < median(critic, "values") < median(critic, "ref")
    assert median(critic, "update_critic") < median(critic, "update_actor")
    assert median(twice, "values") > 1.4 * median(critic, "values")
    scored = step_of("rl.algorithm=ppo", "rl.reward.model=llama3-8b")
    assert median(scored, "reward_model") == pytest.approx(median(critic, "values"), rel=1e-9)
    assert median(scored, "step") == pytest.approx(median(critic, "step") + median(scored, "reward_model"), rel=1e-9)


def test_a_checkpoint_is_spread_over_its_steps() -> None:
    step = step_of("rl.checkpoint.every=10", "rl.checkpoint.gb_per_s=5")
    parameters = step.rl.base.model.parameters
    assert median(step, "checkpoint") == pytest.approx(1e6 * parameters * (2 + 4 + 4 + 4) / 5e9 / 10, rel=1e-12)
    # shards in fp32 are the master copy, and of adapters alone something is saved
    sharded = step_of("rl.checkpoint.every=10", "rl.checkpoint.gb_per_s=5", "execution.framework=fsdp", "plan.zero=3")
    assert median(sharded, "checkpoint") == pytest.approx(1e6 * parameters * (4 + 4 + 4) / 5e9 / 10, rel=1e-12)
    adapted = step_of("rl.checkpoint.every=10", "rl.checkpoint.gb_per_s=5", "adapters.kind=lora")
    assert median(adapted, "checkpoint") < 0.02 * median(step, "checkpoint")


def test_weights_are_sent_and_saved_as_the_trainer_holds_them_or_loaded_as_the_engines_do() -> None:
    fp8 = step_of("precision=fp8", "rl.checkpoint.every=10")
    bf16 = step_of("rl.checkpoint.every=10")
    for name in ("update_weights", "checkpoint"):
        assert median(fp8, name) == pytest.approx(median(bf16, name), rel=1e-12)
    of_host = [
        phase_of(step_of("rl.weight_sync.method=host", f"rl.rollout.precision={precision}"), "update_weights")
        for precision in ("fp8", "bf16")
    ]
    assert 2 * of_host[0].parts["transfer"] == pytest.approx(of_host[1].parts["transfer"], rel=1e-12)


LONG_PROMPTS = "rl.prompt=constant:8000 rl.prompt_max=8000 rl.response=constant:8 rl.n=1"


@pytest.mark.parametrize(
    ("bound", "settings"),
    [
        ("memory", ""),
        ("host", "rl.rollout.enforce_eager=true"),
        ("compute", LONG_PROMPTS),
        ("compute", f"{LONG_PROMPTS} rl.rollout.step_model=formula"),
        ("communication", "rl.rollout.tp=16 cluster.nodes=2 plan.dp=16"),
    ],
)
def test_generation_is_bound_by_the_largest_part_of_its_mean_step(bound: str, settings: str) -> None:
    assert phase_of(step_of(*settings.split()), "gen").bound_by == bound


APART = ("rl.rollout.gpus=8", "rl.rollout.tp=1")


def test_placements_overlap_what_they_can() -> None:
    together, apart = step_of(), step_of("rl.placement=one_step_off", *APART)
    for step in (together, apart):
        training = sum(phase.time.median_us for phase in step.phases if phase.name in TRAINING)
        sync, gen = median(step, "update_weights"), median(step, "gen")
        expected = training + gen + sync if step is together else max(training, gen) + sync
        assert step.time.median_us == pytest.approx(expected, rel=1e-12)
    assert apart.wait_gen_us == pytest.approx(max(0.0, median(apart, "gen") - apart.training.median_us))
    assert apart.wait_gen_us * apart.idle_gen_us == 0


def test_a_little_staleness_overlaps_a_little() -> None:
    """Steps of samples ahead hide as much of generation behind training, up to a whole one: then it is one step off."""
    apart = ("rl.placement=async", *APART)
    times = {ahead: step_of(*apart, f"rl.staleness={ahead}") for ahead in (0.0, 1e-6, 0.25, 0.5, 1.0)}
    assert times[1e-6].time.median_us == pytest.approx(times[0.0].time.median_us, rel=1e-4)
    medians = [step.time.median_us for step in times.values()]
    assert medians == sorted(medians, reverse=True)
    quarter = times[0.25]
    gen, train = quarter.generating.median_us, quarter.training.median_us
    assert quarter.time.median_us == pytest.approx(max(gen, 0.75 * gen + train) + quarter.sync.median_us, rel=1e-9)
    whole = times[1.0]
    gen, train = whole.generating.median_us, whole.training.median_us
    assert whole.time.median_us == pytest.approx(max(gen, train) + whole.sync.median_us, rel=1e-9)


def test_a_trainer_that_fetches_samples_as_they_end_waits_for_its_last_fetch() -> None:
    step = step_of("rl.placement=async", "rl.fetches=2", *APART)
    gen, train = step.generating.median_us, step.training.median_us
    expected = max(gen + train / 2, gen / 2 + train) + step.sync.median_us
    assert step.time.median_us == pytest.approx(expected, rel=1e-9)


def test_without_staleness_nothing_overlaps() -> None:
    step = step_of("rl.placement=async", *APART)
    in_all = sum(part.median_us for part in (step.generating, step.training, step.sync))
    assert step.time.median_us == pytest.approx(in_all, rel=1e-12)
    assert step.wait_gen_us == pytest.approx(step.generating.median_us, rel=1e-12)
    assert step.idle_gen_us == pytest.approx(step.training.median_us, rel=1e-12)


def test_scoring_overlaps_generation_as_it_runs_inside_the_framework() -> None:
    """64 responses by 16 workers of 1 s, four in turn, from the start of a generation of a bit over a second."""
    slow = ("rl.rollout.tp=8", "rl.rollout.max_num_seqs=32", "rl.reward.latency_s=1", "rl.reward.workers=16")
    step = step_of(*slow)
    assert median(step, "gen") < 3e6
    assert median(step, "reward") == pytest.approx(4e6 - median(step, "gen"), rel=1e-9)


def test_interrupted_responses_that_do_not_divide_among_engines() -> None:
    """The time of a step lies between those of fewer and more prompts that do; an engine without a response is refused."""
    partial = ("rl.placement=async", "rl.staleness=0.5", "rl.rollout.partial=true", "rl.mini_batch=0", "rl.n=2", *APART)
    gens = [median(step_of(*partial, f"rl.prompts={prompts}"), "gen") for prompts in (4, 6, 8)]
    assert 0 < gens[0] <= gens[1] <= gens[2]


def test_a_stream_of_steps_hides_its_tail() -> None:
    tail = ("rl.response=lognormal:100,1.2", "rl.response_max=4096", "rl.placement=async", *APART)
    gens = [median(step_of(*tail, f"rl.staleness={ahead}"), "gen") for ahead in (0.0, 0.5, 2.0)]
    assert gens[0] > gens[1] > gens[2]


def test_dynamic_sampling_takes_whole_rounds() -> None:
    few = ("rl.rollout.round_prompts=8", "rl.mini_batch=0")
    once = median(step_of("rl.prompts=8", "rl.mini_batch=0"), "gen")
    assert median(step_of(*few, "rl.rollout.kept_share=0.5"), "gen") == pytest.approx(4 * once, rel=1e-9)
    assert median(step_of(*few, "rl.rollout.kept_share=0.45"), "gen") == pytest.approx(5 * once, rel=1e-9)


def test_interrupted_responses_leave_no_tail() -> None:
    tail = ("rl.response=lognormal:100,1.2", "rl.response_max=4096", "rl.placement=async", "rl.staleness=0.5", *APART)
    waits, goes_on = step_of(*tail), step_of(*tail, "rl.rollout.partial=true")
    assert median(goes_on, "gen") < 0.7 * median(waits, "gen")
    assert median(goes_on, "update_actor") == median(waits, "update_actor")
    # constant lengths, one sequence in flight on each engine: a step's responses one after the other, each resumed once
    flat = ("rl.placement=async", "rl.staleness=0.5", "rl.rollout.partial=true", "rl.rollout.max_num_seqs=1", *APART)
    step = step_of(*flat)
    engine = rollout_server(step.rl)
    table = stepper(engine).table
    own = [StepBatch(chunks=(Chunk(tokens=64),)), *(StepBatch(decodes=(64 + made,)) for made in range(127))]
    one_us = sum(time.median_us for time in stepper(engine).step_times(own))
    again = (64 + 128 / 2) * (table.mixed_us[table.most_tokens] / table.most_tokens + table.prefill_token_us)
    assert median(step, "gen") == pytest.approx(FACTORS.rollout * (8 * one_us + again), rel=0.02)


def test_whole_prompts_on_one_engine_make_it_end_later() -> None:
    spread = ("rl.response=lognormal:200,0.8", "rl.response_max=2048", "rl.prompts=64", "rl.n=16")
    chunks = (*spread, "rl.rollout.dispatch=chunks")
    alike, apart = step_of(*chunks, "rl.alike=0.9"), step_of(*chunks, "rl.alike=0")
    assert median(alike, "gen") > median(apart, "gen")
    assert median(alike, "gen") > median(step_of(*spread, "rl.alike=0.9"), "gen")
    of_prompts = alike.rl.samples.response.reshape(64, 16)
    assert (
        np.log(of_prompts).mean(axis=1).std() > 3 * np.log(apart.rl.samples.response.reshape(64, 16)).mean(axis=1).std()
    )
    assert (np.sort(alike.rl.samples.response) == np.sort(apart.rl.samples.response)).all()


def test_lengths_are_quantiles_that_are_cut() -> None:
    samples = step_of("rl.response=uniform:1..200").rl.samples
    assert samples.response.max() == 128
    assert samples.clipped == (samples.response == 128).sum()
    assert (np.sort(samples.response)[:3] == [3, 6, 9]).all()  # 64 quantiles of 1..200 at the middles of equal shares
    assert (samples.prompt == 64).all()


def test_draws_differ_about_the_quantiles() -> None:
    """Drawn lengths have the distribution's mean; a step of them differs from draw to draw, and a constant one does not."""
    spread = ("rl.response=lognormal:100,0.6", "rl.response_max=1024")
    draws = predict.rl_step_draws(SMALL, spread, draws=5)
    means = [step.rl.samples.response.mean() for step in draws.steps]
    assert np.mean(means) == pytest.approx(step_of(*spread).rl.samples.response.mean(), rel=0.1)
    assert len(set(means)) == 5
    percentiles = draws.percentiles_us("gen")
    times_us = draws.times_us("gen")
    assert times_us.min() <= percentiles["p10"] < percentiles["p50"] < percentiles["p90"] <= times_us.max()
    assert (draws.times_us("values") == 0).all()
    same = predict.rl_step_draws(SMALL, draws=2)
    assert same.percentiles_us("step")["p50"] == pytest.approx(median(step_of(), "step"), rel=1e-12)


def test_more_responses_than_can_be_simulated_are_refused() -> None:
    with pytest.raises(UserError, match=r"rl\.prompts: the engines generate .* responses for a step"):
        step_of("rl.rollout.round_prompts=1000000000")


SPREAD = ("rl.response=lognormal:100,0.8", "rl.response_max=1024", "rl.placement=async", "rl.rollout.partial=true")


def test_engines_whose_responses_are_interrupted_take_no_longer_the_more_they_are() -> None:
    """A trainer takes whichever response ends next, so that one engine with long ones holds up no step."""
    stale = (*SPREAD, "rl.staleness=1", "rl.prompts=32")
    times = [median(step_of(*stale, f"rl.rollout.gpus={gpus}"), "gen") for gpus in (4, 8, 16, 32)]
    assert times == sorted(times, reverse=True)
    counts = [median(step_of(*stale, "rl.rollout.gpus=8", f"rl.n={n}"), "gen") for n in (2, 4, 8)]
    assert counts == sorted(counts)


@pytest.mark.parametrize("staleness", [1, 3, 8])
def test_interrupted_responses_of_one_length_take_no_less_than_whole_ones(staleness: int) -> None:
    """All begin and end together, in one step of 1 + S: what is measured holds whole rounds of these."""
    flat = ("rl.placement=async", f"rl.staleness={staleness}", *APART)
    whole, interrupted = step_of(*flat), step_of(*flat, "rl.rollout.partial=true")
    assert median(interrupted, "gen") > 0.99 * median(whole, "gen")


def test_a_pass_goes_through_one_of_the_two_copies_of_a_schedule() -> None:
    pipeline = ("plan.pp=2", "plan.dp=4", "rl.prompts=64", "rl.mini_batch=32")
    once = median(step_of(*pipeline), "old_log_prob")
    assert median(step_of(*pipeline, "plan.vpp=2", "plan.schedule=dualpipe"), "old_log_prob") == pytest.approx(
        once, rel=0.1
    )


@pytest.mark.parametrize("padding", ["kept", "removed"])
def test_a_microbatch_has_no_more_sequences_than_a_replica(padding: str) -> None:
    """A step has 64 responses, an update half of them, on eight replicas."""
    of_all = ("rl.passes.micro=8", f"rl.padding={padding}")
    most, more = step_of(*of_all, "rl.micro=4"), step_of(f"rl.padding={padding}", "rl.micro=1000000000")
    for name in ("update_actor", "old_log_prob"):
        assert median(more, name) == pytest.approx(median(most, name), rel=1e-12)


def test_a_layout_is_chosen_for_packed_sequences() -> None:
    pipeline = ("plan.pp=2", "plan.dp=4", "plan.layout=auto", "rl.max_tokens=512")
    assert step_of(*pipeline).actor.run.plan.layout
