"""A step in plain torch, from samples: the calls that it makes in addition to those of training, the steps of its generation as an
engine's table, its rewards, and its weight sync."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from predict.interval import Interval, sum_of_calls
from predict.prices.open import open_prices
from predict.prices.price_list import Priced
from predict.rank.blocks import Calls
from predict.rl.config import RlRun
from predict.rl.phases import Phase
from predict.rl.training import pass_run, update_run
from predict.run.stages import stages_of_ranks
from predict.serving.step_table import StepTable
from predict.step.breakdown import add_up
from predict.step.composition_error import width_beyond_calls
from predict.workload.decompose import merged_requests, requests_of_runs
from predict.workload.step_end import plain_weights_of
from predict.workload.whole_layers import embedding_call, layer_call
from regressors.bank.times import shares_of
from regressors.features.arrays import Floats
from sampling.call import Counted, Request
from sampling.cells.head import NextToken
from sampling.cells.layer import DecodeLayer
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
    weights = plain_weights_of(rl.base, stages)
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


def plain_steps(rl: RlRun, most_tokens: int) -> tuple[StepTable, Interval]:
    """The table of an engine that generates all samples at once, and its interval as factors.

    A step of decodes lies in the column of attention with all that it does, by its sequences and their keys; that of prompts is
    in proportion to their tokens.
    """
    batches, (few, many) = decode_batches(rl), decode_keys(rl)
    at_few, at_many = (
        np.array([_time(rl, decode_calls(rl, batch, keys)).median_us for batch in batches]) for keys in (few, many)
    )
    per_key = (at_many - at_few) / max(1, many - few)
    prompts = _time(rl, prefill_calls(rl))
    decodes = np.arange(batches[-1] + 1, dtype=np.float64)
    columns = [_from_zero(decodes, batches, at_few + per_key * (keys - few)) for keys in (0, many)]
    tokens = np.arange(most_tokens + 1, dtype=np.float64)
    table = StepTable(
        decode_us=np.zeros(len(decodes)),
        mixed_us=tokens * prompts.median_us / (rl.section.samples * rl.section.prompt_max),
        attention_us=np.column_stack(columns),
        contexts=np.array([0.0, many]),
        prefill_token_us=0.0,
        pair_us=0.0,
        whole_prompt=False,
        context_us=0.0,
        request_us=0.0,
    )
    step = _time(rl, decode_calls(rl, batches[-1], many))
    return table, step.ratio_to(step.median)


def _from_zero(decodes: Floats, batches: list[int], times: Floats) -> Floats:
    """Times at every number of decodes, 0 for none."""
    times_us: Floats = np.interp(decodes, batches, times)
    times_us[0] = 0.0
    return times_us


def sources_of_decode(rl: RlRun) -> dict[str, float]:
    """Source → its share of the time in which all sequences get their last token."""
    return _sources(_priced(rl, decode_calls(rl, decode_batches(rl)[-1], decode_keys(rl)[1])))


def plain_reward(rl: RlRun) -> Phase:
    """Scores and advantages."""
    return _phase(rl, "reward", reward_calls(rl), "reward")


def plain_sync(rl: RlRun) -> Phase:
    """The copy of the weights."""
    return _phase(rl, "update_weights", sync_calls(rl), "sync")


def _phase(rl: RlRun, name: str, calls: Calls, bound_by: str) -> Phase:
    priced = _priced(rl, calls)
    time = _time_of(rl, priced)
    parts = add_up({one.call.NAME: one.total_us} for one in priced)
    return Phase(name=name, time=time, gpus=rl.gpus, bound_by=bound_by, parts=parts, sources=_sources(priced))


def _priced(rl: RlRun, calls: Calls) -> Sequence[Priced]:
    return open_prices(rl.base.cluster, rl.base.execution).priced(calls)


def _sources(priced: Sequence[Priced]) -> dict[str, float]:
    """Source → its share of the time of calls."""
    return shares_of(add_up({one.time.source: one.total_us} for one in priced))


def _time(rl: RlRun, calls: Calls) -> Interval:
    """The sum of calls one after the other, as wide as a training step of such calls."""
    return _time_of(rl, _priced(rl, calls))


def _time_of(rl: RlRun, priced: Sequence[Priced]) -> Interval:
    calls_alone = sum_of_calls(Interval.of(one.time).scaled(one.count) for one in priced)
    prices = open_prices(rl.base.cluster, rl.base.execution)
    return calls_alone.widened(width_beyond_calls(rl.base, prices, _sources(priced)))
