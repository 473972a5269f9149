"""Adapters: what a run trains beside a base whose weights stay as they are."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from sampling.cells.matrices import Matrix
from sampling.files.schema import Key, one_of

Part = Literal["attention", "mlp"]
"""What of a layer a matrix belongs to: where tokens meet, whatever the mixer, or the feed-forward."""
ALL = "all"
SYNONYMS: Mapping[str, tuple[str, ...]] = {
    # Megatron-Core's modules, and the parts into which CanonicalLoRA of Megatron-Bridge takes them
    "linear_qkv": ("qkv",),
    "linear_proj": ("proj",),
    "linear_fc1": ("up",),
    "linear_fc2": ("down",),
    "linear_q": ("q_proj",),
    "linear_k": ("k_proj",),
    "linear_v": ("v_proj",),
    "linear_fc1_gate": ("gate_proj",),
    "linear_fc1_up": ("up_proj",),
    "linear_q_proj": ("q_up",),
    "linear_q_down_proj": ("q_down",),
    "linear_q_up_proj": ("q_up",),
    "linear_kv_down_proj": ("kv_down",),
    "linear_kv_up_proj": ("kv_up",),
    # modules of other families' checkpoints
    "qkv_proj": ("qkv",),
    "query_key_value": ("qkv",),
    "c_attn": ("qkv",),
    "gate_up_proj": ("up",),
    "dense_h_to_4h": ("up",),
    "dense_4h_to_h": ("down",),
    "fc1": ("up",),
    "fc2": ("down",),
    "c_fc": ("up",),
    "w1": ("gate_proj",),
    "w2": ("down",),
    "w3": ("up_proj",),
    # torchtune's
    "output_proj": ("proj",),
}
"""Other names of products and of matrices, and the ones that they have here."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Adapters:
    """Low-rank updates B·A of frozen weights (Hu et al., LoRA, arXiv 2106.09685)."""

    kind: Annotated[str, one_of("none", "lora", "dora")] = "none"
    """none: every weight is trained; lora; or dora, which trains the norm of each output's weights too (arXiv 2402.09353)."""
    rank: Annotated[int, Key(minimum=1, maximum=4096)] = 16
    """Width of the update between A and B."""
    alpha: Annotated[float, Key(minimum=0, maximum=1e6)] = 32.0
    """Scale of the update times its rank, which changes no time."""
    targets: Annotated[str, Key(pattern=r"\s*[\w-]+(\s*,\s*[\w-]+)*\s*")] = ALL
    """Matrices with an adapter, separated by commas: by their names in Hugging Face's checkpoints (q_proj, v_proj, gate_proj, q_a_proj, …),
    by the products that they are part of, here (qkv, proj, up, down) or in Megatron (linear_qkv, linear_fc1, …), or all those of
    attention, of mlp, or all. Router, embedding and head have none."""
    joint: bool = False
    """Matrices that are fused into one product, as query, key and value, share one adapter, as in Megatron-Bridge; otherwise each has its
    own, as in peft."""

    at_once: Annotated[int, Key(minimum=1, maximum=100_000)] = 1
    """Adapters that are held at once beside one base, each trained on sequences of its own, of which a microbatch has as many of each as of
    any other; products of the base are those of all sequences together. Where a step has fewer sequences, some wait."""
    base: Annotated[str, one_of("", "nf4", "fp8", "mxfp4")] = ""
    """Bits in which the base keeps its linear layers' weights, which a kernel widens before each product: nf4 (QLoRA, arXiv 2305.14314),
    fp8 or mxfp4; empty for those of the run. Norms, router, embedding and head stay as they are."""
    double_quantised: bool = True
    """The scales of an nf4 base have 8 bits and scales of their own; otherwise they have 32."""

    @property
    def are_trained(self) -> bool:
        return self.kind != "none"

    @property
    def stored(self) -> str:
        """The format in which the base's linear layers are stored, by its name in `STORED_BYTES`; empty where they have the run's dtype."""
        return "nf4_double" if self.base == "nf4" and self.double_quantised else self.base

    @property
    def names(self) -> tuple[str, ...]:
        """The targets, one by one."""
        return tuple(name.strip() for name in self.targets.split(","))

    def cover(self, matrix: Matrix, part: Part) -> bool:
        """Whether a matrix of that part of a layer has an adapter."""
        return matrix.is_linear and any(is_meant(name, matrix, part) for name in self.names)


NOTHING_TRAINED = Adapters(kind="lora", targets="none")
"""Adapters of no matrix: every weight stays as it is."""


def is_meant(target: str, matrix: Matrix, part: Part) -> bool:
    """Whether a target is a matrix, its product, or the part of a layer that it is in."""
    own = {ALL, part, matrix.product, matrix.name}
    return not own.isdisjoint((target, *SYNONYMS.get(target, ())))
