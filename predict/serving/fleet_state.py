"""State between the engines of a fleet, as tuples of arrays, and small questions to it."""

from typing import Any, NamedTuple

from predict.serving.engine_state import DONE, ENDED, Levels, Record, Requests, Rules, State, Table

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
