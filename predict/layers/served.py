"""A layer on one GPU of a server: what its parts ask of the server, what they keep of a sequence, and the kernels that they run."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from predict.model.spec import ModelSpec
from sampling.call import Call
from sampling.cells.matrices import Matrix, products_on_rank
from sampling.hardware.cluster import DTYPE_BYTES, ELEMENT_BYTES
from sampling.operators.gemm import Gemm

Group = Literal["gemm", "moe", "attention", "all_reduce", "elementwise"]
"""Kernels of a step that one factor corrects."""
GroupedCall = tuple[Group, Call, float]
"""Group, call and how often a layer runs it."""
Kept = Literal["all", "window", "state"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Products:
    """The products with some of a server's weights."""

    dtype: str
    kernel: str
    """One that reads weights of fewer bits than `dtype`; empty for none."""
    weight_bytes: float
    """Bytes of a weight in memory, with its share of the scales."""


CACHE_BYTES: Mapping[str, float] = {**DTYPE_BYTES, "int8": 1 + 2 / 128, "fp4": ELEMENT_BYTES["nvfp4"]}
"""Dtype of the cache → bytes of an element: int8 has a 16-bit scale for each head of a token (of 128), four bits one for each 16."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerShare:
    """The plain values of a server that decide the kernels and the bytes of a layer on one of its GPUs."""

    model: ModelSpec
    tp: int
    """Tensor-parallel GPUs."""
    dp: int
    """Replicas of attention, whose tokens share the experts."""
    ep: int
    """GPUs that share the experts, each with whole ones; 1 where every expert is sliced."""
    redundant_experts: int
    """Copies of experts in addition to one of each."""
    expert_load: float
    """Tokens of the busiest GPU's experts over the mean."""
    expert_alignment: int
    """Rows to which the tokens of each expert are padded, with kernels that run over all experts; 1 for kernels that run over those with
    tokens alone."""
    dispatch: str
    """How tokens reach experts of other replicas: allgather or deepep."""
    gpus_per_node: int
    products: Products
    """Weights of the layers but for the experts."""
    expert_products: Products
    activations: str
    kv_precision: str
    """Dtype of the cached keys and values."""
    cache_block: int
    """Tokens of a block of the cache where attention gathers blocks before it reads them, as torch's does on a CPU; 0
    where the kernel reads them in place."""
    shares_keys: bool
    """Whether attention reads a key once for all heads that share it."""
    window: int = 0
    """Keys that a query of the layer sees and its cache keeps; 0 for all."""
    chunk: int = 0
    """Most keys that a query of the layer sees where its cache keeps all: those of its chunk of the sequence (Llama 4); 0 for all."""

    @property
    def most_seen(self) -> int:
        """Most keys that a query of the layer sees; 0 for all."""
        return self.window or self.chunk

    @property
    def expert_slices(self) -> int:
        """GPUs among which one expert is sliced."""
        return self.tp * self.dp // self.ep

    @property
    def kv_bytes(self) -> float:
        """Bytes of one cached element, with its share of the scales."""
        return CACHE_BYTES[self.kv_precision]

    @property
    def kv_dtype(self) -> str:
        """The dtype of the kernels that read the cache: one with as many bits."""
        return {"int8": "fp8", "fp4": "nvfp4"}.get(self.kv_precision, self.kv_precision)


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerCache:
    """The bytes that one layer keeps of a sequence on one GPU."""

    token_bytes: float = 0.0
    """Bytes per token of the last `window` ones."""
    window: int = 0
    """Tokens that are kept; 0 for all."""
    sequence_bytes: float = 0.0
    """Whatever the sequence's length: the state of a recurrence."""

    @property
    def keeps(self) -> Kept:
        """The part of a sequence that it keeps."""
        if not self.token_bytes:
            return "state"
        return "window" if self.window else "all"


def served_products(share: ServerShare, matrices: Iterable[Matrix], tokens: int) -> Iterator[GroupedCall]:
    """The products of these matrices on one GPU."""
    for outputs, inputs in products_on_rank(matrices, share.tp).values():
        product = share.products
        yield "gemm", Gemm(dtype=product.dtype, m=tokens, n=outputs, k=inputs, kernel=product.kernel), 1
