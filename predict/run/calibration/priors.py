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
not halved: they range from one card of 1.2 GB/s per node to one of 50 GB/s per GPU."""
NETWORK = "between_nodes"
NETWORKS: Mapping[float, float] = {0.36: 0.8, PRIORS[NETWORK]: 0.2}
"""Standard deviation of a network as its hardware file states it, which is that of collectives between nodes that nobody sampled, and
of another one → the share of clusters that have it. Shares are assumed."""
FASTER = 0.136
"""The same below 0, where it cannot be as far off: 0.8 of the bandwidth that the file states is taken, and 90 % lie below all of it."""
COMMON = 0.03
"""Standard deviation that the device's own terms share: a board or a stack that is slow is slow in all its kernels. Assumed."""
NINETY = 1.645
"""Standard deviations of a Gaussian on either side of its median that hold 90 % of it."""
SHARING = ("products", "memory_bound", "launch")
OF_THE_MACHINE = (*SHARING, "in_node")
"""Terms of what a node runs, messages inside it too: where nothing like it was measured, all of them may be off."""
MACHINE_SHARED = 0.5
"""Share of the variance of a machine's error which these terms have in common: its clock moves all of them; vector units move
products alone, memory channels the passes. Assumed."""


@cache
def prior_covariance(machine_error: float = 0.0) -> NDArray[np.float64]:
    """Covariance of the terms' logarithms, in their order; `machine_error` is the half-width at 90 % that all steps of a machine
    share, since their times are of another CPU, or nothing was published of its architecture."""
    common = np.array([COMMON if name in SHARING else 0.0 for name in TERMS])
    moved = np.array([machine_error / NINETY if name in OF_THE_MACHINE else 0.0 for name in TERMS])
    found: NDArray[np.float64] = np.diag([PRIORS[name] ** 2 for name in TERMS]) + np.outer(common, common)
    found += MACHINE_SHARED * np.outer(moved, moved) + (1 - MACHINE_SHARED) * np.diag(moved**2)
    found.setflags(write=False)
    return found


def prior_at(logs: NDArray[np.float64], machine_error: float, network: float) -> NDArray[np.float64]:
    """`prior_covariance` on the side of 0 on which the terms' logarithms are, with a network of that standard deviation."""
    found = prior_covariance(machine_error).copy()
    place = TERMS.index(NETWORK)
    found[place, place] = (FASTER if logs[place] < 0 else network) ** 2
    return found


def prior_deviations(machine_error: float = 0.0) -> NDArray[np.float64]:
    """Standard deviations of the terms' logarithms, in their order."""
    found: NDArray[np.float64] = np.sqrt(prior_covariance(machine_error).diagonal())
    return found
