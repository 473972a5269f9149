"""Errors of analytic kernel times on a public table."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from predict.prices.kernels import operator_us
from sampling.arithmetic.operator import Operator
from sampling.call import Phase
from sampling.hardware.cluster import Gpu


def errors(rows: pd.DataFrame, call: Callable[[Any], Operator], phase: Phase, gpu: Gpu) -> tuple[float, float, float]:
    """Median absolute and median log error, and the share of rows within the 90 % interval."""
    rows = rows.sample(min(len(rows), 1000), random_state=0)
    priors = [operator_us(call(row), phase, gpu) for row in rows.itertuples()]
    off = np.log([median_us for median_us, _ in priors]) - np.log(rows.time_us.to_numpy())
    within = float(np.mean(np.abs(off) < np.array([width for _, width in priors])))
    return float(np.median(np.abs(off))), float(np.median(off)), within
