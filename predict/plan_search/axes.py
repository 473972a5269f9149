"""The keys of a config that have several values, and the runs that the others make."""

import itertools
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from predict.config.choices import is_choice, values_of
from predict.config.document import Config, Document
from predict.config.draft import CONTENTS, FILES, PRECISION, SECTIONS, Draft, Values, read_draft, shipped_file
from predict.config.load import made_run, read_sections
from predict.model.spec import ModelSpec
from predict.plan_search.layouts import layouts
from predict.run.frameworks import offered
from predict.run.lengths import require_one_length
from predict.run.plan import AUTO, BEST
from predict.run.training_run import TrainingRun, settings_of
from predict.schedules import registry
from predict.schedules.registry import names as schedule_names
from sampling.errors import UserError
from sampling.files.disk import is_file
from sampling.files.faults import did_you_mean, join
from sampling.files.schema import Key
from sampling.hardware.cluster import hardware_beside

# The values of a key that is `auto`: those that a framework's user would try, and that the framework offers.

LEFT_OUT = (
    "plan.tp", "plan.sp", "plan.pp", "plan.vpp", "plan.dp", "plan.cp", "plan.ep", "plan.etp", "plan.zero", "plan.schedule",
    "plan.recompute", "batch.micro",
)  # fmt: skip
"""Keys that are searched where a config leaves them out; any other has its default unless it is a list, a range or auto."""
TOKENS_OF_A_SEQUENCE = 1024
"""Fewest tokens of a sequence that context parallelism leaves on a rank: with fewer, attention cannot hide the exchange of keys and
values (Megatron-Core's user guide, context_parallel, uses it from 8,192 tokens on)."""
MOST_SEQUENCES = 8
"""Most sequences of a microbatch: the largest of the published layouts of Llama (arXiv 2311.05610) is 8."""
OF_EXPERTS = ("moe", "moe_act", "shared_experts")


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """The facts of a run that automatic values depend on."""

    model: ModelSpec
    world: int
    """GPUs."""
    gpus_per_node: int
    seq_len: int
    framework: str
    pipeline: tuple[int, ...] = ()
    """The values of plan.pp."""
    chunks: tuple[int, ...] = (1,)
    """The values of plan.vpp."""


def automatic_values(path: str, key: Key, around: Surroundings) -> tuple[Any, ...]:
    """The values of a key of plan, batch or execution, in the order in which equal plans are preferred.

    UserError for a key without a natural list of values.
    """
    if found := offered(around.framework).get(key.name):
        return tuple(found)
    if path in NATURAL:
        return tuple(NATURAL[path](around))
    if key.kind == "boolean":
        return (False, True)
    if key.choices is not None and key.pattern is None:
        return tuple(key.choices())
    raise UserError(f"{path}: auto has no values to try here; give a list, as in [A, B], or a range, as in 1..8")


def _divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]


def _chunks(around: Surroundings) -> Iterable[int]:
    """The numbers into which the layers of some pipeline rank divide."""
    layers = around.model.layers
    return sorted({chunks for pp in around.pipeline if pp > 1 for chunks in _divisors(-(-layers // pp))} | {1})


def _experts(around: Surroundings) -> Iterable[int]:
    count = around.model.experts.count if around.model.experts else 1
    return [ep for ep in _divisors(count) if ep <= around.world]


def _recompute_modules(around: Surroundings) -> Iterable[str]:
    """The sets of the model's modules, the smallest first. A whole mixture contains its activation and its shared experts."""
    model = around.model
    single = ["core_attn", "layernorm", *model.attention.RECOMPUTABLE]
    single += ["mlp"] if not all(kind.sparse for kind in model.kinds()) else []
    if model.experts:
        single += [name for name in OF_EXPERTS if name != "shared_experts" or model.experts.shared_ffn]
    sets = (each for size in range(1, len(single) + 1) for each in itertools.combinations(single, size))
    return [",".join(each) for each in sets if not ("moe" in each and {"moe_act", "shared_experts"}.intersection(each))]


def _layouts(around: Surroundings) -> Iterable[str]:
    """The even split, and the layouts of every pipeline."""
    pipelines = sorted({(pp, vpp) for pp in around.pipeline for vpp in around.chunks})
    return ["", *(layout for pp, vpp in pipelines for layout in layouts(around.model, pp, pp * vpp))]


def _shards(around: Surroundings) -> Iterable[int]:
    """All replicas (0), or as many as lie in one node and its parts."""
    return [0, *_divisors(around.gpus_per_node)[1:]]


def _stage_layers(around: Surroundings) -> Iterable[int]:
    """An even share (0), and every smaller or equal number of layers."""
    fewest = min((pp for pp in around.pipeline if pp > 1), default=1)
    return range(-(-around.model.layers // fewest) + 1)


def _plain_first(names: Iterable[str]) -> list[str]:
    """The schedules, the simplest first: of plans that are the same, the first is kept."""
    return sorted(names, key=lambda name: (name != "1f1b", name))


NATURAL: Mapping[str, Callable[[Surroundings], Iterable[Any]]] = {
    "plan.tp": lambda around: _divisors(min(around.gpus_per_node, around.world)),
    "plan.pp": lambda around: [pp for pp in _divisors(around.world) if pp <= around.model.layers],
    "plan.vpp": _chunks,
    "plan.dp": lambda around: _divisors(around.world),
    "plan.cp": lambda around: [
        cp for cp in _divisors(around.world) if cp == 1 or cp * TOKENS_OF_A_SEQUENCE <= around.seq_len
    ],
    "plan.ep": _experts,
    "plan.etp": lambda around: _divisors(around.gpus_per_node) if around.model.experts else [1],
    "plan.zero": lambda around: range(4),
    "plan.shard": _shards,
    "plan.schedule": lambda around: _plain_first(registry.names()),
    "plan.layout": _layouts,
    "plan.recompute_modules": _recompute_modules,
    "plan.recompute_layers": lambda around: range(1, around.model.layers // min(around.pipeline or (1,)) + 1),
    "plan.first_stage_layers": _stage_layers,
    "plan.last_stage_layers": _stage_layers,
    "plan.count_embedding": lambda around: (0, 1),
    "plan.count_loss": lambda around: (0, 1),
    "batch.micro": lambda around: [2**power for power in range(MOST_SEQUENCES.bit_length())],
}
"""Key path → its values where the framework does not say which it offers."""


KEYS: Mapping[str, Key] = {
    **{join(section, key.name): key for section, keys in SECTIONS.items() for key in keys},
    PRECISION.name: PRECISION,
}
"""Key path → the key."""
SETTING = ("execution.framework", PRECISION.name)
"""Keys beside those of the cluster that decide what others mean: each of their values makes a space of its own."""
SEARCHABLE = ("plan", "batch", "execution")
PLACEHOLDERS = {"batch.micro": 1, "batch.global": 1, "batch.seq_len": 1}
"""Values of required keys while they are searched."""
DERIVED = ("pp", "tp", "cp", "dp", "ep", "etp", "micro", "vpp", "schedule")
"""Keys whose rules rule out most, in the order in which they do so soonest; the others follow."""
BY_PLAN = ("plan.layout", "plan.recompute_modules")
"""Keys with so many values that those of `auto` are opened plan by plan; they come last."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """A key that is searched, and its values."""

    path: str
    values: tuple[Any, ...]
    by_plan: bool = False
    """Its values are opened plan by plan (`predict.plan_search.opening`): until then the first stands for all."""

    @property
    def section(self) -> str:
        return self.path.partition(".")[0]

    @property
    def name(self) -> str:
        """The key's name in its section, under which rules ask for it."""
        return self.path.partition(".")[2]


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A run on one cluster whose axes are open. Its own values of the axes are placeholders."""

    base: TrainingRun
    values: Values
    """The base's values by the names under which rules ask for them."""
    axes: tuple[Axis, ...]
    document: Document
    """The config without the axes, whose paths mean the same from any folder; empty for a run that was made without one."""

    def config(self, settings: Mapping[str, Any]) -> Document:
        """The run config of one of its plans, by the values of the axes."""
        content = {
            section: dict(keys) if isinstance(keys, dict) else keys for section, keys in self.document.content.items()
        }
        for path, value in settings.items():
            section, _, key = path.partition(".")
            content.setdefault(section, {})[key] = value
        return replace(self.document, content=content)


def read_questions(config: Config, overrides: Sequence[str] = (), clusters: Sequence[str] = ()) -> tuple[Question, ...]:
    """The questions of a search config: one for each of `clusters` (names or paths, in place of the config's own) and for each
    combination of the values of cluster keys, framework and precision.

    ConfigError lists every fault of the config; UserError is for a key that cannot be searched, or has no values.
    """
    draft, choices = _split(read_draft(config, overrides))
    if clusters:
        choices = {path: choice for path, choice in choices.items() if not path.startswith("cluster.")}
        draft = replace(draft, sources={**draft.sources, "cluster": "--cluster"})
        choices["cluster"] = [str(Path(name).absolute()) if is_file(name) else name for name in clusters]
    settings = {path: _setting_values(path, choices.pop(path)) for path in list(choices) if _is_setting(path)}
    combinations = itertools.product(*settings.values())
    return tuple(_question(draft, dict(zip(settings, chosen, strict=True)), choices) for chosen in combinations)


def question_of(run: TrainingRun) -> Question:
    """The question of the other plans for a run that was made without a config: the keys that a search opens where a config leaves them
    out, layout and recomputed modules, and those of the plan that the run does not leave at their defaults."""
    own = settings_of(run)
    choices: dict[str, Any] = dict.fromkeys((*LEFT_OUT, *BY_PLAN), AUTO)
    changed = [path for path in own if path.startswith("plan.") and own[path] != KEYS[path].default]
    choices |= {path: [KEYS[path].default, own[path]] for path in changed if path not in choices}
    return opened(run, choices)


def opened(run: TrainingRun, choices: Mapping[str, Any]) -> Question:
    """The question of a run that was made, whose keys `choices` are open; its own value is among the values of each."""
    own = settings_of(run)
    laid_out = ("batch.padding", "batch.lengths") if run.real else ()  # whose rules held when the rows were laid out
    model = {each.name: getattr(run.model, each.name) for each in fields(run.model)} | {"model": run.model}
    return Question(
        base=run,
        values={path.rpartition(".")[2]: value for path, value in own.items() if path not in laid_out} | model,
        axes=tuple(
            replace(axis, values=tuple(dict.fromkeys((*axis.values, own[axis.path])))) for axis in _axes(run, choices)
        ),
        document=Document(name=run.name, content={}),
    )


def stands_for_several(config: Config, overrides: Sequence[str] = ()) -> bool:
    """Whether a config, or a setting of the command line, gives several values of one key."""
    draft = read_draft(config, overrides)
    values = [setting.value for setting in draft.settings]
    for section in ("cluster", *SEARCHABLE, PRECISION.name):
        given = draft.document.get(section)
        values += given.values() if isinstance(given, dict) else [given]
    return any(is_choice(value) for value in values)


def _is_setting(path: str) -> bool:
    return path in SETTING or path == "cluster" or path.startswith("cluster.")


def _setting_values(path: str, choice: Any) -> tuple[Any, ...]:
    if path == "cluster":
        return tuple(choice)
    if choice == AUTO:
        raise UserError(f"{path}: auto has no values to try here; give a list, as in [A, B]")
    return values_of(path, choice, KEYS[path])


def _split(draft: Draft) -> tuple[Draft, dict[str, Any]]:
    """The draft without the keys that have several values, and those by path; a later setting replaces an earlier one."""
    document = {name: dict(value) if isinstance(value, dict) else value for name, value in draft.document.items()}
    choices: dict[str, Any] = {}
    for section in ("cluster", *SEARCHABLE):
        given = document.get(section)
        if given == AUTO and section == "plan":
            document[section] = given = {}
            choices |= {path: AUTO for path in LEFT_OUT if path.startswith("plan.")}
        if isinstance(given, dict):
            found = {name: value for name, value in given.items() if _is_open(join(section, name), value)}
            choices |= {join(section, name): value for name, value in found.items()}
            document[section] = {name: value for name, value in given.items() if name not in found}
    if is_choice(document.get(PRECISION.name)):
        choices[PRECISION.name] = document.pop(PRECISION.name)
    settings = []
    for setting in draft.settings:
        choices.pop(setting.path, None)
        if setting.key and setting.path in KEYS and _is_open(setting.path, setting.value):
            choices[setting.path] = setting.value
            document.get(setting.section, {}).pop(setting.key, None)
        else:
            settings.append(setting)
    kept = [setting for setting in settings if setting.path not in choices]
    given_paths = {
        join(name, key) for name in SEARCHABLE if isinstance(document.get(name), dict) for key in document[name]
    }
    given_paths |= {setting.path for setting in kept}
    choices |= {path: AUTO for path in LEFT_OUT if path not in given_paths and path not in choices}
    return replace(draft, document=document, settings=kept), choices


def _is_open(path: str, value: Any) -> bool:
    """Whether a value leaves the choice to the search: several of them, or the schedule `best`."""
    return is_choice(value) or (path == "plan.schedule" and value == BEST)


def _question(draft: Draft, chosen: Mapping[str, Any], choices: Mapping[str, Any]) -> Question:
    document = {name: dict(value) if isinstance(value, dict) else value for name, value in draft.document.items()}
    for path, value in {**PLACEHOLDERS, **chosen}.items():
        section, _, key = path.partition(".")
        if not key:
            document[section] = value
        elif (path in chosen or path in choices) and isinstance(place := document.setdefault(section, {}), dict):
            place[key] = value
    given = dict(document)
    own = replace(draft, document=document, sources=dict(draft.sources), faults=list(draft.faults))
    sections = read_sections(own)
    if own.faults or sections.model.spec is None:
        raise own.error()
    base = made_run(own, sections)
    require_one_length(base.real, "a search")
    axes = tuple(_axes(base, choices))
    return Question(
        base=base,
        values=sections.by_rule_name(),
        axes=axes,
        document=_portable(replace(own, document=given), {axis.path for axis in axes}),
    )


def _portable(draft: Draft, searched: Collection[str]) -> Document:
    """The draft as a document, without the keys that are searched, whose paths are absolute."""
    settings = [setting for setting in draft.settings if setting.path not in searched]
    content: dict[str, Any] = {}
    for section in CONTENTS:
        value = draft.document.get(section)
        if isinstance(value, str) and section in FILES and shipped_file(section, value) is None:
            value = os.path.abspath(draft.path.parent / value)  # noqa: PTH100  (resolve() would follow links)
        if isinstance(value, dict):
            value = {name: each for name, each in value.items() if join(section, name) not in searched}
            if section == "cluster" and "hardware" in value:
                value["hardware"] = hardware_beside(value["hardware"], draft.path.absolute())
        if value is not None:
            content[section] = value
    made = Document(name=draft.path.stem, content=content, sources={"": str(draft.path)})
    for setting in settings:
        own = made.content.get(setting.section, {})
        if isinstance(own, Mapping) and setting.key:
            made = replace(made, content={**made.content, setting.section: {**own, setting.key: setting.value}})
    return made


def _axes(base: TrainingRun, choices: Mapping[str, Any]) -> Iterator[Axis]:
    around = Surroundings(
        model=base.model,
        world=base.cluster.world_size,
        gpus_per_node=base.cluster.gpus_per_node,
        seq_len=base.batch.seq_len,
        framework=base.execution.framework,
        pipeline=(base.plan.pp,),
        chunks=(base.plan.vpp,),
    )
    first = [path for name in DERIVED for path in choices if path.partition(".")[2] == name]
    last = [path for path in BY_PLAN if choices.get(path) == AUTO]
    for path in (*first, *(path for path in choices if path not in (*first, *last)), *last):
        if path not in KEYS:
            raise UserError(f"{path}: unknown key{did_you_mean(path, KEYS)}; `predict schema` lists them")
        if choices[path] == AUTO:
            values = automatic_values(path, KEYS[path], around)
        else:
            given = [BEST] if choices[path] == BEST else choices[path]
            values = values_of(path, given, KEYS[path])
        if path == "plan.schedule":
            values = tuple(dict.fromkeys(name for value in values for name in _schedules(value)))
        if path == "plan.pp":
            around = replace(around, pipeline=values)
        if path == "plan.vpp":
            around = replace(around, chunks=values)
        yield Axis(path=path, values=values, by_plan=path in last)


def _schedules(value: str) -> Sequence[str]:
    """The schedule; all of them for `best`."""
    return schedule_names() if value == BEST else [value]
