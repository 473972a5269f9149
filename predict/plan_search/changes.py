"""The changes of a training run that help most: its neighbours in plan, batch, kernels, overlap, precision and links, each predicted.

A change is taken where its memory fits as surely as the run's own does, and is judged by the ratio of the two steps, in which the errors
that both share cancel. Of several changes of one kind the best stands for all. Numbers in fewer bits are another training: they come after
every change that computes the same.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from predict import estimate, memory_advice
from predict.config.overrides import parse_overrides
from predict.interval import Interval
from predict.kinds import Values
from predict.plan_search.options import OBJECTIVES
from predict.plan_search.ties import contender, ratio
from predict.plan_search.training import stepped, with_companions
from predict.run.frameworks import memory_profile_of
from predict.run.offload import Offload
from predict.run.training_run import TrainingRun
from predict.step.prediction import Prediction
from sampling.errors import UserError

MOST = 3
LEAST_GAIN = 0.005
"""Share of the step from which on a change is worth naming."""
SURE = 0.95
"""Probability from which on a plan counts as one that fits, as in the verdict FITS."""
BETTER: Mapping[str, Any] = {
    "attention": "best",
    "elementwise": "fused",
    "fuse_rms_norm": True,
    "fuse_softmax": True,
    "fuse_loss": True,
    "fuse_gradients": True,
    "fuse_permute": True,
    "expert_products": "grouped",
    "cuda_graphs": "full",
    "synchronous_launches": False,
}
"""Key of `execution` for a kernel or a launch → the value by which it is faster, with the same arithmetic."""
FUSED = ("elementwise", "fuse_rms_norm", "fuse_loss")
"""The kernels that one library, such as Liger, or a compiler fuses together."""
OF_MEGATRON = ("execution.fuse_gradients", "execution.fuse_permute", "execution.cuda_graphs")
"""Kernels and launches that frameworks beside Megatron-Core's family have no switch for."""
HIDDEN: Mapping[str, Any] = {
    "overlap_gradients": True,
    "overlap_parameters": True,
    "overlap_p2p": True,
    "overlap_tp": "pipelined",
    "overlap_ep": "shared_expert",
}
"""Key of `execution` for an exchange → the value by which most of it is hidden behind compute."""
COMPILED: Mapping[str, str] = {"fsdp": "fsdp-compile", "transformers": "fsdp-compile", "torch-eager": "torch-compiled"}
"""Framework of eager modules → the same with torch.compile."""
HALVED: Mapping[str, str] = {"fp32": "bf16", "tf32": "bf16"}
FEWER_BITS: Mapping[str, str] = {"bf16": "fp8", "fp16": "fp8"}
FEWER = "fewer bits"


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """A change before it is predicted: what it is of, and the values by key path that are set together."""

    of: str
    settings: Values


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A change and what it does to the step."""

    of: str
    settings: Values
    """Key path → value, set together."""
    prediction: Prediction
    ratio: Interval
    """The changed step over the run's own, without the errors that both share."""

    @property
    def gain(self) -> Interval:
        """Share of the step that it saves; below 0 it costs."""
        return Interval(median=1 - self.ratio.median, low=1 - self.ratio.high, high=1 - self.ratio.low)

    @property
    def fits_probability(self) -> float:
        return self.prediction.memory.fits_probability


WithSettings = Callable[[Values], TrainingRun]
"""Loads a run with values by key path over it. ConfigError where the rules of a config refuse them."""


def best_changes(own: Prediction, with_settings: WithSettings) -> tuple[Change, ...]:
    """The changes of a predicted run that save most of its step, at most MOST; for a run that does not fit, the fastest that do."""
    found = [*_predicted(own.run, steps(own.run), with_settings)]
    if own.feasible:
        fitting = [each for each in found if _probability(each) >= min(SURE, own.memory.fits_probability)]
        worth = [each for each in fitting if each[1].median_us < (1 - LEAST_GAIN) * own.median_us]
    else:
        worth = [each for each in found if each[1].feasible] or [*_predicted(own.run, _pairs(own), with_settings)]
    # a CPU's user keeps fp32 while anything else helps: few CPUs have matrix units for less
    last = (FEWER, "precision") if own.run.cluster.gpu.kind == "cpu" else (FEWER,)
    worth.sort(key=lambda each: (each[0].of in last, each[1].median_us))
    best_of_each: dict[str, tuple[Step, Prediction]] = {}
    for step, prediction in worth:
        best_of_each.setdefault(step.of, (step, prediction))
    return tuple(_change(own, *each) for each in [*best_of_each.values()][:MOST])


def _probability(found: tuple[Step, Prediction]) -> float:
    return found[1].memory.fits_probability


def _predicted(
    run: TrainingRun, tried: Iterable[Step], with_settings: WithSettings
) -> Iterator[tuple[Step, Prediction]]:
    """The steps with their predictions, without those that the rules of a config or the framework refuse."""
    for step in tried:
        try:
            changed = with_settings(step.settings)
            if changed != run:
                yield step, estimate(changed, require_fit=False)
        except UserError:
            continue


def _pairs(own: Prediction) -> Iterator[Step]:
    """The pairs of changes that make a run fit where no single one does."""
    for each in memory_advice(own):
        yield Step(of=each.kind, settings={one.path: one.value for one in parse_overrides(each.settings)[0]})


def _change(own: Prediction, step: Step, prediction: Prediction) -> Change:
    time = OBJECTIVES["time"]
    return Change(
        of=step.of,
        settings=step.settings,
        prediction=prediction,
        ratio=ratio(contender(own, time), contender(prediction, time)),
    )


def steps(run: TrainingRun) -> Iterator[Step]:
    """Every change that is tried, in the keys of a config."""
    for setting in stepped(run):
        for value in setting.others:
            yield Step(of=setting.path, settings=with_companions(run, setting.path, value))
    yield from _switches(run, "kernels", BETTER, FUSED)
    yield from _switches(run, "overlap", HIDDEN, tuple(HIDDEN))
    if compiled := COMPILED.get(run.execution.framework):
        yield Step(of="kernels", settings={"execution.framework": compiled})
    for bits, of in ((HALVED, "precision"), (FEWER_BITS, FEWER)):
        if run.precision in bits:
            yield Step(of=of, settings={"precision": bits[run.precision]})
    yield from _outside(run)


def _switches(run: TrainingRun, of: str, better: Values, together: Sequence[str]) -> Iterator[Step]:
    """Each switch by itself, and those of `together` at once."""
    execution = run.execution
    open_ = {f"execution.{key}": value for key, value in better.items() if getattr(execution, key) != value}
    if not memory_profile_of(run).transformer_engine:
        open_ = {path: value for path, value in open_.items() if path not in OF_MEGATRON}
    if run.plan.tp == 1:
        open_.pop("execution.overlap_tp", None)
    if run.model.experts is None:
        open_.pop("execution.overlap_ep", None)
    for path, value in open_.items():
        yield Step(of=of, settings={path: value})
    several = {path: value for path, value in open_.items() if path.partition(".")[2] in together}
    if len(several) > 1:
        yield Step(of=of, settings=several)


def _outside(run: TrainingRun) -> Iterator[Step]:
    """Changes of what machines and host take beyond their usual figures: a slow link between nodes, time outside, what the host holds."""
    cluster = run.cluster
    if cluster.nodes > 1 and cluster.network_share < 1:
        usual = cluster.inter_node.gb_per_s / cluster.network_share
        yield Step(of="link between nodes", settings={"cluster.inter_node_gb_per_s": round(usual, 6)})
    if run.execution.step_overhead_us:
        yield Step(of="time outside the step", settings={"execution.step_overhead_us": 0})
    if run.offload != Offload():
        usual_of = {field.name: getattr(Offload(), field.name) for field in fields(Offload)}
        own = {name: value for name, value in usual_of.items() if value != getattr(run.offload, name)}
        yield Step(of="offload", settings={f"offload.{name}": value for name, value in own.items()})
