"""Run configs as sweeps, searches and comparisons see them.

The first columns of the long table are those that tables of training estimates share (shares of memory in GB, 10^9 bytes; times in
seconds); ours follow. Memory is that of the worst pipeline rank: param, gradient, optim, activation, kv and buffer add up to the peak.
Times are the step's ledger, averaged over pipeline ranks: compute, memory, comm and idle add up to the step.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from predict.config.draft import INTERLEAVED, ONE_CHUNK, PRECISION, SECTIONS
from predict.config.load import load
from predict.config.replicas import INSIDE_A_REPLICA
from predict.kinds import (
    TRAINING,
    Kind,
    Measure,
    Order,
    ServerOptions,
    Setting,
    Values,
    refuse_server_options,
    settings_of_section,
)
from predict.ledger.waterfall import COMMUNICATION, COMPUTE, IDLE, class_of
from predict.memory.estimate import MemoryEstimate
from predict.plan_search.options import OBJECTIVES, Objective
from predict.plan_search.ties import value_of
from predict.run.calibration_terms import Posterior
from predict.run.execution import Execution
from predict.run.frameworks import memory_profile_of, offered
from predict.run.model_flops import model_flops_per_step
from predict.run.training_run import TrainingRun, settings_of
from predict.step.prediction import Prediction
from predict.step.scheduling import Estimate
from sampling.files.schema import Key
from sampling.hardware.cluster import Cluster
from sampling.units import GB, SECOND_US

# Columns that the long tables of training and of RL steps share, their units, and the note on what times rest on.

LEAST = 0.0005
"""Share of the times from which on a source is reported."""
SHARED = """
model commit device n_cards ep tp pp sp cp seq_prompt seq_response global_batch micro_batch param_gb optim_gb activation_gb kv_gb
buffer_gb flops_required t_compute t_memory t_comm t_step tokens_per_s tokens_per_s_per_card mfu calibration_note
"""
"""The columns that tables of training estimates share. A sequence of pre-training is all prompt, and keeps no keys and values."""


def calibration_note(sources: Mapping[str, float], calibration: Posterior | None) -> str:
    """The sources of the times, in words: `83% measured, 17% analytic; calibrated on RUN and RUN, DATE`."""
    shares = ", ".join(f"{share:.0%} {name}" for name, share in sources.items() if share >= LEAST)
    if calibration is None:
        return f"{shares}; no calibration"
    dated = f", {calibration.date}" if calibration.date else ""
    return f"{shares}; calibrated on {' and '.join(each.run for each in calibration.runs)}{dated}"


OURS = """
precision framework schedule vpp dp etp zero recompute t_idle t_step_low t_step_high gradient_gb peak_gb capacity_gb verdict
bubble_fraction reason
"""
"""Columns beside those shared; `reason` says why a combination has no figures."""
WHOLE = ("model", "cluster")
"""Sections that a name stands for."""


def _order(objective: Objective) -> Order[Prediction]:
    """The order of a search's objective."""

    def value(prediction: Prediction) -> float:
        return value_of(prediction, objective)

    return Order(meaning=objective.meaning, value=value)


class TrainingKind(Kind[TrainingRun, Prediction]):
    """Training steps. dp takes the ranks that are left where the plan's other degrees or the nodes vary and it does not."""

    name = TRAINING
    columns = SHARED + OURS
    orders: ClassVar[Mapping[str, Order[Prediction]]] = {name: _order(each) for name, each in OBJECTIVES.items()}
    measures: ClassVar[Mapping[str, Measure[Prediction]]] = {
        "step_us": Measure(title="step time", value=lambda prediction: prediction.median_us)
    }
    shows_progress = False

    def load(self, config: Any, overrides: Sequence[str]) -> TrainingRun:
        return load(config, overrides)

    def key(self, path: str) -> Key | None:
        section, _, name = path.partition(".")
        if path in WHOLE:
            return Key(name=path, kind="string")
        if path == PRECISION.name:
            return PRECISION
        if section == "model" and name:
            return Key(name=name)
        return next((key for key in SECTIONS.get(section, ()) if key.name == name), None)

    def paths(self) -> Sequence[str]:
        return [f"{section}.{key.name}" for section, keys in SECTIONS.items() for key in keys]

    def predictor(self, estimate: Estimate, of_servers: ServerOptions) -> Callable[[TrainingRun], Prediction]:
        refuse_server_options(of_servers)
        return estimate

    def row(self, predicted: Prediction) -> dict[str, Any]:
        return {**_setup(predicted), **_figures(predicted)}

    def memory(self, predicted: Prediction) -> MemoryEstimate:
        return predicted.memory

    def settings(self, predicted: Prediction) -> Values:
        return settings_of(predicted.run)

    def run_of(self, predicted: Prediction) -> TrainingRun:
        return predicted.run

    def cluster_of(self, run: TrainingRun) -> Cluster:
        return run.cluster

    def on_cluster(self, run: TrainingRun, cluster: Cluster) -> TrainingRun:
        return replace(run, cluster=cluster)

    def execution_of(self, run: TrainingRun) -> Execution:
        return run.execution

    def executed(self, run: TrainingRun, execution: Execution) -> TrainingRun:
        return replace(run, execution=execution)

    def switched(self, run: TrainingRun) -> Iterator[Setting]:
        yield from switched_execution(run.execution)
        yield from stepped(run)

    def companions(self, run: TrainingRun, path: str, value: Any) -> Values:
        return with_companions(run, path, value)

    def verdict(self, predicted: Prediction) -> str:
        return predicted.memory.verdict

    def fits_probability(self, predicted: Prediction) -> float:
        return predicted.memory.fits_probability


KIND = TrainingKind()

NOT_SWITCHED = ("framework", "clocks", "product_time", "memory_time", "gemm_efficiency", "expert_load", "stragglers")
"""Keys of `execution` that describe the machine, its calibration or the data rather than a choice, or name all others at once."""


def switched_execution(execution: Execution) -> Iterator[Setting]:
    """The settings of a framework that are choices."""
    return settings_of_section("execution", execution, SECTIONS["execution"], but=NOT_SWITCHED)


# A step further in the plan or the batch, either way.

RECOMPUTATION = ("none", "selective", "full")
STAGES_OF_ZERO = (0, 1, 2, 3)


def stepped(run: TrainingRun) -> Iterator[Setting]:
    """Degrees and microbatch twice and half as large, tensor parallelism that leaves no node, more or fewer chunks on a pipeline rank,
    other recomputation and ZeRO; of these what the framework offers."""
    offers = offered(run.execution.framework)
    for path, near in _near(run).items():
        section, _, key = path.partition(".")
        now, values = getattr(getattr(run, section), key), offers.get(key, near)
        if others := [value for value in dict.fromkeys(near) if value != now and value in values]:
            yield Setting(path=path, now=now, others=others)


def _near(run: TrainingRun) -> dict[str, Sequence[Any]]:
    plan = run.plan
    degrees = {f"plan.{key}": _doubled(getattr(plan, key)) for key in ("tp", "pp", "cp", "ep")}
    if plan.tp > run.cluster.gpus_per_node:
        degrees["plan.tp"].append(run.cluster.gpus_per_node)
    if not any(kind.sparse for kind in run.model.kinds()):
        del degrees["plan.ep"]
    if plan.pp > 1 and plan.schedule in (ONE_CHUNK, INTERLEAVED):
        degrees["plan.vpp"] = _doubled(plan.vpp)
    offers = offered(run.execution.framework)
    return {
        **degrees,
        "batch.micro": _doubled(run.batch.micro),
        "plan.recompute": offers.get("recompute", RECOMPUTATION),
        "plan.zero": offers.get("zero", STAGES_OF_ZERO) if plan.dp * plan.cp > 1 else (),
    }


def _doubled(value: int) -> list[int]:
    return [each for each in (value // 2, value * 2) if each]


def with_companions(run: TrainingRun, path: str, value: Any) -> dict[str, Any]:
    """Another value of a key of the plan, and what follows: dp takes the ranks that are left, a state that no rank shares is not sharded,
    sequence parallelism comes and goes with tensor parallelism, chunks and their schedule with the pipeline."""
    section, _, key = path.partition(".")
    found: dict[str, Any] = {path: value}
    if key == "tp":
        found["plan.sp"] = value > 1 and (
            run.plan.sp or (run.plan.tp == 1 and memory_profile_of(run).sequence_parallelism)
        )
    if key == "pp" and value == 1:
        found |= {"plan.vpp": 1, "plan.schedule": ONE_CHUNK}
    if key == "vpp":
        found["plan.schedule"] = INTERLEAVED if value > 1 else ONE_CHUNK
    if section == "plan" and key in INSIDE_A_REPLICA:
        degrees = {name: getattr(run.plan, name) for name in INSIDE_A_REPLICA} | {key: value}
        found["plan.dp"] = dp = run.cluster.world_size // math.prod(degrees.values())
        if run.plan.zero and dp * degrees["cp"] == 1 and not run.offload.takes_shards:
            found["plan.zero"] = 0
    return {
        each: chosen
        for each, chosen in found.items()
        if each == path or chosen != getattr(run.plan, each.partition(".")[2])
    }


def _setup(prediction: Prediction) -> dict[str, Any]:
    run = prediction.run
    plan, batch = run.plan, run.batch
    return {
        "model": run.model.name,
        "device": run.cluster.gpu.name,
        "n_cards": run.cluster.world_size,
        **{key: getattr(plan, key) for key in ("ep", "tp", "pp", "cp", "vpp", "dp", "etp", "zero", "schedule")},
        "sp": plan.tp if plan.sp else 1,
        "recompute": plan.recompute,
        "seq_prompt": batch.seq_len,
        "seq_response": 0,
        "global_batch": batch.global_,
        "micro_batch": batch.micro,
        "precision": run.precision,
        "framework": run.execution.framework,
    }


def _figures(prediction: Prediction) -> dict[str, Any]:
    run, step, memory = prediction.run, prediction.step_time, prediction.memory
    worst = memory.worst
    of_memory = {
        "param_gb": worst.parameters,
        "gradient_gb": worst.gradients,
        "optim_gb": worst.optimizer,
        "activation_gb": worst.activations + worst.working,
        "kv_gb": 0.0,
        "buffer_gb": worst.buffers + worst.slack + worst.device,
        "peak_gb": worst.peak,
        "capacity_gb": memory.capacity_bytes,
    }
    of_time = {**_classes(prediction.breakdown_us), "t_step": step.median_us}
    of_time |= {"t_step_low": step.low_us, "t_step_high": step.high_us}
    return {
        **{name: size / GB for name, size in of_memory.items()},
        **{name: time_us / SECOND_US for name, time_us in of_time.items()},
        "flops_required": model_flops_per_step(run),
        "tokens_per_s": prediction.tokens_per_second,
        "tokens_per_s_per_card": prediction.tokens_per_second_per_gpu,
        "mfu": prediction.mfu,
        "bubble_fraction": prediction.bubble_fraction,
        "verdict": memory.verdict,
        "calibration_note": calibration_note(prediction.sources, prediction.run.calibration),
    }


def _classes(ledger: Mapping[str, float]) -> dict[str, float]:
    """µs by what bounds the work: compute (matrix products, attention and recomputed layers), communication, idle (waiting and host), and
    memory, which all else moves."""
    of_class = dict.fromkeys(("t_compute", "t_memory", "t_comm", "t_idle"), 0.0)
    for heading, time_us in ledger.items():
        of_class[_class_of(heading)] += time_us
    return of_class


def _class_of(heading: str) -> str:
    found = class_of(heading)
    if found in COMMUNICATION:
        return "t_comm"
    if found in IDLE:
        return "t_idle"
    return "t_compute" if found == COMPUTE else "t_memory"
