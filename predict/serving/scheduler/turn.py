"""Requests that the engine's next step serves: the running ones, then those that wait. Part of the engine's loop (loop.py)."""

from __future__ import annotations

from predict.serving.batch import pairs_within
from predict.serving.scheduler.blocks import join_group, release, take, take_beside
from predict.serving.scheduler.state import (
    BUDGET,
    CHUNKS,
    CONTEXT,
    DECODES,
    FREE,
    NEXT,
    PAIRS,
    PREEMPTED,
    READ,
    RUNNING,
    TAKEN,
    TOKENS,
    WAITING,
    WINDOW_PAIRS,
    WINDOW_READ,
    Record,
    Requests,
    Rules,
    State,
)


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


HELPERS = (pairs_within, continue_running, preempt_last, admit, next_request, count_chunk)
"""The functions that `play` calls, for numba to compile with it."""
