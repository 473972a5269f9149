"""The values that an unknown setting of a run may have: those that its framework's users choose, and that leave a sound plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from predict.config.unknown import INTERLEAVED, ONE_CHUNK
from predict.memory.changed_run import changed
from predict.plan_search.space.automatic import MOST_SEQUENCES
from predict.run.training_run import TrainingRun
from sampling.errors import ConfigError

INTERLEAVED_BY_DEFAULT = ("nemo",)
"""Frameworks whose recipes interleave every pipeline."""
LAYERS_A_CHUNK = (4, 2, 1)
"""Usual layers of a chunk of an interleaved pipeline."""


def values_of(run: TrainingRun, path: str, unknown: Sequence[str]) -> tuple[TrainingRun, ...]:
    """The runs that differ from this one in the key `path` alone, each value as likely as another; the rules of a config hold for
    each of them. ConfigError, with the fault of the last, where none is left.

    `unknown` holds `plan.schedule` where the pipeline is known to be interleaved.
    """
    found, refusal = [], ConfigError(f"{path}: unknown, and no usual value fits this run; give one")
    for settings in USUAL[path](run, unknown):
        try:
            found.append(changed(run, settings))
        except ConfigError as error:
            refusal = error
    if not found:
        raise refusal
    return tuple(found)


def _chunks(run: TrainingRun, unknown: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    """One chunk a rank unless the framework interleaves, and chunks of usual sizes; where the layers do not divide, embedding and
    head may each take a layer's place."""
    plan, layers = run.plan, run.model.layers
    in_turn = "plan.schedule" in unknown or run.execution.framework in INTERLEAVED_BY_DEFAULT
    counted = plan.count_embedding + plan.count_loss or 2 * bool(layers % plan.pp)
    places = (layers + counted) // plan.pp
    several = {places // size for size in LAYERS_A_CHUNK if plan.pp > 1 and (layers + counted) % (plan.pp * size) == 0}
    for chunks in sorted(several if several and in_turn else several | {1}):
        yield {"plan.vpp": chunks, **_schedule(run, chunks), **_split(run, chunks)}


def _schedule(run: TrainingRun, chunks: int) -> dict[str, str]:
    """1F1B, interleaved where there are several chunks; any other schedule stays."""
    if run.plan.schedule not in (ONE_CHUNK, INTERLEAVED):
        return {}
    return {"plan.schedule": INTERLEAVED if chunks > 1 else ONE_CHUNK}


def _split(run: TrainingRun, chunks: int) -> dict[str, int]:
    uneven = bool(run.model.layers % (run.plan.pp * chunks))
    own = run.plan.layout or run.plan.first_stage_layers or run.plan.last_stage_layers or run.plan.count_loss
    return {"plan.count_embedding": 1, "plan.count_loss": 1} if uneven and not own else {}


def _microbatches(run: TrainingRun, _: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    """Powers of two that leave at least as many microbatches as pipeline ranks, so that the pipeline fills."""
    sequences = run.batch.global_ // run.plan.dp
    for power in range(MOST_SEQUENCES.bit_length()):
        micro = 2**power
        if sequences % micro == 0 and (micro == 1 or sequences // micro >= run.plan.pp):
            yield {"batch.micro": micro}


def _experts(run: TrainingRun, _: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    """Powers of two up to all ranks of a stage."""
    ranks, ep = run.cluster.world_size // run.plan.pp, 1
    while ep <= ranks:
        yield {"plan.ep": ep}
        ep *= 2


USUAL: Mapping[str, Callable[[TrainingRun, Sequence[str]], Iterator[Mapping[str, Any]]]] = {
    "plan.ep": _experts,
    "plan.vpp": _chunks,
    "batch.micro": _microbatches,
    "plan.recompute": lambda run, _: ({"plan.recompute": name} for name in ("none", "selective")),
}
"""Key path → its usual values; those of recomputation leave out `full`, which costs a third more compute and is stated where it is used. In the order in which they are chosen, since the later ones depend on those before."""


def nodes_of_experts(run: TrainingRun) -> int:
    """Nodes that one copy of the experts spreads over: of spreads that fit in memory, those over fewer nodes exchange less."""
    return -(-run.plan.ep * run.plan.etp // run.cluster.gpus_per_node)


def stated(run: TrainingRun, path: str) -> Any:
    """The run's own value of a key that may be unknown."""
    section, _, key = path.partition(".")
    return getattr(getattr(run, section), key)
