"""Settings of the frameworks, from `configs/frameworks/NAME.yml`; a run's own `execution` replaces them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Annotated, Any, TypeAlias

from predict.model.spec import ModelSpec
from predict.run.execution import ADDING, ADDING_NOTHING, WHOLE_LAYERS, Execution
from predict.run.memory_profile import MemoryProfile
from predict.run.plan import Plan
from predict.run.training_run import TrainingRun
from predict.schedules.building import Schedule
from sampling.errors import ConfigError
from sampling.files.faults import Fault, did_you_mean
from sampling.files.places import CONFIGS
from sampling.files.schema import Key, build, check, keys_of, read, with_texts

FOLDER = CONFIGS / "frameworks"
TORCH_RUNTIME = (WHOLE_LAYERS, "torchtitan")
"""Frameworks whose pipelines torch.distributed.pipelining runs."""
ON_GPUS = "megatron-core"
SETTINGS = {key.name: key for key in keys_of(Execution) if key.name != "framework"}
OFFERED = {key.name: key for key in (*keys_of(Plan), *keys_of(Execution)) if key.name != "framework"}


def framework_names() -> tuple[str, ...]:
    return (WHOLE_LAYERS, *sorted(path.stem for path in FOLDER.glob("*.yml")))


TRAITS = {
    key.name: key
    for key in with_texts(
        keys_of(MemoryProfile),
        like=Key(choices=framework_names),
        uncompiled=Key(choices=framework_names),
    )
}
Settings: TypeAlias = Annotated[Mapping[str, Any], Key(choices=lambda: tuple(SETTINGS), meaning="keys of execution")]
Traits: TypeAlias = Annotated[
    Mapping[str, Any], Key(choices=lambda: tuple(TRAITS), meaning="traits of a memory profile")
]


@dataclass(frozen=True, kw_only=True, slots=True)
class FrameworkFile:
    """The keys of a framework's file, each with its default or, where there is one, the value of the framework it is like."""

    like: str = ""
    """Another framework, from which this one differs in the keys given."""
    execution: Settings = field(default_factory=dict)
    """The keys of a run's `execution` that the framework sets."""
    by_architecture: Mapping[str, Settings] = field(default_factory=dict)
    """Architecture of the GPUs → settings that replace those of `execution` there."""
    offers: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Key of a run's plan or execution → the values that the framework offers, which a search tries where the key is `auto`."""
    memory: Traits = field(default_factory=dict)
    """The memory profile: how the framework keeps tensors."""
    spread: Annotated[float | None, Key(minimum=0)] = None
    """Half-width of log time by which published runs differ beyond those that the prior of intervals was fitted to."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """The source of each setting that needs one."""

    def contradictions(self) -> Iterator[Fault]:
        if not self.memory and not self.like:
            yield Fault(path="memory", problem="missing; give a memory profile, or the framework that this one is like")
        if self.memory and "name" not in self.memory:
            yield Fault(path="memory.name", problem="missing; name the profile that these traits make")
        yield from check(self.memory, [TRAITS[name] for name in self.memory], section="memory")[1]
        for path, settings in {"execution": self.execution, **self.by_architecture}.items():
            section = path if path == "execution" else f"by_architecture.{path}"
            yield from check(settings, [SETTINGS[name] for name in settings], section=section)[1]
        for name, values in self.offers.items():
            key = OFFERED.get(name)
            if key is None:
                yield Fault(
                    path=f"offers.{name}", problem=f"is not a key of plan or execution{did_you_mean(name, OFFERED)}"
                )
            else:
                wrong = (key.malformed(value) for value in values)
                yield from (Fault(path=f"offers.{name}", problem=problem) for problem in wrong if problem)


def framework_spread(name: str) -> float:
    """Half-width of log time by which published runs of a framework differ beyond those that the prior was fitted to."""
    return next((file.spread for file in _files(name) if file.spread is not None), 0.0)


@cache
def memory_profile(name: str) -> MemoryProfile:
    """Memory profile of a framework. Whole layers are plain torch, which the defaults of a profile describe.

    ConfigError for a file that cannot be read.
    """
    traits: dict[str, Any] = {}
    for file in reversed(_files(name, _like_in_memory)):
        traits |= file.memory
    profile, _ = build(MemoryProfile, traits)
    assert profile is not None, "each file's traits were checked as it was read"
    return profile


def memory_profile_of(run: TrainingRun) -> MemoryProfile:
    """The memory profile of the run's framework, whose layers are compiled or not."""
    profile = memory_profile(run.execution.framework)
    if profile.uncompiled and run.execution.elementwise == "eager":
        return memory_profile(profile.uncompiled)
    return _of_operators(profile) if profile.eager_if_repeated and run.plan.recompute == "full" else profile


@cache
def _of_operators(profile: MemoryProfile) -> MemoryProfile:
    """A profile whose layers run operator by operator; loss and state stay as they are."""
    return replace(profile, compiled=False, fused_activation=False, fused_norm=False)


def offered(name: str) -> Mapping[str, tuple[Any, ...]]:
    """Key of plan or execution → the values that the framework offers; nothing is said of keys that are not there."""
    found: dict[str, tuple[Any, ...]] = {}
    for file in reversed(_files(name)):
        found |= file.offers
    return found


def selective_is_of_operators(name: str) -> bool:
    """Whether selective recomputation means one of operators to the framework's users, which has none of modules."""
    recompute = offered(name).get("recompute", ())
    return "ops" in recompute and "selective" not in recompute


@cache
def framework_settings(name: str, architecture: str = "") -> Mapping[str, Any]:
    """The keys of `execution` that a framework sets, on GPUs of an architecture; none for whole layers.

    ConfigError for a file that cannot be read.
    """
    settings: dict[str, Any] = {}
    for file in reversed(_files(name)):
        settings |= {**file.execution, **file.by_architecture.get(architecture, {})}
    return settings


def of_model(settings: Mapping[str, Any], model: ModelSpec | None) -> Mapping[str, Any]:
    """A framework's settings for a model: its relative positions need a kernel of attention that adds them."""
    adds_none = model is not None and model.relative_buckets and settings.get("attention") in ADDING_NOTHING
    return {**settings, "attention": ADDING} if adds_none else settings


def _like(file: FrameworkFile) -> str:
    return file.like


def _like_in_memory(file: FrameworkFile) -> str:
    return file.memory.get("like") or file.like


@cache
def _files(name: str, like: Callable[[FrameworkFile], str] = _like) -> tuple[FrameworkFile, ...]:
    """The framework's file, then the file of the framework it is like, and so on; none for whole layers."""
    files: list[FrameworkFile] = []
    seen: list[str] = []
    while name and name != WHOLE_LAYERS:
        if name in seen or name not in framework_names():
            problem = "leads back to itself" if name in seen else "is not known"
            near = did_you_mean(name, framework_names())
            raise ConfigError(f"{FOLDER / seen[-1]}.yml: like: {name!r} {problem}; name another framework{near}")
        files.append(read(FrameworkFile, FOLDER / f"{name}.yml"))
        seen.append(name)
        name = like(files[-1])
    return tuple(files)


def recompute_refusal(framework: str, schedule: Schedule) -> str | None:
    """Why a framework cannot recompute activations under a schedule, as words to follow the schedule's name; None if it can.

    Where B and W are apart, Megatron-LM's and DeepSeek's runtimes run the whole backward in B and leave products of weights to W, with
    what these read (`WeightGradStore`: sail-sg/zero-bubble-pipeline-parallelism, megatron/core/zbpp_utils.py; deepseek-ai/DualPipe,
    dualpipe/utils.py), so that the forward is repeated once. torch's runtime calls autograd in B, and in W again for each group of
    weights (torch 2.13, distributed/pipelining/_backward.py, `stage_backward_weight`), and its checkpoints repeat their forward in
    each call (utils/checkpoint.py, `_checkpoint_hook`; pytorch issue 136766): counted, once in B and once for each weight in W.
    """
    if framework in TORCH_RUNTIME and schedule.splits_backward:
        return "splits the backward, and torch's runtime would repeat the forward in B and again for each weight in W"
    return None


def refused_by_runtime(framework: str, plan: Plan, microbatches: int) -> str:
    """Why the pipeline runtime of a framework refuses a plan that can be predicted; nothing where it runs it.

    torch's Schedule1F1B raises ValueError where there are fewer microbatches than stages (torch/distributed/pipelining/schedules.py).
    """
    if framework in TORCH_RUNTIME and plan.pp > 1 and plan.schedule == "1f1b" and microbatches < plan.pp:
        return (
            f"plan.schedule: torch's 1f1b needs at least plan.pp = {plan.pp} microbatches; this run has {microbatches}"
        )
    return ""
