"""Blocks of the cache that requests hold, of their own and with others: part of the engine's loop (loop.py).

Blocks that nobody holds are reused in the order in which they were freed: a shared prompt is forgotten once as many blocks have
been taken as were free when its last request ended.
"""

from __future__ import annotations

from predict.serving.scheduler.state import FREE, TAKEN, Requests, Rules, State


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


HELPERS = (join_group, take, take_beside, release)
"""The functions that `play` calls, for numba to compile with it."""
