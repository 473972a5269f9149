"""The ends of a vision tower, a diffusion transformer or an encoder: the product over pixels before its layers, and the projectors after
them."""

from itertools import chain

from predict.layers.modulation import scaling
from predict.layers.norms import norm, norm_bytes
from predict.layers.saved_tensors import FP32, INDEX, Saved, SavedTensors, Sizes
from predict.model.patches import Patches, Projector
from predict.rank.module import Module, Works
from predict.rank.share import RankShare
from sampling.operators.memory_bound import NORMS, Gelu, ResidualAdd, Stream

INTERPOLATED = 4
"""Rows of the table of positions that are weighed for one (transformers, modeling_qwen3_vl.py, `interp_indices`)."""
JOINING_PASSES = 3
"""Passes over a projector's output in which it joins the text: it and its places are read, and they are written (transformers,
modeling_qwen3_vl.py, `masked_scatter` and `_deepstack_process`)."""
POOLING_PASSES = 3
"""Passes over patches that are pooled: they are laid out by channels, and read again (transformers, modeling_gemma3.py, `avg_pool`)."""


def patch_modules(rank: RankShare) -> tuple[Module, ...]:
    """The product over pixels, which have no gradient, positions, and a norm where the tower has one there."""
    model, patches = rank.model, _patches(rank)
    product = rank.gemm(model.hidden, patches.pixels, m=_patch_rows(rank), dtype=rank.dtype)
    beside: Works = ()
    if patches.interpolates:
        weighed = INTERPOLATED * rank.item_bytes * rank.rows * model.hidden
        beside += ((Stream(dtype=rank.dtype, size_bytes=weighed), 1),)
    if patches.positions:
        beside += ((ResidualAdd(dtype=rank.dtype, tokens=rank.rows, hidden=model.hidden), 1),)
    if model.embedding_norm:
        beside += ((rank.norm(), 1),)
    if condition := patches.conditioning:
        micro = rank.run.batch.micro
        seen = ((condition.matrices, micro), (condition.text, micro * condition.tokens))
        beside += tuple(
            (rank.gemm(each.outputs, each.inputs, m=rows, dtype=rank.dtype), 1) for own, rows in seen for each in own
        )
    products = Module(name="patches", works=((product, 1),), backward="weights")
    beside = (*_stem_works(rank), *beside)
    return (products, Module(name="patches", works=beside)) if beside else (products,)


def _stem_works(rank: RankShare) -> Works:
    """The activation after the first convolution, the second one, and its activation."""
    stem, rows, width = _patches(rank).stem, _rows(rank), rank.model.hidden
    if stem is None:
        return ()
    first, second = (Gelu(dtype=rank.dtype, tokens=many, width=width) for many in (rows * stem.stride, rows))
    return (first, 1), (rank.gemm(width, stem.second.inputs, m=rows, dtype=rank.dtype), 1), (second, 1)


def projector_modules(rank: RankShare) -> tuple[Module, ...]:
    """The norm after the last layer, the projectors, and their joining of the text. Every rank of tp has them whole."""
    normed: tuple[Module, ...] = ()
    if rank.model.final_norm:
        normed += (Module(name="layernorm", works=((rank.norm(), 1),)),)
    if rank.model.modulation:
        normed += (Module(name="modulation", works=((scaling(rank), 1),)),)
    return (*normed, *(_projector(rank, each) for each in _patches(rank).projectors))


def _projector(rank: RankShare, projector: Projector) -> Module:
    rows, dtype = _rows(rank), rank.dtype
    normed = ((NORMS[projector.norm](dtype=dtype, tokens=rows, hidden=projector.inputs), 1),) if projector.norm else ()
    products = [(rank.gemm(each.outputs, each.inputs, m=rows, dtype=dtype), 1) for each in projector.matrices]
    activated = [(Gelu(dtype=dtype, tokens=rows, width=each.outputs), 1) for each in projector.activated]
    output = rank.item_bytes * rows * projector.matrices[-1].outputs
    pooled = POOLING_PASSES * _pooled_bytes(rank, projector)
    joined = JOINING_PASSES * output if _patches(rank).joins_text else 0
    streams = [(Stream(dtype=dtype, size_bytes=size), 1) for size in (pooled, joined) if size]
    return Module(name="projector", works=(*normed, *products, *activated, *streams))


def saved_by_patches(sizes: Sizes) -> Saved:
    """The pixels, e·T·P bytes, the rows of interpolated positions with their weights, and the order of windows; what comes of them is the
    first layer's input. Of two convolutions the frames, of which neighbours share all but their own place, the first one's result and its
    activation, and the second one's result."""
    patches, rows = _patches(sizes.rank), _rows(sizes.rank)
    pixels = sizes.item * _patch_rows(sizes.rank) * patches.pixels
    if stem := patches.stem:
        pixels = pixels // stem.kernel + sizes.item * rows * (2 * stem.stride + 1) * sizes.hidden
    positions = INTERPOLATED * (INDEX + FP32) * rows * patches.merged if patches.interpolates else 0
    return (
        SavedTensors(component="conditioning", kept=_condition_bytes(sizes)),
        SavedTensors(
            component="patches",
            kept=float(pixels + positions + _order_bytes(sizes)),
            in_forward=sizes.stream,
            in_backward=sizes.stream,
        ),
        *((norm(sizes),) if sizes.model.embedding_norm else ()),
    )


def saved_by_projector(sizes: Sizes) -> Saved:
    """The norm after the last layer, and of each projector R·e(I + 2W + L) bytes beside its own norm: what its first product reads,
    the input and the result of each activation, and what a product without one makes; R are tokens of the text. Pooling keeps the patches
    that it reads, and an output that layers attend to stays for all of them."""
    normed: Saved = (norm(sizes),) if sizes.model.final_norm else ()
    if sizes.model.modulation:
        normed += (SavedTensors(component="modulation", kept=sizes.stream),)
    if sizes.model.patches and sizes.model.patches.attended and not sizes.model.patches.projectors:
        normed += (SavedTensors(component="projector", kept=sizes.stream),)
    ordered = SavedTensors(component="projector", kept=float(_order_bytes(sizes)))
    steps = (_saved_by(sizes, each) for each in _patches(sizes.rank).projectors)
    return (*normed, *chain.from_iterable(steps), ordered)


def _condition_bytes(sizes: Sizes) -> float:
    """Inputs and outputs of each product of the conditioning."""
    condition, micro = _patches(sizes.rank).conditioning, sizes.rank.run.batch.micro
    if condition is None:
        return 0.0
    rows = ((condition.matrices, micro), (condition.text, micro * condition.tokens))
    return float(sizes.item * sum(many * (each.inputs + each.outputs) for own, many in rows for each in own))


def _order_bytes(sizes: Sizes) -> int:
    """The places of merged patches in the order of windows, or back."""
    return INDEX * _rows(sizes.rank) if sizes.model.window else 0


def _saved_by(sizes: Sizes, projector: Projector) -> Saved:
    rows, item = _rows(sizes.rank), sizes.item
    read = float(item * rows * projector.inputs)
    made = (*projector.matrices[: projector.linear], *projector.activated, *projector.activated)
    between = float(sum(item * rows * each.outputs for each in made))
    output = float(item * rows * projector.matrices[-1].outputs)
    attended = output if _patches(sizes.rank).attended else 0.0
    return (
        SavedTensors(component="projector", kept=_norm_bytes(sizes, projector) if projector.norm else 0.0),
        SavedTensors(component="projector", kept=float(_pooled_bytes(sizes.rank, projector))),
        SavedTensors(
            component="projector",
            kept=read + between + attended,
            in_forward=output - attended,
            in_backward=output + between,
        ),
    )


def _pooled_bytes(rank: RankShare, projector: Projector) -> int:
    """The patches of which a projector reads the mean, laid out by channels."""
    return rank.item_bytes * _rows(rank) * _patches(rank).merged * projector.inputs if projector.pools else 0


def _norm_bytes(sizes: Sizes, projector: Projector) -> float:
    """The tensors that a projector's own norm keeps. One that reads what a layer reads too shares its input."""
    kept = norm_bytes(sizes, _rows(sizes.rank), projector.inputs, norm=projector.norm)
    return kept - sizes.item * _rows(sizes.rank) * projector.inputs if projector.reads_stream else kept


def _patches(rank: RankShare) -> Patches:
    assert rank.model.patches is not None
    return rank.model.patches


def _rows(rank: RankShare) -> int:
    """Tokens of the text that a microbatch's images become."""
    batch = rank.run.batch
    return batch.micro * _patches(rank).tokens_of(batch.seq_len)


def _patch_rows(rank: RankShare) -> int:
    """Patches of a microbatch's images."""
    batch = rank.run.batch
    return batch.micro * _patches(rank).with_pixels(batch.seq_len)
