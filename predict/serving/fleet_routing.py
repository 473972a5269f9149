"""The router of a fleet: the engine that a request is given to."""

from predict.serving.block_cache import known_segments
from predict.serving.engine_loop import enqueue
from predict.serving.engine_state import FREE, NEVER, NEXT, State
from predict.serving.fleet_state import (
    DRAWN,
    POWER_OF_TWO,
    PREFIX,
    ROUND_ROBIN,
    SERVING,
    STARTING,
    TURN,
    Fleet,
    Simulation,
    engine_of,
    open_requests,
)


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


ROUTING_HELPERS = (route, chosen_engine, one_of, load_of, waiting_tokens)
"""The functions of this module, for numba to compile."""
