"""Constants read off published runs that a step depends on: each with the condition under which the model looks at it."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from predict.ledger.compute import StepItem
from predict.prices.conditions import EAGER_PASSES, months_to_settle
from predict.prices.kernels.attention import FLASH_2, TRITON_HEAD
from predict.prices.published_constants import CONSTANTS, PublishedConstant
from predict.run.frameworks import framework_spread
from predict.run.training_run import TrainingRun
from predict.step.prediction import Prediction
from predict.step.priced_rank import stragglers_factor
from sampling.arithmetic.operator import Operator
from sampling.hardware.hardware_file import BLOCK_SCALED_BYTES
from sampling.operators.attention import Attention
from sampling.operators.experts import PER_EXPERT, GroupedGemm


@dataclass(frozen=True)
class Used:
    """A step with its items, which says on which constants it depends."""

    prediction: Prediction
    items: tuple[StepItem, ...]

    @property
    def run(self) -> TrainingRun:
        return self.prediction.run

    @property
    def architecture(self) -> str:
        return self.run.cluster.gpu.architecture

    @cached_property
    def priors(self) -> tuple[tuple[Operator, str], ...]:
        """Operators whose times no sample covers, each with its phase."""
        found = {(each.item.call, each.item.phase): None for each in self.items if each.item.source == "analytic"}
        return tuple((call, str(phase)) for call, phase in found if isinstance(call, Operator))

    @cached_property
    def products(self) -> tuple[Operator, ...]:
        """Operators that slow down with the clocks, on a GPU."""
        calls = (each.item.call for each in self.items if self.run.cluster.gpu.kind != "cpu")
        return tuple(call for call in dict.fromkeys(calls) if isinstance(call, Operator) and call.POWER_LIMITED)

    @cached_property
    def has_prior_share(self) -> bool:
        """Whether the spread of published runs is part of the interval."""
        return self.prediction.prices.profile_error is None or self.prediction.sources["analytic"] > 0

    def attention(self, kernel: str, *architectures: str, backward: bool = False, above_head: int = 0) -> bool:
        """Whether attention of a kernel, on one of these architectures, has no sample."""
        return self.architecture in architectures and any(
            isinstance(call, Attention)
            and (kernel in call.kernel if kernel != "fa2" else call.kernel in (*FLASH_2, "fa1", "flex"))
            and (phase != "forward" or not backward)
            and call.head_dim > above_head
            for call, phase in self.priors
        )

    def product_in(self, dtype: str) -> bool:
        return any(call.KIND == "gemm" and call.dtype == dtype for call, _ in self.priors)

    def eager_passes(self) -> bool:
        """Whether an unfused pass has the general factor, not one of its own."""
        return (
            self.run.execution.elementwise == "eager"
            and self.run.cluster.gpu.kind != "cpu"
            and any(call.FUSIBLE and type(call) not in EAGER_PASSES for call, _ in self.priors)
        )

    def sustained(self, name: str, *architectures: str) -> bool:
        """Whether the hardware file's ratio of a long run's products is this constant, and products of that kind run."""
        stated = self.run.cluster.gpu.sustained
        return (
            self.run.execution.clocks == "sustained"
            and self.architecture in architectures
            and any(stated.get(call.dtype) == CONSTANTS[name].value for call in self.products)
        )

    def stated(self, setting: str, name: str) -> bool:
        """Whether a setting of `execution` is this constant."""
        return bool(getattr(self.run.execution, setting) == CONSTANTS[name].value)

    def launch_floor_width(self) -> bool:
        """Whether a launch floor has the published width: a stated one, or one that few layers were sampled for."""
        blocks = (
            block
            for rank in self.prediction.ranks
            for chunk in rank.chunks
            for block in (*chunk.forward.blocks, *chunk.backward.blocks)
        )
        priced = {id(block.priced): block.priced for block in blocks}.values()
        most = 1 + CONSTANTS["LAUNCH_FLOOR_WIDTH"].value
        return any(
            math.isclose(one.floor.high_us, most * one.floor.median_us)
            or bool(one.block.launching and one.block.launching.mixture_us)
            for one in priced
            if one.floor is not None
        )

    def spread(self, name: str) -> bool:
        return self.has_prior_share and framework_spread(self.run.execution.framework) == CONSTANTS[name].value


USES: Mapping[str, Callable[[Used], bool]] = {
    "TRITON_AMPERE": lambda used: used.attention("triton", "ampere"),
    "TRITON_HOPPER": lambda used: used.attention("triton", "hopper", "blackwell"),
    "TRITON_LARGE_HEAD_BACKWARD": lambda used: used.attention(
        "triton", used.architecture, backward=True, above_head=TRITON_HEAD
    ),
    "YOUNG_SOFTWARE": lambda used: (
        bool(months_to_settle(used.architecture, used.run.execution.stack)) and bool(used.priors)
    ),
    "SETTLED_MONTHS": lambda used: (
        bool(months_to_settle(used.architecture, used.run.execution.stack)) and bool(used.priors)
    ),
    "FP8_EXPERT_KERNELS": lambda used: any(
        isinstance(call, GroupedGemm) and call.dtype == "fp8" and call.kernel == PER_EXPERT for call, _ in used.priors
    ),
    "DENSE_STEP": lambda used: used.has_prior_share,
    "MIXTURE_STEP": lambda used: used.has_prior_share and used.run.model.experts is not None,
    "ADAPTED_STEP": lambda used: used.has_prior_share and used.run.adapters.are_trained,
    "UNSTATED_RECIPE": lambda used: False,  # a config states its recipe
    "STRAGGLERS": lambda used: stragglers_factor(used.run) > 1,
    "REPLICA_CONTENTION": lambda used: any(
        rank.exposed_reduction_us or rank.exposed_all_gather_us for rank in used.prediction.ranks
    ),
    "EAGER": lambda used: used.eager_passes(),
    "FP8_SHARE": lambda used: used.product_in("fp8"),
    "FP4_SHARE": lambda used: any(used.product_in(dtype) for dtype in BLOCK_SCALED_BYTES),
    "SUSTAINED_WIDTH": lambda used: used.run.execution.clocks == "sustained" and bool(used.products),
    "ROWWISE_FP8": lambda used: (
        used.run.execution.fp8_recipe == "rowwise" and any(call.dtype == "fp8" for call in used.products)
    ),
    "FA2_HOPPER": lambda used: used.attention("fa2", "hopper"),
    "FA2_BLACKWELL": lambda used: used.attention("fa2", "blackwell"),
    "ATTENTION_BACKWARD_HOPPER": lambda used: used.attention("", "hopper", backward=True),
    "LAUNCH_FLOOR_WIDTH": lambda used: used.launch_floor_width(),
    "PLAN_SETTING": lambda used: False,  # a step by itself is not a ratio
    "PIPELINED_TP": lambda used: used.run.execution.overlap_tp == "pipelined" and used.run.plan.tp > 1,
    "LAUNCH_FLOOR_2021": lambda used: used.stated("launch_floor_us", "LAUNCH_FLOOR_2021"),
    "PRIME_RL_STEP": lambda used: used.stated("step_overhead_us", "PRIME_RL_STEP"),
    "EXPERT_LAUNCH": lambda used: (
        used.run.model.experts is not None
        and used.run.execution.cuda_graphs != "full"
        and used.stated("expert_launch_us", "EXPERT_LAUNCH")
    ),
    "BLACKWELL_PRODUCTS": lambda used: (
        used.architecture == "blackwell"
        and used.run.execution.framework == "nemo"  # torch's frameworks have the same share of another source
        and used.stated("gemm_efficiency", "BLACKWELL_PRODUCTS")
        and any(call.KIND == "gemm" for call, _ in used.priors)
    ),
    "SUSTAINED_HOPPER": lambda used: used.sustained("SUSTAINED_HOPPER", "hopper"),
    "SUSTAINED_BLACKWELL": lambda used: used.sustained("SUSTAINED_BLACKWELL", "blackwell"),
    "SUSTAINED_MI350X": lambda used: used.sustained("SUSTAINED_MI350X", "cdna4"),
    "SUSTAINED_500_W": lambda used: used.sustained("SUSTAINED_500_W", "hopper"),
    "TORCHTITAN_SPREAD": lambda used: used.spread("TORCHTITAN_SPREAD"),
    "MEGATRON_2021_SPREAD": lambda used: used.spread("MEGATRON_2021_SPREAD"),
}
"""Constant by name → whether a step depends on it."""


def constants_in_use(prediction: Prediction, items: Iterable[StepItem]) -> dict[str, PublishedConstant]:
    used = Used(prediction, tuple(items))
    return {name: constant for name, constant in CONSTANTS.items() if USES[name](used)}
