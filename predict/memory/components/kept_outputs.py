"""The outputs that recomputation by operators keeps: attention's, and those of every second product."""

from __future__ import annotations

from predict.memory.components.core_attention import CORE
from predict.memory.components.sizes import FP32, Sizes
from predict.model.parts.attention import heads_on_rank
from predict.model.spec import LayerKind
from sampling.cells.matrices import Matrix


def kept_outputs(sizes: Sizes, kind: LayerKind) -> dict[str, float]:
    """Bytes by component. torchtitan (activation_checkpoint.py, `_get_custom_policy`) counts the products of a layer in the
    order in which they run and repeats the second, the fourth and so on; of attention it keeps output and log-sum-exp, where
    one kernel computes it."""
    model, tp = sizes.model, sizes.tp
    mixer, feed_forward = model.mixer(kind), model.feed_forward(kind)
    products = [each for each in (*mixer.matrices(model), *feed_forward.matrices(model)) if each.is_linear]
    found = {"products": sum(_output(sizes, each) for each in products[::2])}
    if sizes.rank.execution.attention != "unfused" and kind.mixer != "linear":
        heads, _ = heads_on_rank(model, tp)
        width = model.latent.value_dim if model.latent else model.head_dim
        found[CORE] = sizes.tokens * heads * (sizes.item * width + FP32)
    return found


def _output(sizes: Sizes, product: Matrix) -> float:
    """The output of a product; where tp divides its inputs, of the sum that sequence parallelism scatters."""
    rows = sizes.rows if product.split == "inputs" else sizes.tokens
    return float(sizes.item * rows * product.on_rank(sizes.tp).outputs)
