"""The engine's loop over steps, as plain functions of numbers and arrays that numba can compile.

The rules are vLLM V1's (github.com/vllm-project/vllm, vllm/v1/core/sched/scheduler.py):
- a step serves running requests first, in the order of their admission: a decode takes one token, a prefill its next chunk;
- then waiting requests join, first come first served, while tokens, places and blocks last;
- without a free block the request admitted last is preempted: its blocks are freed, and all its tokens computed again later;
- blocks of shared prompt tokens are held once. Whole ones alone are found again, and never the last token of a request;
- an asynchronous engine schedules a step while the one before it runs: what arrives in between waits for one more, and the
  place of a request that ended is free one step later.

turn.py says which requests a step serves, blocks.py which blocks they hold.
"""

from __future__ import annotations

from typing import Any

from predict.serving.scheduler.blocks import release, take
from predict.serving.scheduler.state import (
    BLOCKS_US,
    BUDGET,
    BUSY_US,
    CHUNK_TOKENS,
    CHUNKS,
    CONTEXT,
    DECODES,
    DONE,
    ENDED,
    FREE,
    MOST_BLOCKS,
    NEXT,
    NEXT_CLOSED,
    RUNNING,
    RUNNING_US,
    STEPS,
    SUMS,
    TOKENS,
    Record,
    Requests,
    Rules,
    State,
    Table,
)
from predict.serving.scheduler.turn import admit, continue_running, next_request

NEVER = 1e300
NO_END = 2**62


def play(requests: Requests, rules: Rules, table: Table, state: State, record: Record) -> bool:
    """Serve all requests; whether all of them could be served."""
    numbers, sums, totals = state.numbers, state.sums, record.totals
    count = len(requests.arrival)
    now, before = 0.0, 0.0
    while numbers[DONE] < count:
        for place in range(SUMS):
            sums[place] = 0.0
        numbers[BUDGET] = rules.most_tokens
        if not rules.asynchronous:
            remove_ended(requests, rules, state)
        if continue_running(requests, rules, state):
            admit(requests, rules, state, record, before if rules.asynchronous else now, now)
        if rules.asynchronous:
            remove_ended(requests, rules, state)
        if sums[CHUNKS] + sums[DECODES] == 0:
            # nothing is in flight, so that the engine schedules at once, or waits for the next request
            if before == now:
                if numbers[NEXT] >= count or requests.arrival[numbers[NEXT]] <= now:
                    return False
                now = requests.arrival[numbers[NEXT]]
            before = now
            continue
        time = step_us(sums, table)
        used = rules.blocks - numbers[FREE]
        steps = int(totals[STEPS])
        if steps < len(record.trace):
            write_trace(record.trace[steps], now, time, sums, numbers[RUNNING], used)
        totals[STEPS] += 1
        totals[RUNNING_US] += (sums[CHUNKS] + sums[DECODES]) * time
        totals[BLOCKS_US] += used * time
        totals[MOST_BLOCKS] = max(totals[MOST_BLOCKS], used)
        totals[BUSY_US] += time
        totals[CHUNK_TOKENS] += sums[TOKENS]
        before = now
        now += time
        finish_step(requests, state, record, now)
        full = numbers[RUNNING] == rules.most_running
        alike = steps >= len(record.trace) and sums[CHUNKS] == 0 and sums[DECODES] == numbers[RUNNING]
        # two steps at least, as far as this one's time tells: fewer are not worth looking for
        if alike and (full or next_request(requests, state, before + time if rules.asynchronous else now + time) < 0):
            turns = quiet_steps(requests, rules, state)
            if turns > 1:
                before, now = repeat_decodes(requests, rules, table, state, record, before, now, turns)
    return True


def quiet_steps(requests: Requests, rules: Rules, state: State) -> int:
    """Steps that the running decodes can do before one of them ends, with the blocks that are free; 0 where one has just ended."""
    numbers, least, output = state.numbers, NO_END, requests.output
    running, made, computed, room = state.running, state.made, state.computed, state.room
    for place in range(numbers[RUNNING]):
        i = running[place]
        least = min(least, output[i] - made[i] - 1)
    lacking = 0
    if least > 0:
        for place in range(numbers[RUNNING]):
            i = running[place]
            lacking += -(-max(0, computed[i] + least - room[i]) // rules.block)
    return least if lacking <= numbers[FREE] else 0


def repeat_decodes(
    requests: Requests, rules: Rules, table: Table, state: State, record: Record, before: float, now: float, most: int
) -> tuple[float, float]:
    """Up to `most` steps of the running decodes, until a request may join; the start of the last of them, and its end."""
    numbers, sums, totals = state.numbers, state.sums, record.totals
    decodes = sums[DECODES]
    arrival = NEVER
    if numbers[NEXT] < len(requests.arrival) and numbers[RUNNING] < rules.most_running:
        arrival = requests.arrival[numbers[NEXT]]
    turns, start = 0, now
    while turns < most and arrival > (before if rules.asynchronous else now):
        sums[CONTEXT] += decodes
        before = now
        now += step_us(sums, table)
        turns += 1
    used = rules.blocks - numbers[FREE]
    for place in range(numbers[RUNNING]):
        i = state.running[place]
        state.computed[i] += turns
        state.made[i] += turns
        lacking = state.computed[i] - state.room[i]
        if lacking > 0:
            take(rules, state, i, -(-lacking // rules.block))
    after = rules.blocks - numbers[FREE]
    totals[STEPS] += turns
    totals[RUNNING_US] += decodes * (now - start)
    totals[BLOCKS_US] += (used + after) / 2 * (now - start)
    totals[MOST_BLOCKS] = max(totals[MOST_BLOCKS], after)
    totals[BUSY_US] += now - start
    return before, now


def step_us(sums: Any, table: Table) -> float:
    """The time of a step by its table, as `StepTable.times_us` has it."""
    decodes = int(sums[DECODES])
    mean, contexts = sums[CONTEXT] / max(decodes, 1), table.contexts
    column, beyond = 0, len(contexts) - 1
    while beyond - column > 1:
        middle = (column + beyond) // 2
        if contexts[middle] <= mean:
            column = middle
        else:
            beyond = middle
    share = (mean - contexts[column]) / (contexts[column + 1] - contexts[column])
    low, high = table.attention_us[decodes][column], table.attention_us[decodes][column + 1]
    time: float = low + (high - low) * share
    time += table.sums_us[DECODES] * sums[DECODES]
    if sums[CHUNKS] == 0:
        time += table.decode_us[decodes]
    else:
        time += table.mixed_us[int(sums[TOKENS]) + decodes]
        for place in range(DECODES):
            time += table.sums_us[place] * sums[place]
    return time


def remove_ended(requests: Requests, rules: Rules, state: State) -> None:
    """Take the requests that have all their tokens out of the running ones."""
    numbers, kept = state.numbers, 0
    if numbers[ENDED] == 0:
        return
    numbers[ENDED] = 0
    for place in range(numbers[RUNNING]):
        i = state.running[place]
        if state.made[i] >= requests.output[i]:
            release(requests, rules, state, i)
        else:
            state.running[kept] = i
            state.chunk[kept] = state.chunk[place]
            kept += 1
    numbers[RUNNING] = kept


def finish_step(requests: Requests, state: State, record: Record, now: float) -> None:
    """Count the tokens that a step computed; requests whose tokens are all computed have one more of output."""
    numbers, running, chunk, computed, made = state.numbers, state.running, state.chunk, state.computed, state.made
    prompt, output = requests.prompt, requests.output
    for place in range(numbers[RUNNING]):
        i = running[place]
        if chunk[place] == 0:
            continue
        computed[i] += chunk[place]
        if computed[i] < prompt[i] + made[i]:
            continue
        made[i] += 1
        if made[i] == 1:
            record.first_us[i] = now
        if made[i] == output[i]:
            record.last_us[i] = now
            numbers[DONE] += 1
            numbers[ENDED] += 1
            if numbers[NEXT_CLOSED] < len(requests.arrival):
                requests.arrival[numbers[NEXT_CLOSED]] = now
                numbers[NEXT_CLOSED] += 1


def write_trace(row: Any, now: float, time: float, sums: Any, running: int, used: int) -> None:
    """Fill a row of the trace."""
    row[0], row[1] = now, time
    row[2], row[3], row[4] = sums[CHUNKS], sums[TOKENS], sums[DECODES]
    row[5], row[6] = running, used


HELPERS = (quiet_steps, repeat_decodes, step_us, remove_ended, finish_step, write_trace)
"""The functions that `play` calls, for numba to compile with it."""
