"""Servers under loads: configs, capacity, and what moves the latencies."""

from dataclasses import replace

import numpy as np
import pytest

from predict.serving import Chunk, StepBatch, step_time, step_times
from predict.serving.config import load_serving
from predict.serving.kv_cache import KeptBytes, cache_room, kept_bytes
from predict.serving.loaded_server import LoadOutcome
from predict.serving.stepper import Stepper, stepper
from predict.serving.traffic import Load, traffic_of
from sampling.errors import InfeasibleError, UserError
from sampling.files.places import CONFIGS, SHIPPED_DATA
from sampling.store.profiles import read_manifest
from tests.predict.serving.servers import CONFIG, loaded, server


def test_a_shipped_config_leaves_room_for_a_cache() -> None:
    for config in (CONFIGS / "serving").glob("*.yml"):
        assert cache_room(load_serving(config).server).blocks > 0


def test_published_blocks_are_met_within_5_percent() -> None:
    # vLLM's own counts of 2026 on H100: Llama-2-7B 7,462, Llama-2-70B over 4 GPUs 31,356, Mixtral over 2 27,510
    for model, tp, blocks in (("llama2-7b", 1, 7462), ("llama2-70b", 4, 31_356), ("mixtral-8x7b", 2, 27_510)):
        assert cache_room(server(model, tp=tp)).blocks == pytest.approx(blocks, rel=0.05)


def test_layers_that_keep_less_than_all_tokens_leave_room() -> None:
    # Qwen3.5-35B-A3B over 2 GPUs: 10 of 40 layers keep 2·1·256 elements per token, 30 a state of 16 heads in fp32 and 3 tokens of 4096
    # channels; Gemma-3: 10 layers of 62 keep all tokens, the others 1024
    hybrid, sliding = (kept_bytes(server(model, tp=2)) for model in ("qwen3.5-35b-a3b", "gemma3-27b"))
    assert hybrid == KeptBytes(token=10 * 1024, window_token=0.0, sequence=30 * (16 * 128 * 128 * 4 + 4096 * 3 * 2))
    assert sliding.window_token / sliding.token == 52 / 10
    pool = cache_room(server("gemma3-27b", tp=2)).pool
    assert pool.needed(np.array([160, 4096]), 16).tolist() == [10 + 52, 256 + 333]


def test_a_cache_without_room_is_infeasible() -> None:
    with pytest.raises(InfeasibleError, match="no block of 16 tokens fits"):
        loaded("model=llama3-70b")


def test_latencies_grow_with_the_rate_and_the_queue_beyond_capacity() -> None:
    one = loaded("load.duration_s=30")
    capacity = one.capacity()
    assert capacity.low < capacity.median < capacity.high
    below, near, above = one.at_rates([0.2 * capacity.median, 0.8 * capacity.median, 1.5 * capacity.median])
    assert below.latency.e2e.mean_us < near.latency.e2e.mean_us < above.latency.e2e.mean_us
    assert (below.grows, near.grows, above.grows) == (False, False, True)
    assert (below.may_grow, above.may_grow) == (False, True)
    assert near.low.e2e.mean_us < near.latency.e2e.mean_us < near.high.e2e.mean_us


def test_an_interval_holds_its_mean_where_slower_steps_shorten_it() -> None:
    """As where a fleet then starts another replica."""
    outcome = loaded("load.duration_s=5").as_configured()
    slower_is_shorter = replace(outcome, low=outcome.high, high=outcome.low)
    for one in (outcome, slower_is_shorter, replace(outcome, high=outcome.low)):
        mean = one.mean_us("e2e")
        assert mean.low <= mean.median == one.latency.e2e.mean_us <= mean.high
    assert slower_is_shorter.mean_us("e2e") == outcome.mean_us("e2e")


@pytest.mark.parametrize("in_flight", [1, 4, 5, 8])
@pytest.mark.parametrize("streams", ["placement.dp=4", "placement.pp=4"])
def test_as_many_requests_are_in_flight_as_a_loop_has(in_flight: int, streams: str) -> None:
    """However they divide among replicas and stages: their number is the rate times the time of each (Little's law)."""
    loop = ("load.rate=0", f"load.concurrency={in_flight}", "load.requests=400")
    one = loaded(*loop, streams).as_configured()
    assert one.requests_per_s * one.latency.e2e.mean_us / 1e6 == pytest.approx(in_flight, rel=0.05)
    assert one.per_replica.requests_per_s == pytest.approx(one.requests_per_s / one.replicas)


def test_a_load_is_short_beside_requests_that_take_a_good_part_of_it() -> None:
    short, long = (loaded("load.output=600", f"load.duration_s={seconds}").as_configured() for seconds in (10, 100))
    assert short.requests_per_s > 1.05 * short.load.rate
    assert long.requests_per_s == pytest.approx(long.load.rate, rel=0.1)
    loop = loaded("load.rate=0", "load.concurrency=8", "load.output=600", "load.duration_s=1").as_configured()
    assert (short.is_short, long.is_short, loop.is_short) == (True, False, False)


def test_capacity_is_what_a_server_does_under_overload() -> None:
    """Answers of whole length alone count, however few requests run at once."""
    for places in (1, 16):
        one = loaded(f"engine.max_num_seqs={places}", "load.duration_s=30", "load.rate=100")
        assert one.capacity().median == pytest.approx(one.as_configured().latency.requests_per_s, rel=0.015)


def test_the_drain_of_a_queue_is_no_throughput() -> None:
    """However long the load: what ends after the last request has started ends faster than the server can go on."""
    short, long = (loaded("load.rate=100", f"load.duration_s={seconds}").as_configured() for seconds in (20, 80))
    assert short.latency.requests_per_s == pytest.approx(long.latency.requests_per_s, rel=0.01)


def test_the_capacity_is_what_an_overloaded_server_answers() -> None:
    """Requests that ended together, as many at once as wait beside them, once made the capacity 7 % less."""
    one = loaded("engine.max_num_seqs=32", "load.prompt=600", "load.output=100", "load.duration_s=120", model="kernels")
    capacity = one.capacity().median
    (beyond,) = one.at_rates([1.15 * capacity])
    assert beyond.grows
    assert beyond.requests_per_s == pytest.approx(capacity, rel=0.01)


def test_the_queue_is_the_rate_times_the_wait() -> None:
    """Little's law, in a closed loop and an open one; the requests that start a loop together do not count."""
    for load in (
        ("load.rate=0", "load.concurrency=64", "load.requests=4000", "load.start=staggered"),
        ("load.rate=15", "load.duration_s=100"),
    ):
        outcome = loaded(*load).as_configured()
        served, in_flight = outcome.served, outcome.load.concurrency
        wait_us = (served.start_us - served.traffic.arrival_us)[in_flight : len(served.traffic) - in_flight].mean()
        assert outcome.latency.mean_waiting == pytest.approx(outcome.latency.requests_per_s * wait_us / 1e6, rel=0.03)
        assert wait_us < outcome.latency.ttft.mean_us, "the first token comes after the wait"


@pytest.mark.parametrize("replicas", [1, 4])
def test_a_queue_that_grows_is_reported_whatever_the_replicas(replicas: int) -> None:
    one = loaded(f"placement.dp={replicas}", "load.duration_s=120", "load.arrivals=constant", "engine.max_num_seqs=16")
    slow, fast = one.at_rates([share * one.capacity().median for share in (0.8, 1.1)])
    assert (slow.grows, fast.grows) == (False, True)


@pytest.mark.parametrize(
    ("changed", "shorter"),
    [
        ("load.distinct_prompts=9", "ttft"),
        ("engine.asynchronous=false", "ttft"),
        ("placement.tp=2", "tpot"),
        ("load.prompt=100", "ttft"),
    ],
)
def test_a_setting_moves_the_latencies(changed: str, shorter: str) -> None:
    before, after = (getattr(loaded(*each).under(loaded(*each).run.load).latency, shorter) for each in ((), (changed,)))
    assert after.mean_us < before.mean_us


def test_loads_of_a_kind() -> None:
    poisson, constant = (traffic_of(Load(rate=10, duration_s=100, arrivals=kind)) for kind in ("poisson", "constant"))
    assert len(constant) == 1000
    assert len(poisson) == pytest.approx(1000, abs=100)
    assert np.diff(constant.arrival_us) == pytest.approx(1e5)
    spread = traffic_of(Load(rate=10, prompt=100, spread=0.5))
    assert (spread.prompt.min(), spread.prompt.max()) == (50, 150)
    for wrong in (Load(), Load(rate=1, concurrency=1)):
        with pytest.raises(UserError, match="give one of them"):
            traffic_of(wrong)


def test_a_staggered_loop_without_further_requests_keeps_its_answers() -> None:
    short, long = (
        traffic_of(Load(concurrency=64, requests=count, output=250, start="staggered")) for count in (64, 128)
    )
    assert set(short.output.tolist()) == {250}
    assert (long.output[:64].mean(), set(long.output[64:].tolist())) == (pytest.approx(127, abs=1), {250})


def test_shared_tokens_lie_within_every_prompt() -> None:
    assert traffic_of(Load(rate=9, prompt=100, shared_tokens=100)).prompt.max() == 100
    with pytest.raises(UserError, match=r"load\.shared_tokens: 60 are more than the 50 tokens"):
        traffic_of(Load(rate=9, prompt=100, shared_tokens=60, spread=0.5))


def test_one_step_by_the_front_door() -> None:
    batch = StepBatch(chunks=(Chunk(tokens=64),), decodes=(700, 1200))
    time = step_time(batch, CONFIG, model="formula")
    assert step_times([batch] * 3, CONFIG, model="formula") == (time,) * 3
    assert time.low_us < time.median_us < time.high_us
    long = StepBatch(decodes=(8_000,) * 128)
    with pytest.raises(InfeasibleError, match="the cache has"):
        step_times([batch, long], CONFIG, model="formula")
    assert step_time(replace(long, shared_tokens=7_000 * 127), CONFIG, model="formula").median_us > time.median_us


def test_rows_of_another_cpu_widen_the_interval_but_where_coefficients_are_the_servers_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = load_serving(CONFIGS / "serving" / "this-machine" / "quiet.yml")
    batch, widths = StepBatch(decodes=(20, 20)), []
    for cpu in (read_manifest(SHIPPED_DATA / "samples" / "epyc-2-cores").device["name"], "another"):
        monkeypatch.setattr("predict.prices.sample_provenance.cpu_name", lambda cpu=cpu: cpu)
        shipped = stepper(run.server)
        own = Stepper(run.server, replace(shipped.coefficients, source="its own steps"))
        widths += [one.step_times([batch])[0] for one in (shipped, own)]
    like, own_like, other, own_other = (time.high_us / time.low_us for time in widths)
    assert like == own_like == pytest.approx(own_other)
    assert other > 2 * like


def test_a_server_on_a_part_of_a_node_has_the_links_of_the_whole() -> None:
    cluster = load_serving(CONFIG, ["hardware=a100-80gb", "placement.tp=2", "placement.dp=2"]).server.cluster
    assert cluster.link_in_node(2) == cluster.intra_node


def test_a_server_takes_as_many_nodes_as_its_gpus_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUs beyond a node's stand in another; on a CPU the sampled machine counts, not the one that predicts."""
    cluster = loaded("placement.tp=16").run.server.cluster
    assert (cluster.nodes, cluster.gpus_per_node) == (2, 8)
    here = CONFIGS / "serving" / "this-machine" / "quiet.yml"
    before = load_serving(here).server.cluster
    monkeypatch.setattr("os.cpu_count", lambda: 96)
    assert load_serving(here).server.cluster == before


def test_the_first_requests_of_a_loop_wait_for_each_other_unless_it_is_staggered() -> None:
    """As a benchmark's do: TTFT is that of a burst, which a loop that has run for long does not see, and less certain."""
    together, staggered = (
        loaded("load.rate=0", "load.concurrency=32", "load.requests=96", f"load.start={start}").as_configured()
        for start in ("together", "staggered")
    )
    assert together.latency.ttft.mean_us > 1.5 * staggered.latency.ttft.mean_us
    assert together.latency.requests_per_s < staggered.latency.requests_per_s, "it fills and drains"

    def above(outcome: LoadOutcome, figure: str) -> float:
        """The upper bound over the middle."""
        middle, high = (getattr(each, figure).mean_us for each in (outcome.latency, outcome.high))
        return float(high / middle)

    widths = [above(outcome, "ttft") / above(outcome, "tpot") for outcome in (together, staggered)]
    assert widths[0] > 1.6 > widths[1]


def test_pipeline_stages_halve_the_weights_and_keep_as_many_batches_under_way() -> None:
    """A step runs through all layers, so a token takes as long and what stages send; two batches at once carry up to twice as much."""
    one, two = (loaded(f"placement.pp={stages}", model="kernels") for stages in (1, 2))
    assert two.room.weights < 0.6 * one.room.weights
    assert two.room.blocks > 2 * one.room.blocks
    alone = StepBatch(decodes=(500,) * 8)
    (whole,), (piped,) = (each.stepper.step_times([alone]) for each in (one, two))
    assert whole.median_us < piped.median_us < 1.1 * whole.median_us
    assert 1.3 < two.capacity().median / one.capacity().median < 2.0


@pytest.mark.parametrize(("places", "batches"), [(1, 1), (3, 2), (64, 2)])
def test_batches_of_pipeline_stages_share_the_places_and_blocks_of_their_engine(places: int, batches: int) -> None:
    """vLLM's max_num_seqs bounds the requests of all batches under way together."""
    one = loaded("placement.pp=2", f"engine.max_num_seqs={places}", "load.rate=0", "load.concurrency=8")
    assert batches * one.engine.max_num_seqs == places // batches * batches
    outcome = one.as_configured()
    assert outcome.streams * outcome.served.mean_requests <= places
    assert (outcome.streams, one.at_once) == (batches, places)
    assert outcome.blocks == one.room.blocks // batches


def test_pipeline_and_tensor_parallel_gpus_hold_as_many_tokens() -> None:
    """As many GPUs keep as many bytes of each token, whichever way its layers are divided among them."""
    piped, sliced = (cache_room(server("llama3-70b", tp=tp, pp=4 // tp, precision="w4a16")) for tp in (2, 4))
    assert piped.block == sliced.block
    assert piped.blocks == pytest.approx(sliced.blocks, rel=0.02)
