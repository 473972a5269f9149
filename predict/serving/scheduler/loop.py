"""The engine's loop over steps, as plain functions of numbers and arrays that numba can compile.

The rules are vLLM V1's (github.com/vllm-project/vllm, vllm/v1/core/sched/scheduler.py):
- a step serves running requests first, in the order of their admission: a decode takes one token, a prefill its next chunk;
- then waiting requests join, first come first served, while tokens, places and blocks last;
- without a free block the request admitted last is preempted: its blocks are freed, and all its tokens computed again later;
- blocks of shared prompt tokens are held once. Whole ones alone are found again, and never the last token of a request;
- an asynchronous engine schedules a step while the one before it runs: what arrives in between waits for one more, and the
  place of a request that ended is free one step later.

Blocks that nobody holds are reused in the order in which they were freed: a shared prompt is forgotten once as many blocks have
been taken as were free when its last request ended.

All functions stand in this file, since numba's cache of `play` sees the changes of no other one.
"""

from __future__ import annotations

from typing import Any

from predict.serving.scheduler.state import (
    BLOCKS_US,
    BUDGET,
    BUSY_US,
    CHUNK_TOKENS,
    CHUNKS,
    CONTEXT,
    DECODED,
    DECODES,
    DONE,
    ENDED,
    FREE,
    MOST_BLOCKS,
    NEXT,
    NEXT_CLOSED,
    PAIRS,
    PREEMPTED,
    READ,
    RUNNING,
    RUNNING_US,
    STEPS,
    SUMS,
    TAKEN,
    TOKENS,
    WAITING,
    Record,
    Requests,
    Rules,
    State,
    Table,
)

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
        totals[DECODED] += sums[DECODES]
        before = now
        now += time
        finish_step(requests, state, record, now)
        full = numbers[RUNNING] == rules.most_running
        alike = steps >= len(record.trace) and sums[CHUNKS] == 0 and sums[DECODES] == numbers[RUNNING]
        if alike and (full or next_request(requests, state, before if rules.asynchronous else now) < 0):
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
    totals[DECODED] += turns * decodes
    totals[RUNNING_US] += decodes * (now - start)
    totals[BLOCKS_US] += (used + after) / 2 * (now - start)
    totals[MOST_BLOCKS] = max(totals[MOST_BLOCKS], after)
    totals[BUSY_US] += now - start
    return before, now


def step_us(sums: Any, table: Table) -> float:
    """The time of a step by its table, as `StepTable.times_us` has it."""
    decodes = int(sums[DECODES])
    mean = sums[CONTEXT] / max(decodes, 1) / table.context_step
    column = min(int(mean), len(table.attention_us[0]) - 2)
    low, high = table.attention_us[decodes][column], table.attention_us[decodes][column + 1]
    time: float = low + (high - low) * (mean - column)
    time += table.mixed_us[int(sums[TOKENS]) + decodes] if sums[CHUNKS] > 0 else table.decode_us[decodes]
    for place in range(DECODES + 1):
        time += table.sums_us[place] * sums[place]
    return time


def continue_running(requests: Requests, rules: Rules, state: State) -> bool:
    """Give the running requests their tokens; whether none was preempted, so that others may join."""
    numbers, sums, block, prompt, output = state.numbers, state.sums, rules.block, requests.prompt, requests.output
    running, made, computed, room, chunk = state.running, state.made, state.computed, state.room, state.chunk
    undisturbed = True
    place = 0
    while place < numbers[RUNNING]:
        i = running[place]
        todo = min(prompt[i] + made[i] - computed[i], numbers[BUDGET])
        if made[i] >= output[i]:
            todo = 0
        if todo > 0:
            lacking = computed[i] + todo - room[i]
            if lacking > 0:
                need = -(-lacking // block)
                while need > numbers[FREE] and numbers[RUNNING] > place:
                    preempt_last(requests, rules, state)
                    undisturbed = False
                if numbers[RUNNING] <= place:
                    break
                take(rules, state, i, need)
            if todo == 1 and computed[i] >= prompt[i]:
                # what nearly every turn is, without the cost of a call
                sums[DECODES] += 1
                sums[CONTEXT] += computed[i]
                numbers[BUDGET] -= 1
            else:
                count_chunk(requests, rules, state, i, todo)
        chunk[place] = todo
        place += 1
    return undisturbed


def preempt_last(requests: Requests, rules: Rules, state: State) -> None:
    """Take the request admitted last out of the running ones, with its blocks; one that has ended needs no second turn."""
    numbers = state.numbers
    numbers[RUNNING] -= 1
    i = state.running[numbers[RUNNING]]
    release(requests, rules, state, i)
    if state.made[i] < requests.output[i]:
        state.computed[i] = 0
        state.waiting[numbers[WAITING]] = i
        numbers[WAITING] += 1
        numbers[PREEMPTED] += 1


def admit(requests: Requests, rules: Rules, state: State, record: Record, seen_until: float, now: float) -> None:
    """Let waiting requests join, those preempted first, while tokens, places and blocks last."""
    numbers, block = state.numbers, rules.block
    while numbers[BUDGET] > 0 and numbers[RUNNING] < rules.most_running:
        i = next_request(requests, state, seen_until)
        if i < 0:
            return
        total, shared = requests.prompt[i] + state.made[i], requests.shared[i] // block
        group = requests.group[i] if rules.caching and shared > 0 else -1
        known = group >= 0 and state.kept_until[group] > (0 if state.holders[group] > 0 else numbers[TAKEN])
        if group >= 0 and state.holders[group] > 0 and not known:
            group = -1  # another request is computing the same tokens just now
        found = min(requests.shared[i], total - 1) // block * block if known else 0
        todo = min(total - found, numbers[BUDGET])
        if todo < total - found and not rules.chunked:
            return
        base = shared if group >= 0 else 0
        need = max(0, -(-(found + todo) // block) - base)
        of_group = shared if group >= 0 and state.holders[group] == 0 else 0
        beside = requests.beside[i]
        if need + of_group + beside > numbers[FREE]:
            return
        if numbers[WAITING] > 0:
            numbers[WAITING] -= 1
        else:
            numbers[NEXT] += 1
        if group >= 0:
            join_group(state, group, of_group, known)
        state.joined[i], state.computed[i], state.room[i] = group, found, base * block
        take(rules, state, i, need)
        take_beside(state, i, beside)
        if record.start_us[i] < 0:
            record.start_us[i] = now
        state.running[numbers[RUNNING]] = i
        state.chunk[numbers[RUNNING]] = todo
        numbers[RUNNING] += 1
        count_chunk(requests, rules, state, i, todo)


def next_request(requests: Requests, state: State, seen_until: float) -> int:
    """The request whose turn it is, or −1: the one preempted last, else the first that arrived and was not served yet."""
    numbers = state.numbers
    if numbers[WAITING] > 0:
        return int(state.waiting[numbers[WAITING] - 1])
    if numbers[NEXT] < len(requests.arrival) and requests.arrival[numbers[NEXT]] <= seen_until:
        return int(numbers[NEXT])
    return -1


def join_group(state: State, group: int, blocks: int, known: bool) -> None:
    """Hold a group's blocks: `blocks` of them, where nobody else does, which are new ones unless they are still known."""
    state.holders[group] += 1
    state.numbers[FREE] -= blocks
    if not known:
        state.numbers[TAKEN] += blocks
        state.kept_until[group] = 0


def take(rules: Rules, state: State, i: int, blocks: int) -> None:
    """Give a request blocks of its own."""
    state.held[i] += blocks
    state.room[i] += blocks * rules.block
    state.numbers[FREE] -= blocks
    state.numbers[TAKEN] += blocks


def take_beside(state: State, i: int, blocks: int) -> None:
    """Give a request blocks that hold none of its tokens."""
    state.held[i] += blocks
    state.numbers[FREE] -= blocks
    state.numbers[TAKEN] += blocks


def release(requests: Requests, rules: Rules, state: State, i: int) -> None:
    """Free a request's blocks, and its group's where it was the last to hold them; those stay known until they are reused."""
    numbers, group = state.numbers, state.joined[i]
    if group >= 0:
        state.joined[i] = -1
        state.holders[group] -= 1
        if state.holders[group] == 0:
            if state.kept_until[group] > 0:
                state.kept_until[group] = numbers[TAKEN] + numbers[FREE] + 1
            numbers[FREE] += requests.shared[i] // rules.block
    numbers[FREE] += state.held[i]
    state.held[i] = 0


def count_chunk(requests: Requests, rules: Rules, state: State, i: int, todo: int) -> None:
    """Add a chunk of a request's prompt to the step. Its group's tokens are known as soon as they are scheduled."""
    sums, start = state.sums, state.computed[i]
    state.numbers[BUDGET] -= todo
    sums[CHUNKS] += 1
    sums[TOKENS] += todo
    sums[PAIRS] += todo * ((requests.prompt[i] if rules.whole_prompt else start) + todo / 2)
    sums[READ] += start
    if state.joined[i] >= 0 and start + todo >= requests.shared[i] // rules.block * rules.block:
        state.kept_until[state.joined[i]] = max(1, state.kept_until[state.joined[i]])


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


HELPERS = (
    quiet_steps,
    repeat_decodes,
    step_us,
    continue_running,
    preempt_last,
    admit,
    next_request,
    join_group,
    take,
    take_beside,
    release,
    count_chunk,
    remove_ended,
    finish_step,
    write_trace,
)
"""The functions that `play` calls, for numba to compile with it."""
