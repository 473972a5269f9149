"""The space of an RL config: keys of rl, plan and cluster that are lists, ranges or `auto`, and the settings of each combination."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any

from predict.config.choices import AUTO, is_choice, values_of
from predict.config.draft import SECTIONS
from predict.config.overrides import as_settings
from predict.config.replicas import INSIDE_A_REPLICA, replicas_left
from predict.ledger.waterfall import COMPUTE, MEMORY
from predict.plan_search.long_table import SHARED, calibration_note
from predict.rl.books import COMMUNICATED, WAITED, RlLedger
from predict.rl.config import RlRun, document_of, rl_run
from predict.rl.memory import RlMemory
from predict.rl.phases import NAMES
from predict.rl.section import ASYNC, COLOCATED, NAME, ONE_STEP_OFF, RlSection
from predict.rl.step import RlStep, rl_step
from predict.rl.training import Estimate
from predict.run.lengths import scaled_lengths
from sampling.errors import ConfigError, InfeasibleError, UserError
from sampling.files.schema import Key, keys_of
from sampling.units import GB, GIB, SECOND_US

PLACEMENT, STALENESS = f"{NAME}.placement", f"{NAME}.staleness"
TP, GPUS = f"{NAME}.rollout.tp", f"{NAME}.rollout.gpus"
DECIDE_DP = (*(f"plan.{key}" for key in INSIDE_A_REPLICA), "cluster.nodes", "cluster.gpus_per_node", GPUS, PLACEMENT)
CAN_BE_AUTO = (PLACEMENT, GPUS, TP)
MOST_COMBINATIONS = 10_000
Values = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class RlSpace:
    """A config without its open keys, and the values of each."""

    path: Path
    document: Values
    axes: Mapping[str, tuple[Any, ...]]
    base: RlRun
    """The run of the first value of every key."""
    of_files: Sequence[str] = ()
    """Settings of a model or cluster that the document names."""
    not_read: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of verl's that change nothing here: name → value."""
    splits: bool = False
    """The engines' GPUs are a part of the cluster's, rather than more."""

    def run(self, settings: Mapping[str, Any]) -> RlRun:
        """The run of one combination. ConfigError where it cannot be."""
        return rl_run(copy.deepcopy(self.document), self.path, [*self.of_files, *as_settings(settings)])

    def combinations(self) -> Iterator[dict[str, Any]]:
        """The settings of each; the last key changes fastest. dp takes the ranks that are left where other degrees or the machines
        vary and it does not."""
        for values in itertools.product(*self.axes.values()):
            settings = dict(zip(self.axes, values, strict=True))
            apart = settings.get(PLACEMENT, _get(self.document, PLACEMENT) or COLOCATED) != COLOCATED
            if self.splits and apart != bool(settings[GPUS]):
                continue  # engines of a colocated step have no GPUs of their own
            yield settings | self._following(settings)

    def _following(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The settings that follow from the values of open keys."""
        cluster, plan = self.base.base.cluster, self.base.base.plan
        placement = settings.get(PLACEMENT, self.base.section.placement)
        found: dict[str, Any] = {}
        if PLACEMENT in settings and placement != ASYNC and STALENESS not in settings:
            found[STALENESS] = 0
        nodes = settings.get("cluster.nodes", cluster.nodes)
        per_node = settings.get("cluster.gpus_per_node", cluster.gpus_per_node)
        if GPUS in settings and self.splits:
            nodes -= settings[GPUS] // per_node
            found["cluster.nodes"] = nodes
        if "plan.dp" not in settings and any(path in settings for path in DECIDE_DP):
            degrees = {key: settings.get(f"plan.{key}", getattr(plan, key)) for key in INSIDE_A_REPLICA}
            found["plan.dp"] = max(1, replicas_left(degrees, {"nodes": nodes, "gpus_per_node": per_node}))
        return found


def space_of(config: Path | str, overrides: Sequence[str]) -> RlSpace:
    """The space of a config under settings, which may be choices too. Where nothing is open, the engines' tensor parallelism is.

    With `auto`, placements are colocated and one step off, engines' degrees powers of two within a node, and the GPUs of engines any
    number of whole nodes of `cluster`, which is then all machines. UserError for a choice that is none; ConfigError lists the faults of the config.
    """
    path = Path(config)
    document, of_files, not_read = document_of(path, overrides)
    opened = dict(_opened(document)) or {TP: AUTO}
    keys = known_keys()
    if wrong := [name for name, choice in opened.items() if choice == AUTO and name not in CAN_BE_AUTO]:
        raise UserError(f"{', '.join(wrong)}: auto is for {', '.join(CAN_BE_AUTO)}; give values, as in [1, 2] or 1..8")
    axes = {name: values_of(name, choice, keys[name]) for name, choice in opened.items() if choice != AUTO}
    for name in opened:
        _remove(document, name)
    first = {name: values[0] for name, values in axes.items()}
    if opened.get(GPUS) == AUTO:
        first |= {PLACEMENT: COLOCATED, GPUS: 0, STALENESS: 0}
    base = rl_run(copy.deepcopy(document), path, [*of_files, *as_settings(first)])
    cluster = base.base.cluster
    auto = {
        PLACEMENT: (COLOCATED, ONE_STEP_OFF),
        GPUS: tuple(cluster.gpus_per_node * nodes for nodes in range(cluster.nodes)),
        TP: tuple(2**power for power in range(cluster.gpus_per_node.bit_length())),
    }
    axes |= {name: values for name, values in auto.items() if opened.get(name) == AUTO}
    _require_few(axes)
    splits = opened.get(GPUS) == AUTO
    return RlSpace(
        path=path, document=document, axes=axes, base=base, of_files=of_files, not_read=not_read, splits=splits
    )


def known_keys() -> dict[str, Key]:
    """Path → the key, of those that may be open."""
    found = {f"{section}.{key.name}": key for section in ("plan", "cluster") for key in SECTIONS[section]}
    for key in keys_of(RlSection):
        found[f"{NAME}.{key.name}"] = key
        if key.of:
            found |= {f"{NAME}.{key.name}.{inner.name}": inner for inner in keys_of(key.of)}
    return found


def _opened(document: Values) -> Iterator[tuple[str, Any]]:
    """The open keys and their choices. A list is the value of a key that holds lists."""
    for path, key in known_keys().items():
        value = _get(document, path)
        if key.kind not in ("list", "section") and is_choice(value):
            yield path, value


def _require_few(axes: Mapping[str, Sequence[Any]]) -> None:
    count = 1
    for values in axes.values():
        count *= len(values)
    if count > MOST_COMBINATIONS:
        raise UserError(
            f"{', '.join(axes)}: {count:,} combinations are more than {MOST_COMBINATIONS:,}; give fewer values"
        )


def _get(document: Values, path: str) -> Any:
    place: Any = document
    for name in path.split("."):
        if not isinstance(place, dict) or name not in place:
            return None
        place = place[name]
    return place


def _remove(document: Values, path: str) -> None:
    *above, name = path.split(".")
    place = _get(document, ".".join(above))
    if isinstance(place, dict):
        place.pop(name, None)


# The best RL steps of a space, exactly: every combination is predicted.


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Candidate:
    """One combination: its step, or the reason why there is none."""

    settings: Mapping[str, Any]
    step: RlStep | None
    reason: str = ""
    """Why it cannot be chosen; a step that does not fit in memory has one too."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RlAnswer:
    """The candidates that can run, best first, and the others."""

    space: RlSpace
    best: tuple[Candidate, ...]
    left_out: tuple[Candidate, ...]


def search_rl(
    config: Path | str,
    overrides: Sequence[str],
    estimate: Estimate,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> RlAnswer:
    """Predict every combination; the best trains on the most tokens per second and GPU. InfeasibleError where none can run."""
    space = space_of(config, overrides)
    found = candidates(space, estimate, progress)
    best = [one for one in found if one.step and not one.reason]
    left_out = tuple(one for one in found if one.reason)
    if not best:
        raise InfeasibleError(
            f"{len(found)} combinations of {', '.join(space.axes)}: none can run; the first: {left_out[0].reason}"
        )
    best.sort(key=lambda one: -one.step.tokens_per_second_per_gpu if one.step else 0.0)
    return RlAnswer(space=space, best=tuple(best), left_out=left_out)


def candidates(
    space: RlSpace, estimate: Estimate, progress: Callable[[int, int], None] = lambda done, of: None
) -> list[Candidate]:
    """Every combination of a space, in its order; `progress` is told how many are done, of how many, before the first too."""
    combinations = list(space.combinations())
    progress(0, len(combinations))
    found = []
    for settings in combinations:
        found.append(candidate(space, settings, estimate))
        progress(len(found), len(combinations))
    return found


def candidate(space: RlSpace, settings: Mapping[str, Any], estimate: Estimate) -> Candidate:
    """One combination of a space, predicted."""
    try:
        step = rl_step(space.run(settings), estimate)
    except (ConfigError, InfeasibleError) as error:
        return Candidate(settings=settings, step=None, reason=str(error))
    memory = step.memory
    if memory.fits:
        return Candidate(settings=settings, step=step)
    worst = memory.worst
    needs = f"{worst.phase} needs {worst.peak / GIB:.1f} GiB per GPU, which has {memory.capacity / GIB:.1f}"
    return Candidate(settings=settings, step=step, reason=f"memory: {needs}")


# Steps with shorter and longer responses, and with fewer and more of them to each prompt.

LENGTHS = (0.25, 0.5, 1.0, 2.0)
COUNTS = (0.5, 1.0, 2.0)
"""Times the config's own."""
N, LONGEST = "rl.n", "rl.response_max"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LengthMap:
    """Combinations of a longest response and a number of responses to a prompt; `own` are those of the config."""

    own: tuple[int, int]
    cells: tuple[Candidate, ...]


def length_map(config: Path | str, overrides: Sequence[str], estimate: Estimate) -> LengthMap | None:
    """Predict every combination; None where a file gives the lengths of responses. Budgets of tokens grow with the longest sequence."""
    path = Path(config)
    document, of_files, _ = document_of(path, overrides)
    base = rl_run(copy.deepcopy(document), path, of_files)
    space = RlSpace(path=path, document=document, axes={}, base=base, of_files=of_files)
    section = base.section
    counts = sorted({max(1, round(times * section.n)) for times in COUNTS})
    longer = [found for times in LENGTHS if (found := _longer(section, times, base.base.plan.cp))]
    if not longer:
        return None
    cells = tuple(candidate(space, {N: count, **settings}, estimate) for count in counts for settings in longer)
    return LengthMap(own=(section.response_max, section.n), cells=cells)


def _longer(section: RlSection, times: float, cp: int) -> dict[str, Any] | None:
    """The settings of responses so many times as long; None for those of a file."""
    response, longest = scaled_lengths(section.response, times), max(1, round(section.response_max * times))
    if response is None:
        return None
    needed = ceil((section.prompt_max + longest) / cp)
    budgets = {"rl.max_tokens": section.max_tokens, "rl.passes.max_tokens": section.passes.max_tokens}
    grown = {key: max(tokens, needed) for key, tokens in budgets.items() if tokens}
    return {"rl.response": response, LONGEST: longest, **grown}


# The long table of RL steps: one row per combination, in SI units, with the columns that tables of training estimates share and a
# column for each phase.
#
# Times in compute, memory, comm and idle add up to the phases, each on its own GPUs: to the step where all take turns, and to more where
# trainer and engines work side by side. Parts of memory but for `kv_gb`, the engine's cache in generation, add up to the update of the
# actor; `peak_gb` is that of the fullest moment.

CLASSES = {"compute": COMPUTE, "memory": MEMORY, "comm": COMMUNICATED, "idle": WAITED}
"""End of a column's name → the class of headings that it has."""
OURS = """
algorithm placement staleness gen_cards gen_tp n t_idle t_step_low t_step_high t_wait_gen t_idle_gen gradient_gb other_models_gb engine_reserved_gb
peak_gb capacity_gb verdict reason
"""
"""Columns beside them and those of phases, which are named t_ and verl's name; `reason` says why a combination cannot run."""


def rl_columns(varied: Sequence[str]) -> list[str]:
    """The names of the columns, the varied keys last."""
    return [*SHARED.split(), *(f"t_{name}" for name in NAMES), *OURS.split(), *varied]


def rl_long_table(rows: Sequence[Candidate], varied: Sequence[str], *, commit: str) -> list[dict[str, Any]]:
    """The rows, each with every column; None where there is no figure. `commit` is the version of this program."""
    empty = dict.fromkeys(rl_columns(varied))
    return [
        {**empty, **{name: one.settings[name] for name in varied}, "reason": one.reason}
        | ({**_setup(one.step), **_figures(one.step), **_memory(one.step.memory), "commit": commit} if one.step else {})
        for one in rows
    ]


def _setup(step: RlStep) -> dict[str, Any]:
    run, section = step.rl.base, step.rl.section
    return {
        "model": run.model.name,
        "device": run.cluster.gpu.name,
        "n_cards": step.rl.gpus,
        **{key: getattr(run.plan, key) for key in ("ep", "tp", "pp", "cp")},
        "sp": run.plan.tp if run.plan.sp else 1,
        "seq_prompt": float(step.rl.samples.prompt.mean()),
        "seq_response": float(step.rl.samples.response.mean()),
        "global_batch": section.samples,
        "micro_batch": section.micro,
        "algorithm": section.algorithm,
        "placement": section.placement,
        "staleness": section.staleness,
        "gen_cards": step.rl.rollout_gpus,
        "gen_tp": section.rollout.tp,
        "n": section.n,
    }


def _figures(step: RlStep) -> dict[str, Any]:
    flops = sum(phase.mfu["palm"].flops or 0.0 for phase in step.phases if "palm" in phase.mfu)
    actor = step.phase("update_actor")
    per_card = step.tokens_per_second_per_gpu
    times = {f"t_{phase.name}": phase.time.median_us / SECOND_US for phase in step.phases}
    ledger = RlLedger(step=step)
    classes = {f"t_{name}": ledger.by_class_us[found] / SECOND_US for name, found in CLASSES.items()}
    return {
        **times,
        **classes,
        "calibration_note": calibration_note(ledger.sources, step.rl.base.calibration),
        "flops_required": flops,
        "t_step": step.time.median_us / SECOND_US,
        "t_step_low": step.time.low_us / SECOND_US,
        "t_step_high": step.time.high_us / SECOND_US,
        "t_wait_gen": step.wait_gen_us / SECOND_US,
        "t_idle_gen": step.idle_gen_us / SECOND_US,
        "tokens_per_s": per_card * step.rl.gpus,
        "tokens_per_s_per_card": per_card,
        "mfu": actor.mfu["palm"].mfu if actor else None,
    }


def _memory(memory: RlMemory) -> dict[str, Any]:
    """GB of the update of the actor, the cache of generation, and the peak of the fullest moment."""
    terms: Mapping[str, float] = memory.updating.terms
    sizes = {
        "param_gb": terms.get("parameters", 0.0),
        "gradient_gb": terms.get("gradients", 0.0),
        "optim_gb": terms.get("optimizer", 0.0),
        "activation_gb": terms.get("activations", 0.0),
        "kv_gb": memory.generating.terms.get("kv_cache", 0.0),
        "buffer_gb": terms.get("buffers", 0.0),
        "other_models_gb": terms.get("other_models", 0.0),
        "engine_reserved_gb": terms.get("engine_reserved", 0.0),
        "peak_gb": memory.worst.peak,
        "capacity_gb": memory.capacity,
    }
    return {name: size / GB for name, size in sizes.items()} | {"verdict": memory.verdict}
