"""Share of a GPU's streaming bandwidth that the kernels of a memory-bound operator reach, where nothing was sampled.

Streaming bandwidth is the stated one times `efficiency.elementwise` of the hardware file, which is what a plain pass such as
a residual addition reaches. The shares that operators declare are, unless they name another source, those of Estimating
training time: "bytes of one tensor over time" in GB/s, forward and backward, on the A100 (of 2039; a residual 0.83) and the
GH200 (of 4000; a residual 0.885), by each operator's own `bytes_moved`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

MEASURED = 0.35
"""Log half-width at 90 % where both GPUs were measured: their shares differ by up to 1.5×, and stacks by 1.35 ± 0.3."""
ONE_STACK = 0.6
"""Log half-width where the two differ by more, or only one was measured."""
BY_ANALOGY = 0.9
"""Log half-width where nothing was measured."""
UNKNOWN = math.log(2.0)
"""Log half-width of an operator that declares nothing: on published tables shares of peak range over 0.3–0.9 about 0.6."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BandwidthShare:
    """Share of streaming bandwidth in forward and backward, and the number of kernels that a phase launches."""

    forward: float = 1.0
    backward: float = 1.0
    width: float = UNKNOWN
    """Half-width of the 90 % interval of the time's logarithm."""
    kernels: int = 1
    by_architecture: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Forward and backward on an architecture whose own samples differ from the rest: another GPU's, or an older kernel's."""

    def share(self, phase: str, architecture: str) -> float:
        forward, backward = self.by_architecture.get(architecture, (self.forward, self.backward))
        return backward if phase.startswith("backward") else forward
