"""vLLM's own scheduler, from its wheel or source, on a stub of everything else: what it admits, preempts and computes in each step.

`python -m tests.oracles.vllm_scheduler vllm-0.19.0-….whl` compares the simulated loop with it on 50 random traces of an engine that schedules
between steps, and on 50 of one that schedules while they run. Where the latter preempts a request just when its last block is full, it
finds a block less again than the loop has it. Only the Python of its
scheduler and of its block manager is run; torch, the model and the executor are stubs. Nothing of it is kept here.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import importlib.machinery
import random
import sys
from abc import ABCMeta
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from predict.serving.kv_cache import BlockPool
from predict.serving.server import EngineSettings
from predict.serving.simulate import serve
from predict.serving.traffic import Traffic
from tests.predict.serving.servers import engine, requests, unit_table

STUBBED = ("vllm", "torch", "msgspec", "uvloop", "cbor2", "xxhash", "zmq", "psutil", "pydantic", "typing_extensions")
"""Packages of which everything is a stub but what REAL names."""
REAL = (
    *(
        "vllm.v1.core",
        "vllm.v1.request",
        "vllm.v1.kv_cache_interface",
        "vllm.v1.outputs",
        "vllm.v1.engine",
        "vllm.v1.utils",
    ),
    *("vllm.v1.metrics.stats", "vllm.utils.math_utils"),
)
"""Modules, or packages with all in them, that are run as they are."""
STEPS = 100_000


class AnyClass(ABCMeta):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__") or name == "_abc_impl":
            raise AttributeError(name)
        return Anything()


class Anything(metaclass=AnyClass):
    """A class, a function or a value that accepts every use and means nothing."""

    def __init_subclass__(cls, **settings: Any) -> None:
        pass

    def __init__(self, *values: Any, **named: Any) -> None:
        self.__dict__.update(named)

    def __class_getitem__(cls, item: Any) -> type[Anything]:
        return cls

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __call__(self, *values: Any, **named: Any) -> Any:
        return values[0] if len(values) == 1 and not named and callable(values[0]) else Anything()


class StubModule(ModuleType):
    """A module that has every name; settings of the environment are off."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self.__name__ == "vllm.envs":
            return None
        made = type(name, (Anything,), {})
        setattr(self, name, made)
        return made


class Stubs(MetaPathFinder, Loader):
    """Imports of STUBBED packages: those of REAL from a wheel or folder, all others as stubs."""

    def __init__(self, source: Path) -> None:
        self.source = source

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] not in STUBBED:
            return None
        if any(name == real or name.startswith(f"{real}.") for real in REAL):
            folder = "/".join([str(self.source), *name.split(".")[:-1]])
            return importlib.machinery.PathFinder.find_spec(name, [folder])
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return StubModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


@contextmanager
def imported(source: Path) -> Iterator[Any]:
    """A function that imports modules of vLLM from a wheel or folder; what was imported before comes back at the end."""

    def taken() -> dict[str, ModuleType]:
        ours = [name for name in sys.modules if name.partition(".")[0] in STUBBED]
        return {name: sys.modules.pop(name) for name in ours}

    before, finder = taken(), Stubs(source)
    sys.meta_path.insert(0, finder)
    try:
        load = importlib.import_module
        load("vllm.utils").length_from_prompt_token_ids_or_embeds = lambda tokens, embeds: len(tokens)  # type: ignore[attr-defined]
        of_grammar = load("vllm.v1.structured_output.request").StructuredOutputRequest
        of_grammar.from_sampling_params = staticmethod(lambda asked: None)
        yield load
    finally:
        sys.meta_path.remove(finder)
        taken()
        sys.modules.update(before)


@dataclass(frozen=True, kw_only=True, slots=True)
class Scheduled:
    """The steps of a trace: chunks, their tokens and decodes of each, and preemptions of all."""

    steps: tuple[tuple[int, int, int], ...]
    preemptions: int


def by_vllm(load: Any, settings: EngineSettings, blocks: int, traffic: Traffic) -> Scheduled:
    """What vLLM's scheduler does with the traffic, where a step takes 1 µs and one more per token of a chunk. An asynchronous one schedules
    a step while the one before it runs (vllm/v1/engine/core.py, `step_with_batch_queue`)."""
    scheduler, request_class, hasher = _scheduler(load, settings, blocks)
    prompts, made = _prompts(traffic), [0] * len(traffic)
    under_way: deque[tuple[Any, Any, float]] = deque()
    now, end, arrived, steps, preemptions = 0.0, 0.0, 0, [], 0
    while arrived < len(traffic) or scheduler.has_unfinished_requests() or under_way:
        while arrived < len(traffic) and traffic.arrival_us[arrived] <= now:
            scheduler.add_request(
                _request(request_class, hasher, arrived, prompts[arrived], int(traffic.output[arrived]))
            )
            arrived += 1
        planned = scheduler.schedule()
        preemptions += len(planned.preempted_req_ids or ())
        if planned.num_scheduled_tokens:
            step, answer = _executed(load, scheduler, planned, made)
            steps.append(step)
            end = max(now, end) + 1 + step[1]
            under_way.append((planned, answer, end))
            if len(under_way) < 1 + settings.asynchronous:
                continue
        if under_way:
            done, answer, now = under_way.popleft()
            scheduler.update_from_output(done, answer)
        elif arrived < len(traffic):
            now = max(now, float(traffic.arrival_us[arrived]))
        else:
            raise RuntimeError("vLLM's scheduler came to a halt")
        if len(steps) > STEPS:
            raise RuntimeError(f"more than {STEPS} steps")
    if made != traffic.output.tolist():
        raise RuntimeError(f"tokens made: {made}, of {traffic.output.tolist()}")
    return Scheduled(steps=tuple(steps), preemptions=preemptions)


def _executed(load: Any, scheduler: Any, planned: Any, made: list[int]) -> tuple[tuple[int, int, int], Any]:
    """The step's chunks, their tokens and decodes, and its output: a token of each request whose tokens are all computed."""
    joined = {one.req_id for one in planned.scheduled_new_reqs} | set(planned.scheduled_cached_reqs.resumed_req_ids)
    tokens = dict(planned.num_scheduled_tokens)
    of_chunks, sampled = [], []
    for name, count in tokens.items():
        one = scheduler.requests[name]
        if count > 1 or one.num_computed_tokens - count < one.num_prompt_tokens or name in joined:
            of_chunks.append(count)
        # answers differ, so that no block of one is found for another
        sampled.append([] if one.is_prefill_chunk else [-2 - int(name)])
        made[int(name)] += len(sampled[-1])
    answer = load("vllm.v1.outputs").ModelRunnerOutput(
        req_ids=list(tokens),
        req_id_to_index={name: place for place, name in enumerate(tokens)},
        sampled_token_ids=sampled,
    )
    return (len(of_chunks), sum(of_chunks), len(tokens) - len(of_chunks)), answer


def by_loop(settings: EngineSettings, blocks: int, traffic: Traffic) -> Scheduled:
    """What the simulated loop does with the same traffic."""
    most_tokens = max(512, settings.max_num_batched_tokens)
    found = serve(settings, BlockPool(blocks=blocks), unit_table(most_tokens=most_tokens), traffic, traced=STEPS)
    return Scheduled(
        steps=tuple((int(row[2]), int(row[3]), int(row[4])) for row in found.trace), preemptions=found.preemptions
    )


def _prompts(traffic: Traffic) -> list[list[int]]:
    """Tokens of each prompt: those of a group have the leading ones in common."""
    prompts = []
    for place, (length, shared, group) in enumerate(zip(traffic.prompt, traffic.shared, traffic.group, strict=True)):
        common = int(shared) if group >= 0 else 0
        own = 1_000_000 * (place + 1)
        prompts.append(
            [10_000 * int(group) + token for token in range(common)]
            + [own + token for token in range(int(length) - common)]
        )
    return prompts


def _request(request_class: Any, hasher: Any, place: int, prompt: list[int], output: int) -> Any:
    asked = SimpleNamespace(
        max_tokens=output, min_tokens=0, extra_args=None, eos_token_id=-1, stop_token_ids=(), repetition_detection=None, logprobs=None,
        prompt_logprobs=None, skip_reading_prefix_cache=None, structured_outputs=None,
    )  # fmt: skip
    made = request_class(
        request_id=str(place),
        prompt_token_ids=prompt,
        sampling_params=asked,
        pooling_params=None,
        block_hasher=hasher,
        arrival_time=float(place),
    )
    made.structured_output_request = None
    made.status = type(made.status).WAITING
    return made


def _scheduler(load: Any, settings: EngineSettings, blocks: int) -> tuple[Any, Any, Any]:
    """The scheduler, the class of its requests, and the function that names blocks."""
    utils, interface = load("vllm.v1.core.kv_cache_utils"), load("vllm.v1.kv_cache_interface")

    def digest(value: Any) -> bytes:
        return hashlib.sha256(repr(value).encode()).digest()

    utils.init_none_hash(digest)
    spec = interface.FullAttentionSpec(block_size=settings.block_size, num_kv_heads=1, head_size=1, dtype=None)
    # vLLM keeps one block for itself
    cache = interface.KVCacheConfig(
        num_blocks=blocks + 1, kv_cache_tensors=[], kv_cache_groups=[interface.KVCacheGroupSpec(["layer"], spec)]
    )
    config = SimpleNamespace(
        scheduler_config=SimpleNamespace(
            max_num_seqs=settings.max_num_seqs,
            max_num_batched_tokens=settings.max_num_batched_tokens,
            max_num_scheduled_tokens=None,
            policy="fcfs",
            long_prefill_token_threshold=0,
            enable_chunked_prefill=settings.chunked_prefill,
            scheduler_reserve_full_isl=True,
            async_scheduling=settings.asynchronous,
            disable_chunked_mm_input=False,
            watermark=0.0,
        ),
        cache_config=SimpleNamespace(
            num_gpu_blocks=blocks + 1,
            enable_prefix_caching=settings.prefix_caching,
            block_size=settings.block_size,
            mamba_cache_mode="none",
        ),
        model_config=SimpleNamespace(
            is_encoder_decoder=False, max_model_len=1_000_000, enable_return_routed_experts=False
        ),
        parallel_config=SimpleNamespace(
            data_parallel_index=0,
            decode_context_parallel_size=1,
            prefill_context_parallel_size=1,
            pipeline_parallel_size=1,
        ),
        observability_config=SimpleNamespace(kv_cache_metrics=False, enable_mfu_metrics=False),
        **dict.fromkeys(
            ("lora_config", "kv_events_config", "kv_transfer_config", "ec_transfer_config", "speculative_config")
        ),
    )
    of_media = SimpleNamespace(supports_multimodal_inputs=lambda config: False)
    managed = SimpleNamespace(should_advance=lambda request: False, grammar_bitmask=lambda *given: None)
    kind = "AsyncScheduler" if settings.asynchronous else "Scheduler"
    module = f"vllm.v1.core.sched.{'async_' * settings.asynchronous}scheduler"
    scheduler = getattr(load(module), kind)(
        vllm_config=config,
        kv_cache_config=cache,
        structured_output_manager=managed,
        block_size=settings.block_size,
        mm_registry=of_media,
    )
    return scheduler, load("vllm.v1.request").Request, utils.get_request_block_hasher(settings.block_size, digest)


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """An engine, its cache and its traffic."""

    settings: EngineSettings
    blocks: int
    traffic: Traffic


def drawn(case: int, *, asynchronous: bool = False) -> Trace:
    """A small engine whose cache runs full, with arrivals apart from the ends of steps, so that rounding decides nothing."""
    draw = random.Random(f"scheduler {case}")
    shared = draw.choice((0, 0, 16, 40, 64))
    count, longest = draw.randint(5, 60), draw.choice((40, 200, 600))
    arrivals = sorted(draw.randint(0, 4000) + place / 64 + 1 / 128 for place in range(count))
    each = [(arrival, max(shared, draw.randint(1, longest)), draw.randint(1, 60)) for arrival in arrivals]
    tokens = draw.choice((32, 64, 256, 1024))
    settings = engine(
        max_num_seqs=min(tokens, draw.choice((2, 4, 8))),
        max_num_batched_tokens=tokens,
        prefix_caching=draw.random() < 0.6,
        chunked_prefill=tokens < 1024 or draw.random() < 0.5,
        asynchronous=asynchronous,
    )
    needed = max(-(-(prompt + output) // settings.block_size) for _, prompt, output in each)
    traffic = requests(*each, shared=shared)
    return Trace(settings=settings, blocks=needed + draw.randint(0, 2 * needed), traffic=traffic)


def differences(source: Path, cases: Sequence[int], *, asynchronous: bool = False) -> Iterator[str]:
    """A line for each trace that the two schedule differently."""
    with imported(source) as load:
        for case in cases:
            one = drawn(case, asynchronous=asynchronous)
            theirs = by_vllm(load, one.settings, one.blocks, one.traffic)
            ours = by_loop(one.settings, one.blocks, one.traffic)
            if ours != theirs:
                place = next(
                    (
                        place
                        for place, pair in enumerate(zip(ours.steps, theirs.steps, strict=False))
                        if pair[0] != pair[1]
                    ),
                    -1,
                )
                yield (
                    f"trace {case}: {len(ours.steps)} steps and {ours.preemptions} preemptions, vLLM {len(theirs.steps)} and "
                    f"{theirs.preemptions}; step {place}: {ours.steps[place]}, vLLM {theirs.steps[place]}; caching {one.settings.prefix_caching}, "
                    f"computed {sum(step[1] for step in ours.steps):,} and {sum(step[1] for step in theirs.steps):,}"
                )


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("source", type=Path, help="vLLM's wheel, or a folder in which its package lies")
    options.add_argument("--traces", type=int, default=50)
    given = options.parse_args()
    wrong = {}
    for asynchronous in (False, True):
        wrong[asynchronous] = list(differences(given.source, range(given.traces), asynchronous=asynchronous))
        kind = "asynchronous" if asynchronous else "synchronous"
        alike = given.traces - len(wrong[asynchronous])
        print("\n".join([*wrong[asynchronous], f"{kind}: {alike} of {given.traces} traces are scheduled alike"]))
    return 1 if wrong[False] else 0


if __name__ == "__main__":
    sys.exit(main())
