"""The published memory formulas of Primus "Projection" (AMD; section Memory Projection), as they are printed.

They are shown beside this project's estimate for comparison (`predict memory --formula primus`); `PrimusMemory.differences` says
where the two differ and why. A GB of Primus is 2³⁰ bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from predict.memory.primus.components import PrimusComponent, PrimusLayer, PrimusShapes, Softmax
from predict.memory.primus.differences import differences
from predict.model.spec import LayerKind
from predict.run.stage_layout import slices, split_layers
from predict.run.training_run import TrainingRun
from sampling.errors import UserError

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
