"""The calls that a step in plain torch makes beside those of training: of generation, of rewards and of the weight sync."""

from __future__ import annotations

from dataclasses import replace

from predict.rank.blocks import Calls
from predict.rl.run.config import RlRun
from predict.rl.training import pass_run, update_run
from predict.run.stages import stages_of_ranks
from predict.workload.decompose import merged_requests, requests_of_runs
from predict.workload.layers.whole_layers import embedding_call, layer_call
from predict.workload.plain_step_end import weights_of
from sampling.call import Counted, Request
from sampling.cells.decode_layer import DecodeLayer
from sampling.cells.next_token import NextToken
from sampling.operators.optimizer import ParameterCopy
from sampling.operators.reward import GroupReward


def prefill_calls(rl: RlRun) -> Calls:
    """The first pass over all prompts at once, padded to the longest."""
    run = replace(
        rl.base, batch=replace(rl.base.batch, micro=rl.section.samples, seq_len=rl.section.prompt_max), real=None
    )
    layers = Counted(call=layer_call(run), phase="forward", count=rl.base.model.layers)
    return layers, Counted(call=embedding_call(run), phase="forward"), _next_token(rl, rl.section.samples)


def decode_calls(rl: RlRun, batch: int, keys: int) -> Calls:
    """One new token of so many sequences with so many keys each."""
    run = replace(rl.base, batch=replace(rl.base.batch, micro=batch, seq_len=1), real=None)
    layer = DecodeLayer(**layer_call(run).fields(), keys=keys)
    return (
        Counted(call=layer, phase="forward", count=rl.base.model.layers),
        Counted(call=embedding_call(run), phase="forward"),
        _next_token(rl, batch),
    )


def _next_token(rl: RlRun, batch: int) -> Counted:
    model = rl.base.model
    call = NextToken(dtype=rl.base.precision, batch=batch, hidden=model.hidden, vocab=model.vocab, norm=model.norm)
    return Counted(call=call, phase="forward")


def reward_calls(rl: RlRun) -> Calls:
    """Scores and advantages of all responses."""
    section = rl.section
    call = GroupReward(dtype=rl.base.precision, samples=section.samples, tokens=section.longest, group=section.n)
    return (Counted(call=call, phase="forward"),)


def sync_calls(rl: RlRun) -> Calls:
    """The trainer's weights copied into the engine's."""
    (stages,) = stages_of_ranks(rl.base)
    weights = weights_of(rl.base, stages)
    call = ParameterCopy(dtype=rl.base.precision, parameters=weights.elements, tensors=weights.tensors)
    return (Counted(call=call, phase="step"),)


def decode_batches(rl: RlRun) -> list[int]:
    """Sequences at which a decode is priced: powers of two, and all."""
    samples = rl.section.samples
    return sorted({*(2**power for power in range(samples.bit_length())), samples})


def decode_keys(rl: RlRun) -> tuple[int, int]:
    """Keys at which a decode is priced: as the first new token sees them, and as the last."""
    return rl.section.prompt_max + 1, rl.section.longest


def requests_of_rl(rl: RlRun) -> dict[int, list[Request]]:
    """All that a sampler must time for a step, by ranks per node; of generation what plain torch does alone."""
    found = requests_of_runs([update_run(rl), pass_run(rl)])
    if not rl.in_plain_torch:
        return found
    beside = [*prefill_calls(rl), *reward_calls(rl), *sync_calls(rl)]
    for batch in decode_batches(rl):
        for keys in decode_keys(rl):
            beside += decode_calls(rl, batch, keys)
    ranks = rl.base.cluster.gpus_per_node
    own = [Request(call=counted.call, phases=(counted.phase,)) for counted in beside]
    return merged_requests([found, {ranks: own}])
