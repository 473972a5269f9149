"""The published memory formulas of the seed (Primus "Projection", Memory Projection), as they are printed.

They stand beside this project's own estimate for comparison (`predict memory --formula seed`): where the two differ and why,
`SeedMemory.notes` says. The seed's GB are 2³⁰ bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from predict.memory.seed.components import SeedComponent, SeedLayer, SeedShapes, Softmax
from predict.memory.seed.notes import notes_for
from predict.model.layer_kinds import LayerKind
from predict.run.stage_layout import slices, split_layers
from predict.run.training_run import TrainingRun
from sampling.errors import UserError

GIB = 2**30
WEIGHT_BYTES, GRADIENT_BYTES, OPTIMIZER_BYTES = 2, 2, 10
"""A parameter; the seed's optimizer part is 2 + 4 + 4."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SeedFactors:
    """What a stage's activations of one microbatch are multiplied by, and what it follows from."""

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
class SeedMemory:
    """Memory of one rank of pipeline stage `pipeline_rank`, by the seed's formulas."""

    run: str
    pipeline_rank: int
    total_parameters: int
    """As the seed prints it, which leaves out the output layer and the final norm where pp > 1."""
    parameters: int
    """On this rank."""
    ends: tuple[SeedComponent, ...]
    """Embedding, final norm and output layer, where the stage has them."""
    layers: tuple[tuple[SeedLayer, int], ...]
    """Each kind of layer on this rank, and how many of it."""
    recomputed_layers: int
    factors: SeedFactors
    base_activation_bytes: int
    """Of one microbatch, before the factors."""
    working_bytes: int
    """The layer that is being recomputed; 0 without recomputation."""
    activation_bytes: int
    """After the factors, working bytes included."""
    notes: Mapping[str, str]

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

    def as_json(self) -> dict[str, Any]:
        """Bytes by term and component, the factors and the notes."""
        return {
            "formula": "seed",
            "run": self.run,
            "pipeline_rank": self.pipeline_rank,
            "parameters": {"total": self.total_parameters, "rank": self.parameters},
            "bytes_per_parameter": self.bytes_per_parameter,
            "weight_bytes": self.weight_bytes,
            "gradient_bytes": self.gradient_bytes,
            "optimizer_bytes": self.optimizer_bytes,
            "base_activation_bytes": self.base_activation_bytes,
            "working_bytes": self.working_bytes,
            "activation_bytes": self.activation_bytes,
            "total_bytes": self.total_bytes,
            "recomputed_layers": self.recomputed_layers,
            "factors": {**asdict(self.factors), "product": self.factors.product},
            "components": [asdict(component) for component in self.ends],
            "layers": [
                {
                    "name": layer.name,
                    "count": count,
                    "parameters": layer.parameters,
                    "activation_bytes": layer.activation_bytes,
                    "parts": [asdict(part) for part in layer.parts],
                }
                for layer, count in self.layers
            ],
            "notes": dict(self.notes),
        }

    def lines(self) -> list[str]:
        """The seed's printed summary."""
        factors = self.factors
        return [
            f"{self.run}: memory of pipeline rank {self.pipeline_rank} by the seed's formulas",
            f"  parameters            {self.total_parameters:,} in all, {self.parameters:,} on the rank",
            *self._component_lines(),
            f"  weights + gradients + optimizer   {_gib(self.state_bytes)} GiB  ({self.bytes_per_parameter:g} B a parameter)",
            f"  activations                       {_gib(self.activation_bytes)} GiB  "
            f"({_gib(self.base_activation_bytes)} GiB × pp {factors.pp} × penalty {factors.interleaved_penalty:g} × "
            f"ga {factors.ga_saving:g})",
            f"  total                             {_gib(self.total_bytes)} GiB",
            "where ours differs:",
            *(f"  {term}: {note}" for term, note in self.notes.items()),
        ]

    def _component_lines(self) -> Iterator[str]:
        for component in self.ends:
            yield f"  {component.name:<32}{_line(component.parameters, component.activation_bytes)}"
        for layer, count in self.layers:
            yield f"  {f'{layer.name} × {count}':<32}{_line(layer.parameters, layer.activation_bytes)}"
            for part in layer.parts:
                name = f"{part.name} × {part.count}" if part.count > 1 else part.name
                yield f"    {name:<30}{_line(part.parameters, part.activation_bytes)}"


def seed_formula(run: TrainingRun, *, pipeline_rank: int = 0, softmax: Softmax = "as_queries") -> SeedMemory:
    """Memory of a rank of a pipeline stage, the first as in the seed's summary.

    `softmax` chooses between the two widths that the seed prints for the statistics of attention (see `Softmax`). Raises
    UserError for a stage that the plan does not have.
    """
    plan = run.plan
    if not 0 <= pipeline_rank < plan.pp:
        raise UserError(f"pipeline_rank: {pipeline_rank} is none of the {plan.pp} of plan.pp; give 0 to {plan.pp - 1}")
    shapes = SeedShapes(run=run, ep=plan.ep, softmax=softmax)
    chunks = _chunks(run, pipeline_rank)
    kinds = [kind for chunk in chunks for kind in chunk]
    layers = {kind.sparse: shapes.layer(kind) for kind in kinds}
    ends = (
        *((shapes.embedding(),) if pipeline_rank == 0 else ()),
        *(shapes.end() if pipeline_rank == plan.pp - 1 else ()),
    )
    factors = _factors(run)
    kept = [_kept_bytes(run, shapes, layers, chunk) for chunk in chunks]
    recomputed = sum(count for _, count in kept)
    of_ends = sum(component.activation_bytes for component in ends)
    of_layers = sum(size for size, _ in kept)
    working = max(layer.activation_bytes for layer in layers.values()) if recomputed else 0
    base = of_layers if recomputed else of_layers + of_ends
    activations = base * factors.product + (working + of_ends if recomputed else 0)
    return SeedMemory(
        run=run.name,
        pipeline_rank=pipeline_rank,
        total_parameters=_total_parameters(run),
        parameters=sum(component.parameters for component in ends)
        + sum(layers[kind.sparse].parameters for kind in kinds),
        ends=ends,
        layers=tuple((layer, sum(kind.sparse == sparse for kind in kinds)) for sparse, layer in layers.items()),
        recomputed_layers=recomputed,
        factors=factors,
        base_activation_bytes=base,
        working_bytes=working,
        activation_bytes=round(activations),
        notes=notes_for(run),
    )


def _factors(run: TrainingRun) -> SeedFactors:
    plan = run.plan
    world = plan.tp * plan.pp * plan.cp * plan.dp
    dp = max(1, world // (plan.ep * plan.pp))
    steps = run.batch.global_ / (run.batch.micro * dp)
    return SeedFactors(
        dp=dp,
        gradient_accumulation=steps,
        pp=plan.pp,
        interleaved_penalty=1 + (plan.pp - 1) / (plan.pp * plan.vpp),
        ga_saving=min(1.0, steps / plan.pp),
    )


def _chunks(run: TrainingRun, pipeline_rank: int) -> list[tuple[LayerKind, ...]]:
    """Kinds of the layers of the rank's virtual stages: r, PP + r, 2 × PP + r and so on, whatever the schedule."""
    plan, kinds = run.plan, run.model.kinds()
    shares = slices(split_layers(run.model.layers, plan.pp * plan.vpp, plan))
    return [tuple(kinds[index] for index in share) for share in shares[pipeline_rank :: plan.pp]]


def _kept_bytes(
    run: TrainingRun, shapes: SeedShapes, layers: Mapping[bool, SeedLayer], chunk: tuple[LayerKind, ...]
) -> tuple[int, int]:
    """What a chunk's layers keep of a microbatch, and how many of them are recomputed and keep their input only."""
    plan = run.plan
    most = {"uniform": len(chunk), "block": plan.recompute_layers}[plan.recompute_method]
    again = min(most, len(chunk)) if plan.recompute == "full" else 0
    whole = sum(layers[kind.sparse].activation_bytes for kind in chunk[again:])
    return again * shapes.sbh_bytes + whole, again


def _total_parameters(run: TrainingRun) -> int:
    whole = SeedShapes(run=run, ep=1)
    layers = sum(whole.layer(kind).parameters for kind in run.model.kinds())
    ends = (whole.embedding(), *(whole.end() if run.plan.pp == 1 else ()))
    return layers + sum(component.parameters for component in ends)


def _line(parameters: int, activation_bytes: int) -> str:
    return f"{parameters:>18,} parameters {activation_bytes / GIB:>10.4f} GiB"


def _gib(size_bytes: float) -> str:
    return f"{size_bytes / GIB:,.2f}"
