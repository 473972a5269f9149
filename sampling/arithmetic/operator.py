"""Operator: a Call whose cost comes from matrix FLOPs and bytes on one device."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import ClassVar

from sampling.arithmetic.arrays import all_zero, ceil, common_divisor, log2, smaller
from sampling.call import Call, Counted, Phase
from sampling.hardware.cluster import DTYPE_BYTES, ELEMENT_BYTES, Cluster
from sampling.units import MIB

# Share of a GPU's streaming bandwidth that the kernels of a memory-bound operator reach, where nothing was sampled.
#
# Streaming bandwidth is the stated one times `efficiency.elementwise` of the hardware file, which is what a plain pass such as
# a residual addition reaches. The shares that operators declare are, unless they name another source, those of Estimating
# training time: "bytes of one tensor over time" in GB/s, forward and backward, on the A100 (of 2039; a residual 0.83) and the
# GH200 (of 4000; a residual 0.885), by each operator's own `bytes_moved`.

MEASURED = 0.35
"""Log half-width at 90 % where both GPUs were measured: their shares differ by up to 1.5×, and stacks by 1.35 ± 0.3."""
ONE_STACK = 0.6
"""Log half-width where the two differ by more, or only one was measured."""
BY_ANALOGY = 0.9
"""Log half-width where nothing was measured."""
UNKNOWN = math.log(2.0)
"""Log half-width of an operator that declares nothing: on published tables shares of peak range over 0.3–0.9 about 0.6."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BandwidthShare:
    """Share of streaming bandwidth in forward and backward, and the number of kernels that a phase launches."""

    forward: float = 1.0
    backward: float = 1.0
    width: float = UNKNOWN
    """Half-width of the 90 % interval of the time's logarithm."""
    kernels: int = 1
    by_architecture: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Forward and backward on an architecture whose own samples differ from the rest: another GPU's, or an older kernel's."""

    def share(self, phase: str, architecture: str) -> float:
        forward, backward = self.by_architecture.get(architecture, (self.forward, self.backward))
        return backward if phase.startswith("backward") else forward


FORK_JOIN_ELEMENTS = 32_768
"""Elements above which torch divides an elementwise kernel among CPU threads (at::internal::GRAIN_SIZE, ATen/Parallel.h).
Waking the threads costs tens of µs, more than such a kernel itself takes."""

FORWARD_BACKWARD: tuple[Phase, ...] = ("forward", "backward")
WITH_WEIGHTS: tuple[Phase, ...] = ("forward", "backward", "backward_input", "backward_weight")

COPIES = 2
"""Distinct copies of a call that take turns while it is timed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerSize:
    """Sizes of a transformer layer for which a session chooses calls to time."""

    dtype: str
    batch: int
    seq_len: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int

    @property
    def tokens(self) -> int:
        return self.batch * self.seq_len


@dataclass(frozen=True, kw_only=True, slots=True)
class Operator(Call):
    """Work on one device, described by FLOPs and bytes. A subclass must declare NAME and PHASES; the rest has defaults."""

    KIND: ClassVar[str] = "elementwise"
    """The hardware file's efficiency for its FLOPs, and the prefix of its roofline terms, which layers sum by name."""
    POWER_LIMITED: ClassVar[bool] = False
    """Whether it draws so much power that a GPU's clocks fall in a long run, as matrix products do."""
    FUSIBLE: ClassVar[bool] = False
    """Whether a compiler fuses it with its neighbours, so that an eager framework takes longer for it."""
    BANDWIDTH: ClassVar[BandwidthShare] = BandwidthShare()
    """Speed where nothing was sampled, of an operator without a formula in `predict.prices.kernels`."""

    dtype: str

    def flops(self, phase: Phase) -> float:
        """Matrix-product FLOPs of the phase, as torch's FlopCounterMode counts them (no causal halving)."""
        return 0.0

    @abstractmethod
    def bytes_moved(self, phase: Phase) -> float:
        """Compulsory traffic: every tensor that the phase must read or write, once."""

    @classmethod
    def sampled_with(cls, layer: LayerSize) -> Sequence[Operator]:
        """Calls of this class to time for such a layer; () for an operator that is a part of a sampled cell anyway."""
        return ()

    def least_bytes(self, phase: Phase) -> float:
        """Traffic that a physical bound may rely on, where chance decides how much is needed."""
        return self.bytes_moved(phase)

    def executed_flops(self, phase: Phase) -> float:
        """FLOPs that the kernel executes, fewer than `flops` where masking lets it skip some."""
        return self.flops(phase)

    def resident_bytes(self) -> float:
        # the tensors of forward and as much again in gradients; those of a step exist once
        return self.bytes_moved("step") if "step" in self.PHASES else 2 * COPIES * self.bytes_moved("forward")

    @property
    def kernels(self) -> int:
        """Kernels that a phase launches on a GPU."""
        return self.BANDWIDTH.kernels

    @property
    def compute_dtype(self) -> str:
        """The precision of its products."""
        return self.dtype

    @property
    def elements(self) -> int:
        """Elements of one tensor of a memory-bound kernel; 0 if all CPU threads always share the kernel."""
        return 0

    @property
    def item_bytes(self) -> int:
        return DTYPE_BYTES[self.dtype]

    @property
    def operand_bytes(self) -> float:
        """Bytes of an element of a product's operands, with its share of the scales."""
        return ELEMENT_BYTES[self.dtype]

    def terms(self, phase: Phase, cluster: Cluster) -> dict[str, float]:
        gpu = cluster.gpu
        terms = {f"{self.KIND}_memory": self.bytes_moved(phase) / gpu.bytes_per_us()}
        flops = self.executed_flops(phase)
        if not all_zero(flops):
            terms[f"{self.KIND}_compute"] = flops / gpu.peak_flops_per_us(self.compute_dtype)
        if gpu.threads > 1 and not all_zero(self.elements):
            # a nominal microsecond, which the fit scales to the cost of waking the threads
            terms["fork_join"] = 1.0 * (self.elements > FORK_JOIN_ELEMENTS)
        return terms

    def features(self, phase: Phase, cluster: Cluster) -> dict[str, float]:
        return physics_features(self, phase, cluster)


def physics_features(call: Call, phase: Phase, cluster: Cluster) -> dict[str, float]:
    """Log sizes, log roofline terms, arithmetic intensity, and the remainders of sizes modulo 64.

    The list is the one that won on public samples: FLOPs and bytes (as times at peak), intensity, alignment, log sizes.
    Each value of a string field, such as a kernel's name, is a column of its own that is 1 where it applies.
    """
    features: dict[str, float] = {}
    for name, value in call.fields().items():
        if isinstance(value, bool):
            features[name] = float(value)
        elif name == "dtype":
            features["dtype_width"] = float(ELEMENT_BYTES[value])
        elif isinstance(value, str):
            if value:
                features[f"{name}={value}"] = 1.0
        else:
            features[f"log2_{name}"] = log2(value + 1)
            features[f"odd_tail_{name}"] = (-value % 64) / 64
    terms = call.terms(phase, cluster)
    for name, value in terms.items():
        features[f"log2_{name}_us"] = log2(value + 1e-3)
    compute = sum(value for name, value in terms.items() if name.endswith("_compute"))
    memory = sum(value for name, value in terms.items() if name.endswith("_memory"))
    features["log2_intensity"] = log2((compute + 1e-6) / (memory + 1e-6))
    features["log2_cache_fill"] = log2(1e-6 + memory * cluster.gpu.bytes_per_us() / (cluster.gpu.cache_mib * MIB))
    return features


# Operators made of parts, whose arithmetic is the sum of theirs.


class Composite(Operator):
    """An operator whose FLOPs, bytes and roofline terms are the sums of those of its parts."""

    __slots__ = ()

    def flops(self, phase: Phase) -> float:
        return self._sum_of_operators(phase, lambda operator, own: operator.flops(own))

    def bytes_moved(self, phase: Phase) -> float:
        return self._sum_of_operators(phase, lambda operator, own: operator.bytes_moved(own))

    def _sum_of_operators(self, phase: Phase, quantity: Callable[[Operator, Phase], float]) -> float:
        return sum(
            part.count * quantity(part.call, part.phase)
            for part in self.parts(phase)
            if isinstance(part.call, Operator)
        )

    def terms(self, phase: Phase, cluster: Cluster) -> dict[str, float]:
        return add_terms(*(scale_terms(part.call.terms(part.phase, cluster), part.count) for part in self.parts(phase)))

    def features(self, phase: Phase, cluster: Cluster) -> dict[str, float]:
        return composite_features(self, phase, cluster)


def composite_features(call: Call, phase: Phase, cluster: Cluster) -> dict[str, float]:
    """The logarithm and the share of each roofline term: few columns, since cells have few samples."""
    terms = call.terms(phase, cluster)
    total = sum(terms.values())
    features = {f"log2_{name}_us": math.log2(value + 1e-3) for name, value in terms.items()}
    features |= {f"share_{name}": value / total for name, value in terms.items()}
    features |= {name: float(value) for name, value in _flags(call).items()}
    features |= {
        f"log2_{name}": math.log2(call.fields()[name])
        for name in ("batch", "seq_len", "hidden")
        if name in call.fields()
    }
    return features


def _flags(call: Call) -> dict[str, bool]:
    """The yes-or-no fields. One that is False by default is a column only where it is True, as if it were a kind of call:
    the field may be younger than the fitted model."""
    flags = {}
    for each in fields(call):
        value = getattr(call, each.name)
        if isinstance(value, bool) and each.default is not False:
            flags[each.name] = value
        elif value is True:
            flags[f"{each.name}=yes"] = value
    return flags


def _phase_of(phases: Sequence[Phase], phase: Phase) -> Phase | None:
    """The phase of a part with these phases that runs in `phase` of the whole; None if none does.

    The backward of a part without weights counts as backward-input.
    """
    if phase in phases:
        return phase
    if phase == "backward_accumulate" or (phase == "backward_input" and "backward_weight" not in phases):
        return "backward" if "backward" in phases else None
    return None


def counted_in(phase: Phase, calls: Iterable[tuple[Call, float]]) -> tuple[Counted, ...]:
    """The calls of (call, count) that run in a phase of the whole, each in its own phase; those without weights do all of their backward
    in its input half."""
    return tuple(
        Counted(call=call, phase=own, count=count) for call, count in calls if (own := _phase_of(call.PHASES, phase))
    )


def add_terms(*many: Mapping[str, float]) -> dict[str, float]:
    """Sum of several term dictionaries, key by key."""
    total: dict[str, float] = {}
    for terms in many:
        for name, value in terms.items():
            total[name] = total.get(name, 0.0) + value
    return total


def scale_terms(terms: Mapping[str, float], factor: float) -> dict[str, float]:
    return {name: value * factor for name, value in terms.items()}


# Tiles of a matrix product, and waves of tiles over a GPU's multiprocessors, as features of a time model.
#
# A GPU computes whole tiles, as many at a time as it has multiprocessors. An almost empty last wave and a tile that extends
# past the edge cost as much as full ones (NVIDIA, Matrix Multiplication Background User's Guide, 2023).

TILES = ((64, 64), (64, 128), (128, 128), (128, 256), (256, 128))
"""Rows and columns of common tiles; libraries do not report which one they choose."""
NAMED_TILES = tuple((f"waves_{height}x{width}", height, width) for height, width in TILES)
ROW_EDGES = tuple((f"rows_fill_{edge}", edge) for edge in (64, 128, 256))
COLUMN_EDGES = tuple((f"columns_fill_{edge}", edge) for edge in (128, 256))
FEW_WAVES = 16.0
"""Number of waves from which one more is within the noise."""
ALIGNMENT_LIMIT = 128
"""Elements; a size divisible by more is not loaded any faster."""


def wave_features(rows: int, columns: int, products: int, multiprocessors: int) -> dict[str, float]:
    """Used share of the multiprocessors' time for each tile shape; empty for a device whose multiprocessors are not stated.

    `rows` × `columns` is the output of one product, `products` the number that run at once.
    """
    if not multiprocessors:
        return {}
    features = {}
    for name, height, width in NAMED_TILES:
        waves = products * -(-rows // height) * -(-columns // width) / multiprocessors
        features[f"{name}_fill"] = waves / ceil(waves)
        features[f"{name}_few"] = smaller(waves, FEW_WAVES)
    for name, edge in ROW_EDGES:
        features[name] = rows / (-(-rows // edge) * edge)
    for name, edge in COLUMN_EDGES:
        features[name] = columns / (-(-columns // edge) * edge)
    return features


def alignment_features(**sizes: int) -> dict[str, float]:
    """Log of the largest power of two that divides each size."""
    return {f"log2_alignment_{name}": log2(common_divisor(size, ALIGNMENT_LIMIT)) for name, size in sizes.items()}
