"""The engine's loop over steps, as plain functions of numbers and arrays that numba can compile.

The rules are vLLM V1's (github.com/vllm-project/vllm, vllm/v1/core/sched/scheduler.py):
- a step serves running requests first, in the order of their admission: a decode takes one token, a prefill its next chunk;
- then waiting requests join, first come first served, while tokens, places and blocks last;
- without a free block the request admitted last is preempted: its blocks are freed, and all its tokens computed again later;
- blocks of shared prompt tokens are held once. Whole ones alone are found again, and never the last token of a request;
- an asynchronous engine schedules a step while the one before it runs: what arrives in between waits for one more, and the
  place of a request that ended is free one step later.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from predict.serving.batch import pairs_within

NEVER = 1e300
NO_END = 2**62

# Arrays that the engine's loop reads and writes, as tuples of arrays; lists do as well where numba is not used.


class Requests(NamedTuple):
    """Requests in order of arrival, one element each."""

    arrival: Any
    """µs. In a closed loop those beyond the first `in_flight` are written when others end."""
    prompt: Any
    """Tokens."""
    output: Any
    """Tokens."""
    shared: Any
    """Leading tokens of the prompt that all requests of the same group have in common."""
    group: Any
    """Identity of the shared tokens; −1 for none."""
    beside: Any
    """Blocks that it takes in addition to those of its tokens while it runs."""


class Rules(NamedTuple):
    """Limits of the engine, as whole numbers; `chunked` to `whole_prompt` are 0 or 1."""

    most_running: int
    most_tokens: int
    blocks: int
    block: int
    """Tokens of a block."""
    in_flight: int
    """Requests of a closed loop; 0 for an open one."""
    chunked: int
    caching: int
    asynchronous: int
    whole_prompt: int
    """The table counts pairs over whole prompts."""
    reserving: int
    """A request joins only with blocks for its whole answer; 0 or 1."""
    window: int
    """Keys that a query of sliding layers sees; 0 where none slides."""


class Table(NamedTuple):
    """The StepTable as the loop reads it: times per part of a sum are one array, in the order of the sums (see SUMS)."""

    decode_us: Any
    mixed_us: Any
    attention_us: Any
    contexts: Any
    sums_us: Any


class State(NamedTuple):
    """The engine between steps."""

    computed: Any
    """Tokens of each request whose keys and values are in the cache."""
    made: Any
    """Output tokens of each request."""
    held: Any
    """Blocks of each request's own."""
    room: Any
    """Tokens that the blocks of each request and of its group hold."""
    joined: Any
    """Group whose blocks each request holds too, or −1."""
    running: Any
    """Requests in order of admission; NUMBERS[RUNNING] of them count."""
    chunk: Any
    """Tokens in this step, by place in `running`."""
    waiting: Any
    """Preempted requests, the last of which comes first; NUMBERS[WAITING] of them count."""
    holders: Any
    """Requests that hold the blocks of each group."""
    kept_until: Any
    """Value of NUMBERS[TAKEN], for each group, at which its blocks, held by nobody, are reused; 0 for one that was never computed."""
    numbers: Any
    """Counters, see RUNNING and on."""
    sums: Any
    """Sums over the step's batch, see CHUNKS and on."""


class Record(NamedTuple):
    """Findings of the loop."""

    start_us: Any
    first_us: Any
    last_us: Any
    """Times of each request: first scheduled, first token, last token; −1 before that."""
    trace: Any
    """A row per step until it is full: start, time, chunks, chunk tokens, decodes, running, blocks in use."""
    totals: Any
    """See RUNNING_US and on."""


RUNNING, WAITING, NEXT, FREE, TAKEN, DONE, ENDED, PREEMPTED, NEXT_CLOSED, BUDGET, COUNTERS = range(11)
"""Places in State.numbers: running and waiting requests, the next to arrive, free blocks, blocks taken so far, requests done,
of these in the last step, preemptions, the next of a closed loop, tokens left in the step; and how many places."""
CHUNKS, TOKENS, PAIRS, READ, WINDOW_PAIRS, WINDOW_READ, DECODES, CONTEXT, SUMS = range(9)
"""Places in State.sums: chunks, their tokens, their query-key pairs, keys they read, both in sliding layers, decodes, keys these read."""
RUNNING_US, BLOCKS_US, MOST_BLOCKS, BUSY_US, CHUNK_TOKENS, STEPS, TOTALS = range(7)
"""Places in Record.totals: running requests and blocks times µs, most blocks, µs of steps, tokens computed in chunks, steps."""
TRACE_COLUMNS = 7


# Blocks of the cache that requests hold, of their own and with others.
#
# Blocks that nobody holds are reused in the order in which they were freed: a shared prompt is forgotten once as many blocks have
# been taken as were free when its last request ended.


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


# Requests that the engine's next step serves: the running ones, then those that wait.


def continue_running(requests: Requests, rules: Rules, state: State) -> bool:
    """Give the running requests their tokens; whether none was preempted, so that others may join."""
    numbers, sums, block, prompt, output = state.numbers, state.sums, rules.block, requests.prompt, requests.output
    running, made, computed, room, chunk = state.running, state.made, state.computed, state.room, state.chunk
    # sums of what nearly every turn is, a decode, are kept out of the arrays, whose cells each turn would wait for
    budget, decodes, context = numbers[BUDGET], 0, 0
    undisturbed = True
    place = 0
    while place < numbers[RUNNING]:
        i = running[place]
        todo = min(prompt[i] + made[i] - computed[i], budget)
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
                decodes += 1
                context += computed[i]
            else:
                count_chunk(requests, rules, state, i, todo)
            budget -= todo
        chunk[place] = todo
        place += 1
    numbers[BUDGET] = budget
    sums[DECODES] += decodes
    sums[CONTEXT] += context
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
        # `output` counts the tokens made so far too
        taken = requests.prompt[i] + requests.output[i] if rules.reserving else found + todo
        need = max(0, -(-taken // block) - base)
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


def count_chunk(requests: Requests, rules: Rules, state: State, i: int, todo: int) -> None:
    """Add a chunk of a request's prompt to the step. Its group's tokens are known as soon as they are scheduled."""
    sums, start = state.sums, state.computed[i]
    state.numbers[BUDGET] -= todo
    sums[CHUNKS] += 1
    sums[TOKENS] += todo
    sums[PAIRS] += todo * ((requests.prompt[i] if rules.whole_prompt else start) + todo / 2)
    sums[READ] += start
    if rules.window > 0:
        sums[WINDOW_PAIRS] += pairs_within(start, todo, rules.window)
        sums[WINDOW_READ] += min(start, rules.window)
    if state.joined[i] >= 0 and start + todo >= requests.shared[i] // rules.block * rules.block:
        state.kept_until[state.joined[i]] = max(1, state.kept_until[state.joined[i]])


# The loop itself.


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
        # two steps at least, as far as this one's time shows: fewer are not worth looking for
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


HELPERS = (
    *(join_group, take, take_beside, release),
    *(pairs_within, continue_running, preempt_last, admit, next_request, count_chunk),
    *(quiet_steps, repeat_decodes, step_us, remove_ended, finish_step, write_trace),
)
"""The functions that `play` calls, for numba to compile with it."""
