"""Recorded requests played at another rate, or in a closed loop: lengths and prompts stay together, in the recorded order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from predict.serving.scheduler.traffic import Traffic, cut_short
from sampling.units import SECOND_US


def at_rate_of(recorded: Traffic, rate: float) -> Traffic:
    """The requests at so many per second: the gaps between them are stretched alike, or even where all arrive at once."""
    own = recorded.rate
    arrival_us = recorded.arrival_us * (own / rate) if own else np.arange(len(recorded)) / rate * SECOND_US
    return replace(recorded, arrival_us=arrival_us)


def played_again(recorded: Traffic, count: int) -> Traffic:
    """`count` requests or a few more: the recorded ones over and over, a mean gap between their rounds. A prompt that several of them have recurs
    in each round; one that a single request has is new each time."""
    rounds = -(-count // len(recorded))
    if rounds <= 1:
        return recorded
    round_us = len(recorded) / recorded.rate * SECOND_US if recorded.rate else 0.0
    known = recorded.group >= 0
    several = np.zeros(len(recorded), dtype=bool)
    several[known] = np.bincount(recorded.group[known])[recorded.group[known]] > 1
    return Traffic(
        arrival_us=(recorded.arrival_us + round_us * np.arange(rounds)[:, None]).ravel(),
        prompt=np.tile(recorded.prompt, rounds),
        output=np.tile(recorded.output, rounds),
        shared=np.tile(np.where(several, recorded.shared, 0), rounds),
        group=np.tile(np.where(several, recorded.group, -1), rounds),
    )


def in_closed_loop(recorded: Traffic, in_flight: int, count: int) -> Traffic:
    """`count` recorded requests or a few more, `in_flight` of them at any time."""
    again = played_again(recorded, count)
    arrival_us = np.zeros(len(again))
    return replace(again, arrival_us=arrival_us, output=cut_short(again.output, in_flight), in_flight=in_flight)
