"""The values of a key that is `auto`: those that a framework's user would try, and that the framework offers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from predict.model.spec import ModelSpec
from predict.run.frameworks import offered
from predict.schedules import registry
from sampling.errors import UserError
from sampling.files.keys import Key

LEFT_OUT = (
    "plan.tp", "plan.sp", "plan.pp", "plan.vpp", "plan.dp", "plan.cp", "plan.ep", "plan.etp", "plan.zero", "plan.schedule",
    "plan.recompute", "batch.micro",
)  # fmt: skip
"""Keys that are searched where a config leaves them out; any other has its default unless it is a list, a range or auto."""
TOKENS_OF_A_SEQUENCE = 1024
"""Fewest tokens of a sequence that context parallelism leaves on a rank: with fewer, attention cannot hide the exchange of keys and
values (Megatron-Core's user guide, context_parallel, uses it from 8,192 tokens on)."""
MOST_SEQUENCES = 8
"""Most sequences of a microbatch: the largest of the published layouts of Llama (arXiv 2311.05610) is 8."""
SELECTIVE = ("core_attn", "layernorm", "mlp")
OF_EXPERTS = ("moe", "moe_act", "shared_experts")


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """The facts of a run that automatic values depend on."""

    model: ModelSpec
    world: int
    """GPUs."""
    gpus_per_node: int
    seq_len: int
    framework: str
    pipeline: tuple[int, ...] = ()
    """The values of plan.pp."""


def automatic_values(path: str, key: Key, around: Surroundings) -> tuple[Any, ...]:
    """The values of a key of plan, batch or execution, in the order in which equal plans are preferred.

    UserError for a key without a natural list of values.
    """
    if found := offered(around.framework).get(key.name):
        return tuple(found)
    if path in NATURAL:
        return tuple(NATURAL[path](around))
    if key.kind == "boolean":
        return (False, True)
    if key.choices is not None and key.pattern is None:
        return tuple(key.choices())
    raise UserError(f"{path}: auto has no values to try here; give a list, as in [A, B], or a range, as in 1..8")


def _divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]


def _chunks(around: Surroundings) -> Iterable[int]:
    """The numbers into which the layers of some pipeline rank divide."""
    layers = around.model.layers
    return sorted({chunks for pp in around.pipeline if pp > 1 for chunks in _divisors(-(-layers // pp))} | {1})


def _experts(around: Surroundings) -> Iterable[int]:
    count = around.model.experts.count if around.model.experts else 1
    return [ep for ep in _divisors(count) if ep <= around.world]


def _recompute_modules(around: Surroundings) -> Iterable[str]:
    """Each module of the model, alone."""
    model = around.model
    found = [*SELECTIVE, *model.attention.RECOMPUTABLE]
    if model.experts:
        found += [name for name in OF_EXPERTS if name != "shared_experts" or model.experts.shared_ffn]
    return found


def _shards(around: Surroundings) -> Iterable[int]:
    """All replicas (0), or as many as lie in one node and its parts."""
    return [0, *_divisors(around.gpus_per_node)[1:]]


def _stage_layers(around: Surroundings) -> Iterable[int]:
    """An even share (0), and every smaller or equal number of layers."""
    fewest = min((pp for pp in around.pipeline if pp > 1), default=1)
    return range(-(-around.model.layers // fewest) + 1)


def _plain_first(names: Iterable[str]) -> list[str]:
    """The schedules, the simplest first: of plans that are the same, the first is kept."""
    return sorted(names, key=lambda name: (name != "1f1b", name))


NATURAL: Mapping[str, Callable[[Surroundings], Iterable[Any]]] = {
    "plan.tp": lambda around: _divisors(min(around.gpus_per_node, around.world)),
    "plan.pp": lambda around: [pp for pp in _divisors(around.world) if pp <= around.model.layers],
    "plan.vpp": _chunks,
    "plan.dp": lambda around: _divisors(around.world),
    "plan.cp": lambda around: [
        cp for cp in _divisors(around.world) if cp == 1 or cp * TOKENS_OF_A_SEQUENCE <= around.seq_len
    ],
    "plan.ep": _experts,
    "plan.etp": lambda around: _divisors(around.gpus_per_node) if around.model.experts else [1],
    "plan.zero": lambda around: range(4),
    "plan.shard": _shards,
    "plan.schedule": lambda around: _plain_first(registry.names()),
    "plan.recompute_modules": _recompute_modules,
    "plan.recompute_layers": lambda around: range(1, around.model.layers // min(around.pipeline or (1,)) + 1),
    "plan.first_stage_layers": _stage_layers,
    "plan.last_stage_layers": _stage_layers,
    "plan.count_embedding": lambda around: (0, 1),
    "plan.count_loss": lambda around: (0, 1),
    "batch.micro": lambda around: [2**power for power in range(MOST_SEQUENCES.bit_length())],
}
"""Key path → its values where the framework does not say which it offers."""
