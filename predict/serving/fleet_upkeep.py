"""Engines of a fleet that start, drain and fail."""

from predict.serving.block_cache import take_back, take_out
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
    Requests,
    Rules,
    State,
)
from predict.serving.fleet_state import (
    DRAINING,
    FAILED,
    LOST,
    MOST_UP,
    OFF,
    SERVING,
    STARTED,
    STARTING,
    Simulation,
    come,
    engine_of,
    open_requests,
    tiers_of,
)


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


UPKEEP_HELPERS = (scale, start, fail, send_again, forget_request, empty, forget)
"""The functions of this module, for numba to compile."""
