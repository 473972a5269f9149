"""The key-value cache that a server has room for, in blocks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from predict.serving.batch import BatchSums, StepBatch
from predict.serving.formats import published_note
from predict.serving.server import Server, served_mixers
from regressors.features.arrays import Ints
from sampling.errors import InfeasibleError
from sampling.files.faults import counted
from sampling.hardware.cluster import DTYPE_BYTES
from sampling.number_text import size
from sampling.units import GIB


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockPool:
    """The blocks of a cache. Each holds the keys and values of a few tokens in the layers that keep all tokens; what other layers keep of
    a sequence takes blocks of the same size in addition, as vLLM's hybrid cache manager does."""

    blocks: int
    window: int = 0
    """Tokens that sliding layers keep."""
    window_share: float = 0.0
    """Their bytes per token over those of the layers that keep all."""
    state_blocks: float = 0.0
    """Blocks that the states of a sequence take, whatever its length."""

    def beside(self, tokens: Ints, block_size: int) -> Ints:
        """Blocks that sequences of so many tokens take in addition to those of their tokens."""
        kept = self.window_share * np.minimum(tokens, self.window) / block_size
        return np.ceil(self.state_blocks + kept).astype(np.int64)

    def needed(self, tokens: Ints, block_size: int) -> Ints:
        """All blocks of sequences of so many tokens."""
        return -(-tokens // block_size) + self.beside(tokens, block_size)


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheRoom:
    """The memory of one GPU, in bytes, and the blocks that fit into what the weights leave."""

    memory: float
    """Bytes that the engine may take."""
    weights: float
    reserved: float
    """Bytes for activations, graphs and the communication library."""
    block: float
    """One block of keys and values in the layers of the GPU."""
    pool: BlockPool
    """The blocks of the engine, for all batches under way."""

    @property
    def blocks(self) -> int:
        return self.pool.blocks

    def share(self, batches: int) -> BlockPool:
        """The blocks of one of so many batches under way."""
        return replace(self.pool, blocks=self.blocks // batches)

    def sequences(self, tokens: int, block_size: int) -> int:
        """Requests of so many tokens that fit at once, of all batches."""
        return self.blocks // int(self.pool.needed(np.array(tokens), block_size))


def cache_room(server: Server) -> CacheRoom:
    """The blocks that fit. InfeasibleError where not even one does."""
    engine, gpu = server.engine, server.cluster.gpu
    stages, reserved = server.placement.pp, engine.reserved_gib * GIB
    weights = weight_bytes(server)
    whole, used = gpu.memory_gib * GIB, weights + reserved
    of_free = engine.memory_share_of == "free"
    memory = used + engine.memory_utilization * (whole - used) if of_free else engine.memory_utilization * whole
    kept = kept_bytes(server)
    # a stage's GPU holds its layers of the blocks of all batches under way
    of_all_layers = engine.block_size * kept.token
    block = of_all_layers / stages if stages > 1 else of_all_layers  # whole bytes stay whole
    blocks = int((memory - used) / block)
    if blocks < 1:
        raise InfeasibleError(
            f"key-value cache: of {size(min(memory, whole))} that the engine may take of each {gpu.name}, weights need "
            f"{size(weights)} and activations, graphs and buffers {size(reserved)}: no block of {counted(engine.block_size, 'token')} fits; "
            f"spread the model over more GPUs (placement.tp), or take a smaller precision (placement.precision)"
            + (
                f"; {note}"
                if (note := published_note(server.model.name, server.placement.precision, server.published_formats))
                else ""
            )
        )
    pool = BlockPool(
        blocks=blocks,
        window=server.model.window,
        window_share=kept.window_token / kept.token,
        state_blocks=kept.sequence / of_all_layers,
    )
    return CacheRoom(memory=memory, weights=weights, reserved=reserved, block=block, pool=pool)


def require_batch_room(pool: BlockPool, block_size: int, batches: Sequence[StepBatch], sums: BatchSums) -> None:
    """InfeasibleError for a batch whose keys and values the cache cannot hold; `sums` are those of the batches."""
    tokens = sums.decode_context + sums.decodes + sums.prefill_context + sums.prefill_tokens
    beside = pool.beside(np.array(max(pool.window, block_size)), block_size)
    at_most = tokens / block_size + sums.requests * (1.0 + beside)
    # blocks are counted request by request where their sum alone does not decide, which takes longer
    for place in np.flatnonzero(at_most > pool.blocks).tolist():
        batch = batches[place]
        needed = int(pool.needed(np.array(batch.held_tokens), block_size).sum()) - batch.shared_tokens // block_size
        if needed > pool.blocks:
            raise InfeasibleError(
                f"key-value cache: the batch needs {needed:,} blocks of {counted(block_size, 'token')}, where the cache has {pool.blocks:,}; give fewer "
                f"or shorter requests, or spread the model over more GPUs (placement.tp)"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptBytes:
    """The bytes that all layers keep of a sequence on one GPU."""

    token: float
    """Bytes per token, in layers that keep all of them."""
    window_token: float
    """Bytes per token of the window, in sliding layers next to such ones."""
    sequence: float
    """Bytes per sequence."""


def kept_bytes(server: Server) -> KeptBytes:
    """The bytes of a server's cache, with that of the model that writes its drafts. Where every layer slides, none gives up a block early,
    and each token counts in full."""
    both = filter(None, (server, server.drafting))
    caches = [(each.layers, each.mixer.cache(each.share)) for one in both for each in served_mixers(one)]
    whole = sum(layers * cache.token_bytes for layers, cache in caches if not cache.window)
    sliding = sum(layers * cache.token_bytes for layers, cache in caches if cache.window)
    return KeptBytes(
        token=whole or sliding,
        window_token=sliding if whole else 0.0,
        sequence=sum(layers * cache.sequence_bytes for layers, cache in caches),
    )


def weight_bytes(server: Server) -> float:
    """Bytes of the weights on one GPU: layers in the placement's formats, embedding and head in the precision of activations; with
    pipeline stages on the one with the larger of these two."""
    model, tp = server.model, server.tp
    layers = 0.0
    weight, expert_weight = server.products.weight_bytes, server.expert_products.weight_bytes
    for kind, count in model.kind_counts().items():
        parts = (model.mixer(kind), model.feed_forward(kind))
        size = weight * sum(matrix.on_rank(tp).elements for part in parts for matrix in part.matrices(model))
        if kind.sparse and model.experts:
            copies = 1 + server.placement.redundant_experts / model.experts.count
            size += copies * expert_weight * model.experts.routed_parameters(model) / server.expert_ranks
        layers += count * size
    of_ends, stages = (model.embedding_parameters, model.head_parameters), server.placement.pp
    ends = (sum(of_ends) if stages == 1 else max(of_ends)) / tp
    joined, size = server.joined * model.hidden**2, DTYPE_BYTES[server.activations]
    return layers / stages + (ends + joined) * size + _draft_bytes(server)


def _draft_bytes(server: Server) -> float:
    """Bytes of the weights that write drafts, but for ends that their model shares with the large one."""
    draft, drafting = server.draft, server.drafting
    if draft is None or drafting is None:
        return 0.0
    ends = draft.model.embedding_parameters + draft.model.head_parameters
    shared = DTYPE_BYTES[server.activations] * ends / server.tp if draft.shares_ends else 0.0
    return weight_bytes(drafting) - shared
