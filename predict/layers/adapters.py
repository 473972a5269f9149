"""Adapters of a layer: the matrices A and B of each product that has them, what training them takes, and what frozen weights leave out."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from predict.layers.mixture import expert_rows
from predict.layers.saved_tensors import Saved, SavedTensors, Sizes
from predict.model.spec import LayerKind, ModelSpec
from predict.rank.blocks import Calls
from predict.rank.module import Module, Works
from predict.rank.share import (
    RankShare,
    Weights,
    embedding_weights,
    joining_weights,
    layer_weights,
    output_weights,
    weight_bytes,
)
from predict.run.adapters import Adapters, Part, is_meant
from predict.run.plan import Plan
from predict.run.training_run import TrainingRun
from sampling.arithmetic.operator import Operator
from sampling.call import Counted
from sampling.cells.matrices import Matrix
from sampling.operators.dequantise import STORED_BYTES, Dequantise
from sampling.operators.experts import GroupedGemm
from sampling.operators.gemm import Gemm
from sampling.operators.memory_bound import Stream

JOINING_PASSES = 3
"""Passes over a product's output in which its update joins it: both are read, and one is written; as many for their gradients."""
DORA_PASSES = 3
"""Passes over a weight in which DoRA takes the norms of W + B·A: W is read, and the sum written and read (peft, lora/dora.py,
`get_weight_norm`)."""

MAGNITUDE_PASSES = 13
"""Further passes over a product's output where DoRA scales both results, (m/‖·‖ − 1)·base + m/‖·‖·update (peft, lora/dora.py, `forward`):
9 in forward (each result times its factor and the update times its scaling 2, their sum 3) and 17 in backward (both gradients times their
factor and the scaling 2, times the results for m's and summed over tokens 4, the base's two gradients together 3); their mean."""
SCALES = 3
"""Numbers of each output that DoRA's scaling keeps beside m: ‖·‖, m/‖·‖ and m/‖·‖ − 1."""
SUMMED = 3
"""Matrices like the weight that live while its norms are taken: B·A, scaled, and added to W, which is a fourth if kept in few bits."""
SCALED = 3
"""Tensors like an output that live while DoRA scales both results, or their gradients."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Adapter:
    """A [rank, inputs] and B [outputs, rank] of a matrix on one rank, or of each of `experts` like it."""

    product: str
    outputs: int
    inputs: int
    rank: int
    experts: int = 0
    is_split: bool = True
    """Tensor parallelism divides the matrix; otherwise it sees the rows of its rank's share of the sequence alone."""

    sharing: int = 1
    """Adapters of the matrix that share its tokens: of streams with weights of their own, and those that are trained at once."""

    tokens_beside: int = 0
    """Tokens of another sequence that it sees in place of the model's own; 0 for those."""

    @property
    def copies(self) -> int:
        return max(1, self.experts) * self.sharing

    @property
    def elements(self) -> int:
        return self.rank * (self.outputs + self.inputs) * self.copies

    @property
    def magnitudes(self) -> int:
        """Norms of each output's weights, which DoRA trains."""
        return self.outputs * self.copies

    def seen(self, rank: RankShare) -> int:
        """Adapters that share the matrix's tokens and have some in a microbatch: of those trained at once no more than it has sequences."""
        at_once, batch = rank.run.adapters.at_once, rank.run.batch
        return max(1, min(self.sharing // at_once * min(at_once, batch.micro), self.rows(rank)))

    def copies_seen(self, rank: RankShare) -> int:
        """Matrices, of experts and adapters, that a microbatch sees."""
        return max(1, self.experts) * self.seen(rank)

    def rows(self, rank: RankShare) -> int:
        """Tokens of a microbatch that it sees."""
        if self.experts and rank.model.experts:
            return max(self.experts, expert_rows(rank, rank.model.experts))
        if self.tokens_beside:
            return rank.run.batch.micro * self.tokens_beside
        return rank.tokens if self.is_split else rank.rows


# The matrices that have adapters, and their weights.


def unknown_targets(adapters: Adapters, model: ModelSpec) -> tuple[list[str], list[str]]:
    """The targets that are no matrix of the model, and the names that it has."""
    known = [each for kind in set(model.kinds()) for each in _linear_matrices(model, kind)]
    wrong = [name for name in adapters.names if not any(is_meant(name, *each) for each in known)]
    names = {name for matrix, _ in known for name in (matrix.product, matrix.name) if name}
    return wrong, ["all", "attention", "mlp", *sorted(names)]


def _linear_matrices(model: ModelSpec, kind: LayerKind) -> Iterator[tuple[Matrix, Part]]:
    mixer, feed_forward = model.mixer(kind), model.feed_forward(kind)
    of_feed_forward = (*feed_forward.matrices(model), *feed_forward.expert_matrices(model))
    yield from ((matrix, "attention") for matrix in mixer.matrices(model) if matrix.is_linear)
    yield from ((matrix, "mlp") for matrix in of_feed_forward if matrix.is_linear)


Group = tuple[Part, int, tuple[Matrix, ...]]


def _groups_on_rank(run: TrainingRun, kind: LayerKind) -> tuple[Group, ...]:
    """The linear matrices of a layer on one rank: the part that they belong to, how many experts have each (0 outside of experts), and
    the matrices."""
    model, plan = run.model, run.plan
    mixer, feed_forward = model.mixer(kind), model.feed_forward(kind)
    of_experts = feed_forward.expert_matrices(model)
    experts = model.experts.count // plan.ep if of_experts and model.experts else 0
    return (
        ("attention", 0, _on_rank(mixer.matrices(model), plan.tp)),
        ("mlp", 0, _on_rank(feed_forward.matrices(model), plan.tp)),
        ("mlp", experts, _on_rank(of_experts, plan.etp)),
    )


def _on_rank(matrices: tuple[Matrix, ...], ranks: int) -> tuple[Matrix, ...]:
    return tuple(matrix.on_rank(ranks) for matrix in matrices if matrix.is_linear)


def adapters_of(run: TrainingRun, kind: LayerKind) -> tuple[Adapter, ...]:
    """The adapters of a layer; none where all weights are trained. A of a product that is split by its outputs is whole on every rank, as
    is B of one split by its inputs."""
    if not run.adapters.are_trained:
        return ()
    found = (each for group in _groups_on_rank(run, kind) for each in _of_group(run.adapters, *group))
    sharing, mixer = run.model.streams_of(kind) * run.adapters.at_once, run.model.mixer(kind)
    return tuple(replace(each, sharing=sharing, tokens_beside=mixer.tokens_beside(each.product)) for each in found)


def _of_group(adapters: Adapters, part: Part, experts: int, matrices: tuple[Matrix, ...]) -> Iterator[Adapter]:
    own = [matrix for matrix in matrices if adapters.cover(matrix, part)]
    products = dict.fromkeys(matrix.product for matrix in own)
    fused = [[matrix for matrix in own if matrix.product == product] for product in products]
    for together in fused if adapters.joint else ([matrix] for matrix in own):
        yield Adapter(
            product=together[0].product,
            outputs=sum(matrix.outputs for matrix in together),
            inputs=together[0].inputs,
            rank=adapters.rank,
            experts=experts,
            is_split=together[0].split != "none",
        )


def trained_in_layer(run: TrainingRun, kind: LayerKind) -> Weights:
    """The weights of a layer on one rank that are trained: all of them, or its adapters' own."""
    if not run.adapters.are_trained:
        return layer_weights(run.model, run.plan, kind)
    found = adapters_of(run, kind)
    return _weights_of((each.experts, each.elements + _is_dora(run) * each.magnitudes) for each in found)


def _is_dora(run: TrainingRun) -> bool:
    """Whether a magnitude of each output is trained beside A and B."""
    return run.adapters.kind == "dora"


def trained_in_embedding(run: TrainingRun, whole: Weights) -> Weights:
    """The weights of the embedding that are trained."""
    return Weights() if run.adapters.are_trained else whole


def trained_in_head(run: TrainingRun, whole: Weights) -> Weights:
    """The weights of the head, and of what predicts more tokens, that are trained: of those tokens' layers the adapters."""
    if not run.adapters.are_trained:
        return whole
    further = run.model.mtp_layers
    return trained_in_layer(run, run.model.mtp_kind) * further if further else Weights()


def trained_in_tower(run: TrainingRun) -> Weights:
    """The weights of the vision tower and its projectors on one rank that are trained."""
    tower, projector = run.tower, run.projector
    if tower is None or projector is None:
        return Weights()
    found = trained_in_embedding(tower, embedding_weights(tower.model, tower.plan))
    for kind, many in tower.model.kind_counts().items():
        found += trained_in_layer(tower, kind) * many
    return found + trained_in_head(projector, output_weights(tower.model, tower.plan, shares_embedding=False))


def trained_parameters(run: TrainingRun) -> int:
    """Weights of the whole model, and of the tower or encoder that the run holds, that are trained, adapters among them."""
    whole = replace(run, plan=Plan())
    of_tower = trained_in_tower(whole).total
    if not run.adapters.are_trained:
        return run.model.parameters + of_tower
    of_layers = (many * trained_in_layer(whole, kind).total for kind, many in run.model.kind_counts().items())
    return of_tower + sum(of_layers)


def frozen_parameters(run: TrainingRun) -> int:
    """Those that stay as they are."""
    of_text = run.model.parameters if run.adapters.are_trained else 0
    tower, projector = run.tower, run.projector
    if tower is None or projector is None:
        return of_text
    ends = output_weights(tower.model, Plan(), shares_embedding=False).total
    layers = tower.model.parameters - ends
    return of_text + layers * tower.adapters.are_trained + ends * projector.adapters.are_trained


def gathered_in_layer(run: TrainingRun, kind: LayerKind) -> Weights:
    """Bytes of a layer's weights on one rank as they are gathered: its own, and those of its adapters."""
    whole = layer_weights(run.model, run.plan, kind)
    if not run.adapters.are_trained:
        return whole * weight_bytes(run)
    few = quantised_in_layer(run, kind)
    item, stored = weight_bytes(run), stored_bytes(run)
    held = (whole + trained_in_layer(run, kind) + few * -1) * item
    return held + Weights(dense=round(stored * few.dense), experts=round(stored * few.experts))


def quantised_in_layer(run: TrainingRun, kind: LayerKind) -> Weights:
    """The weights of a layer on one rank that its base keeps in few bits: those of its linear modules."""
    if not run.adapters.stored:
        return Weights()
    groups = _groups_on_rank(run, kind)
    return _weights_of((experts, max(1, experts) * sum(each.elements for each in own)) for _, experts, own in groups)


def _weights_of(sizes: Iterable[tuple[int, int]]) -> Weights:
    """Weights by whether experts have them: of each of `sizes` the experts, 0 where there are none, and all of its elements."""
    found = list(sizes)
    return Weights(
        dense=sum(size for experts, size in found if not experts),
        experts=sum(size for experts, size in found if experts),
    )


def stored_bytes(run: TrainingRun) -> float:
    """Bytes of a weight of the base that is kept in few bits, with its share of the scales."""
    return STORED_BYTES.get(run.adapters.stored, 0.0)


def gathered_in_head(run: TrainingRun, *, shares_embedding: bool) -> Weights:
    """Bytes of the weights of the head on one rank, and of what predicts more tokens, as they are gathered."""
    model, plan, further = run.model, run.plan, run.model.mtp_layers
    own = output_weights(model, plan, shares_embedding=shares_embedding) + joining_weights(model, plan) * further
    return own * weight_bytes(run) + (gathered_in_layer(run, model.mtp_kind) * further if further else Weights())


# What adapters compute.


def with_adapters(rank: RankShare, kind: LayerKind, modules: tuple[Module, ...]) -> tuple[Module, ...]:
    """A layer's modules, frozen, and its adapters; the modules themselves where all weights are trained."""
    if not rank.run.adapters.are_trained:
        return modules
    found = adapters_of(rank.run, kind)
    works = tuple(work for each in found for work in _works(rank, each))
    widened = tuple((call, 1.0) for call in _widened(rank, kind))
    adapted = (
        *((Module(name="dequantise", works=widened),) if widened else ()),
        *frozen(rank.run, modules),
        Module(name="adapters", works=works),
    )
    if not _is_dora(rank.run):
        return adapted
    norms = tuple(work for each in found for work in _norm_works(rank, each))
    # the norms are constants to the gradient (Liu et al., DoRA, arXiv 2402.09353, section 4.3)
    return (*adapted, Module(name="adapters", works=norms, backward="none"))


def before_inputs_gradients(rank: RankShare, kind: LayerKind) -> Calls:
    """Work of the gradients of products' inputs beside the products: the base brought to their dtype once more, and the sum of the
    gradients that come through the base and through each adapter, but of what a frozen encoder made."""
    sums = (
        Stream(dtype=rank.dtype, size_bytes=JOINING_PASSES * rank.item_bytes * each.rows(rank) * each.inputs)
        for each in adapters_of(rank.run, kind)
        if not (each.tokens_beside and rank.run.attends_to_frozen)
    )
    return tuple(Counted(call=call, phase="forward") for call in (*_widened(rank, kind), *sums))


def _widened(rank: RankShare, kind: LayerKind) -> tuple[Dequantise, ...]:
    """Each linear matrix of a base in few bits, or one of all experts together, brought to the dtype of its product."""
    stored = rank.run.adapters.stored
    if not stored:
        return ()
    return tuple(
        Dequantise(dtype=rank.dtype, stored=stored, count=max(1, experts) * matrix.elements)
        for _, experts, matrices in _groups_on_rank(rank.run, kind)
        for matrix in matrices
    )


def frozen(run: TrainingRun, modules: tuple[Module, ...], *, needs_input: bool = True) -> tuple[Module, ...]:
    """Modules whose weights have no gradients beside adapters; nothing before them is trained either, unless `needs_input`."""
    if not run.adapters.are_trained:
        return modules
    return tuple(module.frozen(needs_input=needs_input) for module in modules)


def _works(rank: RankShare, adapter: Adapter) -> Works:
    """The products x·Aᵀ and ·Bᵀ, and the sum with the product's own result, both scaled by DoRA. Adapters that share the tokens have
    products of their own, those of a microbatch's sequences."""
    rows = adapter.rows(rank)
    shapes = ((adapter.rank, adapter.inputs), (adapter.outputs, adapter.rank))
    seen = adapter.seen(rank)
    products: tuple[tuple[Operator, float], ...] = tuple(
        (
            GroupedGemm(dtype=rank.dtype, groups=seen * adapter.experts, rows=rows, n=n, k=k, distribution="balanced"),
            1.0,
        )
        if adapter.experts
        else (Gemm(dtype=rank.dtype, m=rows // seen, n=n, k=k), rows / (rows // seen))
        for n, k in shapes
    )
    passes = JOINING_PASSES + _is_dora(rank.run) * MAGNITUDE_PASSES
    joining = Stream(dtype=rank.dtype, size_bytes=passes * rank.item_bytes * rows * adapter.outputs)
    return (*products, (joining, 1.0))


def _norm_works(rank: RankShare, adapter: Adapter) -> Works:
    """The norms of W + B·A, of every copy that a microbatch sees: W brought from few bits to the dtype of products, the product and the
    passes over the sum."""
    copies = adapter.copies_seen(rank)
    update = Gemm(dtype=rank.dtype, m=adapter.outputs, n=adapter.inputs, k=adapter.rank)
    weight, stored = copies * adapter.outputs * adapter.inputs, rank.run.adapters.stored
    widened: Works = ((Dequantise(dtype=rank.dtype, stored=stored, count=weight), 1.0),) if stored else ()
    return (
        *widened,
        (update, float(copies)),
        (Stream(dtype=rank.dtype, size_bytes=DORA_PASSES * rank.item_bytes * weight), 1.0),
    )


# What a layer with adapters keeps for its backward.


def saved_with_adapters(sizes: Sizes, kind: LayerKind, saved: Saved) -> Saved:
    """The tensors of a layer without the inputs of products whose weights are frozen and have no adapter, and with the x·Aᵀ of each
    adapter, which the gradient of B needs; that of A needs the product's input."""
    run = sizes.rank.run
    if not run.adapters.are_trained:
        return saved
    found = adapters_of(run, kind)
    widened = max((sizes.item * call.count for call in _widened(sizes.rank, kind)), default=0)
    # the update before it joins a product's output, scaled or not; the gradient of its input beside that of the product's
    rows = [(each, sizes.item * each.rows(sizes.rank)) for each in found]
    joining = max((2 * row_bytes * each.outputs for each, row_bytes in rows), default=0)
    parting = max((row_bytes * (each.outputs + each.inputs) for each, row_bytes in rows), default=0)
    return (
        *frozen_saved(sizes, saved, {each.product for each in found}),
        *(_saved_by_magnitudes(sizes, found) if _is_dora(run) else ()),
        SavedTensors(
            component="adapters",
            kept=float(sum(sizes.item * each.rank * each.rows(sizes.rank) for each in found)),
            # and a matrix of a base in few bits, while its product reads it
            in_forward=float(widened + joining),
            in_backward=float(widened + parting),
        ),
    )


def _saved_by_magnitudes(sizes: Sizes, found: Sequence[Adapter]) -> Saved:
    """The results of each product and of its update, T·outputs each, from which the gradient of DoRA's magnitudes comes, and the numbers
    that scale them (byte-equal, torch 2.13); the sum of one weight, while its norms are taken."""
    item, rank, matrices = sizes.item, sizes.rank, SUMMED + bool(sizes.rank.run.adapters.stored)
    results = sum(each.rows(rank) * each.outputs for each in found)
    scales = SCALES * sum(each.outputs * each.copies_seen(rank) for each in found)
    summed = max((matrices * each.outputs * each.inputs for each in found), default=0)
    scaled = max((SCALED * each.rows(rank) * each.outputs for each in found), default=0)
    return (
        SavedTensors(
            component="adapters",
            kept=float(item * (2 * results + scales)),
            in_forward=float(item * max(summed, scaled)),
            in_backward=float(item * scaled),
        ),
    )


def frozen_saved(sizes: Sizes, saved: Saved, adapted: set[str] | frozenset[str] = frozenset()) -> Saved:
    """The tensors that frozen modules keep: not those that the gradients of their own weights alone would need."""
    if not sizes.rank.run.adapters.are_trained:
        return saved
    return tuple(
        replace(step, kept=0.0, if_recomputed={}) if step.input_of and adapted.isdisjoint(step.input_of) else step
        for step in saved
    )
