"""How a run is spread over the ranks, and how its batch is cut."""

from __future__ import annotations

from dataclasses import dataclass

BEST = "best"
"""The schedule that stands for the one with the shortest step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """Degrees of parallelism and the choices that go with them. World size = tp · pp · cp · dp.

    Attention tiles a stage's ranks as tp · cp · dp, its experts as etp · ep · (the rest): parallel folding.
    """

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
    cp_method: str = "ring"
    """How keys and values meet all queries: `ring`, `all_to_all` (of heads) or `all_gather`."""
    ep: int = 1
    """Expert parallel ranks."""
    etp: int = 1
    """Tensor parallel ranks inside an expert."""
    zero: int = 0
    """ZeRO stage: 0 replicates everything, 1 shards the optimizer over dp · cp, 2 the gradients too, 3 the weights too
    (FSDP)."""
    shard: int = 0
    """Ranks that one copy of the sharded state spreads over, the rest of dp · cp being replicas (hybrid sharding); 0 for
    all."""
    schedule: str = "1f1b"
    """Pipeline schedule by its registered name, a file with an order, or `best`."""
    memory_limit: int = 0
    """Most chunk activations a pipeline rank may hold; 0 for no limit."""
    recompute: str = "none"
    """Activation recomputation: none, selective (of `recompute_modules`) or full (whole layers)."""
    recompute_modules: str = "core_attn"
    """What selective recomputation repeats, separated by commas: Megatron's names."""
    recompute_method: str = "uniform"
    """Which layers full recomputation takes: `uniform` all, `block` the first `recompute_layers` of each chunk."""
    recompute_layers: int = 1
    """Layers that `block` recomputes in each chunk."""
    layout: str = ""
    """Layers of each stage: `10,12,12` or Megatron's form `Et*4|(t*4|)*14tmL`; empty for an even split."""
    first_stage_layers: int = 0
    """Layers of the first pipeline rank, 0 for an even share."""
    last_stage_layers: int = 0
    """Layers of the last pipeline rank, 0 for an even share."""
    count_embedding: int = 0
    """Layers as which the embedding counts in the even split (Megatron's account_for_embedding: 1)."""
    count_loss: int = 0
    """Layers as which head and loss count in the even split (Megatron's account_for_loss: 1; GPT-NeoX's three modules: 3)."""

    @property
    def modules_recomputed(self) -> tuple[str, ...]:
        """What a backward repeats of each layer's forward; () where it repeats nothing, or everything."""
        if self.recompute != "selective":
            return ()
        return tuple(name.strip() for name in self.recompute_modules.split(",") if name.strip())


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """`global_` sequences of `seq_len` tokens a step, `micro` of them at a time on each replica."""

    global_: int
    micro: int
    seq_len: int

    def microbatches(self, dp: int) -> int:
        return self.global_ // (self.micro * dp)
