"""An RL config: a run config without `batch`, which follows from its section `rl`; every fault of both in one error.

model: qwen3.5-35b-a3b
cluster: {hardware: h100-sxm, nodes: 4, gpus_per_node: 8}   # the trainer's machines
plan: {tp: 2, ep: 8}                                        # the trainer's plan
precision: bf16
rl: {prompts: 32, n: 5, prompt: "constant:1024", prompt_max: 1024, response: "constant:2048", response_max: 2048}
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from predict.config.document import Config, Document, Incoming, put, read_config
from predict.config.json_schema import document_schema, json_schema, section_schema
from predict.config.load import load, replicas_that_follow
from predict.config.overrides import parse_overrides
from predict.config.rules import RULES
from predict.config.rules.rule import values_of_run
from predict.huggingface.config_json import load_model
from predict.kinds import RL, SERVING, LoadedRun, as_loaded, require_kind
from predict.model.shipped import shipped_model, shipped_models
from predict.rl.section import LAYERS, NAME, ROOTS, VERL, RlSection, Samples, fault_of, leaves, resolved, samples_of
from predict.run.lengths import up_to
from predict.run.training_run import TrainingRun
from predict.run.tuning import POLICY, SFT
from predict.serving.rules import drafts_of, limit_faults, placement_faults, step_token_faults
from predict.serving.server import EngineSettings, ServerPlacement, engine_fault, engine_settings, with_given
from predict.serving.speculation import NAME as SPECULATION
from predict.serving.speculation import Draft
from sampling.errors import ConfigError
from sampling.files.faults import Fault, config_error, did_you_mean, shown
from sampling.files.schema import build
from sampling.hardware.cluster import Gpu
from sampling.number_text import as_given

# The engines of an RL run: their settings, and those that the model, the machines or an engine's own rules do not allow.

ENGINE, ROLLOUT = "engine.", f"{NAME}.rollout."
"""Start of the keys of a server's engine, and of those that stand for them here."""


def rollout_engine(section: RlSection, gpu: Gpu) -> EngineSettings:
    """The settings of an engine that generates a batch.

    A request is at most as long as a padded sequence, as verl has it (`max_model_len`)."""
    given = section.rollout
    counts = {name: value for name in ("max_num_seqs", "max_num_batched_tokens") if (value := getattr(given, name))}
    return replace(
        with_given(engine_settings(given.engine, gpu, offline=True), counts),
        max_model_len=section.longest,
        memory_utilization=given.memory_share,
        enforce_eager=given.enforce_eager,
    )


def rollout_faults(base: TrainingRun, section: RlSection) -> list[Fault]:
    """Engines that the model or the machines do not allow."""
    rollout, gpus = section.rollout, section.rollout.gpus or base.cluster.world_size
    placed = ServerPlacement(tp=rollout.tp, expert_parallel=rollout.expert_parallel)
    of_keys = {
        "model": "model",
        "placement.tp": f"{ROLLOUT}tp",
        "placement.expert_parallel": f"{ROLLOUT}expert_parallel",
    }
    faults = [
        Fault(path=of_keys[fault.path], problem=fault.problem)
        for fault in placement_faults(base.model, placed)
        if fault.path in of_keys
    ]
    plain = base.execution.whole_layers
    if plain != (rollout.step_model == LAYERS):
        problem = f"{rollout.step_model} with execution.framework {base.execution.framework}; " + (
            f"plain torch generates layer by layer: set {LAYERS}" if plain else "set kernels, or framework: torch"
        )
        faults.append(Fault(path=f"{ROLLOUT}step_model", problem=problem))
    if unknown := engine_fault(rollout.engine, f"{ROLLOUT}engine"):
        faults.append(unknown)
    else:
        faults += _engine_faults(base, section)
    faults += _microbatch_faults(section, base.plan.cp)
    engines = gpus // rollout.tp
    if rollout.partial and section.samples < engines:
        problem = f"true with {engines} engines for the {section.samples} responses of a step; give each engine at least one, or omit it"
        faults.append(Fault(path=f"{ROLLOUT}partial", problem=problem))
    if gpus % rollout.tp:
        problem = f"{rollout.tp} does not divide the {gpus} GPUs of the engines; give one that does"
        faults.append(Fault(path=f"{ROLLOUT}tp", problem=problem))
    return faults


def image_faults(base: TrainingRun) -> Iterator[Fault]:
    """Images, which neither the updates of a step nor its engines run."""
    if images := base.vision.images:
        problem = f"{images}, but an RL step is of text alone; set it to 0, or remove vision"
        yield Fault(path="vision.images", problem=problem)


def adapter_faults(base: TrainingRun) -> Iterator[Fault]:
    """Adapters, which a step in plain torch does not train."""
    if base.execution.whole_layers and base.adapters.are_trained:
        problem = f"{base.adapters.kind}, but an RL step in plain torch trains every weight; set it to none, or give a framework"
        yield Fault(path="adapters.kind", problem=problem)


def tuning_faults(base: TrainingRun) -> Iterator[Fault]:
    """Losses and evaluations of other trainings, whose passes an RL step does not make."""
    tuning = base.tuning
    if tuning.task not in (SFT, POLICY):
        yield Fault(path="tuning.task", problem=f"{tuning.task}, but an RL step has a loss of its own; remove it")
    if tuning.evaluated_share:
        problem = f"{as_given(tuning.evaluated_share)}, but evaluations between RL steps are not modelled; remove it"
        yield Fault(path="tuning.evaluated_share", problem=problem)


def _engine_faults(base: TrainingRun, section: RlSection) -> Iterator[Fault]:
    """The faults of a server's engine, under the keys of this section."""
    model, engine = base.model, rollout_engine(section, base.cluster.gpu)
    if any(limit_faults(model, engine)):
        problem = (
            f"{section.response_max:,} and {NAME}.prompt_max, {section.prompt_max:,}, are more tokens than the {model.max_positions:,} positions "
            f"of {model.name}; give fewer"
        )
        yield Fault(path=f"{NAME}.response_max", problem=problem)
    for fault in step_token_faults(model, engine):
        yield Fault(path=fault.path.replace(ENGINE, ROLLOUT), problem=fault.problem.replace(ENGINE, ROLLOUT))


def _microbatch_faults(section: RlSection, cp: int) -> list[Fault]:
    """Budgets of tokens that do not hold the longest sequence: verl's `rearrange_micro_batches` asserts that max_tokens · cp does."""
    budgets = {"max_tokens": section.max_tokens, "passes.max_tokens": section.passes.max_tokens}
    return [
        Fault(
            path=f"{NAME}.{key}",
            problem=f"{tokens} tokens · cp {cp} do not hold a sequence of prompt_max + response_max = "
            f"{section.longest} tokens; give at least {-(-section.longest // cp)}",
        )
        for key, tokens in budgets.items()
        if tokens and tokens * cp < section.longest
    ]


# Models with one value per token instead of a vocabulary: the critic, and a model that scores responses.


def valued_runs(section: RlSection | None, base: TrainingRun | None) -> tuple[Mapping[str, TrainingRun], list[Fault]]:
    """The runs `critic` and `reward_model` that a section asks for, on the trainer's plan, and the faults of their names."""
    if section is None or base is None:
        return {}, []
    names = {"critic": section.critic, "reward.model": section.reward.model}
    unknown = [name for name in names if names[name] and shipped_model(names[name]) is None]
    if unknown:
        return {}, [_unknown(name, names[name]) for name in unknown]
    runs = {}
    if section.has_critic:
        runs["critic"] = _valued(base, section.critic)
    if section.reward.model:
        runs["reward_model"] = _valued(base, section.reward.model)
    of_keys = {"critic": "critic", "reward_model": "reward.model"}
    faults = [
        fault for name, run in runs.items() if names[of_keys[name]] for fault in _valued_faults(of_keys[name], run)
    ]
    return runs, faults


DIVIDING = ("plan", "adapters")
"""Sections whose rules, of those that are not of each model, hold for one beside the actor too."""


def _valued_faults(key: str, run: TrainingRun) -> Iterator[Fault]:
    """Models that give no value per token of a text, or that the trainer's plan does not divide."""
    path, model = f"{NAME}.{key}", run.model
    if model.encoder or model.patches:
        problem = f"{model.name} reads more than a text, and a value for each of its tokens is not modelled; take a model of text alone"
        yield Fault(path=path, problem=problem)
        return
    values = values_of_run(run)
    for rule in RULES:
        if rule.of_each_model or rule.path.partition(".")[0] in DIVIDING:
            for broken in rule.broken(values):
                yield Fault(path=path, problem=f"{model.name} breaks {_as_named_here(broken.path)}: {broken.problem}")


def _unknown(key: str, name: str) -> Fault:
    near = did_you_mean(name, shipped_models()) or "; see configs/models"
    return Fault(path=f"rl.{key}", problem=f"{shown(name)} is not a shipped model{near}")


def _valued(base: TrainingRun, name: str) -> TrainingRun:
    """The run of a model of this name, or of the actor's shape. Its head has a column per tensor-parallel rank, the fewest that divide;
    its embedding is looked up, but what the optimizer does for its rows is left out."""
    path = shipped_model(name) if name else None
    model = load_model(path) if path else base.model
    plan = base.plan if model.experts else replace(base.plan, ep=1, etp=1)
    return replace(base, model=replace(model, vocab=base.plan.tp, tied=False), plan=plan, model_keys={})


Values = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class RlRun(LoadedRun):
    """A step of reinforcement learning: the trainer's run, whose batch is a stand-in, the section `rl`, and the samples of a step."""

    kind = RL
    base: TrainingRun
    section: RlSection
    samples: Samples
    critic: TrainingRun | None = None
    """The trainer's run of the critic; None without one."""
    reward_model: TrainingRun | None = None
    """The trainer's run of the model that scores responses; None without one."""
    draft: Draft | None = None
    """The model that writes drafts of the engines' tokens; None where none does."""
    not_read: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of verl's that change nothing here: name → value."""

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.base.name

    @property
    def in_plain_torch(self) -> bool:
        """Whether the step runs in plain torch, as `predict measure` runs it, and not in a framework of its own."""
        return self.base.execution.whole_layers

    @property
    def rollout_gpus(self) -> int:
        return self.section.rollout.gpus or self.base.cluster.world_size

    @property
    def gpus(self) -> int:
        """GPUs of trainer and engines."""
        return self.base.cluster.world_size + self.section.rollout.gpus


def load_rl(config: Config, overrides: Sequence[str] = ()) -> RlRun:
    """Read an RL config; `overrides` are settings such as `rl.n=8` or `plan.tp=2`, or verl's names. ConfigError has a line for
    each fault."""
    if loaded := as_loaded(config, RlRun, overrides):
        return loaded
    given = read_config(config)
    if NAME not in given.content:
        require_kind(given.content, (SERVING,), given.sources)
    of_files, not_read = _with_settings(given, overrides)
    return _run(given, of_files, not_read)


def document_of(config: Config, overrides: Sequence[str]) -> tuple[Values, list[str], Values]:
    """The content of an RL config under settings, whose values may be choices; the settings of a model or cluster that
    the config names by a file; and verl's arguments that are not read. ConfigError lists what cannot be read."""
    given = read_config(config)
    of_files, not_read = _with_settings(given, overrides)
    if given.faults:
        raise config_error(given.faults, given.sources)
    return given.content, of_files, not_read


def _run(given: Incoming, of_files: Sequence[str], not_read: Values) -> RlRun:
    """The run of a config's content."""
    path, document, sources = given.path, given.content, given.sources
    found, sections = [*given.faults], set(document)
    section, wrong = _section(document)
    found += wrong
    if section is None and "batch" in document and NAME not in sections:
        problem = (
            "missing: this is a training config; predict it with `predict one-batch`, or give `rl` in place of `batch`"
        )
        raise config_error([Fault(path=NAME, problem=problem)], sources)
    if "batch" in document:
        found.append(Fault(path="batch", problem=f"follows from {NAME}.prompts, {NAME}.n and {NAME}.micro; remove it"))
    if section:
        found += _unknown_faults(section)
    base, of_base = _base(document, section, path, sources, of_files)
    if section and base:
        found += [*image_faults(base), *adapter_faults(base), *tuning_faults(base), *rollout_faults(base, section)]
    draft = None
    if section and base:
        section, draft = _with_drafts(section, base, path.parent, found)
    valued, of_valued = valued_runs(section, base)
    found += of_valued
    samples = samples_of(section, path.parent, found) if section else None
    own_faults = [str(config_error(found, sources))] if found else []
    if own_faults or of_base or section is None or base is None or samples is None:
        raise ConfigError("\n".join([*own_faults, *of_base]))
    return RlRun(base=base, section=section, samples=samples, draft=draft, not_read=not_read, **valued)


def _unknown_faults(section: RlSection) -> Iterator[Fault]:
    """Names under `unknown` that are no key of an RL config; the keys inside a model or a cluster are not looked at."""
    if not section.unknown:
        return
    known = set(_paths(rl_schema()["properties"]))
    for name in section.unknown:
        if name not in known and name.partition(".")[0] not in ("model", "cluster"):
            near = did_you_mean(name, known) or "; give keys such as rl.response"
            yield Fault(path=f"{NAME}.unknown", problem=f"{shown(name)} is not a key of an RL config{near}")


def _paths(properties: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """The key paths of a schema's properties."""
    for name, inner in properties.items():
        path = f"{above}.{name}" if above else name
        yield path
        yield from _paths(inner.get("properties", {}), path)


def _with_drafts(
    section: RlSection, base: TrainingRun, folder: Path, faults: list[Fault]
) -> tuple[RlSection, Draft | None]:
    """The section with the acceptance of its engines' drafts, and the model that writes these; what stands against it joins the faults."""
    rollout = section.rollout
    path = f"{ROLLOUT}{SPECULATION}"
    if rollout.speculation.drafts and base.execution.whole_layers:
        problem = f"{rollout.speculation.kind} with execution.framework {base.execution.framework}, which generates token by token; remove it"
        faults.append(Fault(path=path, problem=problem))
        return section, None
    placed = ServerPlacement(tp=rollout.tp, expert_parallel=rollout.expert_parallel)
    speculation, draft = drafts_of(rollout.speculation, base.model, placed, folder, path, faults)
    return replace(section, rollout=replace(rollout, speculation=speculation)), draft


def _with_settings(given: Incoming, overrides: Sequence[str]) -> tuple[list[str], Values]:
    """Put verl's names and the settings into the content, with the degrees that follow from them; the settings of a model or cluster that
    it names by a file, and verl's arguments that are not read."""
    not_read = _with_verl_names(given)
    of_files = given.put_settings(overrides, ("model", "cluster"), resolved)
    not_read |= _with_verl_names(given)  # the settings under verl's names that stand for no key
    _leave_replicas(given, overrides, of_files)
    return of_files, not_read


def _with_verl_names(given: Incoming) -> Values:
    """Put what verl's sections and dotted names at the top level say under the keys they stand for; those that stand for none."""
    document, not_read = given.content, {}
    for name in [name for name in document if isinstance(name, str) and name.partition(".")[0] in ROOTS]:
        value = document.pop(name)
        for path, each in leaves({name: value}):
            key, converted = resolved(path, each)
            if path in VERL:
                given.faults.extend(put(document, key, converted, over=False, given_as=path))
            elif fault := fault_of(path, each):
                given.faults.append(fault)
            else:
                not_read[path] = each
    return not_read


def _leave_replicas(given: Incoming, overrides: Sequence[str], of_files: Sequence[str]) -> None:
    """Give dp the ranks that are left where it follows from the trainer's other degrees, as it does in a training run."""
    document = given.content
    plan = document.get("plan", {})
    if not isinstance(plan, dict):
        return
    set_paths = frozenset(resolved(each.path, each.value)[0] for each in parse_overrides(overrides)[0])
    try:
        dp = replicas_that_follow(replace(training_document(document, given.path), set_paths=set_paths), of_files)
    except ConfigError:  # loading reports it
        return
    if dp:
        document["plan"] = {**plan, "dp": dp}


def _section(document: Values) -> tuple[RlSection | None, list[Fault]]:
    is_given, values = NAME in document, document.pop(NAME, None)
    if not isinstance(values, dict):
        problem = f"{shown(values)} is not a mapping; give one" if is_given else "missing; give it"
        return None, [
            Fault(path=NAME, problem=f"{problem}, with prompts, prompt, prompt_max, response and response_max")
        ]
    return build(RlSection, values, section=NAME)


def _base(
    document: Values, section: RlSection | None, path: Path, sources: dict[str, str], settings: Sequence[str]
) -> tuple[TrainingRun | None, list[str]]:
    """The trainer's run with a stand-in for its batch, or the lines of what is wrong with it."""
    made = training_document(document, path, section, sources=sources)
    try:
        return load(made, settings), []
    except ConfigError as error:
        return None, _without_stand_in(str(error).splitlines(), section)


BATCH = re.compile(r"\bbatch\.\w+: ")
LONGEST = "batch.seq_len"
ENCODER = re.compile(r"\bbatch\.encoder_seq_len: .*")


def _without_stand_in(lines: Sequence[str], section: RlSection | None) -> list[str]:
    """The lines of an error without those on the batch, which is a stand-in: they follow from others, except where its sequences, if they
    are known, are too long."""
    said = [
        ENCODER.sub("model: an encoder-decoder, which RL steps do not model; take a decoder", line) for line in lines
    ]
    kept = [line for line in said if not BATCH.search(line) or (section and f"{LONGEST}: " in line)]
    return [_as_named_here(line) for line in kept or said]


def _as_named_here(text: str) -> str:
    return text.replace(LONGEST, f"{NAME}.prompt_max + {NAME}.response_max")


ROUNDS = 4
"""Microbatches of the stand-in per pipeline rank: each schedule runs as many, or a step's own number is refused when it is timed."""


def training_document(
    document: Values, path: Path, section: RlSection | None = None, *, sources: dict[str, str] | None = None
) -> Document:
    """The trainer's part of an RL config's content, with a stand-in for its batch: sequences that divide by the ranks that share one,
    and as many microbatches as every schedule runs."""
    plan = document.get("plan")
    given = plan if isinstance(plan, dict) else {}
    dp, pp, cp, tp = (value if isinstance(value := given.get(name, 1), int) else 1 for name in ("dp", "pp", "cp", "tp"))
    micro = min(section.micro, section.samples) if section else 1
    longest = up_to(section.longest if section else 1, max(1, cp * (tp if given.get("sp") is True else 1)))
    batch = {"global": micro * dp * pp * ROUNDS, "micro": micro, "seq_len": longest}
    content = {name: value for name, value in document.items() if name != NAME} | {"batch": batch}
    return Document(name=str(path.with_suffix("")), content=content, sources=sources or {})


MEANING = (
    "Everything of a step of reinforcement learning that the training run does not say; it takes the place of `batch`."
)


def rl_schema() -> dict[str, Any]:
    """JSON Schema (2020-12). verl's names and rules between keys are beyond it; loading a config checks them."""
    of_run = json_schema()["properties"]
    properties = {name: schema for name, schema in of_run.items() if name != "batch"}
    return document_schema(
        "steptime RL config",
        {**properties, "rl": section_schema(RlSection, MEANING)},
        ("model", "cluster", "precision", "rl"),
    )
