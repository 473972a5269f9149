"""Operator: a Call whose cost comes from matrix FLOPs and bytes on one device."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from sampling.arithmetic.arrays import all_zero, log2
from sampling.arithmetic.bandwidth import BandwidthShare
from sampling.call import Call, Phase
from sampling.hardware.cluster import DTYPE_BYTES, Cluster
from sampling.units import MIB

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
            features["dtype_width"] = float(DTYPE_BYTES[value])
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
