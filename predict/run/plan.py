"""The plan of a run: how it is spread over the ranks, and how its batch is divided."""

from dataclasses import dataclass
from typing import Annotated

from predict.run.lengths import FORMS, OPTIONAL_PATTERN, PACKED, PADDED, SORTED
from predict.schedules.building import MOST_CHUNKS, MOST_RANKS
from sampling.errors import ConfigError
from sampling.files.schema import Key, one_of

BEST = "best"
"""Stands for the schedule with the shortest step."""
AUTO = "auto"
"""Stands for the value of a key with the shortest step that fits."""
RECOMPUTABLE = ("core_attn", "layernorm", "mla_up_proj", "mlp", "moe", "moe_act", "shared_experts")
"""Names of Megatron's `recompute_modules`."""
MOST_TOKENS = 2**27
"""Tokens of the longest sequence: ten times the longest contexts that models state (10 million)."""
_MODULE = f"({'|'.join(RECOMPUTABLE)})"


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """Degrees of parallelism and the choices that come with them. World size = tp · pp · cp · dp.

    Attention tiles a stage's ranks as tp · cp · dp, its experts as etp · ep · (the rest): parallel folding.
    """

    tp: int = 1
    """Tensor-parallel ranks: each holds 1/tp of attention, MLP and vocabulary."""
    sp: bool = False
    """Sequence parallelism: norms and residuals keep 1/tp of the sequence; needs tp > 1."""
    pp: Annotated[int, Key(maximum=MOST_RANKS)] = 1
    """Pipeline ranks."""
    vpp: Annotated[int, Key(maximum=MOST_CHUNKS)] = 1
    """Virtual pipeline chunks per pipeline rank; `unknown` for the usual numbers of them."""
    dp: int = 1
    """Data-parallel replicas; the ranks that tp, pp and cp leave where it is not given, and where a setting changes one of them."""
    cp: int = 1
    """Context-parallel ranks: each holds 1/cp of every sequence, in attention too."""
    cp_method: Annotated[str, one_of("ring", "all_to_all", "all_gather")] = "ring"
    """How keys and values meet the queries of other context-parallel ranks: `ring`, `all_to_all` (of heads) or `all_gather`."""
    ep: int = 1
    """Expert-parallel ranks; `unknown` for those that fit in memory, over as few nodes as do."""
    etp: int = 1
    """Tensor-parallel ranks inside an expert."""
    zero: Annotated[int, Key(maximum=3)] = 0
    """ZeRO stage: 0 replicates everything, 1 shards the optimizer over dp · cp, 2 the gradients too, 3 the weights too
    (FSDP)."""
    shard: int = 0
    """Ranks that one copy of the sharded state spreads over, the rest of dp · cp being replicas (hybrid sharding); 0 for
    all."""
    schedule: str = "1f1b"
    """Pipeline schedule by name, a .csv or .json file with an order, or `best`: the shortest step that fits the memory
    of the device and memory_limit."""
    memory_limit: int = 0
    """Most chunk activations that a pipeline rank may hold; 0 for no limit."""
    recompute: Annotated[str, one_of("none", "selective", "ops", "full")] = "none"
    """Activation recomputation: none, selective (of `recompute_modules`), ops (all but attention and every second product, torchtitan's
    selective option "op") or full (whole layers); `unknown` for none or selective, where both fit in memory."""
    recompute_modules: Annotated[str, one_of(*RECOMPUTABLE, AUTO, pattern=rf"\s*{_MODULE}\s*(,\s*{_MODULE}\s*)*")] = (
        "core_attn"
    )
    """Modules that selective recomputation repeats, separated by commas: any of core_attn, layernorm, mla_up_proj, mlp, moe, moe_act
    and shared_experts (Megatron's names); `auto` for those with the shortest step that fits the memory of the device."""
    recompute_method: Annotated[str, one_of("uniform", "block")] = "uniform"
    """Which layers full recomputation takes: `uniform` all, `block` the first `recompute_layers` of each chunk."""
    recompute_layers: int = 1
    """Layers per chunk that `block` recomputes."""
    layout: str = ""
    """Layers of each stage: `10,12,12` or Megatron's form `Et*4|(t*4|)*14tmL`; empty for an even split, `auto` for the layout with
    the shortest step that fits the memory of the device."""
    first_stage_layers: int = 0
    """Layers of the first pipeline rank; 0 for an even share."""
    last_stage_layers: int = 0
    """Layers of the last pipeline rank; 0 for an even share."""
    count_embedding: int = 0
    """Layers that the embedding counts as in the even split (Megatron's account_for_embedding: 1)."""
    count_loss: int = 0
    """Layers that head and loss count as in the even split (Megatron's account_for_loss: 1; GPT-NeoX's three modules: 3)."""

    def fully_recomputed(self, layers: int) -> int:
        """The layers of a chunk that full recomputation runs again, which are its first."""
        if self.recompute != "full":
            return 0
        return min(layers, self.recompute_layers) if self.recompute_method == "block" else layers

    @property
    def automatic(self) -> tuple[str, ...]:
        """The keys that an estimate chooses, beside the schedule."""
        selective = self.recompute == "selective" and self.recompute_modules == AUTO
        return (*(["layout"] if self.layout == AUTO else []), *(["recompute_modules"] if selective else []))

    @property
    def modules_recomputed(self) -> tuple[str, ...]:
        """The modules whose forward a backward repeats; () if it repeats nothing, or whole layers."""
        if self.recompute != "selective":
            return ()
        if self.recompute_modules == AUTO:
            raise ConfigError("plan.recompute_modules: auto is chosen by an estimate; name the modules here")
        return tuple(name.strip() for name in self.recompute_modules.split(",") if name.strip())


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """The sequences of one step; of a run that was read, the rows that hold them (`predict.run.lengths`)."""

    global_: int
    """Sequences per step, over all replicas."""
    micro: int
    """Sequences of one microbatch on one replica; `unknown` for the powers of two that fill the pipeline and fit in memory."""
    seq_len: Annotated[int, Key(maximum=MOST_TOKENS)]
    """Tokens per sequence; with `lengths`, of the longest."""
    lengths: Annotated[str, Key(pattern=OPTIONAL_PATTERN, meaning=FORMS)] = ""
    """Lengths of the real sequences: `constant:N`, `uniform:LOW..HIGH`, `lognormal:MEDIAN,SIGMA` (of the logarithm), read at their
    quantiles, or `file:PATH` with one length per line; empty where all are `seq_len` long. Longer ones are cut to `seq_len`."""
    padding: Annotated[str, one_of(PADDED, PACKED, SORTED)] = PADDED
    """How sequences shorter than `seq_len` become rows: `max` pads each to `seq_len`, `sorted` to the longest of a microbatch of like
    lengths, `packed` puts several into a row of `seq_len`, each attending to itself alone."""
    encoder_seq_len: Annotated[int, Key(minimum=0, maximum=MOST_TOKENS)] = 0
    """Tokens that the encoder of an encoder–decoder reads with each sequence, whose own `seq_len` are the decoder's; 0 for the model's own
    where it is fixed, such as the 1,500 of Whisper, and for all other models."""

    def microbatches(self, dp: int) -> int:
        return self.global_ // (self.micro * dp)
