"""Times of a step in plain torch from samples: the steps of its generation as an engine's table, its rewards, its weight sync."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from predict.interval import Interval, sum_of_calls, width_of_step
from predict.prices.open import open_prices
from predict.prices.price_list import Priced
from predict.rank.blocks import Calls
from predict.rl.phase import Phase
from predict.rl.plain.calls import decode_batches, decode_calls, decode_keys, prefill_calls, reward_calls, sync_calls
from predict.rl.run.config import RlRun
from predict.serving.batch import Floats
from predict.serving.step_table import StepTable
from predict.step.itemised.breakdown import add_up


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
    time, priced = _time(rl, calls), _priced(rl, calls)
    parts = add_up({one.call.NAME: one.total_us} for one in priced)
    return Phase(name=name, time=time, gpus=rl.gpus, bound_by=bound_by, parts=parts, sources=_sources(priced))


def _priced(rl: RlRun, calls: Calls) -> Sequence[Priced]:
    return open_prices(rl.base.cluster, rl.base.execution).priced(calls)


def _sources(priced: Sequence[Priced]) -> dict[str, float]:
    """Source → its share of the time of calls."""
    by_source = add_up({one.time.source: one.total_us} for one in priced)
    total = sum(by_source.values())
    return {source: time_us / total for source, time_us in by_source.items()}


def _time(rl: RlRun, calls: Calls) -> Interval:
    """The sum of calls one after the other, with the error of the profile's whole runs in its bounds."""
    prices = open_prices(rl.base.cluster, rl.base.execution)
    priced = prices.priced(calls)
    calls_alone = sum_of_calls(Interval.of(one.time).scaled(one.count) for one in priced)
    return calls_alone.widened(width_of_step(prices.profile_error or 0.0, prices.transfer_error))
