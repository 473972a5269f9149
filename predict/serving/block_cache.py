"""Blocks of an engine's cache, and keys and values elsewhere: plain functions of numbers and arrays that numba can compile.

Blocks that nobody holds are reused in the order in which they were freed, as vLLM's free queue has them (vllm/v1/core/block_pool.py):
a request frees its last ones first, so that of a tree of prompts the leaves are forgotten before what they stand on.
"""

from predict.serving.engine_state import (
    ENDS,
    FIRST_NODE,
    FREE,
    LENT,
    NEVER,
    PULLED,
    PULLS,
    UNUSED,
    Levels,
    Record,
    Requests,
    Rules,
    State,
)

# Blocks that requests hold, of their own and with others.


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


BLOCK_HELPERS = (
    *(keep_last, take_out, reuse, take, take_beside, known_segments, known_own, hold_known, make_known, release),
    *(write_through, keep_in_tier, known_elsewhere, pull, first_ready, take_back),
)
"""The functions of this module that the engine's loop calls, for numba to compile with it."""
