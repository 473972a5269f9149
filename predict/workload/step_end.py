"""The end of a step on one pipeline rank: gradients are reduced, weights updated and, where they are sharded, gathered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

from predict.rank.blocks import Calls, Message
from predict.rank.share import Weights, padded_vocabulary
from predict.run.plan import Batch, Plan
from predict.run.stages import Stage
from predict.run.training_run import TrainingRun
from predict.schedules.engine.order import Placement
from predict.workload import plain_step_end, sharded_step_end
from predict.workload.alike_runs import KeptByRun
from predict.workload.chunks import PIPELINE, pair_on_a_node
from sampling.call import Counted
from sampling.collectives.kinds import AllReduce
from sampling.hardware.cluster import DTYPE_BYTES

MOST_KEPT = 256
"""Runs of which the ends are kept, some 10 kB each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepEnd:
    """Calls that a rank makes once per step."""

    blocking_reduction: Calls
    """Reducing gradients over the replicas: the time that it adds to the last backward, measured together with it."""
    shared_weights_reduction: Calls
    """Adding up the gradients of weights that several pipeline ranks hold."""
    gradient_reduction: Calls
    """Gradients over the replicas, which the last backward may hide."""
    parameter_all_gather: Calls
    """Sharded weights back to every replica, which the first forward may hide."""
    optimizer: Calls

    def by_purpose(self) -> tuple[Calls, ...]:
        return (
            self.blocking_reduction,
            self.shared_weights_reduction,
            self.gradient_reduction,
            self.parameter_all_gather,
            self.optimizer,
        )

    def all_calls(self) -> Iterator[Counted]:
        return chain.from_iterable(self.by_purpose())


MakeEnd = Callable[[tuple[Stage, ...], Calls], StepEnd]
"""The end of a step on a rank with these stages; the calls add up gradients that several pipeline ranks hold."""


def step_ends(run: TrainingRun) -> MakeEnd:
    """The ends of a run's step: those of plain torch where layers are priced whole, of mixed precision where operators are."""
    if run.execution.whole_layers:
        return partial(_plain_end, run)
    kept = _sharded.of(_as_ends_see(run))

    def end(stages: tuple[Stage, ...], shared: Calls) -> StepEnd:
        found = kept.of(stages)
        return replace(found, shared_weights_reduction=shared) if shared else found

    return end


def _plain_end(run: TrainingRun, stages: tuple[Stage, ...], shared: Calls) -> StepEnd:
    plain = plain_step_end.weights_of(run, stages)
    return StepEnd(
        blocking_reduction=plain_step_end.gradient_reduction(run, plain),
        shared_weights_reduction=shared,
        gradient_reduction=(),
        parameter_all_gather=(),
        optimizer=plain_step_end.optimizer(run, plain),
    )


@dataclass(frozen=True, eq=False)
class _ShardedEnds:
    """The ends of a run's step in mixed precision by the rank's stages, and by its weights, which follow from them; each is made
    once."""

    run: TrainingRun
    _of_stages: dict[tuple[Stage, ...], StepEnd] = field(default_factory=dict)
    _of_weights: dict[Weights, StepEnd] = field(default_factory=dict)

    def of(self, stages: tuple[Stage, ...]) -> StepEnd:
        if stages not in self._of_stages:
            self._of_stages[stages] = self._with(sharded_step_end.weights_of(self.run, stages))
        return self._of_stages[stages]

    def _with(self, weights: Weights) -> StepEnd:
        if weights not in self._of_weights:
            self._of_weights[weights] = StepEnd(
                blocking_reduction=(),
                shared_weights_reduction=(),
                gradient_reduction=sharded_step_end.gradient_reduction(self.run, weights),
                parameter_all_gather=sharded_step_end.parameter_all_gather(self.run, weights),
                optimizer=sharded_step_end.optimizer(self.run, weights),
            )
        return self._of_weights[weights]


_sharded = KeptByRun(_ShardedEnds, MOST_KEPT)


def _as_ends_see(run: TrainingRun) -> TrainingRun:
    """The run without what the end of its step in mixed precision does not depend on, from which ends are made."""
    plan = run.plan
    seen = Plan(tp=plan.tp, cp=plan.cp, dp=plan.dp, ep=plan.ep, etp=plan.etp, zero=plan.zero, shard=plan.shard)
    batch = Batch(global_=plan.dp * min(2, run.microbatches), micro=1, seq_len=1)
    return replace(run, name="", plan=seen, batch=batch, order=None, real=None)


def shares_weights(run: TrainingRun, placement: Placement) -> bool:
    """Whether two pipeline ranks may hold the same weights."""
    return run.model.tied or placement.chain_count > 1


def shared_weights_reduction(run: TrainingRun, placement: Placement, rank: int, stages: Sequence[Stage]) -> Calls:
    """Adding up the gradients of weights that this pipeline rank and another hold."""
    calls: Calls = ()
    if run.model.tied and any(stage.first for stage in stages) != any(stage.last for stage in stages):
        # embedding and head are on two ranks: each keeps a copy of the table, as in Megatron
        calls += (_pair_all_reduce(run, _table_bytes(run), 0, run.plan.pp - 1),)
    if placement.chain_count > 1:
        # of two opposite chains, ranks r and p − 1 − r hold copies of the same two stages
        size = DTYPE_BYTES[run.precision] * _elements(run, stages)
        calls += (_pair_all_reduce(run, size, rank, run.plan.pp - 1 - rank),)
    return calls


def _elements(run: TrainingRun, stages: Sequence[Stage]) -> int:
    if run.execution.whole_layers:
        return plain_step_end.weights_of(run, stages).elements
    return sharded_step_end.weights_of(run, stages).total


def _table_bytes(run: TrainingRun) -> int:
    """The gradient of a tied table on one tensor-parallel rank."""
    dtype, vocab = run.precision, run.model.vocab
    if not run.execution.whole_layers:
        dtype, vocab = run.execution.reduced_dtype, padded_vocabulary(vocab, run.plan.tp)
    return DTYPE_BYTES[dtype] * vocab * run.model.hidden // run.plan.tp


def _pair_all_reduce(run: TrainingRun, size_bytes: int, rank: int, other: int) -> Counted:
    reduce = AllReduce(size_bytes=size_bytes, ranks=2, ranks_per_node=pair_on_a_node(run, rank, other))
    return Message(call=reduce, phase="forward", group=PIPELINE)
