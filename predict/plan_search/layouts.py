"""The layouts of a pipeline that are worth a search: the layers of its stages, where embedding, head and further tokens take the place of
layers on the first and on the last stage.

A layout is tried with every number of layers on the first and on the last stage that may balance what stands beside them. The stages
between have equal numbers; where they cannot, those with one more are placed so that the ranks hold equal numbers, once as early and once
as late as that allows. Other layouts have the same slowest rank, or a slower one (a test holds them against all splits of small models).
"""

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby

from predict.model.spec import LayerKind, ModelSpec
from predict.rank.share import embedding_weights, layer_weights
from predict.run.plan import Plan
from predict.run.stages import EMBEDDING, LAYER, LOSS, MORE_TOKENS, layers_of_stages

ROOM = 1
"""Layers beyond those that embedding and head weigh by which the first or the last stage may differ from an even share."""


@lru_cache(maxsize=256)
def layouts(model: ModelSpec, ranks: int, stages: int) -> tuple[str, ...]:
    """The layouts of a model on so many pipeline ranks and stages, in Megatron's letters; the even split is not among them."""
    if stages < 2 or stages > model.layers + 2:
        return ()
    splits = dict.fromkeys(_splits(model, ranks, stages))
    splits.pop(layers_of_stages(model.layers, stages), None)
    return tuple(in_letters(split, model.mtp_layers) for split in splits)


def _splits(model: ModelSpec, ranks: int, stages: int) -> Iterator[tuple[int, ...]]:
    table, head = _layers_worth(model)
    even, most = math.ceil(model.layers / stages), math.ceil((model.layers + head) / stages) + ROOM
    for first in range(max(0, even - math.ceil(table) - ROOM), most + 1):
        for last in range(max(0, even - math.ceil(head) - ROOM), most + 1):
            between = model.layers - first - last
            if stages == 2 and between == 0:
                yield first, last
            elif stages > 2 and stages - 2 <= between <= most * (stages - 2):
                yield from (
                    _placed(first, between, last, ranks, stages, head=head, late=late) for late in (False, True)
                )


def _layers_worth(model: ModelSpec) -> tuple[float, float]:
    """Layers that have as many weights in use as the embedding, and as the head with the layers that predict further tokens."""
    whole = Plan()
    table = embedding_weights(model, whole).total / min(_in_use(model, whole, kind) for kind in set(model.kinds()))
    return table, table + model.mtp_layers * (1 + table)


def _in_use(model: ModelSpec, plan: Plan, kind: LayerKind) -> float:
    """Weights of a layer through which each token passes."""
    weights = layer_weights(model, plan, kind)
    share = model.experts.topk / model.experts.count if model.experts else 0.0
    return weights.dense + share * weights.experts


def _placed(
    first: int, between: int, last: int, ranks: int, stages: int, *, head: float, late: bool
) -> tuple[int, ...]:
    """The layers of all stages, with those between the ends spread so that the ranks are as equal as can be."""
    even, more = divmod(between, stages - 2)
    split = [first, *[even] * (stages - 2), last]
    loads = [float(sum(split[rank::ranks])) for rank in range(ranks)]
    loads[-1] += head
    left = list(range(1, stages - 1))
    for _ in range(more):
        chosen = min(left, key=lambda stage: (loads[stage % ranks], -stage if late else stage))
        left.remove(chosen)
        split[chosen] += 1
        loads[chosen % ranks] += 1
    return tuple(split)


def in_letters(split: Sequence[int], further_tokens: int = 0) -> str:
    """A split of the layers in Megatron's form: `Et*3|(t*4|)*14tL`."""
    stages = [f"{LAYER}*{layers}" if layers > 1 else LAYER * layers for layers in split]
    stages[0] = EMBEDDING + stages[0]
    runs = [(stage, len(list(same))) for stage, same in groupby(stages[:-1])]
    text = "".join(f"({stage}|)*{count}" if count > 1 else f"{stage}|" for stage, count in runs)
    return f"{text}{stages[-1]}{MORE_TOKENS * further_tokens}{LOSS}"
