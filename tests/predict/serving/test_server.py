"""Limits of an engine: the host's launches, links between nodes, its share of the memory, and whether it preempts."""

from dataclasses import replace
from typing import Any

import pytest

from predict.serving.batch import Chunk, Seen, StepBatch, sums_of
from predict.serving.coefficients import shipped_coefficients
from predict.serving.config import load_serving
from predict.serving.kernels import GROUPS, LAYER_US, kernel_features, launches_us
from predict.serving.kv_cache import GIB, BlockPool, cache_room, kept_bytes
from predict.serving.server import EngineSettings, engine_settings
from predict.serving.simulate import serve
from predict.serving.stepper import Stepper, stepper
from sampling.errors import InfeasibleError
from sampling.hardware.cluster import hardware_facts
from tests.predict.serving.servers import CONFIG, engine, requests, server, unit_table


def test_an_eager_engine_waits_for_its_launches() -> None:
    """A step takes the longer of its kernels and of the host's launches, whatever the context."""
    graphs = server("llama3-8b", settings=engine(max_num_seqs=64, max_num_batched_tokens=4096))
    eager = replace(graphs, engine=replace(graphs.engine, enforce_eager=True))
    small, large = StepBatch(decodes=(128,)), StepBatch(chunks=(Chunk(tokens=4096),))
    requests = stepper(eager).table.request_us
    assert stepper(eager).step_times([small])[0].median_us == pytest.approx(32 * LAYER_US + requests, rel=1e-9)
    assert stepper(eager).step_times([large])[0].median_us == stepper(graphs).step_times([large])[0].median_us
    long = sums_of([StepBatch(decodes=(200_000,) * 64)], Seen())
    assert stepper(eager).table.times_us(long) == pytest.approx(stepper(graphs).table.times_us(long), rel=1e-9)


def test_memory_that_is_reserved_holds_no_blocks() -> None:
    few, many = (cache_room(server(settings=engine(reserved_gib=each))).blocks for each in (6.0, 2.0))
    assert many - few == pytest.approx(4 * GIB / (16 * kept_bytes(server()).token), abs=1)


def test_all_reduces_between_nodes_are_those_of_the_network() -> None:
    """An engine over two nodes waits for the slower links, where its own kernel would take the GPUs for those of one."""
    one = server("qwen3-235b-a22b", tp=16)
    two_nodes = replace(one, cluster=replace(one.cluster, nodes=2, gpus_per_node=8))
    batch = StepBatch(decodes=(1000,) * 16)
    assert stepper(two_nodes).step_times([batch])[0].median_us > 1.2 * stepper(one).step_times([batch])[0].median_us


@pytest.mark.parametrize("eager", [False, True])
def test_the_terms_of_a_step_add_up_to_it(eager: bool) -> None:
    one = stepper(server(settings=engine(max_num_seqs=64, max_num_batched_tokens=4096, enforce_eager=eager)))
    for batch in (StepBatch(decodes=(512,) * 64), StepBatch(chunks=(Chunk(tokens=512),), decodes=(512,))):
        assert sum(one.ledger_us(batch).values()) == pytest.approx(one.step_times([batch])[0].median_us, rel=0.01)


def test_an_eager_engine_pads_nothing() -> None:
    graphs = server(settings=engine(max_num_seqs=64, max_num_batched_tokens=64, graph_sizes=(8, 16, 32)))
    eager = replace(graphs, engine=replace(graphs.engine, enforce_eager=True))
    nine, sixteen = (sums_of([StepBatch(decodes=(1,) * count)], Seen()) for count in (9, 16))
    gemm = GROUPS.index("gemm")
    padded, exact = ([kernel_features(one)(sums)[0, gemm] for sums in (nine, sixteen)] for one in (graphs, eager))
    assert padded[0] == padded[1]
    assert exact[0] < exact[1]


def test_a_share_of_free_memory_is_the_caches_alone() -> None:
    """TensorRT-LLM's share is of what the weights leave: with large weights its cache is the larger by a tenth of them."""
    whole = server("llama3-70b", tp=2)
    free = replace(whole, engine=replace(whole.engine, memory_share_of="free"))
    rooms = [cache_room(one) for one in (whole, free)]
    cached = [room.blocks * room.block for room in rooms]
    assert cached[1] - cached[0] == pytest.approx(0.1 * (rooms[0].weights + rooms[0].reserved), rel=1e-3)
    memory = whole.cluster.gpu.memory_gib * GIB
    assert cached[1] == pytest.approx(0.9 * (memory - rooms[0].weights - rooms[0].reserved), rel=1e-3)
    assert engine_settings("tensorrt-llm", hardware_facts("H100")).memory_share_of == "free"


def test_an_engine_that_never_preempts_waits_for_blocks_of_whole_answers() -> None:
    """Eight blocks hold two requests of 16 + 48 tokens; admitted by their prompts alone, three would start."""
    load = requests(*((0.0, 16, 48),) * 3)
    starts, preempted = [], []
    for never in (False, True):
        served = serve(engine(never_preempts=never), BlockPool(blocks=8), unit_table(), load)
        starts.append(sum(served.start_us == 0))
        preempted.append(served.preemptions)
        assert served.most_blocks <= 8
    assert (starts, preempted[1]) == ([3, 2], 0)
    assert preempted[0] > 0


def test_a_prompt_in_one_step_is_held_against_its_tokens() -> None:
    """An answer is computed with it where a preemption may come between."""
    load, pool = requests((0.0, 60, 20)), BlockPool(blocks=8)
    whole = engine(chunked_prefill=False)
    assert serve(replace(whole, never_preempts=True), pool, unit_table(), load).preemptions == 0
    with pytest.raises(InfeasibleError, match=r"60 \+ 20, computed anew after a preemption"):
        serve(whole, pool, unit_table(), load)
    with pytest.raises(InfeasibleError, match=r"request 0 \(70\)"):
        serve(replace(whole, never_preempts=True), pool, unit_table(), requests((0.0, 70, 2)))


def test_coefficients_of_other_engines_and_devices_are_less_certain() -> None:
    """Another engine and another architecture are off by more both ways; that engine's host may take no time of its own as well."""
    known = server(settings=engine(max_num_seqs=64, max_num_batched_tokens=256))
    another = replace(known, engine_name="tensorrt-llm")
    blackwell = server(hardware="B200", settings=known.engine)
    batch = StepBatch(decodes=(500,) * 64)
    for name in ("kernels", "formula"):
        times = [stepper(one, name).step_times([batch])[0] for one in (known, another, blackwell)]
        lows, highs = ([getattr(time, end) / time.median_us for time in times] for end in ("low_us", "high_us"))
        assert times[0].median_us == times[1].median_us
        assert lows[1] < 0.98 * lows[0] * highs[0] / highs[1]
        assert highs[1] > 1.05 * highs[0]
        assert (lows[2] < 0.95 * lows[0], highs[2] > 1.05 * highs[0]) == (True, True)


@pytest.mark.parametrize(
    "settings",
    [
        ("engine.max_num_batched_tokens=128",),
        ("engine.chunked_prefill=false", "engine.max_model_len=2048"),
        ("engine.name=tensorrt-llm", "engine.max_num_batched_tokens=4096"),
    ],
)
def test_a_step_with_room_for_them_is_taken(settings: tuple[str, ...]) -> None:
    """TensorRT-LLM starts with prompts undivided, and holds each against the step by itself, since it preempts none."""
    assert load_serving(CONFIG, settings).server.engine.max_num_seqs == 128


@pytest.mark.parametrize(
    ("name", "hardware", "offline", "starts"),
    [
        ("vllm-v1", "H100", False, (1024, 8192)),
        ("vllm-v1", "H100", True, (1024, 16384)),
        ("vllm-v1", "A100-80GB", False, (256, 2048)),
        ("vllm-v1", "L40S", True, (256, 8192)),
        ("sglang", "L40S", False, (2048, 4096)),
        ("sglang", "B200", False, (2048, 16384)),
        ("tensorrt-llm", "H200", False, (2048, 8192)),
    ],
)
def test_an_engine_starts_as_it_does_on_the_device(
    name: str, hardware: str, offline: bool, starts: tuple[int, int]
) -> None:
    found = engine_settings(name, hardware_facts(hardware), offline=offline)
    assert (found.max_num_seqs, found.max_num_batched_tokens) == starts


def test_replicas_of_attention_divide_sglang_s_chunk() -> None:
    config = {"model": "deepseek-v3", "hardware": "H200", "load": {"rate": 1.0}}
    wide = ["placement.dp=4", "placement.tp=2", "placement.precision=fp8"]
    tokens = {
        name: load_serving({**config, "engine": {"name": name}}, wide).server.engine.max_num_batched_tokens
        for name in ("sglang", "vllm-v1")
    }
    assert tokens == {"sglang": 2048, "vllm-v1": 8192}
    # requests at once are not divided, and each has a token of a step
    wider = load_serving({**config, "engine": {"name": "sglang"}}, ["placement.dp=16", *wide[1:]])
    assert wider.server.engine.max_num_batched_tokens == wider.server.engine.max_num_seqs == 2048


def test_earlier_versions_of_an_engine_start_as_they_did() -> None:
    """vLLM schedules beside its steps since 0.14, and runs DeepGEMM's experts on Hopper up to 0.14."""
    starts = {
        version: engine_settings("vllm-v1", hardware_facts("H200"), version=version)
        for version in ("", "0.12.0", "v0.14.1", "0.19.0rc1", "nightly-5b8c30d")
    }
    assert {version: (one.asynchronous, one.expert_alignment) for version, one in starts.items()} == {
        "": (True, 1),
        "0.12.0": (False, 128),
        "v0.14.1": (True, 128),
        "0.19.0rc1": (True, 1),
        "nightly-5b8c30d": (True, 1),
    }
    assert engine_settings("vllm-v1", hardware_facts("B200"), version="0.12.0").expert_alignment == 1
    graphs = {
        version: engine_settings("sglang", hardware_facts("H200"), version=version).prefill_graph_tokens
        for version in ("", "0.5.9", "0.5.10.post1")
    }
    assert graphs["0.5.9"] == 0 < graphs["0.5.10.post1"] == graphs[""]
    config = {"model": "llama3-8b", "hardware": "H200", "engine": {"version": "0.12"}, "load": {"rate": 1.0}}
    assert not load_serving(config).server.engine.asynchronous


def test_experts_that_are_padded_cost_the_same_whatever_the_tokens_choose() -> None:
    """Qwen3-30B-A3B in fp8 by block: 128 experts of 128 rows each, for 8 decodes and for 64; in bf16 the kernels run over those with tokens."""
    padded = engine(max_num_seqs=64, max_num_batched_tokens=4096, expert_alignment=128)
    plain = replace(padded, expert_alignment=1)

    def growth(settings: EngineSettings, precision: str) -> float:
        one = stepper(server("qwen3-30b-a3b", settings=settings, precision=precision))
        few, many = (one.ledger_us(StepBatch(decodes=(128,) * size))["moe"] for size in (8, 64))
        return many / few

    assert growth(padded, "fp8_block") == pytest.approx(1.0, abs=0.05)
    assert growth(plain, "fp8_block") > 1.5
    for precision in ("fp8", "bf16"):
        assert growth(padded, precision) == growth(plain, precision)


def test_requests_at_once_follow_the_tokens_of_a_step_where_these_alone_are_given() -> None:
    config = {"model": "llama3-8b", "hardware": "H100", "load": {"rate": 1.0}}
    assert load_serving(config, ["engine.max_num_batched_tokens=512"]).server.engine.max_num_seqs == 512
    assert load_serving(config, ["engine.max_num_batched_tokens=9000"]).server.engine.max_num_seqs == 1024


def test_prompts_of_an_engine_without_graphs_for_them_take_their_launches() -> None:
    eager = server(
        "qwen3-30b-a3b", settings=engine(max_num_seqs=64, max_num_batched_tokens=4096, prefill_graph_tokens=0)
    )
    usual = replace(eager, engine=replace(eager.engine, prefill_graph_tokens=512))
    prompt, decodes = StepBatch(chunks=(Chunk(tokens=16),)), StepBatch(decodes=(128,))
    longer = StepBatch(chunks=(Chunk(tokens=512),), decodes=(128,))
    assert stepper(eager).step_times([decodes]) == stepper(usual).step_times([decodes])
    assert stepper(eager).step_times([prompt])[0].median_us > launches_us(eager) > 48 * LAYER_US
    assert stepper(usual).step_times([prompt])[0].median_us < launches_us(eager) / 2
    assert stepper(usual).step_times([longer]) == stepper(eager).step_times([longer])
    assert stepper(usual).ledger_us(longer)["launches"] > 0 and "launches" not in stepper(usual).ledger_us(prompt)


@pytest.mark.parametrize(
    ("model", "changed"),
    [
        ("llama3-8b", {"engine_name": "sglang"}),
        ("qwen3-30b-a3b", {}),
        ("deepseek-v2-lite", {}),
        ("llama3-8b", {"eager": True}),
        ("mixtral-8x7b", {"dp": 2, "expert_parallel": True}),
    ],
)
def test_what_no_coefficient_rests_on_widens_the_interval(model: str, changed: dict[str, Any]) -> None:
    """Nothing of it where coefficients were fitted to the server itself."""
    named, eager = changed.pop("engine_name", "vllm-v1"), changed.pop("eager", False)
    one = replace(server(model, **changed), engine_name=named)
    one = replace(one, engine=replace(one.engine, enforce_eager=eager))
    own = replace(shipped_coefficients("kernels"), server=one.title)
    assert stepper(one).half_width > stepper(server("llama3-8b")).half_width + 0.05
    assert Stepper(one, own).half_width == stepper(server("llama3-8b")).half_width
