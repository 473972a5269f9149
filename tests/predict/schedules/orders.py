"""Orders compared action by action."""

import numpy as np

from predict.schedules.engine.order import Order


def same(one: Order, other: Order) -> bool:
    equal = (np.array_equal(mine, theirs) for mine, theirs in zip(one.rows, other.rows, strict=True))
    return all(equal) and one.placement == other.placement and one.microbatches == other.microbatches
