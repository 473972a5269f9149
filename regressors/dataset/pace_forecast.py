"""A forecast of the pace: how far it lies from the reference pace at a later moment, by the paces that the sessions saw.

The logarithm of the pace is taken for a level with a wander about it that forgets (an Ornstein-Uhlenbeck process), read with noise.
Neither the size of the wander nor its memory is known: a quiet session may be a calm machine or the calm of a slow one. The forecast
weighs all of them by how well they explain the moments that were read (a Gaussian process, its settings integrated over a grid: Rasmussen
and Williams, Gaussian Processes for Machine Learning, 2006, chapter 5), so that it is wide only where the readings leave room.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np

from regressors.features.arrays import Floats

COVERAGE = 0.9
LATER_S = 3600.0
"""Seconds after the last reading for which the pace is forecast."""
MOST = math.log(2)
"""Largest half-width: no machine that is of use halves its pace."""
DEVIATIONS = np.geomspace(0.001, 0.2, 12)
"""Standard deviations of the wander, in log: from a machine at rest to one whose pace changes by half."""
USUAL_DEVIATION = 0.16
"""Below it, all are equally likely before a reading; above it, the less the larger, as a normal falls. Twice the wander of cloud machines
that changed by 30 % within the hour, set by simulated paths of that wander (40 each): after 150 s of a memory of 40, 180 and 600 s, 95, 75
and 68 % of later moments lie within the half-width, after 900 s of 180 and 600 s 98 and 85 %; at half the value 60 % for 180 s in 150 s."""
MEMORIES_S = np.geomspace(5, 1800, 8)
"""Seconds after which a pace is forgotten: from bursts of load to neighbours that stay for an hour. Equally likely before a reading."""
NOISES = np.geomspace(0.001, 0.1, 7)
"""Standard deviations of the noise of a moment's reading, in log. Equally likely before a reading."""
LEVEL_DEVIATION = 1.0
"""Standard deviation of the level about the reference pace, in log: hardly a bound."""
MOST_MOMENTS = 200
"""Moments that the forecast is made from; longer sessions are thinned evenly to as many."""


def half_width(at_s: Floats, log_pace: Floats) -> float:
    """Half-width in log, at 90 %, of the pace LATER_S after the last of the moments `at_s` [moments] about the reference pace, of which
    `log_pace` [moments] are the logarithms of the shares then."""
    if len(at_s) > MOST_MOMENTS:
        kept = np.linspace(0, len(at_s) - 1, MOST_MOMENTS).round().astype(int)
        at_s, log_pace = at_s[kept], log_pace[kept]
    apart = np.abs(at_s[:, None] - at_s[None, :])
    later = at_s.max() + LATER_S - at_s
    weights, means, deviations = [], [], []
    for memory_s in MEMORIES_S:
        kept_wander, kept_later = np.exp(-apart / memory_s), np.exp(-later / memory_s)
        for deviation, noise in product(DEVIATIONS, NOISES):
            common = deviation**2 * kept_wander + LEVEL_DEVIATION**2
            root = np.linalg.cholesky(common + noise**2 * np.eye(len(at_s)))
            whitened = np.linalg.solve(
                root, np.column_stack([log_pace, deviation**2 * kept_later + LEVEL_DEVIATION**2])
            )
            paces, crossed = whitened.T
            weights.append(
                -float(paces @ paces) / 2 - float(np.log(np.diag(root)).sum()) - (deviation / USUAL_DEVIATION) ** 2 / 2
            )
            means.append(float(crossed @ paces))
            deviations.append(math.sqrt(max(deviation**2 + LEVEL_DEVIATION**2 - float(crossed @ crossed), 1e-12)))
    likelihoods = np.exp(np.array(weights) - max(weights))
    return min(MOST, _reach(likelihoods / likelihoods.sum(), np.array(means), np.array(deviations)))


def _reach(weights: Floats, means: Floats, deviations: Floats) -> float:
    """The distance from 0 within which a mixture of normals has COVERAGE of its weight."""
    from scipy.special import ndtr

    low, high = 0.0, MOST
    for _ in range(30):
        middle = (low + high) / 2
        within = float(weights @ (ndtr((middle - means) / deviations) - ndtr((-middle - means) / deviations)))
        low, high = (middle, high) if within < COVERAGE else (low, middle)
    return high
