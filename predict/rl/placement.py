"""Trainer and engines over a step: in turn, or side by side as far as samples may be of older weights.

When a step begins, the trainer finds as many samples as the engines may be ahead; the others come as the engines make them. It is done
no sooner than they have made the last of them and it has trained on its last fetch, and no sooner than its own time after the first
fetch; the engines, which go on with the samples of the next step meanwhile, need a whole generation per step. Without samples ahead
and with one fetch, generation and training follow one another; with a step ahead, the step is the longer of the two (the modes that verl's page on fully asynchronous
training describes are its cases).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

import numpy as np

from predict.interval import Interval, longer, sum_of_phases
from predict.rl.run.section import RlSection
from predict.serving.batch import Floats


def until_both_are_done(section: RlSection, generating: Interval, training: Interval) -> Interval:
    """The time of a step without the sync of the weights."""
    ways = (
        sum_of_phases([generating.scaled(generated), training.scaled(trained)]) for generated, trained in _ways(section)
    )
    return reduce(longer, ways)


def both_done_us(section: RlSection, generating_us: Floats, training_us: Floats) -> Floats:
    """The same of many times at once."""
    ways = [generated * generating_us + trained * training_us for generated, trained in _ways(section)]
    longest: Floats = reduce(np.maximum, ways)
    return longest


def _ways(section: RlSection) -> Iterator[tuple[float, float]]:
    """Shares of generation and training that follow each other: the step waits for the longest of these."""
    fetch = 1 / section.fetches
    yield 1.0, 0.0
    yield max(0.0, 1 - section.ahead), fetch
    yield max(0.0, fetch - section.ahead), 1.0
