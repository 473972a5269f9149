"""A dense MLP."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from predict.layers.norms import normed_input
from predict.layers.part import FeedForward
from predict.layers.saved_tensors import Saved, SavedTensors, Sizes
from predict.layers.served import GroupedCall, ServerShare, served_products
from predict.model.spec import LayerKind, ModelSpec
from predict.rank.exchanges import entering, leaving
from predict.rank.module import Module, Works
from predict.rank.share import RankShare
from sampling.cells.matrices import Matrix, mlp_matrices, products_on_rank
from sampling.operators.memory_bound import Gelu, SwiGLU


@dataclass(frozen=True, kw_only=True, slots=True)
class Dense(FeedForward):
    """Its sizes are fields of the model itself."""

    NAME: ClassVar[str] = "dense"

    def matrices(self, model: ModelSpec) -> tuple[Matrix, ...]:
        return mlp_matrices(hidden=model.hidden, width=model.ffn, gated=model.gated, bias=model.mlp_bias)

    def modules(self, rank: RankShare, kind: LayerKind) -> tuple[Module, ...]:
        gated = rank.model.gated
        works = mlp_works(rank, self.matrices(rank.model), gated=gated)
        into = 2 if gated and not rank.execution.joins_gate else 1
        return (
            Module(name="mlp", works=works[:1], exchanges=entering(rank, readers=into)),
            Module(name="mlp", works=works[1:], exchanges=leaving(rank)),
        )

    def saved_tensors(self, sizes: Sizes) -> Saved:
        """Gated: T·e(H + 4F) bytes in torch's operators, T·e(H + 3F) where product and nonlinearity are one; otherwise T·e(H + 2F),
        with F per rank, and T·e(H + F) of ReLU (byte-equal, torch 2.13)."""
        model = sizes.model
        return (
            *normed_input(sizes, "mlp", is_module=False, shares_input=model.parallel_residual, input_of=("up",)),
            *activation(
                sizes,
                "mlp",
                sizes.tokens,
                model.ffn // sizes.tp,
                gated=model.gated,
                modules=("mlp",),
                keeps_result=model.relu,
            ),
        )

    def token_calls(self, share: ServerShare, tokens: int) -> Iterator[GroupedCall]:
        model = share.model
        yield from served_products(share, self.matrices(model), tokens)
        activation = SwiGLU if model.gated else Gelu
        yield "elementwise", activation(dtype=share.activations, tokens=tokens, width=max(1, model.ffn // share.tp)), 1


def mlp_works(rank: RankShare, matrices: Iterable[Matrix], *, gated: bool) -> Works:
    """The operators of an MLP with these matrices, divided over tp."""
    products = products_on_rank(matrices, rank.plan.tp)
    activation = (SwiGLU if gated else Gelu)(dtype=rank.dtype, tokens=rank.tokens, width=products["down"][1])
    outputs, inputs = products["up"]
    apart = 2 if gated and not rank.execution.joins_gate else 1
    return ((rank.gemm(outputs // apart, inputs), apart), (activation, 1), (rank.gemm(*products["down"]), 1))


def activation(
    sizes: Sizes,
    component: str,
    rows: float,
    width: float,
    *,
    gated: bool,
    modules: tuple[str, ...],
    activation_module: str = "",
    weighted: bool = False,
    keeps_result: bool = False,
) -> Saved:
    """The tensors between the products of an MLP.

    `modules` drop all of them when recomputed; `activation_module` drops what the nonlinearity brings: its result in torch, the
    second product's input in Megatron-Core. `weighted`: each row is multiplied by its weight before the second product, which one
    kernel does with a gated nonlinearity alone (Megatron-Core, moe/experts.py). `keeps_result`: the nonlinearity's backward needs its
    result in place of its input.
    """
    made = sizes.item * rows * width * (2 if gated else 1)
    inputs = 0.0 if keeps_result else made
    kept_between = not sizes.profile.fused_activation if gated else weighted
    result = sizes.item * rows * width if kept_between else 0.0
    output = sizes.input_item * rows * width
    all_dropped = dict.fromkeys(modules, 0.0)
    dropped = {activation_module: 0.0} if activation_module else {}
    freed = dropped if sizes.profile.frees_recomputed_outputs else {}
    return (
        SavedTensors(component=component, kept=inputs, if_recomputed=all_dropped),
        SavedTensors(component=component, kept=result, if_recomputed=all_dropped | dropped),
        # the gradient of a gated result becomes two, and the result itself is gone by then
        SavedTensors(
            component=component, kept=output, if_recomputed=all_dropped | freed, in_backward=made, input_of=("down",)
        ),
    )
