"""The engine's loop over steps, as plain functions of numbers and arrays that numba can compile.

The rules are vLLM V1's (github.com/vllm-project/vllm, vllm/v1/core/sched/scheduler.py):
- a step serves running requests first, in the order of their admission: a decode takes one token, a prefill its next chunk;
- then waiting requests join, first come first served, while tokens, places and blocks last: one joins only where all its tokens fit
  beside what is held, however few of them its first chunk has (`scheduler_reserve_full_isl`, pull request 37307: without it a long
  prompt joins, is preempted halfway through, and joins again);
- without a free block the request admitted last is preempted: its blocks are freed, it waits before all others, and computes its tokens
  again;
- blocks of known tokens are held once. Whole ones alone are found again, and never the last token of a request: those of a prompt
  that others have too, and those of a preempted request's own until they are reused;
- an asynchronous engine schedules a step while the one before it runs: what arrives in between waits for one more, and the
  place of a request that ended is free one step later;
- an engine that looks for new requests every so many steps of decodes alone (SGLang's scheduler_recv_interval) sees those that came
  since at its next look, or after a step with a prompt;
- an engine that does not mix (SGLang) serves prompts alone in a step, waiting ones and the rest of a chunked one, and decodes in those
  without;
- an engine that gathers prompts (TensorRT-LLM's batch_wait_timeout_iters) lets them wait beside decodes for so many steps, or until they
  have enough tokens for one;
- a decode with drafts takes a token of the step, and a place in the cache, for each of them too. Those accepted, and one more,
  join its answer; the places of the others are written again by the next step.
"""

from typing import Any

from predict.model.spec import chunks_of
from predict.serving.batch import keys_within, pairs_in_chunks, pairs_within
from predict.serving.block_cache import (
    BLOCK_HELPERS,
    first_ready,
    hold_known,
    known_elsewhere,
    known_own,
    known_segments,
    make_known,
    pull,
    release,
    take,
    take_back,
    take_beside,
)
from predict.serving.engine_state import (
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
    GATHERED,
    LAST,
    LENT,
    MOST_BLOCKS,
    NEVER,
    NEXT,
    NEXT_CLOSED,
    PAIRS,
    PREEMPTED,
    PULLS,
    READ,
    RUNNING,
    RUNNING_US,
    STEPS,
    SUMS,
    TOKENS,
    UNSEEN,
    WAITING,
    WINDOW_KEYS,
    WINDOW_PAIRS,
    WINDOW_READ,
    Levels,
    Record,
    Requests,
    Rules,
    State,
    Table,
)
from predict.serving.token_gaps import gap_bin

NO_END = 2**62

# Requests that the engine's next step serves: the running ones, then those that wait.


def continue_running(requests: Requests, rules: Rules, levels: Levels, state: State, decodes_too: bool) -> bool:
    """Give the running requests their tokens, or those alone whose prompts are not computed; whether none was preempted, so that others may
    join."""
    numbers, sums, block, prompt, output = state.numbers, state.sums, rules.block, requests.prompt, requests.output
    running, made, computed, room, chunk = state.running, state.made, state.computed, state.room, state.chunk
    # sums of what nearly every turn is, a decode, are kept out of the arrays, whose cells each turn would wait for
    budget, decodes, context, window_keys = numbers[BUDGET], 0, 0, 0
    undisturbed = True
    place = 0
    while place < numbers[RUNNING]:
        i = running[place]
        todo = min(prompt[i] + made[i] - computed[i], budget)
        if made[i] >= output[i] or (not decodes_too and todo == 1 and computed[i] >= prompt[i]):
            todo = 0
        drafts = min(rules.drafts, budget - todo) if todo == 1 and computed[i] >= prompt[i] else 0
        if todo > 0:
            lacking = computed[i] + todo + drafts - room[i]
            if lacking > 0:
                need = -(-lacking // block)
                while need > numbers[FREE] and numbers[RUNNING] > place:
                    preempt_last(requests, rules, levels, state)
                    undisturbed = False
                if numbers[RUNNING] <= place:
                    break
                take(rules, state, i, need)
            if todo == 1 and computed[i] >= prompt[i]:
                decodes += 1
                context += computed[i]
                if rules.seen.most > 0:
                    window_keys += keys_within(computed[i], rules.seen)
            else:
                count_chunk(requests, rules, state, i, todo)
            budget -= todo + drafts
            if drafts > 0:
                todo += accepted_drafts(requests, rules, state, i, drafts)
        chunk[place] = todo
        place += 1
    numbers[BUDGET] = budget
    sums[DECODES] += decodes
    sums[CONTEXT] += context
    sums[WINDOW_KEYS] += window_keys
    return undisturbed


def accepted_drafts(requests: Requests, rules: Rules, state: State, i: int, drafts: int) -> int:
    """Drafts of a decode that are accepted: no more than its answer has left after the token that any step adds."""
    place = state.drafted[i]
    state.drafted[i] = place + 1
    accepted: int = min(rules.accepted[place % len(rules.accepted)], drafts)
    left: int = requests.output[i] - state.made[i] - 1
    return min(accepted, left)


def preempt_last(requests: Requests, rules: Rules, levels: Levels, state: State) -> None:
    """Take the request admitted last out of the running ones, with its blocks; one that has ended needs no second turn."""
    numbers = state.numbers
    numbers[RUNNING] -= 1
    i = state.running[numbers[RUNNING]]
    release(requests, rules, levels, state, i)
    if state.made[i] < requests.output[i]:
        state.waiting[numbers[WAITING]] = i
        numbers[WAITING] += 1
        numbers[PREEMPTED] += 1


def admit(
    requests: Requests, rules: Rules, levels: Levels, state: State, record: Record, seen_until: float, now: float
) -> None:
    """Let waiting requests join, those preempted first, while tokens, places and blocks last."""
    numbers, block = state.numbers, rules.block
    if numbers[PULLS] > 0:
        join_pulled(requests, rules, state, record, seen_until, now)
    while numbers[BUDGET] > 0 and numbers[RUNNING] < rules.most_running and numbers[PULLS] < rules.most_running:
        i = next_request(requests, state, seen_until)
        if i < 0:
            return
        total = requests.prompt[i] + state.made[i]
        base, idle, joined, known = known_segments(requests, rules, state, i)
        own = known_own(rules, state, i, base)
        found = min(base + own, (total - 1) // block) * block
        # a block of which only the last token is computed again is a new one
        again = base + own - found // block
        own, again = max(0, own - again), max(0, again - own)
        end = found
        if state.source[i] >= 0 or len(levels.ends) > 1:
            end = known_elsewhere(requests, rules, levels, state, i, found, total - 1)
        todo = min(total - end, rules.most_tokens if end > found else numbers[BUDGET])
        if todo < total - end and not rules.chunked:
            return
        # `output` counts the tokens made so far too
        fitting = requests.prompt[i] + requests.output[i] if rules.reserving else total
        whole = max(0, -(-fitting // block) - base - own)
        need = whole if rules.reserving else max(0, -(-(end + todo) // block) - base - own)
        beside = requests.beside[i] + again
        if whole + idle + own + beside > numbers[FREE]:
            return
        if numbers[WAITING] > 0:
            numbers[WAITING] -= 1
        else:
            numbers[NEXT] = state.following[i]
        hold_known(requests, rules, state, i, base, joined, known, own)
        state.computed[i] = end
        take(rules, state, i, need)
        take_beside(state, i, beside)
        if record.start_us[i] < 0:
            record.found[i] = found
        if end > found:
            pull(requests, rules, levels, state, record, i, seen_until)
        else:
            run(requests, rules, state, record, i, todo, now)


def run(requests: Requests, rules: Rules, state: State, record: Record, i: int, todo: int, now: float) -> None:
    """Let a request join the step with a chunk of its tokens."""
    numbers = state.numbers
    if record.start_us[i] < 0:
        record.start_us[i] = now
    state.running[numbers[RUNNING]] = i
    state.chunk[numbers[RUNNING]] = todo
    numbers[RUNNING] += 1
    if todo == 1 and requests.remote[i] > 0 and state.computed[i] == requests.prompt[i] - 1:
        # all but the last token was computed elsewhere: a step sees no difference to a decode
        numbers[BUDGET] -= 1
        state.sums[DECODES] += 1
        state.sums[CONTEXT] += state.computed[i]
        if rules.seen.most > 0:
            state.sums[WINDOW_KEYS] += keys_within(state.computed[i], rules.seen)
    else:
        count_chunk(requests, rules, state, i, todo)


def join_pulled(requests: Requests, rules: Rules, state: State, record: Record, seen_until: float, now: float) -> None:
    """Let the requests join whose keys and values have come."""
    numbers, place = state.numbers, 0
    while place < numbers[PULLS] and numbers[BUDGET] > 0 and numbers[RUNNING] < rules.most_running:
        i = state.pulling[place]
        todo = requests.prompt[i] + state.made[i] - state.computed[i]
        if state.ready[i] > seen_until or (todo > numbers[BUDGET] and not rules.chunked):
            place += 1
            continue
        numbers[PULLS] -= 1
        for after in range(place, numbers[PULLS]):
            state.pulling[after] = state.pulling[after + 1]
        run(requests, rules, state, record, i, min(todo, numbers[BUDGET]), now)


def next_request(requests: Requests, state: State, seen_until: float) -> int:
    """The request whose turn it is, or −1: the one preempted last, else the first that arrived and was not served yet."""
    numbers = state.numbers
    if numbers[WAITING] > 0:
        return int(state.waiting[numbers[WAITING] - 1])
    if numbers[NEXT] >= 0 and requests.arrival[numbers[NEXT]] <= seen_until:
        return int(numbers[NEXT])
    return -1


def has_prompts(requests: Requests, rules: Rules, state: State, seen_until: float) -> bool:
    """Whether a request waits for a place that is free, or the one admitted last has a prompt that is not computed in full."""
    running = state.numbers[RUNNING]
    waits = next_request(requests, state, seen_until) >= 0
    if running < rules.most_running and (waits or (state.numbers[PULLS] > 0 and first_ready(state) <= seen_until)):
        return True
    last = state.running[max(0, running - 1)]
    return bool(running > 0 and state.computed[last] < requests.prompt[last])


def gathers(requests: Requests, rules: Rules, state: State, seen_until: float) -> bool:
    """Whether waiting prompts are left for a later step, beside the decodes of this one."""
    numbers, tokens = state.numbers, state.sums[DECODES]
    if rules.gather_steps == 0 or tokens == 0 or numbers[RUNNING] >= rules.most_running:
        return False
    first = next_request(requests, state, seen_until)
    for place in range(numbers[WAITING]):
        tokens += requests.prompt[state.waiting[place]] + state.made[state.waiting[place]]
    i = numbers[NEXT]
    while i >= 0 and requests.arrival[i] <= seen_until and tokens < rules.gather_tokens:
        tokens += requests.prompt[i]
        i = state.following[i]
    waits = first >= 0 and tokens < rules.gather_tokens and numbers[GATHERED] < rules.gather_steps
    if first >= 0:
        numbers[GATHERED] = numbers[GATHERED] + 1 if waits else 0
    return bool(waits)


def enqueue(state: State, i: int) -> None:
    """Put a request at the end of the engine's queue."""
    numbers = state.numbers
    if numbers[NEXT] < 0:
        numbers[NEXT] = i
    else:
        state.following[numbers[LAST]] = i
    numbers[LAST], state.following[i] = i, -1


def count_chunk(requests: Requests, rules: Rules, state: State, i: int, todo: int) -> None:
    """Add a chunk of a request's prompt to the step. Others find its tokens as soon as they are scheduled."""
    sums, start = state.sums, state.computed[i]
    state.numbers[BUDGET] -= todo
    sums[CHUNKS] += 1
    sums[TOKENS] += todo
    sums[PAIRS] += todo * ((requests.prompt[i] if rules.whole_prompt else start) + todo / 2)
    sums[READ] += start
    if rules.seen.most > 0:
        sums[WINDOW_PAIRS] += pairs_within(start, todo, rules.seen)
        sums[WINDOW_READ] += keys_within(start, rules.seen)
    if state.joined[i] > 0:
        make_known(requests, rules, state, i, start + todo)


def fill_step(
    requests: Requests, rules: Rules, levels: Levels, state: State, record: Record, seen_until: float, now: float
) -> None:
    """Give the running requests their tokens, and let others join."""
    if rules.prompts_alone and has_prompts(requests, rules, state, seen_until):
        if continue_running(requests, rules, levels, state, False):
            admit(requests, rules, levels, state, record, seen_until, now)
        if state.sums[CHUNKS] == 0:
            continue_running(requests, rules, levels, state, True)
    elif continue_running(requests, rules, levels, state, True) and not gathers(requests, rules, state, seen_until):
        admit(requests, rules, levels, state, record, seen_until, now)


# The loop itself.


def play(requests: Requests, rules: Rules, levels: Levels, table: Table, state: State, record: Record) -> bool:
    """Serve all requests; whether all of them could be served."""
    advance(requests, rules, levels, table, state, record, NEVER)
    return bool(state.numbers[DONE] == len(requests.arrival))


def advance(
    requests: Requests, rules: Rules, levels: Levels, table: Table, state: State, record: Record, until: float
) -> None:
    """Serve the engine's queue, up to the first step that sees what arrives at `until`, or until there is nothing to do before."""
    numbers, sums = state.numbers, state.sums
    before, now = state.clock[0], state.clock[1]
    wake, idle = until, False
    while (before if rules.asynchronous else now) < until:
        for place in range(SUMS):
            sums[place] = 0.0
        numbers[BUDGET] = rules.most_tokens
        seen_until = before if rules.asynchronous else now
        if numbers[UNSEEN] >= rules.recv_interval:
            numbers[UNSEEN], state.clock[3] = 0, seen_until
        looked = state.clock[3] if rules.recv_interval > 1 else seen_until
        # calls are left out where they would do nothing, since each hands over all arrays
        if not rules.asynchronous and numbers[ENDED] > 0:
            remove_ended(requests, rules, levels, state)
        given_back = take_back(requests, rules, levels, state, seen_until) if numbers[LENT] >= 0 else NEVER
        fill_step(requests, rules, levels, state, record, looked, now)
        if rules.asynchronous and numbers[ENDED] > 0:
            remove_ended(requests, rules, levels, state)
        if sums[CHUNKS] + sums[DECODES] == 0:
            # nothing is in flight, so that the engine schedules at once, or waits for the next request
            if before == now:
                wake = min(given_back, next_event(requests, state, now))
                if wake >= until or wake >= NEVER:
                    idle = True
                    break
                now = wake
            before = now
            numbers[UNSEEN] = rules.recv_interval
            continue
        time = step_us(sums, table)
        steps = int(record.totals[STEPS])
        count_step(rules, state, record, now, time)
        before = now
        now += time
        finish_step(requests, state, record, now)
        numbers[UNSEEN] += rules.recv_interval if sums[CHUNKS] > 0 else 1
        full = numbers[RUNNING] == rules.most_running
        alike = steps >= len(record.trace) and sums[CHUNKS] == 0 and sums[DECODES] == numbers[RUNNING]
        # two steps at least, as far as this one's time shows: fewer are not worth looking for
        seen = (before if rules.asynchronous else now) + time
        if alike and (full or next_request(requests, state, seen) < 0):
            turns = quiet_steps(requests, rules, state)
            if turns > 1:
                before, now = repeat_decodes(requests, rules, table, state, record, before, now, turns, until)
                # looks at which nobody came left no trace
                since = numbers[UNSEEN] + int(record.totals[STEPS]) - steps - 1
                numbers[UNSEEN] = (since - 1) % rules.recv_interval + 1
        if rules.coupled and numbers[ENDED] > 0:
            break
    state.clock[0], state.clock[1] = before, now
    state.clock[2] = wake if idle else before if rules.asynchronous else now


def next_event(requests: Requests, state: State, now: float) -> float:
    """µs at which a request arrives after `now`, or has its keys and values."""
    event, first = first_ready(state), state.numbers[NEXT]
    if first >= 0 and requests.arrival[first] > now:
        event = min(event, requests.arrival[first])
    return event


def count_step(rules: Rules, state: State, record: Record, now: float, time: float) -> None:
    """Add a step to the totals, and to the trace while there is room."""
    sums, totals = state.sums, record.totals
    used = rules.blocks - state.numbers[FREE]
    steps = int(totals[STEPS])
    if steps < len(record.trace):
        write_trace(record.trace[steps], now, time, sums, state.numbers[RUNNING], used)
    totals[STEPS] += 1
    totals[RUNNING_US] += (sums[CHUNKS] + sums[DECODES]) * time
    totals[BLOCKS_US] += used * time
    totals[MOST_BLOCKS] = max(totals[MOST_BLOCKS], used)
    totals[BUSY_US] += time
    totals[CHUNK_TOKENS] += sums[TOKENS]
    if rules.watched_since <= now <= rules.watched_until:
        record.gaps[gap_bin(time)] += sums[DECODES]


def quiet_steps(requests: Requests, rules: Rules, state: State) -> int:
    """Steps that the running decodes can do before one of them ends, with the blocks that are free; 0 where one has just ended, and where
    they differ in the drafts that they accept."""
    if rules.drafts > 0:
        return 0
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
    requests: Requests,
    rules: Rules,
    table: Table,
    state: State,
    record: Record,
    before: float,
    now: float,
    most: int,
    until: float,
) -> tuple[float, float]:
    """Up to `most` steps of the running decodes, until a request may join, or up to `until`; the start of the last of them, and its end."""
    numbers, sums, totals = state.numbers, state.sums, record.totals
    decodes = sums[DECODES]
    arrival = until
    if numbers[RUNNING] < rules.most_running:
        if numbers[PULLS] > 0:
            arrival = min(arrival, first_ready(state))
        if numbers[NEXT] >= 0:
            arrival = min(arrival, requests.arrival[numbers[NEXT]])
    turns, start = 0, now
    # beyond the first turn, the keys of a window grow evenly up to the turn in which one is full
    growing, full = 0, 0 if rules.seen.most > 0 else most
    while turns < most and arrival > (before if rules.asynchronous else now):
        sums[CONTEXT] += decodes
        sums[WINDOW_KEYS] += growing
        if turns == full:
            sums[WINDOW_KEYS], growing, further = window_growth(rules, state, turns)
            full = turns + further
        before = now
        time = step_us(sums, table)
        if rules.watched_since <= now <= rules.watched_until:
            record.gaps[gap_bin(time)] += decodes
        now += time
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


def window_growth(rules: Rules, state: State, turns: int) -> tuple[int, int, int]:
    """Keys of windows that the running decodes see so many steps on, by how many these grow in a step, and for how many steps."""
    keys, growing, further, most = 0, 0, NO_END, rules.seen.most
    for place in range(state.numbers[RUNNING]):
        own = keys_within(state.computed[state.running[place]] + turns, rules.seen)
        keys += own
        if own < most:
            growing += 1
            further = min(further, most - own)
    return keys, growing, further


def step_us(sums: Any, table: Table) -> float:
    """The time of a step by its table, as `StepTable.times_us` has it."""
    decodes = int(sums[DECODES])
    attention = read_us(table.attention_us, table.contexts, decodes, sums[CONTEXT])
    if sums[WINDOW_KEYS] > 0:
        attention += read_us(table.window_attention_us, table.contexts, decodes, sums[WINDOW_KEYS])
    of_decodes = table.decode_us[decodes]
    if table.floor_us > 0:
        floored = max(of_decodes, table.floor_us)
        attention = max(of_decodes + attention, table.floor_us) - floored
        of_decodes = floored
    time: float = attention + table.sums_us[DECODES] * sums[DECODES]
    if sums[CHUNKS] == 0:
        time += of_decodes
    else:
        # a request whose prompt was computed elsewhere joins with one token, but counts as a decode with its drafts
        computed = int(sums[TOKENS]) + table.decode_tokens * decodes
        time += table.mixed_us[min(computed, len(table.mixed_us) - 1)]
        for place in range(DECODES):
            time += table.sums_us[place] * sums[place]
    return time


def read_us(attention_us: Any, contexts: Any, decodes: int, keys: float) -> float:
    """One of the two tables of attention at so many decodes with so many keys, all together."""
    mean = keys / max(decodes, 1)
    column, beyond = 0, len(contexts) - 1
    while beyond - column > 1:
        middle = (column + beyond) // 2
        if contexts[middle] <= mean:
            column = middle
        else:
            beyond = middle
    share = (mean - contexts[column]) / (contexts[column + 1] - contexts[column])
    low, high = attention_us[decodes][column], attention_us[decodes][column + 1]
    found: float = low + (high - low) * share
    return found


def remove_ended(requests: Requests, rules: Rules, levels: Levels, state: State) -> None:
    """Take the requests that have all their tokens out of the running ones. Those of which another pool goes on keep their blocks."""
    numbers, kept = state.numbers, 0
    numbers[ENDED] = 0
    for place in range(numbers[RUNNING]):
        i = state.running[place]
        if state.made[i] >= requests.output[i]:
            if rules.hands_on:
                state.following[i] = numbers[LENT]
                numbers[LENT] = i
            else:
                release(requests, rules, levels, state, i)
        else:
            state.running[kept] = i
            state.chunk[kept] = state.chunk[place]
            kept += 1
    numbers[RUNNING] = kept


def finish_step(requests: Requests, state: State, record: Record, now: float) -> None:
    """Count the tokens that a step computed and kept; requests whose tokens are all computed have one more of output."""
    numbers, running, chunk, computed, made = state.numbers, state.running, state.chunk, state.computed, state.made
    prompt, output = requests.prompt, requests.output
    for place in range(numbers[RUNNING]):
        i = running[place]
        if chunk[place] == 0:
            continue
        computed[i] += chunk[place]
        if computed[i] < prompt[i] + made[i]:
            continue
        if made[i] == 0:
            record.first_us[i] = now
        made[i] = computed[i] - prompt[i] + 1
        if made[i] == output[i]:
            record.last_us[i] = now
            numbers[DONE] += 1
            state.ended[numbers[ENDED]] = i
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
    *BLOCK_HELPERS,
    gap_bin,
    *(
        chunks_of,
        keys_within,
        pairs_in_chunks,
        pairs_within,
        continue_running,
        accepted_drafts,
        preempt_last,
        admit,
        run,
        join_pulled,
        next_request,
        has_prompts,
        gathers,
        enqueue,
        count_chunk,
        fill_step,
    ),
    *(quiet_steps, repeat_decodes, window_growth, read_us, step_us, next_event, count_step),
    *(remove_ended, finish_step, write_trace, advance),
)
"""The functions that `play` calls, for numba to compile with it."""
