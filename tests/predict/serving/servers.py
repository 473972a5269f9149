"""Small servers and step tables for tests."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from predict.huggingface.config_json import load_model
from predict.model.shipped import shipped_model
from predict.serving.config import load_serving
from predict.serving.fleet import FleetSettings, Pool, Ways, serve_fleet
from predict.serving.kv_cache import BlockPool
from predict.serving.loaded_server import LoadedServer
from predict.serving.server import EngineSettings, Server, ServerPlacement
from predict.serving.simulate import Served
from predict.serving.speculation import Speculation
from predict.serving.step_table import StepTable
from predict.serving.stepper import stepper
from predict.serving.traffic import Chains, Traffic
from sampling.files.places import CONFIGS
from sampling.hardware.cluster import load_cluster

CONFIG = CONFIGS / "serving" / "llama3-8b-h100.yml"
SHORT = ("load.duration_s=20", "load.output=50")


def loaded(*overrides: str, model: str = "formula") -> LoadedServer:
    """The shipped config under a short load."""
    run = load_serving(CONFIG, [*SHORT, *overrides])
    return LoadedServer(run, stepper(run.server, model))


def engine(**changes: Any) -> EngineSettings:
    """A small synchronous engine."""
    usual = {
        "max_num_seqs": 4,
        "max_num_batched_tokens": 64,
        "block_size": 16,
        "prefix_caching": True,
        "chunked_prefill": True,
        "asynchronous": False,
        "memory_utilization": 0.9,
        "reserved_gib": 2.5,
        "graph_sizes": (),
    }
    return EngineSettings(**(usual | changes))


def server(
    model: str = "llama3-8b", hardware: str = "H100", *, settings: EngineSettings | None = None, **placement: Any
) -> Server:
    """A shipped model on one node."""
    placed = ServerPlacement(**placement)
    path = shipped_model(model)
    assert path is not None
    return Server(
        model=load_model(path),
        cluster=load_cluster(hardware=hardware, nodes=1, gpus_per_node=placed.gpus, profile="analytic"),
        placement=placed,
        engine_name="vllm-v1",
        engine=settings or engine(max_num_seqs=128, max_num_batched_tokens=2048),
    )


def unit_table(most_decodes: int = 8, most_tokens: int = 512) -> StepTable:
    """Steps of 1 µs, and one more per token of a chunk."""
    return StepTable(
        decode_us=np.ones(most_decodes + 1),
        mixed_us=np.ones(most_tokens + 1),
        attention_us=np.zeros((most_decodes + 1, 2)),
        contexts=np.array([0.0, 512.0]),
        prefill_token_us=1.0,
        pair_us=0.0,
        whole_prompt=False,
        context_us=0.0,
        request_us=0.0,
    )


def drafted(tokens: int, acceptance: float, most_tokens: int = 64) -> StepTable:
    """Steps of 1 µs whatever they verify."""
    speculation = Speculation(kind="ngram", tokens=tokens, acceptance=acceptance)
    return replace(unit_table(4, most_tokens + tokens), speculation=speculation)


def requests(*each: tuple[float, int, int], shared: int = 0, in_flight: int = 0) -> Traffic:
    """Requests (arrival µs, prompt, output), the first `shared` tokens of all of which are the same."""
    arrival, prompt, output = zip(*each, strict=True)
    count = len(each)
    return Traffic(
        arrival_us=np.array(arrival, dtype=np.float64),
        prompt=np.array(prompt),
        output=np.array(output),
        shared=np.full(count, shared),
        group=np.full(count, 0 if shared else -1),
        in_flight=in_flight,
    )


NO_WAYS = Ways(names=("prefill",), token_us=(0.5,), start_us=(2.0,), capacity=(0,), overlap=0.0)
"""Keys and values of a token take 0.5 µs from one pool to the other, 2 µs later."""


def fleet(
    traffic: Traffic,
    *,
    engines: int = 1,
    prefill: int = 0,
    blocks: int = 100,
    ways: Ways = NO_WAYS,
    table: StepTable | None = None,
    **changes: Any,
) -> Served:
    """The traffic served by equal engines, `prefill` more of which compute prompts alone."""
    of_fleet = {name: changes.pop(name) for name in tuple(changes) if name in FleetSettings.__slots__}
    pools = [Pool(engines=count, blocks=BlockPool(blocks=blocks)) for count in (prefill, engines) if count]
    chosen = FleetSettings(**({"replicas": engines, "prefill_replicas": prefill} | of_fleet))
    return serve_fleet(engine(**changes), pools, [table or unit_table()] * len(pools), traffic, chosen, ways)


def chained(*each: tuple[float, int, int, tuple[int, ...]], sizes: tuple[int, ...]) -> Traffic:
    """Requests (arrival, prompt, output, segments) whose segments, of so many tokens each, follow on one another."""
    traffic = requests(*[one[:3] for one in each])
    begins = np.zeros(len(sizes), dtype=np.int64)
    for *_, chain in each:
        for before, after in pairwise(chain):
            begins[after] = begins[before] + sizes[before]
    first = np.concatenate(([0], np.cumsum([len(one[3]) for one in each])))
    segment = np.array([part for one in each for part in one[3]], dtype=np.int64)
    chains = Chains(first=first, segment=segment, begins=begins, ends=begins + np.array(sizes))
    return Traffic(
        **{name: getattr(traffic, name) for name in ("arrival_us", "prompt", "output", "shared", "group")},
        chains=chains,
    )
