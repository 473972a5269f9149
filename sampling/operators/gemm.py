"""Matrix products: of a linear layer, y[m, n] = x[m, k] · W[n, k]ᵀ, and of a batch of matrices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sampling.arithmetic.operator import FORWARD_BACKWARD, WITH_WEIGHTS, Operator, physics_features
from sampling.arithmetic.tiles import alignment_features, wave_features
from sampling.call import Phase
from sampling.catalogue import register
from sampling.hardware.cluster import Cluster
from sampling.torch_work.precision import products_in

if TYPE_CHECKING:
    import torch

    from sampling.torch_work.workload import AutogradWorkload, PhaseWorkload

LEAST_OUTPUT_BYTES = 2


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class Gemm(Operator):
    """Any linear layer: m tokens, n output features, k input features.

    Backward-input is [m, n]·[n, k], backward-weight [n, m]·[m, k]; each the forward's FLOPs 2·m·n·k.
    """

    NAME: ClassVar[str] = "gemm"
    KIND: ClassVar[str] = "gemm"
    PHASES: ClassVar[tuple[Phase, ...]] = WITH_WEIGHTS
    COLUMNS: ClassVar[tuple[str, ...]] = ("m", "n", "k")

    m: int
    n: int
    k: int
    kernel: str = ""
    """The library or kernel family that computes it, where a measurement names one."""

    def flops(self, phase: Phase) -> float:
        return 2.0 * self.m * self.n * self.k * (2 if phase == "backward" else 1)

    def bytes_moved(self, phase: Phase) -> float:
        sizes = {"y": self.m * self.n, "x": self.m * self.k, "weight": self.n * self.k}
        every = sum(sizes.values())
        # a product of fp8 matrices is written in 16 bits
        wider = max(0, LEAST_OUTPUT_BYTES - self.item_bytes)
        made = {"forward": "y", "backward_input": "x", "backward_weight": "weight"}
        written = sizes[made[phase]] if phase in made else sizes["x"] + sizes["weight"]
        return 1.0 * (self.item_bytes * every * (2 if phase == "backward" else 1) + wider * written)

    def features(self, phase: Phase, cluster: Cluster) -> dict[str, float]:
        return {
            **physics_features(self, phase, cluster),
            **wave_features(self.m, self.n, 1, cluster.gpu.multiprocessors),
            **alignment_features(m=self.m, n=self.n, k=self.k),
        }

    def build(self, device: torch.device) -> AutogradWorkload | PhaseWorkload:
        from torch.nn import functional

        from sampling.torch_work.workload import COPIES, AutogradWorkload, Copy, leaf, refuse_named_kernel

        refuse_named_kernel(self.NAME, self.kernel)
        if self.dtype == "fp8":
            from sampling.torch_work.scaled_product import fp8_products

            return fp8_products(device, self.m, self.n, self.k)

        def copy() -> Copy:
            x, weight = leaf(device, self.dtype, self.m, self.k), leaf(device, self.dtype, self.n, self.k)
            return Copy(forward=lambda: functional.linear(x, weight), inputs=[x], weights=[weight])

        return AutogradWorkload([copy() for _ in range(COPIES)], context=products_in(self.dtype))


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class BatchedGemm(Operator):
    """`batch` products [m, k] · [k, n], the two of unfused attention among them; `adds` scales and adds onto a third
    tensor (torch.baddbmm). Backward is two such products.
    """

    NAME: ClassVar[str] = "batched_gemm"
    KIND: ClassVar[str] = "gemm"
    PHASES: ClassVar[tuple[Phase, ...]] = FORWARD_BACKWARD
    COLUMNS: ClassVar[tuple[str, ...]] = ("batch", "m", "n", "k")

    batch: int
    m: int
    n: int
    k: int
    adds: bool

    def flops(self, phase: Phase) -> float:
        return 2.0 * self.batch * self.m * self.n * self.k * (2 if phase == "backward" else 1)

    def bytes_moved(self, phase: Phase) -> float:
        one_product = self.item_bytes * self.batch * (self.m * self.k + self.n * self.k + self.m * self.n)
        return one_product * (2.0 if phase == "backward" else 1.0)

    def features(self, phase: Phase, cluster: Cluster) -> dict[str, float]:
        return {
            **physics_features(self, phase, cluster),
            **wave_features(self.m, self.n, self.batch, cluster.gpu.multiprocessors),
            **alignment_features(m=self.m, n=self.n, k=self.k),
        }

    def build(self, device: torch.device) -> AutogradWorkload:
        import torch

        from sampling.torch_work.workload import COPIES, AutogradWorkload, Copy, leaf

        def copy() -> Copy:
            left = leaf(device, self.dtype, self.batch, self.m, self.k)
            right = leaf(device, self.dtype, self.batch, self.k, self.n)
            if not self.adds:
                return Copy(forward=lambda: torch.bmm(left, right), inputs=[left, right])
            # beta = 0 reads nothing of it, as attention's scores start from an empty buffer
            onto = torch.empty(self.batch, self.m, self.n, device=device, dtype=left.dtype)
            forward = lambda: torch.baddbmm(onto, left, right, beta=0.0, alpha=self.k**-0.5)  # noqa: E731
            return Copy(forward=forward, inputs=[left, right])

        return AutogradWorkload([copy() for _ in range(COPIES)], context=products_in(self.dtype))
