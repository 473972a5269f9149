"""Effects of a run's execution on single calls: clocks of a long run, kernels that are not fused, fp8 scaling, young software.

Each is a factor on a time, with the half-width that it adds to the 90 % interval of the logarithm.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from predict.interval import Interval, width_of_call
from predict.prices.cost_model import CostModel
from predict.prices.published_constants import CONSTANTS
from predict.run.execution import Execution
from predict.run.frameworks import framework_settings
from regressors.bank.bank import Bank
from regressors.bank.times import Times
from sampling.arithmetic.operator import Composite, Operator
from sampling.call import Call, Phase
from sampling.cells.overlap import Overlap
from sampling.collectives.kinds import Collective
from sampling.hardware.cluster import Cluster, Gpu, hardware_facts
from sampling.hardware.hardware_file import Activity
from sampling.operators.memory_bound import RMSNorm, RoPE, SwiGLU
from sampling.operators.vocabulary import CrossEntropy


@dataclass(frozen=True, kw_only=True, slots=True)
class Factor:
    """A factor on a time; `half_width` is its logarithm's at 90 %."""

    value: float = 1.0
    half_width: float = 0.0

    def __mul__(self, other: Factor) -> Factor:
        return Factor(value=self.value * other.value, half_width=width_of_call(self.half_width, other.half_width))


EAGER_WIDTH = 0.25
EAGER_PASSES: Mapping[type[Operator], Factor] = {
    SwiGLU: Factor(value=1.75, half_width=0.15),
    RoPE: Factor(value=1.7, half_width=0.3),
    CrossEntropy: Factor(value=1.36, half_width=0.25),
}
"""Eager over fused by the tensors that torch's operators read and write. SwiGLU is a nonlinearity and a product: 5
tensors forward and 9 backward, of 3 and 5. RoPE negates a half, joins it with the other, and adds two products: 10 and
15, of the 7 and 8 that its share of the bandwidth stands for (`rotate_half`, github.com/EleutherAI/gpt-neox,
megatron/model/positional_embeddings.py). A cross-entropy of `.float()` logits moves 48 bytes per 16-bit logit at 0.89
of the bandwidth, where its shares of it stand for 40: a cast (6), a log-softmax that reads rows too long for a cache
three times (16), and backward zeros for the target's gradient (4), two reads of it and one of the result (16) and the
cast back (6) (torch, aten/src/ATen/native/cuda/SoftMax.cu and Loss.cu)."""
EAGER_RMS_NORM = Factor(value=9.9, half_width=0.4)
"""An RMSNorm of torch's operators over one kernel, by the bytes of its passes per 16-bit element at 0.89 of the
bandwidth, over the 14.5 that its shares of it stand for: forward 36 (cast to fp32, square, mean, product, cast, weight:
Llama's `RMSNorm`, github.com/meta-llama/llama, model.py); backward 92 (weight 4 and its gradient 8, casts 12, product 8
and its row's factor 16, mean 4, square 28, as pow_backward raises to the first power and multiplies twice, and the sum
of two gradients 12: torch, tools/autograd/derivatives.yaml). The samples of "Estimating training time", which are such
norms, reach a 2nd to a 17th of the fused layer norm's bandwidth."""
RECIPES: Mapping[str, Factor] = {
    "blockwise": Factor(value=1.15, half_width=0.15),
    "mxfp8": Factor(value=1.05, half_width=0.1),
}
"""Factors over tensorwise fp8 products, interpolated by their amount of scaling between it and rowwise, whose factor is read off
published runs."""
ROWWISE_WIDTH = 0.1
CLOCK_WIDTH = 0.5
"""Half-width of what a power limit costs, as a share of its logarithm: a power of 2 to 4 of the clock in place of the cube."""

SHIPPED: Mapping[str, tuple[int, int]] = {"blackwell": (2025, 2)}
"""Year and month in which GPUs of an architecture reached clouds, where published runs follow its software from then on; NVIDIA's first
GB200 NVL72 instances (CoreWeave, 4 February 2025)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Conditions:
    """The settings of a run that change the time of single calls."""

    gpu: Gpu
    clocks: str
    elementwise: str
    fuse_rms_norm: bool
    fuse_loss: bool
    fp8_recipe: str
    product_time: float
    memory_time: float
    in_node_time: float
    between_nodes_time: float
    stack: str = ""
    sampled_sustained: Mapping[str, Factor] = field(default_factory=dict)
    """Time of products in a long run over their time in a short one, by dtype, where samples of this device show; else the hardware
    file."""

    def factor(self, call: Call, time: Times) -> Factor:
        """A call's time under these conditions over `time`, which is a fused kernel's where it is analytic.

        An unfused norm and eager kernels correct analytic times only: samples already contain torch's operators one after the
        other.
        The clocks of a long run correct times at those of a short measurement only.
        """
        factor = Factor(value=self._calibrated(call))
        if not isinstance(call, Operator) or self.gpu.kind == "cpu":
            return factor
        if self.gpu.power_limit_w is not None:
            factor *= self._at_power_limit("products" if is_of_products(call) else "memory")
        if time.source == "analytic" and (months := months_to_settle(self.gpu.architecture, self.stack)):
            factor *= Factor(
                value=math.exp(CONSTANTS["YOUNG_SOFTWARE"].value * months),
                half_width=CONSTANTS["YOUNG_SOFTWARE"].value * months,
            )
        if call.POWER_LIMITED:
            if self.clocks != time.state:
                ratio = self._sustained(call.dtype)
                value = ratio.value if self.clocks == "sustained" else 1 / ratio.value
                factor *= Factor(value=value, half_width=ratio.half_width)
            if call.dtype == "fp8":
                rowwise = Factor(value=CONSTANTS["ROWWISE_FP8"].value, half_width=ROWWISE_WIDTH)
                factor *= rowwise if self.fp8_recipe == "rowwise" else RECIPES.get(self.fp8_recipe, Factor())
        elif isinstance(call, RMSNorm):
            factor *= Factor() if self.fuse_rms_norm or time.source != "analytic" else EAGER_RMS_NORM
        elif call.FUSIBLE and self.elementwise == "eager" and not (self.fuse_loss and isinstance(call, CrossEntropy)):
            eager = Factor(value=CONSTANTS["EAGER"].value, half_width=EAGER_WIDTH)
            factor *= EAGER_PASSES.get(type(call), eager) if time.source == "analytic" else Factor()
        return factor

    def _at_power_limit(self, activity: Activity) -> Factor:
        longer = 1 / self.gpu.clock_kept(activity)
        return Factor(value=longer, half_width=CLOCK_WIDTH * math.log(longer))

    def _calibrated(self, call: Call) -> float:
        """The calibration's factor on a call; whole layers, the parts of which were timed in one piece, take the factor of their
        products."""
        if isinstance(call, Collective):
            return self.in_node_time if call.ranks <= call.ranks_per_node else self.between_nodes_time
        if isinstance(call, Operator):
            return self.product_time if is_of_products(call) else self.memory_time
        return 1.0

    def _sustained(self, dtype: str) -> Factor:
        stated = Factor(value=self.gpu.sustained.get(dtype, 1.0), half_width=CONSTANTS["SUSTAINED_WIDTH"].value)
        return self.sampled_sustained.get(dtype, stated)


def is_of_products(call: Call) -> bool:
    """Whether a call is a matrix product or attention, or a whole layer, the most of which they are."""
    return isinstance(call, Composite) or (isinstance(call, Operator) and call.POWER_LIMITED)


def conditions_of(gpu: Gpu, execution: Execution) -> Conditions:
    names = [each.name for each in fields(Conditions) if hasattr(execution, each.name)]
    return Conditions(gpu=gpu, **{name: getattr(execution, name) for name in names})


def months_to_settle(architecture: str, stack: str) -> float:
    """Months from a stack such as 2025-09 until its architecture's software is settled; 0 for a settled or unknown one."""
    if not stack or architecture not in SHIPPED:
        return 0.0
    year, month = SHIPPED[architecture]
    age = 12 * (int(stack[:4]) - year) + int(stack[5:]) - month
    return max(0.0, CONSTANTS["SETTLED_MONTHS"].value - max(0, age))


CONTENTION_SLOWDOWN = 0.1
"""Prior, until a profile holds `overlap` rows: on published GPUs a kernel loses the multiprocessors that NCCL's channels
take (8-20 of 108-148)."""
SIDE = 4096
"""Side of the square product that is asked about: about as long as one of a large layer."""
SIZE_BYTES = 2**26
"""Size of the all-reduce at the same time, about as long."""
LAYERS_OF: Mapping[str, str] = {"torch-eager": "eager", "torch-compiled": "compiled"}
"""Frameworks whose layers are launched as the sampled ones are: plain torch modules, one kernel after the other or compiled."""
LEAST_LAYERS = 3
"""Layers whose spread shows how widely launch floors differ; fewer have the width of a published one."""


def sampled_facts(bank: Bank, cluster: Cluster) -> Mapping[str, Any]:
    """The bank's facts of its device; none for a run on another one, whose clocks and host differ."""
    sampled = hardware_facts(bank.facts["provenance"]["hardware"])
    facts: Mapping[str, Any] = bank.facts.get("device", {})
    return facts if sampled.name == cluster.gpu.name else {}


def sustained_factors(facts: Mapping[str, Any]) -> dict[str, Factor]:
    """Time of products in a long run over their time in a short one, by dtype."""
    found = facts.get("sustained", {})
    return {dtype: Factor(value=each["value"], half_width=each["half_width"]) for dtype, each in found.items()}


def layers_launched(execution: Execution, architecture: str) -> str:
    """The way in which the run's layers are launched, if as sampled ones are: `eager` or `compiled`; '' where it states
    a floor of its own, or its layers are not plain torch."""
    stated = framework_settings(execution.framework, architecture).get("launch_floor_us", 0.0)
    return LAYERS_OF.get(execution.framework, "") if execution.launch_floor_us == stated else ""


def launch_floors(facts: Mapping[str, Any], layers: str) -> dict[Phase, Times]:
    """Times in which the host launches a phase of such layers."""
    return {phase: _floor(each) for phase, each in facts.get("launch_floor_us", {}).get(layers, {}).items()}


def _floor(fact: Mapping[str, Any]) -> Times:
    width = fact["half_width"] if fact["rows"] >= LEAST_LAYERS else math.log1p(CONSTANTS["LAUNCH_FLOOR_WIDTH"].value)
    return Interval.from_log(fact["value"], width).as_times("measured")


def bounds(time: Times) -> dict[str, float]:
    """JSON of a time."""
    return {"median_us": time.median_us, "low_us": time.low_us, "high_us": time.high_us}


def sampled_contention_slowdown(fitted: CostModel, cluster: Cluster) -> float | None:
    """The slowdown of a product at the same time as an all-reduce among a node's GPUs by the profile's samples; None where there are
    none."""
    ranks = cluster.gpus_per_node
    if ranks < 2:
        return None
    both = Overlap(
        dtype="bf16",
        m=SIDE,
        n=SIDE,
        k=SIDE,
        collective="all_reduce",
        size_bytes=SIZE_BYTES,
        ranks=ranks,
        ranks_per_node=ranks,
    )
    beside, alone = fitted.times([(both, "compute_beside"), (both.gemm, "forward")], cluster)
    if beside is None or alone is None:
        return None
    return min(1.0, max(0.0, beside.median_us / alone.median_us - 1))
