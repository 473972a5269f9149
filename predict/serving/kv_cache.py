"""The key-value cache that a server has room for, in blocks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from predict.serving.server import Server
from sampling.errors import InfeasibleError
from sampling.hardware.cluster import DTYPE_BYTES

GIB = 2**30


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheRoom:
    """The memory of one GPU, in bytes, and the blocks that fit into what the weights leave."""

    memory: float
    """That the engine may take."""
    weights: float
    reserved: float
    """For activations, graphs and the communication library."""
    block: float
    """One block of keys and values."""
    blocks: int

    def sequences(self, tokens: int, block_size: int) -> int:
        """Requests of so many tokens that fit at once."""
        return self.blocks // -(-tokens // block_size)


def cache_room(server: Server) -> CacheRoom:
    """The blocks that fit. InfeasibleError where not even one does."""
    engine, gpu = server.engine, server.cluster.gpu
    memory = gpu.memory_gib * GIB * engine.memory_utilization
    weights, reserved = weight_bytes(server), engine.reserved_gib * GIB
    block = engine.block_size * server.kv_bytes_per_token
    blocks = int((memory - weights - reserved) / block)
    if blocks < 1:
        raise InfeasibleError(
            f"key-value cache: of {memory / GIB:.1f} GiB that the engine may take of each {gpu.name}, weights need "
            f"{weights / GIB:.1f} and activations, graphs and buffers {reserved / GIB:.1f}: no block of {engine.block_size} tokens fits; "
            f"spread the model over more GPUs (placement.tp), or take a smaller precision"
        )
    return CacheRoom(memory=memory, weights=weights, reserved=reserved, block=block, blocks=blocks)


def weight_bytes(server: Server) -> float:
    """Bytes of the weights on one GPU: layers in the placement's precision, embedding and head in bf16."""
    model, tp = server.model, server.tp
    layers = 0.0
    for kind, count in Counter(model.kinds()).items():
        parts = (model.mixer(kind), model.feed_forward(kind))
        elements: float = sum(matrix.on_rank(tp).elements for part in parts for matrix in part.matrices(model))
        if kind.sparse and model.experts:
            elements += model.experts.routed_parameters(model) / (server.ep if server.ep > 1 else tp)
        layers += count * elements
    ends = (model.embedding_parameters + model.head_parameters) / tp
    return layers * server.weight_bytes + ends * DTYPE_BYTES["bf16"]
