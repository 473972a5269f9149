"""The named, bounded terms that a user may fit to measured runs, and name when they are to be used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from predict.run.execution import MEMORY_TIME, PRODUCT_TIME
from sampling.files.keys import Key


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
    """Factors on what is predicted without them; 1 changes nothing. Beyond its bounds a term stands for something else than
    its name says."""

    products: Annotated[float, PRODUCT_TIME] = 1.0
    """Time of matrix products and attention: the clocks of a long run."""
    memory_bound: Annotated[float, MEMORY_TIME] = 1.0
    """Time of norms, activations and other passes: glue and fusion."""
    in_node: Annotated[float, Key(minimum=0.25, maximum=1.25)] = 1.0
    """Bandwidth between GPUs of a node."""
    between_nodes: Annotated[float, Key(minimum=0.1, maximum=1.25)] = 1.0
    """Bandwidth between nodes."""
    launch: Annotated[float, Key(minimum=0.6, maximum=1.6)] = 1.0
    """The host's time to launch a layer."""
