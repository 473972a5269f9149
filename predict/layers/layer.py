"""Tensors that a whole layer keeps for its backward, on the GPU or on its host."""

from predict.layers.adapters import adapters_of, saved_with_adapters
from predict.layers.attention import CORE, heads_on_rank, rotary_bytes
from predict.layers.mixture import expert_rows
from predict.layers.modulation import saved_by_modulation
from predict.layers.norms import norm, residual
from predict.layers.part import parts_of
from predict.layers.saved_tensors import FP32, Saved, Sizes, kept_by_component
from predict.model.spec import LayerKind
from predict.rank.share import RankShare
from predict.run.frameworks import memory_profile_of
from sampling.cells.matrices import Matrix, products_on_rank

ROTARY_TABLES = "rope"
"""The component that all layers of one forward share: one storage, to which each of them refers."""
REPEATED = ("full", "ops")
"""Recomputation that repeats a layer from its input."""


def saved_by_layer(sizes: Sizes, kind: LayerKind) -> Saved:
    """Mixer and feed-forward, those that it has, each from its norm to its addition to the residual stream."""
    model = sizes.model
    output_norm = (norm(sizes),) if model.norms_a_layer > 2 else ()
    parts = parts_of(model, kind)
    saved = tuple(
        step
        for part in parts
        for step in (*part.saved_tensors(sizes), *output_norm, *residual(sizes, kind, last=part is parts[-1]))
    )
    return saved_with_adapters(sizes, kind, (*saved_by_modulation(sizes, kind), *saved))


def kept_by_layer(sizes: Sizes, kind: LayerKind, recompute: str) -> dict[str, float]:
    """Bytes by component that a layer keeps under recompute `none`, `selective` (of `plan.modules_recomputed`), `ops` or `full`.

    - full keeps the layer's input, e·T·H bytes, and the rotary tables, which are its arguments (torch.utils.checkpoint; Korthikanti
      et al., arXiv 2205.05198, table 2);
    - `ops` keeps in addition the outputs of the operators that are not repeated;
    - selective keeps the inputs of each recomputed module.
    """
    if recompute in REPEATED:
        outputs = kept_outputs(sizes, kind) if recompute == "ops" else {}
        kept = {"residual": float(sizes.stream), ROTARY_TABLES: rotary_bytes(sizes), **outputs}
        return {component: size for component, size in kept.items() if size}
    modules = sizes.rank.plan.modules_recomputed if recompute == "selective" else ()
    return kept_by_component(saved_by_layer(sizes, kind), modules)


def kept_outputs(sizes: Sizes, kind: LayerKind) -> dict[str, float]:
    """Bytes by component. torchtitan (activation_checkpoint.py, `_get_custom_policy`) counts the products of a layer in the
    order in which they run and repeats the second, the fourth and so on; of attention it keeps output and log-sum-exp, where
    one kernel computes it."""
    model, tp = sizes.model, sizes.tp
    mixer, feed_forward = model.mixer(kind), model.feed_forward(kind)
    products = [each for each in (*mixer.matrices(model), *feed_forward.matrices(model)) if each.is_linear]
    found = {"products": sum(_output(sizes, each) for each in products[::2])}
    if sizes.rank.execution.attention != "unfused" and mixer.score_width(model):
        heads, _ = heads_on_rank(model, tp)
        found[CORE] = sizes.tokens * heads * (sizes.item * mixer.value_dim_of(model) + FP32)
    return found


def _output(sizes: Sizes, product: Matrix) -> float:
    """The output of a product; where tp divides its inputs, of the sum that sequence parallelism scatters."""
    rows = sizes.rows if product.split == "inputs" else sizes.tokens
    return float(sizes.item * rows * product.on_rank(sizes.tp).outputs)


def held_for_weights(sizes: Sizes, kind: LayerKind, saved: Saved) -> float:
    """Bytes that the gradients of a layer's weights need after those of its inputs: the inputs of its products, and the gradients of
    their outputs (Qi et al., arXiv 2401.10241, table 1: 32·s·b·h of a GPT's layer; Megatron-LM's and DeepSeek's `WeightGradStore`).

    No more than all that `saved` keeps, which waits where nothing is recomputed.
    """
    kept = sum(step.kept for step in saved if step.component != ROTARY_TABLES)
    inputs = sum(step.for_weights for step in saved)
    return min(kept, inputs + sizes.input_item * _outputs_with_gradients(sizes, kind))


def _outputs_with_gradients(sizes: Sizes, kind: LayerKind) -> float:
    """Elements that the products of a layer put out, of those whose weights are trained."""
    rank, model = sizes.rank, sizes.model
    if rank.run.adapters.are_trained:
        return sum(each.rows(rank) * (each.outputs + each.rank) for each in adapters_of(rank.run, kind))
    parts = parts_of(model, kind)
    matrices = (each for part in parts for each in part.matrices(model) if each.is_linear)
    found = float(
        sum(
            (sizes.rows if each.split == "none" else sizes.tokens) * each.on_rank(sizes.tp).outputs for each in matrices
        )
    )
    if kind.sparse and model.experts:
        routed = products_on_rank(model.feed_forward(kind).expert_matrices(model), rank.plan.etp).values()
        found += expert_rows(rank, model.experts) * sum(outputs for outputs, _ in routed)
    return found


def waiting_on_host(rank: RankShare, kind: LayerKind) -> int:
    """Bytes that a layer keeps of a microbatch in the host's memory; the rotary tables, which all layers share, stay."""
    share = rank.run.offload.activation_share
    if not share:
        return 0
    sizes = Sizes(rank=rank, profile=memory_profile_of(rank.run))
    kept = kept_by_layer(sizes, kind, rank.plan.recompute)
    return round(share * sum(size for component, size in kept.items() if component != ROTARY_TABLES))
