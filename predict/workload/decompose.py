"""What each pipeline rank of a run does: the calls of its chunks' forwards and backwards, and of the end of the step.

Ranks that hold the same stages do the same, so a pipeline rank stands for its tp · dp GPUs. Calls are counted, never
timed, here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from predict.model.layer_kinds import LayerKind
from predict.run.plan import BEST
from predict.run.stage_layout import slices, split_layers
from predict.run.training_run import TrainingRun
from predict.schedules import registry
from predict.schedules.order import Placement
from predict.workload import once, sharded_step
from predict.workload.chunks import ChunkCalls, Parts, Stage, chunk_of_operators, chunk_of_whole_layers, send_calls
from predict.workload.rank.blocks import Calls
from sampling.call import Call, Counted, Phase, Request


@dataclass(frozen=True, kw_only=True, slots=True)
class RankCalls:
    """One pipeline rank's calls: of its chunks, and once a step.

    `gradients` is what reducing them over the replicas adds to the last backward, `copies` adding up those of weights
    that several pipeline ranks hold, `reduction` and `collection` the same for gradients that travel behind the last
    backward and weights that travel behind the first forward, as the run's execution lets them; `step` what follows.
    """

    chunks: tuple[ChunkCalls, ...]
    gradients: Calls
    copies: Calls
    reduction: Calls
    collection: Calls
    step: Calls

    @property
    def layers(self) -> int:
        return sum(chunk.layers for chunk in self.chunks)

    def all_calls(self) -> Calls:
        return (*(call for chunk in self.chunks for call in chunk.all_calls()), *self.calls_of_a_step())

    def calls_of_a_step(self) -> Calls:
        """Those that are no chunk's."""
        return (
            *self.gradients,
            *self.copies,
            *self.reduction,
            *self.collection,
            *self.step,
        )


def decompose(run: TrainingRun) -> tuple[RankCalls, ...]:
    """The calls of every pipeline rank, first to last, as the run's schedule lays the stages over them."""
    schedule = registry.get(run.plan.schedule)
    placement = schedule.placement(run.plan.pp, run.plan.vpp)
    shares = slices(split_layers(run.model.layers, placement.depth, run.plan))
    kinds = run.model.kinds()
    kinds_of_stages = tuple(tuple(kinds[layer] for layer in share) for share in shares)
    rank_calls = _whole_rank if run.execution.whole_layers else _operator_rank
    parts = Parts(run)
    return tuple(
        rank_calls(run, parts, placement, rank, kinds_of_stages, halves=schedule.splits_backward)
        for rank in range(run.plan.pp)
    )


Kinds = tuple[tuple[LayerKind, ...], ...]


def _stages(placement: Placement, rank: int, kinds: Kinds) -> list[Stage]:
    own = placement.stages[rank]
    ends = {0, placement.depth - 1}
    return [
        Stage(
            kinds=kinds[stage],
            first=stage == 0,
            last=stage == placement.depth - 1,
            shared_table=ends <= set(own),
        )
        for stage in own
    ]


def _whole_rank(
    run: TrainingRun, _: Parts, placement: Placement, rank: int, kinds: Kinds, *, halves: bool
) -> RankCalls:
    stages = [
        replace(stage, shared_table=stage.shared_table and run.model.tied) for stage in _stages(placement, rank, kinds)
    ]
    chunks = tuple(
        chunk_of_whole_layers(
            run,
            stage,
            send_calls(run, placement, rank, chunk),
            microbatches=run.microbatches // placement.chain_count,
            halves=halves,
        )
        for chunk, stage in enumerate(stages)
    )
    layers = sum(chunk.layers for chunk in chunks)
    ends = once.Ends(first=any(stage.first for stage in stages), last=any(stage.last for stage in stages))
    weights = once.weights_of(run, layers, ends)
    return RankCalls(
        chunks=chunks,
        gradients=once.reduce_over_replicas(run, layers, weights),
        copies=(*once.add_up_tied(run, ends), *_twins(run, placement, weights.elements, rank)),
        reduction=(),
        collection=(),
        step=once.update(run, weights),
    )


def _twins(run: TrainingRun, placement: Placement, elements: int, rank: int) -> Calls:
    return (once.add_up_twins(run, elements, rank),) if placement.chain_count > 1 else ()


def _operator_rank(
    run: TrainingRun, parts: Parts, placement: Placement, rank: int, kinds: Kinds, *, halves: bool
) -> RankCalls:
    stages = [
        replace(stage, shared_table=stage.shared_table and run.model.tied) for stage in _stages(placement, rank, kinds)
    ]
    chunks = tuple(
        chunk_of_operators(run, parts, stage, send_calls(run, placement, rank, chunk), halves=halves)
        for chunk, stage in enumerate(stages)
    )
    held = sharded_step.weights_of(run, stages)
    ends = once.Ends(first=any(stage.first for stage in stages), last=any(stage.last for stage in stages))
    return RankCalls(
        chunks=chunks,
        gradients=(),
        copies=(*once.add_up_tied(run, ends), *_twins(run, placement, held.total, rank)),
        reduction=sharded_step.reduction(run, held),
        collection=sharded_step.collection(run, held),
        step=sharded_step.update(run, held),
    )


def distinct_calls(ranks: Iterable[RankCalls]) -> Iterator[Counted]:
    """Every call of the ranks, those of a block that several of them share once."""
    seen = set()
    for rank in ranks:
        for chunk in rank.chunks:
            for block in chunk.blocks():
                if id(block) not in seen:
                    seen.add(id(block))
                    yield from block.all_calls()
            yield from chunk.send
        yield from rank.calls_of_a_step()


def concrete(run: TrainingRun) -> list[TrainingRun]:
    """The run, or one for each schedule that could be the best for it."""
    plan = run.plan
    if plan.schedule != BEST:
        return [run]
    names = registry.fitting(plan.pp, plan.vpp, run.microbatches)
    if plan.recompute != "none":
        names = [name for name in names if registry.get(name).recompute_refusal is None]
    return [replace(run, plan=replace(plan, schedule=name)) for name in names]


def requests_of_runs(runs: Iterable[TrainingRun]) -> dict[int, list[Request]]:
    """Every distinct call of the runs with the phases needed, by ranks a node: what a sampler must time for them."""
    phases: dict[int, dict[Call, dict[Phase, None]]] = {}
    for run in runs:
        wanted = phases.setdefault(run.cluster.gpus_per_node, {})
        for rank in (rank for each in concrete(run) for rank in decompose(each)):
            for counted in rank.all_calls():
                wanted.setdefault(counted.call, {})[counted.phase] = None
    return {
        ranks: [Request(call=call, phases=tuple(of_call)) for call, of_call in wanted.items()]
        for ranks, wanted in phases.items()
    }
