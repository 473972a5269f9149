"""A run config inferred from a log or a trace alone: what it states or shows, what is uncertain, and what is missing."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

from predict.config.document import Document
from predict.config.overrides import OPTION, parse_overrides
from predict.kinds import SERVING, TRAINING, unknown_settings
from predict.measured_runs.explain.naming import class_of
from predict.measured_runs.logs import is_log, read_log, read_served_log
from predict.measured_runs.served_log import ServedLog
from predict.measured_runs.steady_state import RunLog, Stated, steady
from predict.measured_runs.traces import CAPTURES, files_of_traces, is_trace, traces_in
from predict.measured_runs.traces.model_shape import SeenModel, keys_of, seen_model, shipped_like
from predict.measured_runs.traces.plan_shape import SeenPlan, seen_plan
from predict.measured_runs.traces.summary import TraceSummary, summary
from predict.model.shipped import shipped_model
from sampling.errors import UserError
from sampling.files.disk import NotReadError, read_text
from sampling.files.faults import config_error, counted
from sampling.hardware.cluster import hardware_facts, hardware_named
from sampling.importers.torch_trace.events import Trace, load_trace
from sampling.number_text import whole_percent

Measured = RunLog | ServedLog | tuple[TraceSummary, ...] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Inferred:
    """A run config as far as a log or a trace shows it."""

    kind: str
    """The kind of the config."""
    document: dict[str, object]
    """The config, of a training run or of a server: section → its keys. It may lack some."""
    uncertain: tuple[str, ...]
    """Sentences on what it may have wrong, each beginning with the key."""
    missing: tuple[str, ...]
    """Keys that a prediction needs and that it lacks, each with an example."""
    measured: Measured
    """The log's steps, the server's rates, or the summaries of the traced ranks in order."""

    def with_settings(self, overrides: Sequence[str]) -> Inferred:
        """The same with settings such as `plan.tp=2` over what was inferred; nothing is missing or uncertain of what they give. ConfigError
        for an unknown key."""
        given = [setting.path for setting in parse_overrides(overrides)[0]]
        if unknown := unknown_settings(self.kind, given):
            raise config_error(unknown, {"": OPTION})

        def is_open(sentence: str) -> bool:
            key = sentence.partition(":")[0]
            return not any(key == path or key.startswith(f"{path}.") for path in given)

        document = Document(name="", content=self.document).with_settings(overrides)
        return replace(
            self,
            document=dict(document.content),
            uncertain=tuple(filter(is_open, self.uncertain)),
            missing=tuple(filter(is_open, self.missing)),
        )


SCRIPTS = (".sh", ".slurm", ".sbatch", ".py", ".yml", ".yaml", ".toml")
"""Endings of files that people write to launch a run."""
LOGS = (".log", ".out", ".err", ".csv", ".jsonl", ".gz")
"""Endings of what runs write."""


def is_measured(path: Path) -> bool:
    """Whether a file is a log or a trace rather than what launches a run, by its ending, else by what it holds."""
    if path.is_dir() or path.suffix.lower() in LOGS:
        return True
    if path.suffix.lower() in SCRIPTS or not path.is_file():
        return False
    return is_trace(path) or is_log(path)


def infer_config(path: Path | str) -> Inferred:
    """The run config that a training log, a server's log, a benchmark's JSON, a trace or a folder of ranks' traces shows.

    UserError for a file that cannot be read, that states no times, or that is of no known format.
    """
    path = Path(path)
    if is_trace(path):
        return _of_traces(path)
    try:
        log = read_log(path)
    except UserError as unread:
        try:
            served = read_served_log(path)
        except UserError:
            raise unread from None
        return _complete(served.stated, served, serves=True)
    return _complete(_with_steps(log), log, serves=False)


def _with_steps(log: RunLog) -> Stated:
    """Settings that a log states of its run, those of its lines on steps included."""
    last = steady(log.steps)[-1]
    of_lines = {"batch.global": last.batch, "batch.seq_len": last.seq_len}
    known = {key: value for key, value in of_lines.items() if value}
    return Stated(settings={**known, **log.stated.settings}, uncertain=log.stated.uncertain)


# Completing: what follows from what is known, and what is still missing.

NEEDED: Mapping[str, str] = {
    "model": "llama3-8b",
    "cluster.hardware": "h100",
    "cluster.nodes": "1",
    "cluster.gpus_per_node": "8",
    "plan.tp": "1",
    "plan.pp": "1",
    "plan.cp": "1",
    "plan.dp": "8",
    "batch.global": "128",
    "batch.micro": "1",
    "batch.seq_len": "8192",
    "precision": "bf16",
}
"""Key of a training config → an example."""
NEEDED_SERVED: Mapping[str, str] = {
    "model": "llama3-8b",
    "hardware": "h100",
    "placement.tp": "1",
    "engine.name": "vllm-v1",
    "load.rate": "8",
    "load.prompt": "600",
    "load.output": "250",
}
DEGREES = ("plan.tp", "plan.pp", "plan.cp")


def _complete(stated: Stated, measured: Measured, *, serves: bool) -> Inferred:
    known = dict(stated.settings)
    uncertain = [*stated.uncertain]
    for key, read in ((("hardware" if serves else "cluster.hardware"), hardware_named), ("model", _model)):
        if isinstance(given := known.get(key), str) and not (found := read(given)):
            del known[key]
            uncertain.append(f"{key}: {given} is not among those that ship; give its file")
        elif isinstance(given, str):
            known[key] = found
    if not serves:
        uncertain += _derive(known)
    needed = NEEDED_SERVED if serves else NEEDED
    missing = [key for key in needed if key not in known]
    if "load.concurrency" in known:
        missing = [key for key in missing if key != "load.rate"]
    return Inferred(
        kind=SERVING if serves else TRAINING,
        document=_nested(known),
        uncertain=tuple(uncertain),
        missing=tuple(f"{key}: not shown; give it, for example --set {key}={needed[key]}" for key in missing),
        measured=measured,
    )


def _model(name: str) -> str:
    found = shipped_model(name)
    return found.stem if found else ""


def _derive(known: dict[str, Any]) -> Iterator[str]:
    """Fill in what follows from the ranks, the plan and the batch; yields what is assumed for it."""
    steps = known.pop("batch.accumulation", None)
    nodes, hardware = known.get("cluster.nodes"), known.get("cluster.hardware")
    if nodes and hardware and "cluster.gpus_per_node" not in known:
        known["cluster.gpus_per_node"] = hardware_facts(hardware).gpus_per_node
        yield f"cluster.gpus_per_node: {known['cluster.gpus_per_node']} is usual for {hardware}"
    of_node = known.get("cluster.gpus_per_node")
    inside = [known.get(key) for key in DEGREES]
    if "plan.dp" not in known and nodes and of_node and all(inside):
        ranks = nodes * of_node
        for degree in inside:
            ranks //= degree
        known["plan.dp"] = max(1, ranks)
    dp, batch, micro = known.get("plan.dp"), known.get("batch.global"), known.get("batch.micro")
    if steps and batch and dp and not micro and batch % (steps * dp) == 0:
        known["batch.micro"] = batch // (steps * dp)
    elif steps and batch and micro and not dp and batch % (steps * micro) == 0:
        known["plan.dp"] = batch // (steps * micro)
    elif steps and batch and not micro and not dp and batch % steps == 0:
        at_once = batch // steps
        of_replica = prod(each for each in inside if each)
        most = max(1, nodes * of_node // of_replica) if nodes and of_node else at_once
        micro = next(each for each in range(1, at_once + 1) if at_once % each == 0 and at_once // each <= most)
        known |= {"batch.micro": micro, "plan.dp": at_once // micro}
        yield (
            f"batch.micro: {micro} is assumed; then {counted(steps, 'step')} of accumulation make plan.dp = {at_once // micro}"
        )


def _nested(settings: Mapping[str, Any]) -> dict[str, object]:
    """The sections of settings by their path, in the order in which configs have them."""
    nested: dict[str, Any] = {}
    order = {key.partition(".")[0]: None for key in (*NEEDED, *NEEDED_SERVED)}
    for key in sorted(settings, key=lambda each: [*order, each.partition(".")[0]].index(each.partition(".")[0])):
        section, _, name = key.partition(".")
        if name:
            nested.setdefault(section, {})[name] = settings[key]
        else:
            nested[section] = settings[key]
    return nested


# Traces.

CAPTURED = "execution_details.json"
"""File of the folder of captures that says which trace is of which batch."""
TIED = "model: by the shapes of its products; whether embedding and head share weights does not show"


def _of_traces(path: Path) -> Inferred:
    files = files_of_traces(path)
    traces = [trace for file in files for trace in traces_in(file)]
    if not any(trace.ops or trace.kernels for trace in traces):
        raise UserError(f"{path}: holds no kernels; record whole steps")
    _require_one_run(traces, path)
    summaries = tuple(each for trace in traces if (each := summary(trace)))
    shaped = traces if seen_model(traces).hidden else [*traces, *_captures(files[0], traces)]
    return _of_shapes(traces, seen_model(shaped), summaries)


def _require_one_run(traces: Sequence[Trace], path: Path) -> None:
    """UserError for two traces of one rank, by their headers."""
    ranks = Counter(trace.rank for trace in traces if "distributedInfo" in trace.header)
    if twice := [rank for rank, count in ranks.items() if count > 1]:
        raise UserError(f"{path}: holds {ranks[twice[0]]} traces of rank {twice[0]}; give those of one run")


def _captures(file: Path, traces: Sequence[Trace]) -> Iterator[Trace]:
    """The traces of the captures beside a trace; of that batch where the trace says which it replays."""
    folder = file.parent / CAPTURES
    for name in _names_of_captures(folder, _replayed(traces)):
        yield load_trace(folder / name, with_shapes=False)


def _names_of_captures(folder: Path, batch: int) -> list[str]:
    try:
        entries = json.loads(read_text(folder / CAPTURED))
        of_batch = [str(each["file"]) for each in entries if batch in (0, each["batch_size"])]
        return [Path(name).name for name in of_batch][:1]
    except (NotReadError, ValueError, KeyError, TypeError, RecursionError):
        return sorted(each.name for each in folder.glob("*.json*") if each.name != CAPTURED)[:1]


def _replayed(traces: Iterable[Trace]) -> int:
    """The batch of a server's step by its annotation, `step[DECODE bs=32]`; 0 where there is none."""
    named = (span.name.partition("bs=")[2] for trace in traces for span in trace.spans if "bs=" in span.name)
    return next((int(digits) for text in named if (digits := text.partition("]")[0].partition(" ")[0]).isdecimal()), 0)


def _of_shapes(traces: Sequence[Trace], seen: SeenModel, summaries: tuple[TraceSummary, ...]) -> Inferred:
    plan = seen_plan(traces)
    serves = not _trains(traces)
    uncertain = [*plan.uncertain]
    stages = plan.degrees.get("pp", 1)
    if stages > 1:
        seen = replace(seen, layers=seen.layers * stages)
        uncertain.append(f"model: as many layers as {stages} stages like the traced one have")
    name, tp = shipped_like(seen, _tps(plan))
    tp = tp or plan.degrees.get("tp", 1)
    if name and plan.degrees.get("tp", tp) != tp:
        uncertain.append(f"plan.tp: {tp} by the shapes of {name}, {plan.degrees['tp']} by its groups")
    settings: dict[str, Any] = {"model": name or keys_of(seen, tp)}
    if not settings["model"]:
        del settings["model"]
    elif not name:
        uncertain.append(TIED)
    if traces[0].devices:
        settings["hardware" if serves else "cluster.hardware"] = traces[0].devices[0]
    settings |= _served(traces, seen, tp) if serves else _trained(traces, seen, plan, tp if name else 0)
    uncertain += _narrow_products(traces, "placement.precision" if serves else "precision")
    uncertain += [_bound_by_launches(each) for each in summaries if each.launch_bound]
    return _complete(Stated(settings=settings, uncertain=tuple(uncertain)), summaries, serves=serves)


def _bound_by_launches(rank: TraceSummary) -> str:
    return (
        f"execution: rank {rank.rank} is bound by launches: its device is busy for {whole_percent(rank.busy_share)} of the span and mostly waits for the "
        "host, which a prediction of kernels alone does not have"
    )


NARROW: Mapping[str, re.Pattern[str]] = {
    "4 bits": re.compile(r"e2m1|fp4|int4|w4a", re.IGNORECASE),
    "8 bits": re.compile(r"e4m3|e5m2|fp8|f8f8|nvjet_qq", re.IGNORECASE),
}
"""Width of a product's operands → how names of kernels write it; the narrowest that a name has counts."""
PRODUCTS = ("gemm", "grouped_gemm")
WORTH_SAYING = 0.05
"""Share of the products' time from which on the width of some is said."""


def _narrow_products(traces: Iterable[Trace], key: str) -> Iterator[str]:
    """Sentences on products in fewer bits than the operators' dtypes show, by the names of their kernels."""
    times_us: dict[str, float] = {}
    for kernel in (each for trace in traces for each in trace.kernels if class_of(each) in PRODUCTS):
        width = next((bits for bits, pattern in NARROW.items() if pattern.search(kernel.name)), "")
        times_us[width] = times_us.get(width, 0.0) + kernel.duration_us
    whole_us = sum(times_us.values())
    for bits in NARROW:
        if times_us.get(bits, 0.0) > WORTH_SAYING * whole_us:
            yield f"{key}: kernels of {whole_percent(times_us[bits] / whole_us)} of the products' time are of {bits} by their names"


def _tps(plan: SeenPlan) -> list[int]:
    """The degrees of tensor parallelism that may be, the likeliest first."""
    first = [plan.degrees["tp"]] if "tp" in plan.degrees else []
    world = plan.world_size
    return list(dict.fromkeys([*first, 1, *(tp for tp in (world, 2, 4, 8, 16) if world % tp == 0)]))


def _trains(traces: Iterable[Trace]) -> bool:
    """Whether a backward or an optimizer ran, or nothing shows at all."""
    traces = [*traces]
    if not any(trace.ops for trace in traces):
        return not any("step[" in span.name or "execute_" in span.name for trace in traces for span in trace.spans)
    updates = any(span.name.startswith("Optimizer.") for trace in traces for span in trace.spans)
    return updates or any(op.node for trace in traces for op in trace.ops)


ENGINES: Mapping[str, str] = {"vllm": "vllm-v1", "sglang": "sglang", "sgl_kernel": "sglang", "aiter": ""}
"""Library of a server's operators → engine."""


def _served(traces: Sequence[Trace], seen: SeenModel, tp: int) -> dict[str, Any]:
    libraries = {op.name.partition("::")[0].removesuffix("_profiler") for trace in traces for op in trace.ops}
    spans = " ".join(span.name for trace in traces for span in trace.spans)
    engine = next((name for library, name in ENGINES.items() if name and library in libraries), "")
    if not engine and "step[" in spans:
        engine = "sglang"
    found: dict[str, Any] = {"placement.tp": tp}
    if seen.dtype:
        found["placement.precision"] = seen.dtype
    if engine:
        found["engine.name"] = engine
    return found


def _trained(traces: Sequence[Trace], seen: SeenModel, plan: SeenPlan, tp: int) -> dict[str, Any]:
    per_node = min(max(len(trace.devices) for trace in traces) or plan.world_size, plan.world_size)
    degrees = {**plan.degrees, **({"tp": tp} if tp else {})}
    inside = degrees.get("tp", 1) * degrees.get("pp", 1) * degrees.get("cp", 1)
    if "dp" in degrees and plan.world_size % inside == 0:
        degrees["dp"] = plan.world_size // inside
    found: dict[str, Any] = {
        "cluster.nodes": -(-plan.world_size // per_node),
        "cluster.gpus_per_node": per_node,
        **{f"plan.{name}": degree for name, degree in degrees.items()},
    }
    if seen.dtype:
        found["precision"] = seen.dtype
    if seen.rows and seen.length:
        found |= {"batch.micro": seen.rows, "batch.seq_len": seen.length}
    return found
