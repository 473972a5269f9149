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
- a decode with drafts takes a token of the step, and a place in the cache, for each of them too. Those accepted, and one more,
  join its answer; the places of the others are written again by the next step.
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
    chain_start: Any
    """Place in `chain` of each request's first segment; one element more than there are requests."""
    chain: Any
    """Segments of each request's tokens that others have too, from its first token on: nodes of a tree of prompts."""
    segment_start: Any
    """Whole blocks of a sequence before each segment."""
    segment_size: Any
    """Whole blocks of each segment."""
    remote: Any
    """Leading tokens of each request that another pool computes; 0 for none."""
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
    own_nodes: int
    """The node of the first request's own blocks; those of the segments of the caches come before it."""
    hands_on: int
    """Whether another pool goes on with the keys and values of requests that end; 0 or 1."""
    distance: int
    """Places from a request of the pool that computes prompts to the one that goes on with it."""
    overlap: float
    """Share of a transfer that may hide behind the computing of what is sent, layer by layer."""
    coupled: int
    """The loop returns after each step in which a request ends, since another engine may have to learn of it; 0 or 1."""
    drafts: int
    """Draft tokens that each decode verifies; 0 for none."""
    accepted: Any
    """Draft tokens that a decode accepts, one element per decode; each request goes through them from a place of its own."""


class Levels(NamedTuple):
    """Places other than the engine's cache where keys and values are found, one element each: level 0 is a pool that computed them, the
    others are tiers of slower memory."""

    token_us: Any
    """µs to bring the keys and values of a token."""
    start_us: Any
    """µs before the first of them."""
    first_node: Any
    """The node of a tier's first segment."""
    own_nodes: Any
    """The node of the first request's own blocks."""
    ends: Any
    """The node that ends the tier's order of reuse; State.kept counts the blocks of the tier there."""
    capacity: Any
    """Blocks that a tier holds."""


class Table(NamedTuple):
    """The StepTable as the loop reads it: times per part of a sum are one array, in the order of the sums (see SUMS)."""

    decode_us: Any
    mixed_us: Any
    attention_us: Any
    contexts: Any
    sums_us: Any
    decode_tokens: int
    """Tokens that a decode computes: its own and its drafts."""


class State(NamedTuple):
    """The engine between steps."""

    computed: Any
    """Tokens of each request whose keys and values are in the cache."""
    made: Any
    """Output tokens of each request."""
    held: Any
    """Blocks of each request's own."""
    base: Any
    """Blocks of its segments that each request holds, or held before it was preempted."""
    room: Any
    """Tokens that the blocks of each request and of its segments hold."""
    drafted: Any
    """Place of each request in `Rules.accepted`: the decodes with drafts that it has had, and where it began."""
    joined: Any
    """Segments of its chain that each request holds."""
    builds: Any
    """Place in the chain of the first segment that each request holds and has not computed in full."""
    following: Any
    """The request after each in the queue of its engine, or −1."""
    running: Any
    """Requests in order of admission; NUMBERS[RUNNING] of them count."""
    chunk: Any
    """Tokens in this step, by place in `running`."""
    waiting: Any
    """Preempted requests, the last of which comes first; NUMBERS[WAITING] of them count."""
    pulling: Any
    """Requests that wait for keys and values from elsewhere; NUMBERS[PULLS] of them count."""
    ended: Any
    """Requests that ended in the last step; NUMBERS[ENDED] of them count."""
    ready: Any
    """µs at which each of those has them; of one that computed them for another pool, at which they may be freed."""
    source: Any
    """Engine of another pool that holds the keys and values of each request, or −1."""
    began: Any
    """µs at which that engine began to compute them."""
    wanted: Any
    """Tokens that the request looked at could have from each level."""
    links: Any
    """µs up to which the link to each level is taken."""
    sending: Any
    """µs up to which the link out of each engine is taken."""
    holders: Any
    """Requests that hold the segment of each node."""
    kept: Any
    """Blocks of each node that are in its cache, its first ones: of a segment, or of what a request gave back of its own."""
    earlier: Any
    """The node before each in the order in which blocks are reused."""
    later: Any
    """The node after each; the first of a cache follows the node NUMBERS[ENDS], which closes the circle."""
    clock: Any
    """Start and end of the last step, and when the engine can go on, µs."""
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
    found: Any
    """Tokens of each request that the cache had when it was first scheduled."""
    trace: Any
    """A row per step until it is full: start, time, chunks, chunk tokens, decodes, running, blocks in use."""
    totals: Any
    """See RUNNING_US and on."""


RUNNING, WAITING, NEXT, LAST, FREE, UNUSED, FIRST_NODE, ENDS = range(8)
DONE, ENDED, PREEMPTED, NEXT_CLOSED, BUDGET, PULLS, LENT, COUNTERS = range(8, 16)
"""Places in State.numbers: running and waiting requests, the first and the last of the queue or −1, free blocks, those of them that keep
nothing, the node of the cache's first segment, the node that ends its order of reuse, requests done, of these in the last step,
preemptions, the next of a closed loop, tokens left in the step, requests that wait for keys and values, the last of those that ended and
hold theirs for another pool, or −1; and how many places."""
CHUNKS, TOKENS, PAIRS, READ, WINDOW_PAIRS, WINDOW_READ, DECODES, CONTEXT, SUMS = range(9)
"""Places in State.sums: chunks, their tokens, their query-key pairs, keys they read, both in sliding layers, decodes, keys these read."""
RUNNING_US, BLOCKS_US, MOST_BLOCKS, BUSY_US, CHUNK_TOKENS, STEPS, PULLED = range(7)
"""Places in Record.totals: running requests and blocks times µs, most blocks, µs of steps, tokens computed in chunks, steps, and the
first of the tokens brought from each level."""
TRACE_COLUMNS = 7


# Blocks of the cache that requests hold, of their own and with others.
#
# Blocks that nobody holds are reused in the order in which they were freed, as vLLM's free queue has them (vllm/v1/core/block_pool.py):
# a request frees its last ones first, so that of a tree of prompts the leaves are forgotten before what they stand on.


def keep_last(state: State, ends: int, node: int) -> None:
    """Put a node at the end of the order of reuse."""
    last = state.earlier[ends]
    state.later[last], state.earlier[node] = node, last
    state.later[node], state.earlier[ends] = ends, node


def take_out(state: State, node: int) -> None:
    """Take a node out of the order of reuse."""
    before, after = state.earlier[node], state.later[node]
    state.later[before], state.earlier[after] = after, before


def reuse(state: State, blocks: int) -> None:
    """Use free blocks: those that keep nothing, then the ones freed longest ago, which are forgotten."""
    numbers = state.numbers
    empty = min(blocks, numbers[UNUSED])
    numbers[UNUSED] -= empty
    numbers[FREE] -= blocks
    blocks -= empty
    while blocks > 0:
        node = state.later[numbers[ENDS]]
        forgotten = min(blocks, state.kept[node])
        state.kept[node] -= forgotten
        blocks -= forgotten
        if state.kept[node] == 0:
            take_out(state, node)


def take(rules: Rules, state: State, i: int, blocks: int) -> None:
    """Give a request blocks of its own."""
    state.held[i] += blocks
    state.room[i] += blocks * rules.block
    reuse(state, blocks)


def take_beside(state: State, i: int, blocks: int) -> None:
    """Give a request blocks that hold none of its tokens."""
    state.held[i] += blocks
    reuse(state, blocks)


def known_segments(requests: Requests, rules: Rules, state: State, i: int) -> tuple[int, int, int, int]:
    """Findings of a request in its chain: blocks, those of them that nobody holds, segments to hold, and how many are known in full.

    It computes the others for all, but for those that another request is computing just now: from there on its blocks are its own.
    """
    blocks = idle = joined = known = 0
    if rules.caching:
        for place in range(requests.chain_start[i], requests.chain_start[i + 1]):
            segment = requests.chain[place]
            node = state.numbers[FIRST_NODE] + segment
            kept = state.kept[node]
            if state.holders[node] == 0:
                idle += kept
            elif kept < requests.segment_size[segment]:
                break
            blocks += kept
            known += known == joined and kept == requests.segment_size[segment]
            joined += 1
    return blocks, idle, joined, known


def known_own(rules: Rules, state: State, i: int, base: int) -> int:
    """Blocks of its own that a request, preempted before, finds again beyond the `base` of its chain."""
    kept = state.kept[rules.own_nodes + i]
    if kept == 0 or base != state.base[i]:
        return 0
    return int(min(kept, state.computed[i] // rules.block - base))


def hold_known(
    requests: Requests, rules: Rules, state: State, i: int, base: int, joined: int, known: int, own: int
) -> None:
    """Give a request what it found: segments of its chain, and blocks of its own."""
    numbers, first = state.numbers, requests.chain_start[i]
    for place in range(first, first + joined):
        node = numbers[FIRST_NODE] + requests.chain[place]
        if state.holders[node] == 0 and state.kept[node] > 0:
            take_out(state, node)
            numbers[FREE] -= state.kept[node]
        state.holders[node] += 1
    mine = rules.own_nodes + i
    if state.kept[mine] > 0:
        take_out(state, mine)
        numbers[UNUSED] += state.kept[mine] - own
        numbers[FREE] -= own
        state.kept[mine] = 0
    state.joined[i], state.builds[i] = joined, first + known
    state.base[i], state.held[i], state.room[i] = base, own, (base + own) * rules.block


def make_known(requests: Requests, rules: Rules, state: State, i: int, tokens: int) -> None:
    """Let others find the whole blocks of a request's first `tokens`, as far as its chain goes: they are its own no longer."""
    place, end = state.builds[i], requests.chain_start[i] + state.joined[i]
    while place < end:
        segment = requests.chain[place]
        node = state.numbers[FIRST_NODE] + segment
        more = (
            min(tokens // rules.block - requests.segment_start[segment], requests.segment_size[segment])
            - state.kept[node]
        )
        if more > 0:
            state.kept[node] += more
            state.base[i] += more
            state.held[i] -= more
        if state.kept[node] < requests.segment_size[segment]:
            break
        place += 1
    state.builds[i] = place


def release(requests: Requests, rules: Rules, levels: Levels, state: State, i: int) -> None:
    """Free a request's blocks: its own, then those of its chain that nobody else holds, the last ones first."""
    numbers, mine, first = state.numbers, rules.own_nodes + i, requests.chain_start[i]
    make_known(requests, rules, state, i, state.computed[i])
    if len(levels.ends) > 1:
        write_through(requests, rules, levels, state, i)
    numbers[FREE] += state.held[i]
    if not rules.caching:
        numbers[UNUSED] += state.held[i]
    elif state.held[i] > 0:
        state.kept[mine] = state.held[i]
        keep_last(state, numbers[ENDS], mine)
    for place in range(first + state.joined[i] - 1, first - 1, -1):
        node = numbers[FIRST_NODE] + requests.chain[place]
        state.holders[node] -= 1
        if state.holders[node] == 0 and state.kept[node] > 0:
            numbers[FREE] += state.kept[node]
            keep_last(state, numbers[ENDS], node)
    state.held[i] = state.joined[i] = 0


# Keys and values elsewhere: in the pool that computed a prompt, and in tiers of slower memory, each of which keeps what was used last.


def write_through(requests: Requests, rules: Rules, levels: Levels, state: State, i: int) -> None:
    """Keep what a request computed in every tier, at no cost: engines copy it beside their steps."""
    blocks, first = state.computed[i] // rules.block, requests.chain_start[i]
    for level in range(1, len(levels.ends)):
        own = blocks
        if requests.chain_start[i + 1] > first:
            segment = requests.chain[requests.chain_start[i + 1] - 1]
            own -= requests.segment_start[segment] + requests.segment_size[segment]
        if own > 0:
            keep_in_tier(levels, state, level, levels.own_nodes[level] + i, own)
        for place in range(requests.chain_start[i + 1] - 1, first - 1, -1):
            segment = requests.chain[place]
            known = min(blocks - requests.segment_start[segment], requests.segment_size[segment])
            if known > 0:
                keep_in_tier(levels, state, level, levels.first_node[level] + segment, known)


def keep_in_tier(levels: Levels, state: State, level: int, node: int, blocks: int) -> None:
    """Put blocks of a node into a tier, as those used last; others are forgotten for them."""
    ends, kept = levels.ends[level], state.kept
    if kept[node] > 0:
        take_out(state, node)
    kept[ends] += max(0, blocks - kept[node])
    kept[node] = max(blocks, kept[node])
    keep_last(state, ends, node)
    while kept[ends] > levels.capacity[level]:
        oldest = state.later[ends]
        forgotten = min(kept[ends] - levels.capacity[level], kept[oldest])
        kept[oldest] -= forgotten
        kept[ends] -= forgotten
        if kept[oldest] == 0:
            take_out(state, oldest)


def known_elsewhere(
    requests: Requests, rules: Rules, levels: Levels, state: State, i: int, found: int, most: int
) -> int:
    """Tokens up to which a request can have its keys and values, `found` of them in the cache, at most `most`. State.wanted has those of
    each level."""
    wanted, block = state.wanted, rules.block
    for level in range(len(wanted)):
        wanted[level] = 0
    if state.source[i] >= 0:
        wanted[0] = max(0, min(requests.remote[i], most) - found)
        return int(found + wanted[0])
    position = found // block
    for place in range(requests.chain_start[i], requests.chain_start[i + 1]):
        segment = requests.chain[place]
        start = requests.segment_start[segment]
        end = start + requests.segment_size[segment]
        if start > position:
            break
        for level in range(1, len(wanted)):
            more = min(start + state.kept[levels.first_node[level] + segment], most // block) - position
            if more > 0 and position < end:
                wanted[level] += more * block
                position += more
        if position < end:
            break
    return int(max(found, position * block))


def pull(requests: Requests, rules: Rules, levels: Levels, state: State, record: Record, i: int, now: float) -> None:
    """Bring the wanted keys and values over their links, one request after the other on each."""
    numbers, wanted, links, source = state.numbers, state.wanted, state.links, state.source[i]
    ready = now
    for level in range(len(wanted)):
        if wanted[level] == 0:
            continue
        time = wanted[level] * levels.token_us[level]
        begin = max(now, links[level])
        if level == 0:
            begin = max(begin, state.sending[source])
            # what was computed first was sent while the rest was computed
            begin -= max(
                0.0,
                min(
                    time * rules.overlap,
                    requests.arrival[i] - state.began[i],
                    begin - links[level],
                    begin - state.sending[source],
                ),
            )
        end = max(now, begin + time)
        links[level] = end
        if level == 0:
            state.sending[source] = state.ready[i - rules.distance] = end
        ready = max(ready, end + levels.start_us[level])
        record.totals[PULLED + level] += wanted[level]
    state.source[i] = -1
    state.ready[i] = ready
    state.pulling[numbers[PULLS]] = i
    numbers[PULLS] += 1


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


def first_ready(state: State) -> float:
    """µs at which the first of the requests that wait for keys and values has them."""
    found = NEVER
    for place in range(state.numbers[PULLS]):
        found = min(found, state.ready[state.pulling[place]])
    return found


def take_back(requests: Requests, rules: Rules, levels: Levels, state: State, seen_until: float) -> float:
    """Free the blocks of requests whose keys and values another pool has; µs at which the next of them has, as far as it is known."""
    numbers, before, following = state.numbers, -1, NEVER
    i = numbers[LENT]
    while i >= 0:
        after = state.following[i]
        if state.ready[i] <= seen_until:
            release(requests, rules, levels, state, i)
            if before < 0:
                numbers[LENT] = after
            else:
                state.following[before] = after
        else:
            following = min(following, state.ready[i])
            before = i
        i = after
    return following


# Requests that the engine's next step serves: the running ones, then those that wait.


def continue_running(requests: Requests, rules: Rules, levels: Levels, state: State) -> bool:
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
    else:
        count_chunk(requests, rules, state, i, todo)


def next_request(requests: Requests, state: State, seen_until: float) -> int:
    """The request whose turn it is, or −1: the one preempted last, else the first that arrived and was not served yet."""
    numbers = state.numbers
    if numbers[WAITING] > 0:
        return int(state.waiting[numbers[WAITING] - 1])
    if numbers[NEXT] >= 0 and requests.arrival[numbers[NEXT]] <= seen_until:
        return int(numbers[NEXT])
    return -1


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
    if rules.window > 0:
        sums[WINDOW_PAIRS] += pairs_within(start, todo, rules.window)
        sums[WINDOW_READ] += min(start, rules.window)
    if state.joined[i] > 0:
        make_known(requests, rules, state, i, start + todo)


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
        # calls are left out where they would do nothing, since each hands over all arrays
        if not rules.asynchronous and numbers[ENDED] > 0:
            remove_ended(requests, rules, levels, state)
        given_back = take_back(requests, rules, levels, state, seen_until) if numbers[LENT] >= 0 else NEVER
        if continue_running(requests, rules, levels, state):
            admit(requests, rules, levels, state, record, seen_until, now)
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
            continue
        time = step_us(sums, table)
        steps = int(record.totals[STEPS])
        count_step(rules, state, record, now, time)
        before = now
        now += time
        finish_step(requests, state, record, now)
        full = numbers[RUNNING] == rules.most_running
        alike = steps >= len(record.trace) and sums[CHUNKS] == 0 and sums[DECODES] == numbers[RUNNING]
        # two steps at least, as far as this one's time shows: fewer are not worth looking for
        if alike and (full or next_request(requests, state, before + time if rules.asynchronous else now + time) < 0):
            turns = quiet_steps(requests, rules, state)
            if turns > 1:
                before, now = repeat_decodes(requests, rules, table, state, record, before, now, turns, until)
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
        time += table.mixed_us[int(sums[TOKENS]) + table.decode_tokens * decodes]
        for place in range(DECODES):
            time += table.sums_us[place] * sums[place]
    return time


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
    *(keep_last, take_out, reuse, take, take_beside, known_segments, known_own, hold_known, make_known, release),
    *(write_through, keep_in_tier, known_elsewhere, pull, join_pulled, first_ready, take_back),
    *(pairs_within, continue_running, accepted_drafts, preempt_last, admit, run, next_request, enqueue, count_chunk),
    *(quiet_steps, repeat_decodes, step_us, next_event, count_step, remove_ended, finish_step, write_trace, advance),
)
"""The functions that `play` calls, for numba to compile with it."""
