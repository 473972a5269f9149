"""The calls of each pipeline rank of a run: its chunks' forwards and backwards, and the end of the step.

Ranks that hold the same stages do the same, so a pipeline rank stands for its tp · dp GPUs. Calls are counted, never
timed, here.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from predict.rank.blocks import Calls
from predict.run.frameworks import recompute_refusal
from predict.run.plan import BEST
from predict.run.stages import Stage, placement_of, stages_of_ranks
from predict.run.training_run import TrainingRun
from predict.schedules import registry
from predict.workload.alike_runs import block_cache
from predict.workload.chunks import ChunkCalls, chunk_of_operators, chunk_of_whole_layers, sends_of_ranks
from predict.workload.layer import as_sampled
from predict.workload.step_end import StepEnd, shared_weights_reduction, shares_weights, step_ends
from predict.workload.whole_layers import are_priced_whole
from sampling.call import Call, Counted, Phase, Request
from sampling.collectives.kinds import TokenExchange


class RankCalls(NamedTuple):
    """The calls of one pipeline rank: those of its chunks, for each microbatch, and of the end of the step."""

    chunks: tuple[ChunkCalls, ...]
    end: StepEnd

    @property
    def layers(self) -> int:
        return sum(chunk.layers for chunk in self.chunks)

    def all_calls(self) -> Calls:
        return (*(call for chunk in self.chunks for call in chunk.all_calls()), *self.end.all_calls())


def decompose(run: TrainingRun) -> tuple[RankCalls, ...]:
    """The calls of every pipeline rank, first to last, as the run's schedule lays the stages over them.

    Ranks with the same calls share one object, as do chunks, so that what follows does its work once for all of them.
    """
    placement, halves = placement_of(run), run.schedule.splits_backward
    cache, make_end = block_cache(run), step_ends(run)

    def chunk_calls(stage: Stage, send: Calls) -> ChunkCalls:
        if not are_priced_whole(run):
            again = run.plan.fully_recomputed(len(stage.kinds))
            return chunk_of_operators(cache, stage, send, again, halves=halves)
        microbatches = run.microbatches // placement.chain_count
        return chunk_of_whole_layers(run, stage, send, microbatches=microbatches, halves=halves)

    chunks: dict[tuple[int, int], ChunkCalls] = {}
    ends: dict[tuple[tuple[int, ...], Calls], StepEnd] = {}
    ranks: dict[tuple[object, ...], RankCalls] = {}

    def rank_calls(stages: tuple[Stage, ...], sends: tuple[Calls, ...], shared: Calls) -> RankCalls:
        keys = list(zip(map(id, stages), map(id, sends), strict=True))
        for stage, key, send in zip(stages, keys, sends, strict=True):
            if key not in chunks:
                chunks[key] = chunk_calls(stage, send)
        held = tuple(map(id, stages)), shared
        if held not in ends:
            ends[held] = make_end(stages, shared)
        return RankCalls(chunks=tuple(chunks[key] for key in keys), end=ends[held])

    found, all_sends = [], sends_of_ranks(run, placement)
    shares = shares_weights(run, placement)
    # equal stages are one object, as are equal sends, so that they distinguish ranks
    for rank, (stages, sends) in enumerate(zip(stages_of_ranks(run), all_sends, strict=True)):
        shared = shared_weights_reduction(run, placement, rank, stages) if shares else ()
        key = (*map(id, stages), *map(id, sends), shared)
        if key not in ranks:
            ranks[key] = rank_calls(stages, sends, shared)
        found.append(ranks[key])
    return tuple(found)


def distinct_calls(
    ranks: Iterable[RankCalls], known: Callable[[object], bool] = lambda piece: False
) -> Iterator[Counted]:
    """Every call of the ranks, except in chunks, blocks and sequences of calls that are `known`; those of one that several ranks share,
    once."""
    distinct = {id(rank): rank for rank in ranks}.values()
    chunks = {id(chunk): chunk for rank in distinct for chunk in rank.chunks if not known(chunk)}.values()
    blocks = {id(block): block for chunk in chunks for block in chunk.blocks() if not known(block)}.values()
    plain = (*(chunk.send for chunk in chunks), *(calls for rank in distinct for calls in rank.end.by_purpose()))
    on_host = (each.block for rank in distinct for each in rank.end.on_host if not known(each.block))
    for block in (*blocks, *on_host):
        yield from block.all_calls()
    for calls in {id(calls): calls for calls in plain if not known(calls)}.values():
        yield from calls


def concrete(run: TrainingRun) -> list[TrainingRun]:
    """The run, or one for each schedule that could be the best for it."""
    plan = run.plan
    if plan.schedule != BEST:
        return [run]
    names = registry.fitting(plan.pp, plan.vpp, run.microbatches)
    if plan.recompute != "none":
        names = [name for name in names if not recompute_refusal(run.execution.framework, registry.get(name))]
    return [replace(run, plan=replace(plan, schedule=name)) for name in names]


def _whole_layers(rank: RankCalls) -> Iterator[Counted]:
    """The layers in one piece, whose time beyond their parts' is added to them."""
    for block in (block for chunk in rank.chunks for block in chunk.blocks()):
        if block.whole:
            yield block.whole


def merged_requests(many: Iterable[Mapping[int, Iterable[Request]]]) -> dict[int, list[Request]]:
    """Requests by ranks per node, each call once with all its phases."""
    phases: dict[int, dict[Call, dict[Phase, None]]] = {}
    for requests in many:
        for ranks, of_ranks in requests.items():
            wanted = phases.setdefault(ranks, {})
            for request in of_ranks:
                wanted.setdefault(request.call, {}).update(dict.fromkeys(request.phases))
    return {
        ranks: [Request(call=call, phases=tuple(of_call)) for call, of_call in wanted.items()]
        for ranks, wanted in phases.items()
    }


def requests_of_runs(runs: Iterable[TrainingRun]) -> dict[int, list[Request]]:
    """Requests for all that a sampler must time for the runs: each distinct call with its phases, by ranks per node."""
    return merged_requests(_requests_of(run) for run in runs)


def _requests_of(run: TrainingRun) -> dict[int, list[Request]]:
    """A request for each phase of each call of a run; of calls to a framework's own library, which the sampler has not, none."""
    counted = (
        one
        for rank in (rank for each in concrete(run) for rank in decompose(each))
        for one in (*rank.all_calls(), *_whole_layers(rank))
    )
    requests = [
        Request(call=as_sampled(one.call), phases=(one.phase,))
        for one in counted
        if not isinstance(one.call, TokenExchange)
    ]
    return {run.cluster.gpus_per_node: requests}
