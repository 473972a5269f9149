"""Many engines under one load: a router, pools for prompts and answers, engines that start, drain and fail.

Each engine is `predict.serving.engine_loop`; here lies only what is between them. Plain functions of numbers and arrays that numba can
compile. Arrays of the engines' states have one row per engine; those of requests belong to all.

Time runs from event to event (an arrival, a prompt that goes on in the other pool, a failure). Before each, every engine is advanced to it.
Where requests that end in one engine are events for others (`Rules.coupled`), the engine that is furthest behind goes first, up to the
next.
"""

from typing import Any, NamedTuple

from predict.serving.block_cache import known_segments, take_back, take_out
from predict.serving.engine_loop import advance, enqueue
from predict.serving.engine_state import (
    DONE,
    ENDED,
    ENDS,
    FIRST_NODE,
    FREE,
    LENT,
    NEVER,
    NEXT,
    PULLS,
    RUNNING,
    UNUSED,
    WAITING,
    Levels,
    Record,
    Requests,
    Rules,
    State,
    Table,
)

# State between the engines of a fleet, as tuples of arrays, and small questions to it.

OFF, STARTING, SERVING, DRAINING = range(4)
"""States of an engine."""
ROUND_ROBIN, LEAST_LOAD, POWER_OF_TWO, PREFIX = range(4)
"""Routers: in turn; to the engine with the fewest requests; to the better of two drawn ones; to the one with the least work, where known
tokens of the prompt are none."""


class Policy(NamedTuple):
    """Rules by which engines are chosen, started and stopped."""

    router: int
    requests: int
    """Requests of the load; those beyond are what the pool for answers makes of them."""
    external: int
    """The first of them, which arrive by themselves; the others follow on one that has ended."""
    in_flight: int
    """Requests of a closed loop; 0 for an open one."""
    at_least: int
    """Engines that serve at any time."""
    target: float
    """Requests per engine above which another one is started; 0 for engines that all serve all the time."""
    check_us: float
    """Time between two looks at the load."""
    start_us: float
    """Time that an engine takes to start."""


class Fleet(NamedTuple):
    """The engines between events."""

    pool: Any
    """Pool of each engine: 0 gets what arrives, 1 the answers of prompts that 0 has computed."""
    status: Any
    """OFF, STARTING, SERVING or DRAINING."""
    ready: Any
    """µs at which each serves."""
    since: Any
    """µs at which each was started last."""
    up_us: Any
    """µs for which each was up before that."""
    given: Any
    """Requests that each got."""
    seen: Any
    """Requests that ended in each and were taken note of."""
    engine: Any
    """Engine of each request, or −1."""
    first_arrival: Any
    """µs at which each request came first; −1 before."""
    expected: Any
    """Tokens that the router expects each request to compute of its prompt."""
    coming: Any
    """Requests that come from elsewhere than the load; NUMBERS[COMING] of them count."""
    draws: Any
    """Numbers from 0 to 1, one after the other."""
    after: Any
    """The next turn of each request's conversation, or −1."""
    pause: Any
    """µs from the end of a request to that turn."""
    failures: Any
    """µs at which an engine fails, ascending."""
    numbers: Any
    """See COMING and on."""


COMING, ARRIVED, TURN, DRAWN, FAILED, LOST, STARTED, MOST_UP, FLEET_NUMBERS = range(9)
"""Places in Fleet.numbers: requests that come from elsewhere, requests of the load that arrived, turns of the router, numbers drawn,
failures so far, requests that these interrupted, starts, most engines up at once."""


class Simulation(NamedTuple):
    """All that the loop over events reads and writes."""

    requests: Requests
    rules: tuple[Rules, Rules]
    """Of each pool."""
    levels: Levels
    """A row per engine."""
    tables: tuple[Table, Table]
    """Of each pool."""
    state: State
    """Arrays of engines have a row per engine; those of requests belong to all."""
    record: Record
    fleet: Fleet
    policy: Policy


def engine_of(state: State, r: int) -> State:
    """The state of one engine."""
    return State(
        state.computed,
        state.made,
        state.held,
        state.base,
        state.room,
        state.drafted,
        state.joined,
        state.builds,
        state.following,
        state.running[r],
        state.chunk[r],
        state.waiting[r],
        state.pulling[r],
        state.ended[r],
        state.ready,
        state.source,
        state.began,
        state.wanted[r],
        state.links[r],
        state.sending,
        state.holders,
        state.kept,
        state.earlier,
        state.later,
        state.clock[r],
        state.numbers[r],
        state.sums[r],
    )


def tiers_of(levels: Levels, r: int) -> Levels:
    """The tiers of one engine."""
    return Levels(
        levels.token_us[r],
        levels.start_us[r],
        levels.first_node[r],
        levels.own_nodes[r],
        levels.ends[r],
        levels.capacity[r],
    )


def come(requests: Requests, fleet: Fleet, i: int, at: float) -> None:
    """Let a request come at a time."""
    requests.arrival[i] = at
    fleet.coming[fleet.numbers[COMING]] = i
    fleet.numbers[COMING] += 1


def open_requests(state: State, fleet: Fleet, r: int, now: float) -> int:
    """Requests that an engine has and has not answered; steps are worked out at their start."""
    running = state.numbers[r][ENDED] if state.clock[r][1] > now else 0
    return int(fleet.given[r] - state.numbers[r][DONE] + running)


# The router of a fleet: the engine that a request is given to.


def route(whole: Simulation, i: int, pool: int, now: float) -> None:
    """Give a request to an engine of a pool; where none serves, to the one that starts first."""
    requests, rules, state, fleet = whole.requests, whole.rules, whole.state, whole.fleet
    r = chosen_engine(whole, i, pool, now)
    own = engine_of(state, r)
    found = known_segments(requests, rules[pool], own, i)[0] * rules[pool].block
    fleet.engine[i] = r
    if fleet.first_arrival[i] < 0:
        fleet.first_arrival[i] = now
    fleet.expected[i] = max(0, requests.prompt[i] - found) if pool == 0 else 0
    fleet.given[r] += 1
    enqueue(own, i)
    own.clock[2] = min(own.clock[2], max(now, own.clock[1]))


def chosen_engine(whole: Simulation, i: int, pool: int, now: float) -> int:
    """The engine of a pool that the router gives a request to."""
    fleet, policy = whole.fleet, whole.policy
    best, least = -1, NEVER
    first, serving = -1, 0
    for r in range(len(fleet.pool)):
        if fleet.pool[r] != pool:
            continue
        if fleet.status[r] == STARTING and fleet.ready[r] <= now:
            fleet.status[r] = SERVING
        if fleet.status[r] == STARTING and (first < 0 or fleet.ready[r] < fleet.ready[first]):
            first = r
        serving += fleet.status[r] == SERVING
    if serving == 0:
        return first
    drawn = one_of(fleet, serving), one_of(fleet, serving) if policy.router == POWER_OF_TWO else -1
    turn, place = fleet.numbers[TURN] % serving, -1
    fleet.numbers[TURN] += policy.router == ROUND_ROBIN
    for r in range(len(fleet.pool)):
        if fleet.pool[r] != pool or fleet.status[r] != SERVING:
            continue
        place += 1
        if policy.router == ROUND_ROBIN and place != turn:
            continue
        if policy.router == POWER_OF_TWO and place != drawn[0] and place != drawn[1]:
            continue
        cost = load_of(whole, i, r, now)
        if cost < least:
            best, least = r, cost
    return best


def one_of(fleet: Fleet, count: int) -> int:
    """A place among so many, drawn."""
    fleet.numbers[DRAWN] += 1
    return int(fleet.draws[fleet.numbers[DRAWN] % len(fleet.draws)] * count)


def load_of(whole: Simulation, i: int, r: int, now: float) -> float:
    """The load of an engine: its requests, or by the prefix-aware router tokens, those of prompts that it has yet to compute, of this one's
    that it does not know, and those that its requests hold (the cost of Dynamo's KV router: blocks to prefill plus active ones)."""
    requests, rules, state, fleet, policy = whole.requests, whole.rules, whole.state, whole.fleet, whole.policy
    pool = fleet.pool[r]
    if policy.router != PREFIX or pool == 1:
        return float(open_requests(state, fleet, r, now))
    own = engine_of(state, r)
    found = known_segments(requests, rules[pool], own, i)[0] * rules[pool].block
    held = (rules[pool].blocks - own.numbers[FREE]) * rules[pool].block
    return float(waiting_tokens(state, fleet, r) + requests.prompt[i] - found + held)


def waiting_tokens(state: State, fleet: Fleet, r: int) -> int:
    """Tokens of prompts that an engine's queue has yet to compute, as the router expected them."""
    tokens, i = 0, state.numbers[r][NEXT]
    while i >= 0:
        tokens += fleet.expected[i]
        i = state.following[i]
    return tokens


# Engines of a fleet that start, drain and fail.


def scale(whole: Simulation, now: float) -> None:
    """Start an engine where those that serve have more requests than the target, let one drain where one fewer would do."""
    state, fleet, policy = whole.state, whole.fleet, whole.policy
    waiting = up = 0
    for r in range(len(fleet.pool)):
        left = open_requests(state, fleet, r, now)
        waiting += left
        if fleet.status[r] == STARTING and fleet.ready[r] <= now:
            fleet.status[r] = SERVING
        if fleet.status[r] == DRAINING and left == 0:
            fleet.status[r] = OFF
            fleet.up_us[r] += now - fleet.since[r]
        up += fleet.status[r] == STARTING or fleet.status[r] == SERVING
    wanted = max(policy.at_least, min(len(fleet.pool), int(-(-waiting // policy.target))))
    for r in range(len(fleet.pool)):
        if up < wanted and fleet.status[r] == DRAINING:
            fleet.status[r] = SERVING
            up += 1
        if up < wanted and fleet.status[r] == OFF:
            start(whole, r, now)
            up += 1
    fleet.numbers[MOST_UP] = max(fleet.numbers[MOST_UP], up)
    for r in range(len(fleet.pool) - 1, -1, -1):
        # the rest of the engines would still have room for a tenth more
        if up > wanted and fleet.status[r] == SERVING and waiting < 0.9 * policy.target * (up - 1):
            fleet.status[r] = DRAINING
            return


def start(whole: Simulation, r: int, now: float) -> None:
    """Start an engine, which serves once it is ready."""
    state, fleet, policy = whole.state, whole.fleet, whole.policy
    fleet.status[r] = STARTING
    fleet.since[r] = now
    fleet.ready[r] = now + policy.start_us
    fleet.numbers[STARTED] += 1
    state.clock[r][0] = state.clock[r][1] = fleet.ready[r]
    state.clock[r][2] = NEVER


def fail(whole: Simulation, now: float) -> None:
    """Let the next engine in turn that serves fail, with its cache and own tiers; its requests are sent again, and it starts anew."""
    requests, rules, levels = whole.requests, whole.rules, whole.levels
    state, fleet, policy = whole.state, whole.fleet, whole.policy
    count, numbers = len(fleet.pool), fleet.numbers
    numbers[FAILED] += 1
    for turn in range(count):
        r = (numbers[FAILED] - 1 + turn) % count
        if fleet.status[r] == SERVING:
            break
    else:
        return
    own = engine_of(state, r)
    for place in range(own.numbers[RUNNING]):
        if own.made[own.running[place]] < requests.output[own.running[place]]:
            send_again(whole, own.running[place], now)
    for place in range(own.numbers[WAITING]):
        send_again(whole, own.waiting[place], now)
    for place in range(own.numbers[PULLS]):
        send_again(whole, own.pulling[place], now)
    i = own.numbers[NEXT]
    while i >= 0:
        after = own.following[i]
        send_again(whole, i, now)
        i = after
    for j in range(policy.requests, len(requests.arrival)):
        if state.source[j] == r:
            state.source[j] = -1  # its prompt is computed again where its answer is made
    empty(requests, rules[fleet.pool[r]], levels, own, r)
    fleet.given[r] = own.numbers[DONE]
    fleet.up_us[r] += now - fleet.since[r]
    start(whole, r, now)


def send_again(whole: Simulation, i: int, now: float) -> None:
    """Let a request come anew. Of a pool for answers: where its keys and values still are, or else to the pool that computes its prompt."""
    requests, rules, levels, state, fleet = whole.requests, whole.rules, whole.levels, whole.state, whole.fleet
    fleet.numbers[LOST] += 1
    forget_request(state, i, state.source[i])
    distance = rules[0].distance
    if state.source[i] < 0 and distance > 0 and i >= distance:
        i -= distance
        source = fleet.engine[i]
        # the blocks from which it was sent may not have been freed yet
        state.ready[i] = -1.0
        take_back(requests, rules[0], tiers_of(levels, source), engine_of(state, source), 0.0)
        forget_request(state, i, -1)
    come(requests, fleet, i, now)


def forget_request(state: State, i: int, source: int) -> None:
    """Let nothing of a request be computed, but what an engine of another pool holds."""
    state.made[i] = state.computed[i] = state.held[i] = state.joined[i] = state.base[i] = 0
    state.source[i] = source
    state.ready[i] = NEVER


def empty(requests: Requests, rules: Rules, levels: Levels, own: State, r: int) -> None:
    """Forget all that an engine holds."""
    numbers = own.numbers
    numbers[RUNNING] = numbers[WAITING] = numbers[PULLS] = numbers[ENDED] = 0
    numbers[NEXT] = numbers[LENT] = -1
    numbers[FREE] = numbers[UNUSED] = rules.blocks
    forget(own, numbers[ENDS])
    for node in range(numbers[FIRST_NODE], numbers[FIRST_NODE] + len(requests.segment_size)):
        own.kept[node] = own.holders[node] = 0
    for level in range(1, len(levels.ends[r])):
        if levels.ends[r][level] == levels.ends[r - 1][level] and len(levels.ends) > 1:
            continue  # all engines have it
        forget(own, levels.ends[r][level])
        own.kept[levels.ends[r][level]] = 0


def forget(own: State, ends: int) -> None:
    """Empty an order of reuse."""
    while own.later[ends] != ends:
        node = own.later[ends]
        own.kept[node] = 0
        take_out(own, node)


# Time from event to event.

LEAST_US = 1.0
"""Engines that are no further apart than this are advanced as if at once."""


def play_fleet(whole: Simulation) -> float:
    """Serve all requests; the time at which the last event was over."""
    requests, rules, state, fleet, policy = whole.requests, whole.rules, whole.state, whole.fleet, whole.policy
    count, check, now = len(fleet.pool), policy.check_us, 0.0
    place, looked_at = -1, 0
    while True:
        arrived = fleet.numbers[ARRIVED]
        arrival = requests.arrival[arrived] if arrived < policy.external else NEVER
        place = first_coming(requests, fleet, place, looked_at)
        looked_at = fleet.numbers[COMING]
        comes = requests.arrival[fleet.coming[place]] if place >= 0 else NEVER
        failed = fleet.numbers[FAILED]
        fails = fleet.failures[failed] if failed < len(fleet.failures) else NEVER
        event = min(arrival, comes)
        if policy.target > 0:
            event = min(event, check)
        event = min(event, fails)
        if rules[0].coupled:
            if advance_first(whole, event):
                continue
        else:
            for r in range(count):
                if state.clock[r][2] < event:
                    step(whole, r, event)
        if min(arrival, comes) >= NEVER and is_idle(state):
            return now
        now = event
        if event == fails:
            fail(whole, now)
        elif event == arrival:
            fleet.numbers[ARRIVED] += 1
            route(whole, arrived, 0, now)
        elif event == comes:
            i = fleet.coming[place]
            fleet.numbers[COMING] -= 1
            fleet.coming[place] = fleet.coming[fleet.numbers[COMING]]
            place, looked_at = -1, 0
            route(whole, i, 1 if i >= policy.requests else 0, now)
        else:
            check += policy.check_us
            scale(whole, now)


def step(whole: Simulation, r: int, until: float) -> None:
    """Advance one engine."""
    requests, rules, levels, tables = whole.requests, whole.rules, whole.levels, whole.tables
    state, record, fleet = whole.state, whole.record, whole.fleet
    own = Record(
        record.start_us, record.first_us, record.last_us, record.found, record.trace[r], record.totals[r], record.gaps
    )
    pool = fleet.pool[r]
    advance(requests, rules[pool], tiers_of(levels, r), tables[pool], engine_of(state, r), own, until)


def advance_first(whole: Simulation, event: float) -> bool:
    """Advance the engine that is furthest behind, up to the next one or the event; whether any was behind the event."""
    state, fleet = whole.state, whole.fleet
    first, least, second = -1, NEVER, NEVER
    for r in range(len(fleet.pool)):
        wake = state.clock[r][2]
        if wake >= NEVER and state.numbers[r][LENT] >= 0:
            wake = state.clock[r][2] = first_lent(state, r)
        if wake < least:
            first, second, least = r, least, wake
        elif wake < second:
            second = wake
    if least >= event or first < 0:
        return False
    step(whole, first, min(event, max(second, least + LEAST_US)))
    if state.numbers[first][DONE] > fleet.seen[first]:
        hand_on(whole, first)
    return True


def hand_on(whole: Simulation, r: int) -> None:
    """Let what ended in an engine's last step go on in the other pool, or make room for the next request of a closed loop."""
    requests, rules, state = whole.requests, whole.rules, whole.state
    record, fleet, policy = whole.record, whole.fleet, whole.policy
    numbers, own = fleet.numbers, rules[fleet.pool[r]]
    now = state.clock[r][1]
    fleet.seen[r] = state.numbers[r][DONE]
    for place in range(state.numbers[r][ENDED]):
        i = state.ended[r][place]
        of_load = i % policy.requests
        if own.hands_on:
            after = i + own.distance
            state.source[after], state.began[after] = r, record.start_us[i]
            come(requests, fleet, after, now)
        elif fleet.after[of_load] >= 0:
            come(requests, fleet, fleet.after[of_load], now + fleet.pause[of_load])
        elif policy.in_flight > 0 and numbers[ARRIVED] < policy.external:
            come(requests, fleet, numbers[ARRIVED], now)
            numbers[ARRIVED] += 1


def first_coming(requests: Requests, fleet: Fleet, found: int, looked_at: int) -> int:
    """Place of the request that comes first from elsewhere, or −1; `found` is that of the `looked_at` first places.

    Most turns of a loop add no request: each would look at all the conversations that pause."""
    least = requests.arrival[fleet.coming[found]] if found >= 0 else NEVER
    for place in range(looked_at, fleet.numbers[COMING]):
        arrival = requests.arrival[fleet.coming[place]]
        if arrival < least:
            found, least = place, arrival
    return found


def first_lent(state: State, r: int) -> float:
    """µs at which the first of the blocks that an engine keeps for another pool are free, as far as it is known."""
    least, i = NEVER, state.numbers[r][LENT]
    while i >= 0:
        least = min(least, state.ready[i])
        i = state.following[i]
    return least


def is_idle(state: State) -> bool:
    """Whether no engine has anything to do."""
    least = NEVER
    for r in range(len(state.clock)):
        least = min(least, state.clock[r][2])
    return least >= NEVER


FLEET_HELPERS = (
    *(engine_of, tiers_of, come, open_requests),
    *(route, chosen_engine, one_of, load_of, waiting_tokens),
    *(scale, start, fail, send_again, forget_request, empty, forget),
    *(step, advance_first, hand_on, first_coming, first_lent, is_idle),
)
"""The functions that `play_fleet` calls beyond those of the engine's loop, for numba to compile with it."""
