"""Many engines under one load: a router, pools for prompts and answers, engines that start, drain and fail.

Each engine is `predict.serving.engine_loop`; here lies only what is between them. Plain functions of numbers and arrays that numba can
compile. Arrays of the engines' states have one row per engine; those of requests belong to all.

Time runs from event to event (an arrival, a prompt that goes on in the other pool, a failure). Before each, every engine is advanced to it.
Where requests that end in one engine are events for others (`Rules.coupled`), the engine that is furthest behind goes first, up to the
next.
"""

from predict.serving.engine_loop import advance
from predict.serving.engine_state import DONE, ENDED, LENT, NEVER, Record, Requests, State
from predict.serving.fleet_routing import ROUTING_HELPERS, route
from predict.serving.fleet_state import (
    ARRIVED,
    COMING,
    FAILED,
    Fleet,
    Simulation,
    come,
    engine_of,
    open_requests,
    tiers_of,
)
from predict.serving.fleet_upkeep import UPKEEP_HELPERS, fail, scale

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
    *ROUTING_HELPERS,
    *UPKEEP_HELPERS,
    *(step, advance_first, hand_on, first_coming, first_lent, is_idle),
)
"""The functions that `play_fleet` calls beyond those of the engine's loop, for numba to compile with it."""
