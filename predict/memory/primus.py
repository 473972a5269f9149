"""The published memory formulas of Primus "Projection" (AMD; section Memory Projection), as they are printed.

They are shown next to this project's estimate for comparison (`predict memory --formula primus`); `PrimusMemory.differences` says
where the two differ and why. A GB of Primus is 2³⁰ bytes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from predict.model.spec import LayerKind, ModelSpec
from predict.rank.share import padded_vocabulary
from predict.run.stages import slices, split_layers
from predict.run.training_run import TrainingRun
from sampling.errors import UserError

# The memory formulas of Primus Projection by component, as its document prints them (sections Parameter Estimation and
# Activation Memory).
#
# Every tensor has two bytes per element. A component's activations are the bytes that one microbatch keeps for the backward.

ITEM_BYTES = 2
FP32_BYTES = 4
Softmax = Literal["as_queries", "log_sum_exp"]
"""The softmax statistics that flash attention keeps: as wide as the queries in the formula, four bytes per head in one of the worked
examples (0.51 GB of attention, 18.20 GB per layer)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PrimusComponent:
    """`count` equal components; parameters and bytes are those of one."""

    name: str
    parameters: int = 0
    activation_bytes: int = 0
    count: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class PrimusLayer:
    """A layer of one kind on one rank."""

    name: str
    components: tuple[PrimusComponent, ...]

    @property
    def parameters(self) -> int:
        return sum(component.count * component.parameters for component in self.components)

    @property
    def activation_bytes(self) -> int:
        return sum(component.count * component.activation_bytes for component in self.components)


@dataclass(frozen=True, kw_only=True, slots=True)
class PrimusShapes:
    """A run as Primus Projection sees it; `ep` 1 gives the parameters of a layer over all ranks."""

    run: TrainingRun
    ep: int
    softmax: Softmax = "as_queries"

    @property
    def model(self) -> ModelSpec:
        return self.run.model

    @property
    def tokens(self) -> int:
        """MBS × S / (TP × CP), with or without sequence parallelism."""
        plan, batch = self.run.plan, self.run.batch
        return batch.micro * batch.seq_len // (plan.tp * plan.cp)

    @property
    def hidden_bytes(self) -> int:
        """The hidden states of a microbatch."""
        return self.tokens * self.model.hidden * ITEM_BYTES

    @property
    def vocabulary(self) -> int:
        return padded_vocabulary(self.model.vocab, self.run.plan.tp)

    def layer(self, kind: LayerKind) -> PrimusLayer:
        """Three norms, attention, two residual additions, and an MLP or a router with its experts."""
        components = (
            PrimusComponent(
                name="layer_norm", parameters=2 * self.model.hidden, activation_bytes=self.hidden_bytes, count=3
            ),
            PrimusComponent(
                name="self_attention",
                parameters=self._attention_parameters(),
                activation_bytes=self._attention_activation_bytes(),
            ),
            PrimusComponent(name="residual_add", activation_bytes=self.hidden_bytes, count=2),
            *(self._mixture() if kind.sparse else self._mlp()),
        )
        return PrimusLayer(name=f"{'moe' if kind.sparse else 'dense'}_transformer_layer", components=components)

    def embedding(self) -> PrimusComponent:
        parameters = self.vocabulary * self.model.hidden
        return PrimusComponent(name="embedding", parameters=parameters, activation_bytes=self.hidden_bytes)

    def output(self) -> tuple[PrimusComponent, ...]:
        """Final norm and output layer; Primus names a loss too, and prints no formula for it."""
        return (
            PrimusComponent(
                name="final_layernorm", parameters=2 * self.model.hidden, activation_bytes=self.hidden_bytes
            ),
            PrimusComponent(
                name="output_layer",
                parameters=self.vocabulary * self.model.hidden,
                activation_bytes=self.tokens * self.vocabulary * ITEM_BYTES,
            ),
        )

    def _attention_parameters(self) -> int:
        """2 × H² × (1 + G/A) × P, which is 2 · H · (A + G) · d; latent attention as q_term + kv_term + pos + out."""
        model = self.model
        if model.attention.compressed_width:
            return model.attention.elements_per_token(model) + model.attention.compressed_width
        return 2 * model.hidden * (model.q_width + model.kv_width)

    def _attention_activation_bytes(self) -> int:
        """Queries, keys, values, output and softmax statistics, two bytes per element."""
        model = self.model
        queries, keys = model.heads * model.head_dim, model.kv_heads * model.head_dim
        widths = queries + 2 * keys + model.hidden
        if self.softmax == "log_sum_exp":
            return self.tokens * (widths * ITEM_BYTES + model.heads * FP32_BYTES)
        return self.tokens * (widths + queries) * ITEM_BYTES

    def _mlp(self) -> Iterator[PrimusComponent]:
        """tokens × (3 × FFN + H) × 2: gate, up, their product, and the output; without a gate 2 × FFN."""
        model = self.model
        matrices = 3 if model.gated else 2
        yield PrimusComponent(
            name="mlp",
            parameters=matrices * model.hidden * model.ffn,
            activation_bytes=self.tokens * (matrices * model.ffn + model.hidden) * ITEM_BYTES,
        )

    def _mixture(self) -> Iterator[PrimusComponent]:
        """H × NE of router, NE/EP experts and the shared one; tokens × (topk + N_shared) × (H + 3 × FFN_e) × 2."""
        model, experts = self.model, self.model.experts
        assert experts is not None  # a model with sparse layers has them
        matrices = experts.into + 1
        yield PrimusComponent(
            name="router", parameters=model.hidden * experts.count, activation_bytes=self.hidden_bytes
        )
        copies = experts.topk + (1 if experts.shared_ffn else 0)
        widths = experts.count * experts.ffn // self.ep + experts.shared_ffn
        yield PrimusComponent(
            name="mlp",
            parameters=matrices * model.hidden * widths,
            activation_bytes=self.tokens * copies * (model.hidden + matrices * experts.ffn) * ITEM_BYTES,
        )


# The differences between the formulas of Primus Projection and ours, term by term, with our reasons.

DIFFERENCES: Mapping[str, str] = {
    "parameters": (
        "Primus divides no weights by tp (405B on tp 8 · pp 8 has 52.6 B parameters per rank, 6.6 B with tp divided); ours "
        "divides attention, MLP, embedding and output by it, and keeps norms and router whole"
    ),
    "total_parameters": (
        "Primus's total omits the output layer and the final norm where pp > 1, and counts a tied table twice where pp = 1; "
        "ours is the model's own count"
    ),
    "layer_norm": (
        "Primus has three norms of 2 H per layer, each keeping its input; ours has the model's own norms, H each where they "
        "are RMS norms, with their statistics"
    ),
    "residual_add": (
        "Primus keeps 2 T H for each addition; an addition keeps nothing, and its result is the next norm's input, which is "
        "counted there"
    ),
    "self_attention": (
        "Primus counts softmax statistics as wide as the queries, but 4 bytes per head in its 0.51 GB example; flash "
        "attention keeps the latter (4 T A), and ours counts that, the projections' biases and latent attention's own shapes"
    ),
    "mlp": (
        "Primus keeps gate, up, their product and the output for every framework; ours keeps what each framework's kernels "
        "keep (eager torch one tensor more, and the input, but no output)"
    ),
    "moe_mlp": (
        "Primus takes a shared expert to be as wide as a routed one and the rows of a rank to be T · topk; ours has the "
        "shared width, the expert-tensor ranks and the imbalance of tokens over experts"
    ),
    "output_layer": (
        "Primus keeps one tensor of two-byte logits and nothing for the loss; ours adds the fp32 logits of a loss that is "
        "not fused, and its working set"
    ),
    "optimizer": (
        "Primus takes 10 bytes per parameter, 2 for the master weights; fp32 masters and two moments are 12, as in ours, and "
        "gradients that are accumulated in fp32 are 4 bytes and not 2"
    ),
    "data_parallel": (
        "Primus shards every parameter's optimizer state over world / (ep · pp) ranks, as if a distributed optimizer were "
        "always on; ours shards as plan.zero says, dense weights over dp · cp and experts over their own group"
    ),
    "in_flight": (
        "Primus multiplies by pp · [1 + (pp − 1)/(pp · vpp)] · min(1, ga/pp) on every stage, embedding included, and so by "
        "up to 1.75 pp without virtual chunks; ours counts the microbatches that the schedule's order keeps on that rank "
        "(1F1B: min(m, pp − rank))"
    ),
    "recompute": (
        "Primus knows full recomputation only, and selective recomputation changes nothing in it; ours drops what the named "
        "modules keep"
    ),
    "transient": (
        "Primus's formulas have no buffers of collectives, allocator or kernels; ours adds working sets, and a memory "
        "benchmark the rest"
    ),
}


def differences(run: TrainingRun) -> dict[str, str]:
    """The differences that every run has, and the features of this one for which Primus has no formula."""
    model = run.model
    found = dict(DIFFERENCES)
    if any(mixer.IS_RECURRENT for mixer in model.mixers):
        found["linear_attention"] = _lacks("linear attention", "these layers are counted as its standard attention")
    if model.mtp_layers:
        found["multi_token_prediction"] = _lacks("multi-token prediction", "those layers are omitted")
    if not model.attention.IS_PLAIN:
        found[model.attention.TITLE.replace(" ", "_")] = _lacks(
            f"the activations of {model.attention.TITLE}", "they are those of standard attention with its query heads"
        )
    if run.precision not in ("bf16", "fp16"):
        found["precision"] = (
            f"Primus has two bytes for weights, gradients and activations; this run is in {run.precision}"
        )
    return found


def _lacks(feature: str, instead: str) -> str:
    return f"Primus has no formula for {feature}; {instead}"


WEIGHT_BYTES, GRADIENT_BYTES, OPTIMIZER_BYTES = 2, 2, 10
"""Bytes per parameter; the optimizer's are 2 + 4 + 4 in Primus."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PrimusFactors:
    """The factors on a stage's activations of one microbatch, and what they follow from."""

    dp: int
    """world / (EP × PP)."""
    gradient_accumulation: float
    """GBS / (MBS × DP)."""
    pp: int
    interleaved_penalty: float
    """1 + (PP − 1) / (PP × VPP)."""
    ga_saving: float
    """min(1, GA / PP)."""

    @property
    def product(self) -> float:
        return self.pp * self.interleaved_penalty * self.ga_saving


@dataclass(frozen=True, kw_only=True, slots=True)
class PrimusMemory:
    """Memory of one rank of pipeline stage `pipeline_rank` by Primus's formulas, in bytes."""

    run: str
    pipeline_rank: int
    total_parameters: int
    """The total that Primus prints, without the output layer and the final norm where pp > 1."""
    parameters: int
    """Parameters on this rank."""
    outside_layers: tuple[PrimusComponent, ...]
    """Embedding, final norm and output layer, where the stage has them."""
    layers: tuple[tuple[PrimusLayer, int], ...]
    """Each kind of layer on this rank, and its count."""
    recomputed_layers: int
    factors: PrimusFactors
    base_activation_bytes: int
    """Activations of one microbatch, before the factors."""
    working_bytes: int
    """The layer that is being recomputed; 0 without recomputation."""
    activation_bytes: int
    """Activations after the factors, working bytes included."""
    differences: Mapping[str, str]

    @property
    def weight_bytes(self) -> int:
        return WEIGHT_BYTES * self.parameters

    @property
    def gradient_bytes(self) -> int:
        return GRADIENT_BYTES * self.parameters

    @property
    def optimizer_bytes(self) -> int:
        return round(OPTIMIZER_BYTES * self.parameters / self.factors.dp)

    @property
    def bytes_per_parameter(self) -> float:
        return WEIGHT_BYTES + GRADIENT_BYTES + OPTIMIZER_BYTES / self.factors.dp

    @property
    def state_bytes(self) -> int:
        return self.weight_bytes + self.gradient_bytes + self.optimizer_bytes

    @property
    def total_bytes(self) -> int:
        return self.state_bytes + self.activation_bytes


def primus_memory(run: TrainingRun, *, pipeline_rank: int = 0, softmax: Softmax = "as_queries") -> PrimusMemory:
    """Memory of a rank of a pipeline stage, by default the first, as in Primus's summary.

    `softmax` chooses between the two widths that Primus prints for the statistics of attention (see `Softmax`). Raises
    UserError for a stage that the plan does not have.
    """
    plan = run.plan
    if not 0 <= pipeline_rank < plan.pp:
        raise UserError(f"pipeline_rank: {pipeline_rank} is not below {plan.pp}, the plan.pp; give 0 to {plan.pp - 1}")
    shapes = PrimusShapes(run=run, ep=plan.ep, softmax=softmax)
    chunks = _chunks(run, pipeline_rank)
    kinds = [kind for chunk in chunks for kind in chunk]
    layers = {kind.sparse: shapes.layer(kind) for kind in kinds}
    outside_layers = (
        *((shapes.embedding(),) if pipeline_rank == 0 else ()),
        *(shapes.output() if pipeline_rank == plan.pp - 1 else ()),
    )
    factors = _factors(run)
    kept = [_kept_bytes(run, shapes, layers, chunk) for chunk in chunks]
    recomputed = sum(count for _, count in kept)
    outside_bytes = sum(component.activation_bytes for component in outside_layers)
    layer_bytes = sum(size for size, _ in kept)
    working = max(layer.activation_bytes for layer in layers.values()) if recomputed else 0
    base = layer_bytes if recomputed else layer_bytes + outside_bytes
    activations = base * factors.product + (working + outside_bytes if recomputed else 0)
    return PrimusMemory(
        run=run.name,
        pipeline_rank=pipeline_rank,
        total_parameters=_total_parameters(run),
        parameters=sum(component.parameters for component in outside_layers)
        + sum(layers[kind.sparse].parameters for kind in kinds),
        outside_layers=outside_layers,
        layers=tuple((layer, sum(kind.sparse == sparse for kind in kinds)) for sparse, layer in layers.items()),
        recomputed_layers=recomputed,
        factors=factors,
        base_activation_bytes=base,
        working_bytes=working,
        activation_bytes=round(activations),
        differences=differences(run),
    )


def _factors(run: TrainingRun) -> PrimusFactors:
    plan = run.plan
    world = plan.tp * plan.pp * plan.cp * plan.dp
    dp = max(1, world // (plan.ep * plan.pp))
    steps = run.batch.global_ / (run.batch.micro * dp)
    return PrimusFactors(
        dp=dp,
        gradient_accumulation=steps,
        pp=plan.pp,
        interleaved_penalty=1 + (plan.pp - 1) / (plan.pp * plan.vpp),
        ga_saving=min(1.0, steps / plan.pp),
    )


def _chunks(run: TrainingRun, pipeline_rank: int) -> list[tuple[LayerKind, ...]]:
    """Kinds of the layers of the rank's virtual stages: r, PP + r, 2 × PP + r and so on under every schedule."""
    plan, kinds = run.plan, run.model.kinds()
    shares = slices(split_layers(run.model.layers, plan.pp * plan.vpp, plan))
    return [tuple(kinds[index] for index in share) for share in shares[pipeline_rank :: plan.pp]]


def _kept_bytes(
    run: TrainingRun, shapes: PrimusShapes, layers: Mapping[bool, PrimusLayer], chunk: tuple[LayerKind, ...]
) -> tuple[int, int]:
    """Bytes that a chunk's layers keep of a microbatch, and how many of them are recomputed and keep their input only."""
    plan = run.plan
    most = {"uniform": len(chunk), "block": plan.recompute_layers}[plan.recompute_method]
    recomputed = min(most, len(chunk)) if plan.recompute == "full" else 0
    whole = sum(layers[kind.sparse].activation_bytes for kind in chunk[recomputed:])
    return recomputed * shapes.hidden_bytes + whole, recomputed


def _total_parameters(run: TrainingRun) -> int:
    whole = PrimusShapes(run=run, ep=1)
    layers = sum(whole.layer(kind).parameters for kind in run.model.kinds())
    outside_layers = (whole.embedding(), *(whole.output() if run.plan.pp == 1 else ()))
    return layers + sum(component.parameters for component in outside_layers)
