"""The calls of a chunk whose layers are timed and priced in one piece each, as those of plain torch are."""

from __future__ import annotations

from dataclasses import dataclass

from predict.layers.attention import attended
from predict.rank.blocks import Calls, plain
from predict.run.stages import Stage
from predict.run.training_run import TrainingRun
from predict.workload.chunks import ChunkCalls, activation_bytes
from predict.workload.whole_layers import common_fields, embedding_call, head_call, layer_call
from sampling.call import Call, Counted, Phase
from sampling.cells.layer import DenseLayer
from sampling.cells.pipeline_action import PipelineAction
from sampling.operators.attention import Attention
from sampling.operators.memory_bound import ResidualAdd
from sampling.operators.vocabulary import Embedding


def chunk_of_whole_layers(
    run: TrainingRun, stage: Stage, send: Calls, *, microbatches: int, halves: bool
) -> ChunkCalls:
    """A chunk of plain layers, each priced as one piece; with `halves`, those of the parted backward too."""
    layers = len(stage.kinds)
    layer = layer_call(run)
    forward: Calls = (
        Counted(call=layer, phase="forward", count=layers),
        *_real_attention(run, layer, layers, "forward"),
    )
    backward = _backward(layer, layers, microbatches).with_inputs(_real_attention(run, layer, layers, "backward"))
    if run.plan.recompute == "full":
        backward = backward.with_whole(forward)
    if stage.first:
        forward += _embedding_forward(run)
        backward = backward.with_table(_embedding_backward(run, microbatches, shared_table=stage.shared_table))
    if stage.last:
        head = head_call(run)
        forward += (Counted(call=head, phase="forward"),)
        backward = backward.and_(_backward(head, 1, microbatches))
    action = _action(run)
    return ChunkCalls(
        layers=layers,
        forward=plain(forward + action),
        backward=plain(backward.whole + action),
        backward_input=plain(backward.of_input + action) if halves else (),
        backward_weight=plain(backward.of_weight) if halves else (),
        send=send,
    )


@dataclass(frozen=True, slots=True)
class _Backward:
    """The calls of a backward, whole and in its halves."""

    whole: Calls
    of_input: Calls
    of_weight: Calls

    def and_(self, other: _Backward) -> _Backward:
        return _Backward(self.whole + other.whole, self.of_input + other.of_input, self.of_weight + other.of_weight)

    def with_inputs(self, calls: Calls) -> _Backward:
        """Backward blocks with calls that have no weights."""
        return _Backward(self.whole + calls, self.of_input + calls, self.of_weight)

    def with_whole(self, calls: Calls) -> _Backward:
        return _Backward(self.whole + calls, self.of_input, self.of_weight)

    def with_table(self, calls: Calls) -> _Backward:
        """Backward blocks including the embedding's, all of which is the weight's: its input has no gradient."""
        return _Backward(self.whole + calls, self.of_input, self.of_weight + calls)


def _backward(call: Call, count: float, microbatches: int) -> _Backward:
    """The half of the weights is timed with fresh gradients; that later microbatches add to those of the first costs it
    what it costs the whole backward."""
    inputs = Counted(call=call, phase="backward_input", count=count)
    weights = [Counted(call=call, phase="backward_weight", count=count)]
    if microbatches > 1:
        later = count * (microbatches - 1) / microbatches
        weights.append(Counted(call=call, phase="backward_accumulate", count=later))
        weights.append(Counted(call=call, phase="backward", count=-later))
    return _Backward(_over_microbatches(call, count, microbatches), (inputs,), tuple(weights))


def _over_microbatches(call: Call, count: float, microbatches: int) -> Calls:
    """An average backward: one in `microbatches` makes the gradients, the others add to them."""
    fresh = Counted(call=call, phase="backward", count=count / microbatches)
    if microbatches == 1:
        return (fresh,)
    return (fresh, Counted(call=call, phase="backward_accumulate", count=count * (microbatches - 1) / microbatches))


def _real_attention(run: TrainingRun, layer: DenseLayer, layers: int, phase: Phase) -> Calls:
    """Attention of the real sequences in place of that of whole rows, which is a part of the layers; () where rows are whole."""
    if not run.attended:
        return ()
    whole = next(call for call, _ in layer.attention_calls() if isinstance(call, Attention))
    return (
        Counted(call=whole, phase=phase, count=-layers),
        *(Counted(call=call, phase=phase, count=layers * share) for call, share in attended(run, whole)),
    )


def _embedding_forward(run: TrainingRun) -> Calls:
    calls: Calls = (Counted(call=embedding_call(run), phase="forward"),)
    if not run.model.rope:
        tokens = run.batch.micro * run.batch.seq_len
        add = ResidualAdd(dtype=run.precision, tokens=tokens, hidden=run.model.hidden)
        calls += (Counted(call=_positions(run), phase="forward"), Counted(call=add, phase="forward"))
    return calls


def _embedding_backward(run: TrainingRun, microbatches: int, *, shared_table: bool) -> Calls:
    if shared_table:
        # the head's backward came first and left its gradient in the shared weight
        calls: Calls = (Counted(call=embedding_call(run), phase="backward_accumulate"),)
    else:
        calls = _over_microbatches(embedding_call(run), 1, microbatches)
    if not run.model.rope:
        calls += _over_microbatches(_positions(run), 1, microbatches)
    return calls


def _positions(run: TrainingRun) -> Embedding:
    return Embedding(**{**common_fields(run), "batch": 1}, vocab=run.model.max_positions)


def _action(run: TrainingRun) -> Calls:
    if run.plan.pp == 1:
        return ()
    return (Counted(call=PipelineAction(dtype=run.precision, size_bytes=activation_bytes(run)), phase="step"),)
