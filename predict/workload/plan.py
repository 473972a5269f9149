"""How a run is spread over the ranks, and how its batch is cut."""

from __future__ import annotations

from dataclasses import dataclass

BEST = "best"
"""The schedule that stands for the one with the shortest step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """Degrees of parallelism and the choices that go with them. World size = tp · pp · cp · dp."""

    tp: int = 1
    """Tensor parallel ranks: each holds 1/tp of attention, MLP and vocabulary."""
    sp: bool = False
    """Sequence parallelism: norms and residuals keep 1/tp of the sequence; needs tp > 1."""
    pp: int = 1
    """Pipeline stages."""
    vpp: int = 1
    """Virtual chunks a pipeline rank."""
    dp: int = 1
    """Data parallel replicas."""
    cp: int = 1
    """Context parallel ranks: each holds 1/cp of the sequence in attention too."""
    ep: int = 1
    """Expert parallel ranks."""
    etp: int = 1
    """Tensor parallel ranks inside an expert."""
    zero: int = 0
    """ZeRO stage: 0 replicates everything, 1 shards the optimizer over dp."""
    schedule: str = "1f1b"
    """Pipeline schedule by its registered name, a file with an order, or `best`."""
    memory_limit: int = 0
    """Most chunk activations a pipeline rank may hold; 0 for no limit."""
    recompute: str = "none"
    """Activation recomputation: none or full."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """`global_` sequences of `seq_len` tokens a step, `micro` of them at a time on each replica."""

    global_: int
    micro: int
    seq_len: int

    def microbatches(self, dp: int) -> int:
        return self.global_ // (self.micro * dp)
