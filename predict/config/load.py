"""A run config, with settings over it, to a TrainingRun; every fault of it in one ConfigError.

    model: llama3-8b                       # a shipped model, a Hugging Face config.json relative to this file, or its keys
    cluster: this-machine                  # or a file, or {hardware: cpu, nodes: 1, gpus_per_node: 2, profile: this-machine}
    plan: {tp: 1, pp: 2, schedule: 1f1b}   # the keys of Plan, each with its default
    batch: {global: 8, micro: 1, seq_len: 512}
    precision: fp32

Values that are well-formed but not modelled yet are refused, never ignored.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from predict.config.document import Config
from predict.config.draft import (
    PATH,
    PRECISION,
    SECTIONS,
    Draft,
    Values,
    read_draft,
    refusals,
    shipped_file,
    without_choice,
    without_unknown,
)
from predict.config.replicas import are_left, replicas_left, with_replicas_left
from predict.config.rules import broken_rules
from predict.config.rules.rule import SHORTEST, TEACHER_MODEL, values_of_model
from predict.huggingface.config_json import ModelReading, load_model
from predict.kinds import as_loaded
from predict.model.spec import ModelSpec
from predict.run.adapters import Adapters
from predict.run.calibration_file import calibrated_by
from predict.run.execution import Execution
from predict.run.frameworks import ON_GPUS, framework_names, framework_settings, of_model, selective_is_of_operators
from predict.run.lengths import PACKED, RealSequences, laid_out, real_lengths
from predict.run.offload import Offload
from predict.run.plan import BEST, Batch, Plan
from predict.run.training_run import TrainingRun, read_by
from predict.run.tuning import REWARD, Tuning
from predict.run.vision import Vision
from predict.schedules import registry
from predict.schedules.order_files import is_order_file, read_order
from sampling.errors import ConfigError
from sampling.files.faults import Fault, config_error
from sampling.files.schema import check
from sampling.hardware.cluster import hardware_facts, load_cluster
from sampling.store.profiles import default_profile, home_of, profile_in_use, read_manifest, samples_directory

# A batch of sequences of several lengths, on its way from a config to the rows that a run computes.

BatchValues = dict[str, Any]
REAL = "real_lengths"
"""Name of the lengths among the batch's values: no key of a config."""


def with_real_lengths(batch: BatchValues, folder: Path, faults: list[Fault]) -> BatchValues:
    """The batch's values with the lengths of its sequences where it gives a distribution; a fault where that cannot be read. A file's
    path starts in `folder`, and is whole afterwards."""
    text = batch.get("lengths")
    if not text or "global" not in batch:
        return batch
    kind, _, path = text.partition(":")
    if kind == "file":
        text = f"file:{(folder / path).absolute()}"
    try:
        return batch | {"lengths": text, REAL: real_lengths(text, batch["global"], folder)}
    except ConfigError as error:
        faults.append(Fault(path="batch.lengths", problem=str(error)))
        return batch


def batch_in_rows(values: Mapping[str, Any], plan: Plan) -> tuple[Batch, RealSequences | None]:
    """The rows that a step computes, and the sequences in them; None where each sequence is a row."""
    lengths = values.get(REAL)
    batch = Batch(**{f"{key}_" if key == "global" else key: value for key, value in values.items() if key != REAL})
    if lengths is None:
        return batch, None
    real = laid_out(
        lengths,
        padding=batch.padding,
        longest=batch.seq_len,
        micro=batch.micro,
        replicas=plan.dp,
        multiple=plan.cp * (plan.tp if plan.sp else 1),
    )
    return replace(batch, global_=real.rows, seq_len=real.row_tokens), real


def require_packable(run: TrainingRun, sources: Mapping[str, str]) -> None:
    """ConfigError where the schedule does not run the number of microbatches that packing leaves."""
    plan = run.plan
    if run.batch.padding != PACKED or run.real is None or plan.schedule == BEST or run.order is not None:
        return
    reason = registry.get(plan.schedule).refusal(plan.pp, plan.vpp, run.microbatches)
    if reason:
        problem = (
            f"packed makes {run.batch.global_} rows, so {run.microbatches} microbatches, and {plan.schedule} {reason}; "
            "change batch.global, batch.micro or plan.schedule"
        )
        raise config_error([Fault(path="batch.padding", problem=problem)], sources)


def load(config: Config, overrides: Sequence[str] = ()) -> TrainingRun:
    """Read a run from a file, a mapping, or a document that was made; `overrides` are settings such as `plan.tp=2`,
    which replace what the files say.

    Paths inside the file, and those in overrides, are relative to the file's directory, except that an order file in an
    override is relative to the current one, as that of `predict schedule --schedule` is. Raises ConfigError with a line for
    each fault, and SamplesError for a damaged manifest of the cluster's profile. A run that is loaded stays as it is.
    """
    if loaded := as_loaded(config, TrainingRun, overrides):
        return loaded
    return _with_placeholders(config, overrides, refusals)[0]


def load_partly_unknown(config: Config, overrides: Sequence[str] = ()) -> tuple[TrainingRun, tuple[str, ...]]:
    """The run of a config as `load` reads it, and the keys that are `unknown` in it, whose values in the run are placeholders."""
    return _with_placeholders(config, overrides, lambda unknown: [])


def model_of(config: Config, overrides: Sequence[str] = ()) -> ModelSpec:
    """The model of a config, whether or not its other settings make a run of it; ConfigError with every fault of single keys."""
    draft, _ = without_unknown(read_draft(config, overrides))
    spec = read_sections(draft).model.spec
    if draft.faults or spec is None:
        raise draft.error()
    return spec


def unknown_keys(config: Config, overrides: Sequence[str] = ()) -> tuple[str, ...]:
    """The keys that are `unknown` in a config; ConfigError where it is not a mapping."""
    return without_unknown(read_draft(config, overrides))[1]


def cluster_file(config: Path | str, overrides: Sequence[str] = ()) -> Path | None:
    """The file of the cluster that a config names; None where it gives the keys themselves."""
    draft = read_draft(config, overrides)
    draft.mapping("cluster")
    named = isinstance(draft.document.get("cluster"), str)
    return Path(draft.sources["cluster"]) if named and "cluster" in draft.sources else None


def _with_placeholders(
    config: Config, overrides: Sequence[str], faults_of: Callable[[Sequence[str]], list[Fault]]
) -> tuple[TrainingRun, tuple[str, ...]]:
    """The run with placeholders for unknown keys, and those keys, which `faults_of` may refuse."""
    draft, unknown = without_unknown(read_draft(config, overrides))
    sections = with_replicas(draft, read_sections(draft))
    draft.faults.extend([*broken_rules(sections.by_rule_name()), *faults_of(unknown)])
    if draft.faults or sections.model.spec is None:
        raise draft.error()
    return made_run(draft, sections), unknown


class Sections(NamedTuple):
    """The sound values of a config, before the rules across keys; what is wrong with others is among the faults of its draft."""

    model: ModelReading
    values: Mapping[str, Values]
    """Section → its values, with defaults."""

    def by_rule_name(self) -> Values:
        """The values by the names under which rules ask for them."""
        model = {**self.model.values, "model": self.model.spec} if self.model.spec else self.model.values
        return {**model, **_across(self.values)}


def read_sections(draft: Draft) -> Sections:
    """The values of a draft, with the settings of its framework and the profile of its cluster."""
    model = draft.model()
    values = {section: draft.section(section) for section in SECTIONS if section != "execution"}
    values["cluster"] = _with_profile(draft.with_own_paths(values["cluster"]))
    values["execution"] = draft.execution(values["cluster"].get("hardware"), model.spec)
    values["plan"] = _with_recomputation_meant(values["plan"], values["execution"].get("framework", ON_GPUS))
    values["precision"] = draft.precision()
    values["batch"] = with_real_lengths(values["batch"], draft.path.parent, draft.faults)
    schedule = values["plan"].get("schedule")
    if schedule and is_order_file(schedule) and not draft.is_set("plan.schedule"):
        values["plan"]["schedule"] = str(draft.path.parent / schedule)
    values["tuning"] = _with_own_path(values["tuning"], draft)
    return Sections(model=model, values=values)


def _with_own_path(tuning: Values, draft: Draft) -> Values:
    """The section with its teacher's path counted from the config's folder."""
    teacher = tuning.get("teacher", "")
    if not PATH.fullmatch(teacher) or draft.is_set("tuning.teacher"):
        return tuning
    return {**tuning, "teacher": str(draft.path.parent / teacher)}


def _with_recomputation_meant(plan: Values, framework: str) -> Values:
    """The plan with `ops` for selective recomputation of no named modules, where that is what the framework's users call so."""
    plain = plan.get("recompute") == "selective" and plan.get("recompute_modules") == Plan().recompute_modules
    known = framework in framework_names()
    return {**plan, "recompute": "ops"} if plain and known and selective_is_of_operators(framework) else plan


def with_replicas(draft: Draft, sections: Sections) -> Sections:
    """The sections with the dp that the other degrees leave, where it follows from them."""
    plan = with_replicas_left(draft, sections.values["plan"], sections.values["cluster"])
    return sections._replace(values={**sections.values, "plan": plan})


def replicas_that_follow(config: Config, overrides: Sequence[str] = ()) -> int:
    """The dp of a config under settings, where it follows from the other degrees; 0 where it is given, where they do not divide the
    ranks, and where plan or cluster have faults, such as a choice in place of a value. ConfigError where it is not a mapping."""
    draft = read_draft(config, overrides)
    if not are_left(draft):
        return 0
    values = read_sections(draft).values
    if any(fault.path.partition(".")[0] in ("plan", "cluster") for fault in draft.faults):
        return 0
    return replicas_left(values["plan"], values["cluster"])


def made_run(draft: Draft, sections: Sections) -> TrainingRun:
    """The run of sections without faults. ConfigError where a CPU machine has fewer cores than ranks."""
    assert sections.model.spec is not None
    cluster = _with_cores(sections.values["cluster"])
    if crowded := list(broken_rules(cluster)):
        raise draft.error(crowded)
    run = _run(draft.path.stem, sections.model.spec, {**sections.values, "cluster": cluster})
    require_packable(run, draft.sources)
    named = draft.document.get("model")
    given_as = named if isinstance(named, str) else ""
    return replace(run, model_keys=sections.model.keys, model_given_as=given_as, given=draft.given)


def build(name: str, model: ModelSpec, sections: Mapping[str, Any]) -> TrainingRun:
    """The run of a model and the sections of a config, `precision` among them; ConfigError has a line for each fault."""
    execution, hardware = sections.get("execution", {}), sections.get("cluster", {}).get("hardware")
    framework = execution.get("framework", ON_GPUS)
    architecture = hardware_facts(hardware).architecture if hardware else ""
    usual = of_model(framework_settings(framework, architecture), model)
    settings = {**usual, **execution, "framework": framework}
    faults: list[Fault] = []
    values: dict[str, Values] = {}
    for section, keys in (*SECTIONS.items(), ("precision", [PRECISION])):
        given = {**sections, "execution": settings, "precision": {"precision": sections.get("precision")}}
        own, wrong = check(given.get(section, {}), keys, section="" if section == "precision" else section)
        values[section], lacking = without_choice(section, given.get(section, {}), own)
        faults += [*wrong, *lacking]
    values["cluster"] = _with_profile(values["cluster"])
    values["batch"] = with_real_lengths(values["batch"], Path(), faults)
    faults += broken_rules({**values_of_model(model), **_across(values)})
    if faults:
        raise config_error(faults, {"": name})
    return _run(name, model, values)


def _across(values: Mapping[str, Values]) -> Values:
    """The values of all sections by the names under which rules ask for them, and those that follow from them."""
    flat = {key: value for of_section in values.values() for key, value in of_section.items()}
    return {**flat, **_shortest(values["batch"], flat.get("dp", 1)), **_of_teacher(values["tuning"])}


def _shortest(batch: Values, replicas: int) -> Values:
    """Tokens of the shortest sequence; where sequences are packed, those that a mean row has at most."""
    if "seq_len" not in batch:
        return {}
    lengths = batch.get(REAL)
    if not lengths:
        return {SHORTEST: batch["seq_len"]}
    a_row = sum(lengths) // (batch.get("micro", 1) * replicas) if batch.get("padding") == PACKED else min(lengths)
    return {SHORTEST: min(batch["seq_len"], a_row)}


def _of_teacher(tuning: Values) -> Values:
    """The teacher's model by its name among the values of rules; none where there is no teacher, or where it cannot be read, which is
    reported where the run is made."""
    try:
        teacher = _teacher(tuning.get("teacher", ""))
    except ConfigError:
        return {}
    return {TEACHER_MODEL: teacher} if teacher else {}


def _teacher(name: str) -> ModelSpec | None:
    return load_model(shipped_file("model", name) or Path(name)) if name else None


def _as_run(model: ModelSpec, execution: Execution, task: str) -> ModelSpec:
    """The model as a run has it: with the layers that stay wide, and, where its head makes one number, no matrix over the vocabulary."""
    with_head = replace(model, tied=True) if task == REWARD else model
    return with_head.with_wide_ends(execution.wide_first_layers, execution.wide_last_layers)


def _beside_its_encoder(model: ModelSpec, batch: Batch, vision: Vision) -> ModelSpec:
    """The model whose layers attend to all that its encoder makes for a sequence."""
    encoder = model.encoder
    return model.attending_to(prod(read_by(encoder, batch, vision))) if encoder else model


def _run(name: str, model: ModelSpec, values: Mapping[str, Values]) -> TrainingRun:
    plan, schedule = Plan(**values["plan"]), values["plan"]["schedule"]
    batch, real = batch_in_rows(values["batch"], plan)
    cluster = dict(values["cluster"])
    calibration = cluster.pop("calibration", None)
    execution, vision, tuning = (
        Execution(**values["execution"]),
        Vision(**values["vision"]),
        Tuning(**values["tuning"]),
    )
    teacher = _teacher(tuning.teacher)
    run = TrainingRun(
        name=name,
        model=_as_run(_beside_its_encoder(model, batch, vision), execution, tuning.task),
        cluster=load_cluster(**cluster),
        plan=plan,
        batch=batch,
        real=real,
        precision=values["precision"]["precision"],
        execution=execution,
        adapters=Adapters(**values["adapters"]),
        offload=Offload(**values["offload"]),
        tuning=tuning,
        vision=vision,
        teacher=teacher and _beside_its_encoder(teacher, batch, vision),
        order=read_order(Path(schedule)) if is_order_file(schedule) else None,
    )
    return calibrated_by(run, Path(calibration)) if calibration else run


def _with_profile(cluster: Values) -> Values:
    """The cluster's values with a profile: that given, else the usual one of its hardware."""
    if "hardware" not in cluster:
        return cluster
    return {"profile": default_profile(cluster["hardware"])} | cluster


def _with_cores(cluster: Values) -> Values:
    """The cluster's values with a CPU's cores: those given, else those its samples were taken on, else this machine's."""
    if "cores" in cluster or hardware_facts(cluster["hardware"]).kind != "cpu":
        return cluster
    profile = profile_in_use(cluster["profile"])
    directory = samples_directory(profile, home_of(profile))
    sampled = read_manifest(directory).device.get("cores") if (directory / "manifest.json").is_file() else None
    return cluster | {"cores": sampled or os.cpu_count() or 1}
