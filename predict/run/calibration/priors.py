"""Priors of a calibration's terms: what is known of a cluster before any run of it was measured."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
from numpy.typing import NDArray

from predict.run.calibration.terms import TERMS

PRIORS: Mapping[str, float] = {
    "products": 0.03,
    "memory_bound": 0.1,
    "in_node": 0.12,
    "between_nodes": 1.0,
    "launch": 0.08,
    "stragglers": 0.25,
    "exposed": 0.15,
}
"""Standard deviation of each term's logarithm about 0: half of what clusters that nobody described spread by, since few runs also differ
for reasons that no term names (on published sources, the full widths lead three runs astray more often). Products of a long run
over a short one 1.12 ± 0.05; eager over fused passes 1.35 ± 0.3; bus bandwidth of nodes with GPUs of one name, a quarter; launching a
layer 1.0 to 1.3 ms in one software stack; waiting 0.3 to 1 % a doubling of the ranks (STRAGGLERS); `exposed` is assumed. Networks are
not halved: they range from one card of 1.2 GB/s a node to one of 50 GB/s a GPU."""
COMMON = 0.03
"""Standard deviation that the device's own terms share: a board or a stack that is slow is slow in all its kernels. Assumed."""
NINETY = 1.645
"""Standard deviations of a Gaussian on either side of its median that hold 90 % of it."""
SHARING = ("products", "memory_bound", "launch")
TRANSFERRED = (*SHARING, "in_node")
"""Terms of what runs on the cores of a CPU, messages between processes too, whose times may be another CPU's."""
TRANSFER_SHARED = 0.5
"""Share of the variance that another CPU's rows add which these terms have in common: its clock moves all of them; vector units move
products alone, memory channels the passes. Assumed."""


@cache
def prior_covariance(transfer_error: float = 0.0) -> NDArray[np.float64]:
    """Covariance of the terms' logarithms, in their order; `transfer_error` is the half-width at 90 % that rows of another CPU add to
    a step, which all runs of a machine share."""
    common = np.array([COMMON if name in SHARING else 0.0 for name in TERMS])
    moved = np.array([transfer_error / NINETY if name in TRANSFERRED else 0.0 for name in TERMS])
    found: NDArray[np.float64] = np.diag([PRIORS[name] ** 2 for name in TERMS]) + np.outer(common, common)
    found += TRANSFER_SHARED * np.outer(moved, moved) + (1 - TRANSFER_SHARED) * np.diag(moved**2)
    found.setflags(write=False)
    return found


def prior_deviations(transfer_error: float = 0.0) -> NDArray[np.float64]:
    """Standard deviations of the terms' logarithms, in their order."""
    found: NDArray[np.float64] = np.sqrt(prior_covariance(transfer_error).diagonal())
    return found
