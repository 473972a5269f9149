"""RL configs as sweeps, searches and comparisons see them: the split of the GPUs, the engines, and the lengths of responses.

Times in compute, memory, comm and idle of the long table add up to the phases, each on its own GPUs: to the step where all take turns, and
to more where trainer and engines work side by side. Parts of memory but for `kv_gb`, the engine's cache in generation, add up to the update
of the actor; `peak_gb` is that of the fullest moment.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, fields, replace
from functools import partial
from math import ceil
from typing import Any, ClassVar

import numpy as np

from predict.config.document import Config, path_of
from predict.config.draft import SECTIONS, read_draft
from predict.config.load import read_sections
from predict.config.overrides import as_settings
from predict.config.replicas import DECIDE_DP, INSIDE_A_REPLICA, replicas_left
from predict.interval import Interval, width_of_ratio
from predict.kinds import (
    RL,
    EnumeratedKind,
    Measure,
    Order,
    ServerOptions,
    Setting,
    Values,
    refuse_server_options,
    settings_of_section,
)
from predict.ledger.waterfall import COMPUTE, MEMORY
from predict.plan_search.sweep import SweptRow, swept_row
from predict.plan_search.ties import REPEATS, Contender, Ratio, ratio, setting_error, setting_values
from predict.plan_search.training import SHARED, calibration_note, switched_execution
from predict.rl.books import COMMUNICATED, WAITED, RlLedger
from predict.rl.config import RlRun, document_of, load_rl, training_document
from predict.rl.memory import RlMemory
from predict.rl.phases import NAMES
from predict.rl.section import ASYNC, COLOCATED, NAME, ONE_STEP_OFF, RlSection, Rollout, leaves, resolved
from predict.rl.step import RlStep, both_done_us, estimate_rl
from predict.run.execution import Execution
from predict.run.lengths import scaled_lengths
from predict.run.plan import AUTO
from predict.run.training_run import TrainingRun, settings_of
from predict.step.scheduling import Estimate
from sampling.files.schema import Key, keys_of
from sampling.hardware.cluster import Cluster
from sampling.number_text import size
from sampling.units import GB, SECOND_US

PLACEMENT, STALENESS = f"{NAME}.placement", f"{NAME}.staleness"
TP, GPUS = f"{NAME}.rollout.tp", f"{NAME}.rollout.gpus"
UNSPLIT = {PLACEMENT: COLOCATED, GPUS: 0, STALENESS: 0}
CLASSES = {"compute": COMPUTE, "memory": MEMORY, "comm": COMMUNICATED, "idle": WAITED}
"""End of a column's name → the class of headings that it has."""
OURS = """
algorithm placement staleness gen_cards gen_tp n t_idle t_step_low t_step_high t_wait_gen t_idle_gen gradient_gb other_models_gb engine_reserved_gb
peak_gb capacity_gb verdict reason
"""
"""Columns beside those shared and those of phases, which are named t_ and verl's name; `reason` says why a combination cannot run."""


class RlKind(EnumeratedKind[RlRun, RlStep]):
    """Steps of reinforcement learning.

    With `auto`, placements are colocated and one step off, engines' degrees powers of two within a node, and the GPUs of engines any
    number of whole nodes of `cluster`, which is then all machines.
    """

    name = RL
    columns = f"{SHARED} {' '.join(f't_{name}' for name in NAMES)} {OURS}"
    orders: ClassVar[Mapping[str, Order[RlStep]]] = {
        "throughput": Order(
            meaning="tokens trained on per second and GPU", value=lambda step: 1 / step.tokens_per_second_per_gpu
        )
    }
    measures: ClassVar[Mapping[str, Measure[RlStep]]] = {
        "step_us": Measure(title="step time", value=lambda step: step.time.median_us)
    }
    can_be_auto = (PLACEMENT, GPUS, TP)

    def load(self, config: Any, overrides: Sequence[str]) -> RlRun:
        return load_rl(config, overrides)

    def key(self, path: str) -> Key | None:
        return known_keys().get(path)

    def paths(self) -> Sequence[str]:
        return [path for path, key in known_keys().items() if key.kind not in ("list", "section")]

    def resolved(self, path: str) -> str:
        return resolved(path, None)[0]

    def predictor(self, estimate: Estimate, of_servers: ServerOptions) -> Callable[[RlRun], RlStep]:
        refuse_server_options(of_servers)
        return lambda run: estimate_rl(run, estimate)

    def row(self, predicted: RlStep) -> dict[str, Any]:
        return {**_setup(predicted), **_figures(predicted), **_memory(predicted.memory)}

    def memory(self, predicted: RlStep) -> RlMemory:
        return predicted.memory

    def settings(self, predicted: RlStep) -> Values:
        of_base = settings_of(predicted.rl.base)
        base = {path: value for path, value in of_base.items() if not path.startswith("batch.")}
        return base | {f"{NAME}.{path}": value for path, value in leaves(asdict(predicted.rl.section))}

    def run_of(self, predicted: RlStep) -> RlRun:
        return predicted.rl

    def cluster_of(self, run: RlRun) -> Cluster:
        return run.base.cluster

    def on_cluster(self, run: RlRun, cluster: Cluster) -> RlRun:
        return _changed(run, lambda each: replace(each, cluster=cluster))

    def execution_of(self, run: RlRun) -> Execution:
        return run.base.execution

    def executed(self, run: RlRun, execution: Execution) -> RlRun:
        return _changed(run, lambda each: replace(each, execution=execution))

    def switched(self, run: RlRun) -> Iterator[Setting]:
        yield from switched_execution(run.base.execution)
        rollout = run.section.rollout
        yield from settings_of_section(f"{NAME}.rollout", rollout, keys_of(Rollout), but=("engine", "step_model"))

    def verdict(self, predicted: RlStep) -> str:
        return predicted.memory.verdict

    def misfit(self, predicted: RlStep) -> str:
        memory = predicted.memory
        if memory.fits:
            return ""
        worst = memory.worst
        return f"memory: {worst.phase} needs {size(worst.peak)} per GPU, which has {size(memory.capacity)}"

    def not_read(self, predicted: RlStep) -> Values:
        return predicted.rl.not_read

    def ratio(self, best: RlStep, other: RlStep, objective: str) -> Ratio:
        """The ratio of their times per token. Trainer, engines and weight sync of steps of one model on one GPU have common errors, as
        kinds of call have in plans of training."""
        contenders = [contender(each, self.orders[objective].value(each)) for each in (best, other)]
        if best.rl.base.model == other.rl.base.model and best.rl.base.cluster.gpu == other.rl.base.cluster.gpu:
            return ratio(*contenders)
        apart = width_of_ratio(best.time.half_width_log, other.time.half_width_log)
        return Ratio.from_log(contenders[1].value / contenders[0].value, apart)

    def rate_ratio(self, first: RlStep, other: RlStep) -> Interval:
        """Tokens trained on per second and GPU."""
        return self.ratio(first, other, "throughput").dividing(1.0)

    def content(self, config: Any, overrides: Sequence[str]) -> Values:
        return document_of(config, overrides)[0]

    def opened(self, overrides: Sequence[str]) -> dict[str, Any]:
        return {TP: AUTO}

    def automatic(
        self, config: Any, overrides: Sequence[str], varied: Values, wanted: Collection[str]
    ) -> dict[str, tuple[Any, ...]]:
        first = {path: values[0] for path, values in varied.items()}
        first |= {path: {TP: 1, PLACEMENT: COLOCATED, GPUS: 0}[path] for path in wanted}
        first |= UNSPLIT if GPUS in wanted else {}
        cluster = _sections(config, [*overrides, *as_settings(first)])["cluster"]
        nodes, per_node = cluster.get("nodes", 1), cluster.get("gpus_per_node", 1)
        return {
            PLACEMENT: (COLOCATED, ONE_STEP_OFF),
            GPUS: tuple(per_node * of_engines for of_engines in range(nodes)),
            TP: tuple(2**power for power in range(per_node.bit_length())),
        }

    def completing(
        self, config: Any, overrides: Sequence[str], varied: Values, automatic: Collection[str]
    ) -> Callable[[Values], Values | None]:
        """dp takes the ranks that are left where other degrees or the machines vary and it does not; engines that take turns with the
        trainer have no GPUs of their own."""
        if not any(path in varied for path in (*DECIDE_DP, GPUS, PLACEMENT)):
            return lambda values: values
        splits = GPUS in automatic
        sections = _sections(config, overrides)
        given = self.content(config, overrides).get(NAME, {}).get("placement", COLOCATED)
        return partial(_completed, sections, splits, given if isinstance(given, str) and given != AUTO else COLOCATED)


KIND = RlKind()


def contender(step: RlStep, value: float) -> Contender:
    """A step as a contender: each side of it is slower as its interval says, and slows the step by its share of it."""
    engines, trainer, weights = step.generating, step.training, step.sync

    def until_sync_us(engines_us: float, trainer_us: float) -> float:
        return float(both_done_us(step.rl.section, np.array(engines_us), np.array(trainer_us)))

    slower_us = {
        "engines": [until_sync_us(each, trainer.median_us) for each in (engines.low_us, engines.high_us)],
        "trainer": [until_sync_us(engines.median_us, each) for each in (trainer.low_us, trainer.high_us)],
        "weights": [weights.low_us, weights.high_us],
    }
    section = step.rl.section
    beside = (getattr(section, each.name) for each in fields(section) if each.name != "rollout")
    return Contender(
        value=value,
        half_widths={(side, "step"): (high - low) / 2 / step.time.median_us for side, (low, high) in slower_us.items()},
        repeats=REPEATS,
        per_setting=setting_error(step.actor),
        settings=(*setting_values(step.rl.base), *beside, *astuple(section.rollout)),
    )


def _changed(rl: RlRun, change: Callable[[TrainingRun], TrainingRun]) -> RlRun:
    """The same step with a change of the trainer's run and of those of the models beside it."""
    return replace(
        rl,
        base=change(rl.base),
        critic=rl.critic and change(rl.critic),
        reward_model=rl.reward_model and change(rl.reward_model),
    )


def _sections(config: Any, overrides: Sequence[str]) -> Mapping[str, Values]:
    """The sound values of each section of the trainer's run; rules across keys are those of each combination."""
    content, of_files, _ = document_of(config, overrides)
    return read_sections(read_draft(training_document(content, path_of(config)), of_files)).values


def _completed(sections: Mapping[str, Values], splits: bool, placement: str, values: Values) -> Values | None:
    """The settings of a combination with those that follow from it."""
    cluster, plan = sections["cluster"], sections["plan"]
    if splits and (values.get(PLACEMENT, placement) != COLOCATED) != bool(values[GPUS]):
        return None
    found = dict(values)
    if PLACEMENT in values and values[PLACEMENT] != ASYNC and STALENESS not in values:
        found[STALENESS] = 0
    nodes, per_node = (values.get(f"cluster.{key}", cluster.get(key, 1)) for key in ("nodes", "gpus_per_node"))
    if splits:
        nodes -= values[GPUS] // per_node
        found["cluster.nodes"] = nodes
    if "plan.dp" not in values:
        degrees = {key: values.get(f"plan.{key}", plan.get(key, 1)) for key in INSIDE_A_REPLICA}
        found["plan.dp"] = max(1, replicas_left(degrees, {"nodes": nodes, "gpus_per_node": per_node}))
    return found


def known_keys() -> dict[str, Key]:
    """Path → the key, of those of an RL config that may be open."""
    found = {f"{section}.{key.name}": key for section in ("plan", "cluster") for key in SECTIONS[section]}
    for key in keys_of(RlSection):
        found[f"{NAME}.{key.name}"] = key
        if key.of:
            found |= {f"{NAME}.{key.name}.{inner.name}": inner for inner in keys_of(key.of)}
    return found


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


# Steps with shorter and longer responses, and with fewer and more of them to each prompt.

LENGTHS = (0.25, 0.5, 1.0, 2.0)
COUNTS = (0.5, 1.0, 2.0)
"""Times the config's own."""
N, LONGEST = "rl.n", "rl.response_max"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LengthMap:
    """Combinations of a longest response and a number of responses to a prompt; `own` are those of the config."""

    own: tuple[int, int]
    cells: tuple[SweptRow[RlStep], ...]


def length_map(config: Config, overrides: Sequence[str], estimate: Estimate) -> LengthMap | None:
    """Predict every combination; None where a file gives the lengths of responses. Budgets of tokens grow with the longest sequence."""
    own = load_rl(config, overrides)
    section = own.section
    counts = sorted({max(1, round(times * section.n)) for times in COUNTS})
    longer = [found for times in LENGTHS if (found := _longer(section, times, own.base.plan.cp))]
    if not longer:
        return None

    def predict(values: Values) -> RlStep:
        return estimate_rl(load_rl(config, [*overrides, *as_settings(values)]), estimate)

    settings = [{N: count, **lengths} for count in counts for lengths in longer]
    return LengthMap(
        own=(section.response_max, section.n), cells=tuple(swept_row(KIND, each, predict) for each in settings)
    )


def _longer(section: RlSection, times: float, cp: int) -> dict[str, Any] | None:
    """The settings of responses so many times as long; None for those of a file."""
    response, longest = scaled_lengths(section.response, times), max(1, round(section.response_max * times))
    if response is None:
        return None
    needed = ceil((section.prompt_max + longest) / cp)
    budgets = {"rl.max_tokens": section.max_tokens, "rl.passes.max_tokens": section.passes.max_tokens}
    grown = {key: max(tokens, needed) for key, tokens in budgets.items() if tokens}
    return {"rl.response": response, LONGEST: longest, **grown}
