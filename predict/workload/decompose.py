"""What each pipeline rank of a run does: the calls of its chunks' forwards and backwards, and of the end of the step.

Ranks that hold the same stages do the same, so a pipeline rank stands for its tp · dp GPUs. Calls are counted, never
timed, here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from predict.schedules import registry
from predict.schedules.order import Placement
from predict.workload import once
from predict.workload.chunks import Calls, ChunkCalls, chunk_calls
from predict.workload.plan import BEST
from predict.workload.run import TrainingRun
from sampling.call import Call, Phase
from sampling.compute import Request


@dataclass(frozen=True, kw_only=True, slots=True)
class RankCalls:
    """One pipeline rank's calls: of its chunks, and once a step.

    `gradients` is what reducing them over the replicas adds to the last backward, `copies` adding up those of weights
    that several pipeline ranks hold, `step` what follows the pipeline.
    """

    chunks: tuple[ChunkCalls, ...]
    gradients: Calls
    copies: Calls
    step: Calls

    @property
    def layers(self) -> int:
        return sum(chunk.layers for chunk in self.chunks)

    def all_calls(self) -> Calls:
        return (
            *(call for chunk in self.chunks for call in chunk.all_calls()),
            *self.gradients,
            *self.copies,
            *self.step,
        )


def decompose(run: TrainingRun) -> tuple[RankCalls, ...]:
    """The calls of every pipeline rank, first to last, as the run's schedule lays the stages over them."""
    schedule = registry.get(run.plan.schedule)
    placement = schedule.placement(run.plan.pp, run.plan.vpp)
    shares = layers_of_stages(run.model.layers, placement.depth)
    return tuple(_rank(run, placement, rank, shares, halves=schedule.splits_backward) for rank in range(run.plan.pp))


def layers_of_stages(layers: int, stages: int) -> tuple[int, ...]:
    """Layers a stage; those that do not divide evenly go to the first stages."""
    even, extra = divmod(layers, stages)
    return tuple(even + (stage < extra) for stage in range(stages))


def _rank(run: TrainingRun, placement: Placement, rank: int, shares: tuple[int, ...], *, halves: bool) -> RankCalls:
    stages = placement.stages[rank]
    chunks = tuple(
        chunk_calls(run, placement, rank, chunk, layers=shares[stage], halves=halves)
        for chunk, stage in enumerate(stages)
    )
    layers = sum(shares[stage] for stage in stages)
    ends = once.Ends(first=0 in stages, last=placement.depth - 1 in stages)
    weights = once.weights_of(run, layers, ends)
    twins = (once.add_up_twins(run, weights, rank),) if placement.chain_count > 1 else ()
    return RankCalls(
        chunks=chunks,
        gradients=once.reduce_over_replicas(run, layers, weights),
        copies=(*once.add_up_tied(run, ends), *twins),
        step=once.update(run, weights),
    )


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
