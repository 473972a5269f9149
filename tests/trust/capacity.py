"""Capacities of servers drawn at random, which more of anything must not lower: `python -m tests.trust.capacity`."""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from predict.serving.config import load_serving
from predict.serving.loaded_server import LoadedServer
from predict.serving.simulate import capacity_per_s
from predict.serving.stepper import stepper
from predict.serving.traffic import longest_of
from sampling.errors import UserError

SLACK = 0.04
"""Share of a capacity by which it may fall: it is the rate of a few thousand requests, which end in bunches."""
OF_MIXING = 0.10
"""Share by which twice the tokens of a step may lower it: prompts in small chunks read the weights together with decodes
(SARATHI, arXiv 2308.16369), which large steps do less often. Up to 6 % were seen."""
OF_PLACES = 0.12
"""Share by which twice the requests at once may lower it where the cache does not hold their answers: more are preempted and computed
again. Up to 10 % were seen, in 2 of 500 servers more than 8 (vLLM measured 5 with a cache of two thirds of the demand: pull request 44594)."""
OF_BATCH = 0.10
"""Share by which an engine that preempts may be below one that never does, where its cache holds the batch."""
MODELS = ("llama3-8b", "llama3-70b", "qwen3-14b", "qwen3-30b-a3b", "mixtral-8x7b", "deepseek-v2-lite")
DEVICES = ("H100", "A100-80GB", "H200", "B200", "L40S")
POSITIONS = 131_072
Settings = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawn:
    """A server and its load as settings of a serving config."""

    model: str
    hardware: str
    settings: Settings = field(default_factory=dict)

    def with_(self, **settings: Any) -> Drawn:
        changed = {key.replace("__", "."): value for key, value in settings.items()}
        return replace(self, settings={**self.settings, **changed})

    def loaded(self) -> LoadedServer:
        content = {"model": self.model, "hardware": self.hardware, "load": {"rate": 1.0}}
        options = [f"{key}={str(value).lower()}" for key, value in self.settings.items()]
        run = load_serving(content, [f"model.max_position_embeddings={POSITIONS}", *options])
        return LoadedServer(run, stepper(run.server))

    @property
    def capacity(self) -> float:
        """Requests per second, in the middle of its interval."""
        server = self.loaded()
        share = server.run.server.placement.dp
        return share * capacity_per_s(server.engine, server.room.pool, server.stepper.table, server.run.load)


def drawn(case: int) -> Drawn:
    """The first server of a seed that holds its longest request."""
    draw = random.Random(f"capacity {case}")
    while True:
        prompt, output = (round(2 ** draw.uniform(*of)) for of in ((6, 14.5), (4, 12)))
        tokens = draw.choice((512, 1024, 2048, 4096, 8192, 16384))
        model, hardware, tp = draw.choice(MODELS), draw.choice(DEVICES), draw.choice((1, 2, 4))
        one = Drawn(
            model=model,
            hardware=hardware,
            settings={
                # over PCIe between more than two GPUs the all-reduces of large batches take most of a step
                "placement.tp": min(tp, 2) if hardware == "L40S" else tp,
                "engine.max_num_seqs": min(draw.choice((8, 32, 64, 128, 256)), tokens),
                "engine.max_num_batched_tokens": tokens,
                "engine.memory_utilization": draw.choice((0.5, 0.7, 0.9)),
                "load.prompt": prompt,
                "load.output": output,
                "load.spread": draw.choice((0.0, 0.2, 0.5)),
            },
        )
        with suppress(UserError):
            server = one.loaded()
            longest = sum(longest_of(server.run.load, of) for of in ("prompt", "output"))
            if server.room.sequences(longest, server.engine.block_size):
                return one


def faults(one: Drawn) -> Iterator[str]:
    """More of something that lowers the capacity, and preemption that costs much."""
    before, given = one.capacity, one.settings
    tokens = given["engine.max_num_batched_tokens"]
    more: Mapping[str, tuple[float, Settings]] = {
        "tokens of a step": (OF_MIXING, {"engine__max_num_batched_tokens": 2 * tokens}),
        "requests at once": (OF_PLACES, {"engine__max_num_seqs": min(2 * given["engine.max_num_seqs"], tokens)}),
        "memory": (SLACK, {"engine__memory_utilization": min(0.95, given["engine.memory_utilization"] + 0.2)}),
    }
    for what, (slack, settings) in more.items():
        after = one.with_(**settings).capacity
        if after < before * (1 - slack):
            yield f"{what}: {before:.4g} requests/s become {after:.4g} with {settings}"
    # twice the GPUs, as they serve best: over PCIe a layer over eight of them is slower than one over four
    after = max(
        one.with_(**settings).capacity
        for settings in ({"placement__tp": 2 * given["placement.tp"]}, {"placement__dp": 2})
    )
    if after < before * (1 - SLACK):
        yield f"GPUs: {before:.4g} requests/s become {after:.4g} with twice as many"
    server = one.loaded()
    if server.at_once >= server.engine.max_num_seqs:
        kept = one.with_(engine__never_preempts=True).capacity
        if before < kept * (1 - OF_BATCH):
            yield f"preemption: {before:.4g} requests/s where {kept:.4g} are served without"


def tried(cases: Iterable[int]) -> dict[int, list[str]]:
    """The faults of each server that has some."""
    found = {case: list(faults(drawn(case))) for case in cases}
    return {case: wrong for case, wrong in found.items() if wrong}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--servers", type=int, default=500)
    options.add_argument("--from", type=int, default=0, dest="first")
    given = options.parse_args()
    wrong = tried(range(given.first, given.first + given.servers))
    for case, lines in wrong.items():
        print(f"{case}: {drawn(case)}\n  " + "\n  ".join(lines))
    print(f"{given.servers - len(wrong)} of {given.servers} servers keep every law")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
