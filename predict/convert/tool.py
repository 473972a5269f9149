"""One engine for other tools' files: a table per tool says which of its keys are read, which change nothing here, and which change time
or memory in a way that is not modelled."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from predict.convert.arguments import Arguments
from predict.model.shipped import in_fewer_bits, read_as, shipped_model, shipped_models
from sampling.files.documents import NotYamlError, parse_yaml, read_yaml
from sampling.files.faults import Fault, did_you_mean, shown
from sampling.files.places import CONFIGS

NO_VALUES: tuple[Any, ...] = (None, "", "null", "None", "none", [], {}, ())
"""Values that leave a key to its default."""
OFF = (*NO_VALUES, False, "false", "False", 0, "0")
"""Values by which a feature is off."""
ON = (True, "true", "True")
AUTO = "auto"
"""A value that the tool takes from elsewhere."""
ACCEPT = "--accept"
SAMPLES = "samples"
"""Key of `rl` for what a tool counts in responses of each replica, until the number of replicas is known: microbatches of an optimizer step
(accumulation), those that are generated at once (rounds) or all responses that are (generated), of which at most one is given, and whether
the engines' log-probabilities are corrected by the trainer's (corrects)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """One file, or one command of a script, before it is known whose it is."""

    values: Mapping[str, Any]
    """Value by dotted path, or by a flag's name with underscores."""
    name: str = "model"
    program: str = ""
    """The program of a command, such as `pretrain_gpt.py` or `vllm serve`."""
    cluster: Mapping[str, int] = field(default_factory=dict)
    """Nodes and GPUs per node, as far as the launcher says them."""
    synchronous: bool = False
    """Whether CUDA_LAUNCH_BLOCKING has each launch wait for its kernel."""
    visible: int = 0
    """GPUs of a machine that CUDA_VISIBLE_DEVICES names; 0 where it names none."""
    form: str = "mapping"
    """command, python, or mapping for YAML, TOML and JSON."""
    file: str = ""
    """Path of the file of a mapping, as it was given or written."""
    launched: bool = False
    """Whether a launcher starts the command on several processes."""
    assumed: frozenset[str] = frozenset()
    """Names of arguments that the script adds on a condition that it does not decide."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """The values of a source on their way into sections, and what else decides how they are read."""

    given: Arguments
    source: Source
    chosen_model: Any = None
    """The model that the user names in place of the file's."""
    beside: frozenset[str] = frozenset()
    """Names of the files that are read together with this one."""


Sections = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """A key that changes time or memory in a way that is not modelled."""

    why: str
    neutral: tuple[Any, ...] = ()
    """Values, beside those by which anything is off, with which it changes nothing."""
    usually_on: bool = False
    """A switch that is on where it is not given, and changes nothing then."""

    def is_neutral(self, value: Any) -> bool:
        usual = (*NO_VALUES, *ON) if self.usually_on else OFF
        return any(value is each or (value == each and type(value) is type(each)) for each in (*usual, *self.neutral))


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyLists:
    """Keys of a tool's files that no table reads."""

    harmless: tuple[str, ...] = ()
    """Patterns of keys that change neither time nor memory of a step here."""
    costs: Mapping[str, Cost] = field(default_factory=dict)
    """Pattern of keys that change time or memory in a way that is not modelled → why."""
    switches: frozenset[str] = frozenset()
    """Arguments of its command line that take no value."""

    def __or__(self, other: KeyLists) -> KeyLists:
        """Both lists, of which the other's reasons hold where a pattern stands in both."""
        return KeyLists(
            harmless=self.harmless + other.harmless,
            costs={**self.costs, **other.costs},
            switches=self.switches | other.switches,
        )

    def under(self, prefix: str) -> KeyLists:
        """The keys below a section; a command line has none of them."""
        return KeyLists(
            harmless=tuple(f"{prefix}{pattern}" for pattern in self.harmless),
            costs={f"{prefix}{pattern}": cost for pattern, cost in self.costs.items()},
        )


@cache
def tool_file(name: str) -> Mapping[str, Any]:
    """The content of `configs/tools/NAME.yml`: its key lists, and tables of its words for the modules that look them up."""
    content, faults = read_yaml(CONFIGS / "tools" / f"{name}.yml")
    assert content is not None and not faults, faults
    return content


def key_lists(name: str) -> KeyLists:
    """The lists of a tool's file: `harmless` and `switches` as words; in `costs` the reason alone, or the fields of a Cost."""
    content = tool_file(name)
    costs = {
        pattern: Cost(why=cost)
        if isinstance(cost, str)
        else Cost(**{**cost, "neutral": tuple(cost.get("neutral", ()))})
        for pattern, cost in content.get("costs", {}).items()
    }
    harmless, switches = (content.get(words, "").split() for words in ("harmless", "switches"))
    return KeyLists(harmless=tuple(harmless), costs=costs, switches=frozenset(switches))


@dataclass(frozen=True, kw_only=True, slots=True)
class Tool:
    """The table of a tool."""

    name: str
    marks: tuple[str, ...] = ()
    """Keys by which its files are known: all keys of one of these lists are there. The longest list that fits counts."""
    programs: str = ""
    """Pattern of the programs whose commands it reads."""
    read: Callable[[Reading], Sections]
    keys: KeyLists = field(default_factory=KeyLists)
    """Keys that no table reads."""
    arguments_file: str = ""
    """Argument of its command line that names a file of further arguments, over which those of the command line hold."""
    aliases: tuple[tuple[str, ...], ...] = ()
    """Names of one argument each, beside those of `table`."""
    nested: Mapping[str, str] = field(default_factory=dict)
    """Pattern of arguments of its command line → the section of its file in which they stand."""
    unread: str = ""
    """What to give in place of its files, which are not read; empty for a tool that is."""
    in_any_section: bool = False
    """Its files have sections whose names do not count."""
    table: tuple[Read, ...] = ()
    """Keys that are read and written one by one, for naming a change in the tool's words."""
    writes: str = ""
    """The tool of `predict.convert.launch` whose arguments are its own; empty for one that `table` alone writes."""

    def fit(self, source: Source) -> int:
        """The number of keys by which a source is known as the tool's; 0 for none."""
        if self.programs and source.program and re.search(self.programs, source.program):
            return 100
        keys = source.values
        lists = (mark.split() for mark in self.marks)
        return max((len(names) for names in lists if all(_has(keys, name) for name in names)), default=0)

    def as_in_file(self, source: Source) -> Source:
        """A source of the tool, a command with its arguments by their paths in a file."""
        if source.form != "command" or not self.nested:
            return source
        return replace(source, values={self._path(name): value for name, value in source.values.items()})

    def namesakes(self, name: str) -> set[str]:
        """Other names of an argument, and of the switch that is its opposite."""
        groups = (*self.aliases, *(each.names for each in self.table))
        opposite = name.removeprefix("no_") if name.startswith("no_") else f"no_{name}"
        return {opposite, *(each for group in groups if name in group for each in group)} - {name}

    def _path(self, name: str) -> str:
        sections = () if "." in name else self.nested.items()
        return next((f"{above}.{name}" for pattern, above in sections if fnmatchcase(name, pattern)), name)


def _has(values: Mapping[str, Any], name: str) -> bool:
    return name in values or any(key.startswith(f"{name}.") for key in values)


@dataclass(frozen=True, kw_only=True, slots=True)
class ForeignFile:
    """The settings of a run that a source states."""

    sections: Mapping[str, Any] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    not_read: Mapping[str, Any] = field(default_factory=dict)
    """Keys that change nothing here."""
    accepted: Mapping[str, Any] = field(default_factory=dict)
    """Keys that change time or memory, and that the user accepts as not read."""
    tool: Tool | None = None
    """The tool whose file it is; None for one that could not be read."""
    form: str = ""
    """The form of its source."""


def read_with(tool: Tool, reading: Reading, accepted: Iterable[str] = ()) -> ForeignFile:
    """The source as the tool's table reads it. What is left is harmless, accepted by the user, or a fault."""
    given = reading.given
    if tool.arguments_file:
        needs_file(reading, tool.arguments_file, "further arguments")
    sections = as_launched(reading.source, tool.read(reading))
    harmless: dict[str, Any] = {}
    taken: dict[str, Any] = {}
    faults = [fault for fault in given.faults if not _accepts(accepted, fault.path)]
    taken |= {fault.path: given.values.get(fault.path) for fault in given.faults if _accepts(accepted, fault.path)}
    for name, value in given.left_over.items():
        why = _why_it_matters(tool, name, value)
        if not why:
            harmless[name] = value
        elif _accepts(accepted, name):
            taken[name] = value
        else:
            faults.append(Fault(path=name, problem=f"{shown(value)}: {why}; {ACCEPT} {name} reads the rest without it"))
    notes = [f"{name}: {shown(value)} is left out, as {ACCEPT} asks" for name, value in taken.items()]
    assumed = sorted(reading.source.assumed & given.values.keys() - harmless.keys() - taken.keys())
    kept = [f"{name}: is read, though the script adds it on a condition that only its run decides" for name in assumed]
    return ForeignFile(
        sections=sections,
        faults=faults,
        notes=[*given.notes, *notes, *kept],
        not_read=harmless,
        accepted=taken,
        tool=tool,
        form=reading.source.form,
    )


def as_launched(source: Source, read: Sections) -> dict[str, Any]:
    """The sections that were read of a source, with what its launcher and its environment say of cluster and launches."""
    sections = dict(read)
    if source.cluster:
        sections["cluster"] = {**sections.get("cluster", {}), **source.cluster}
    if source.visible and "plan" in sections:
        sections["cluster"] = {"gpus_per_node": source.visible, **sections.get("cluster", {})}
    if source.synchronous and "execution" in sections:
        sections["execution"] = {**sections["execution"], "synchronous_launches": True}
    return sections


def _accepts(accepted: Iterable[str], name: str) -> bool:
    plain = name.replace("-", "_")
    return any(fnmatchcase(plain, pattern.lstrip("-").replace("-", "_")) for pattern in accepted)


def _why_it_matters(tool: Tool, name: str, value: Any) -> str:
    """Why a key that no table reads cannot be left out; empty for one that can."""
    for pattern, cost in tool.keys.costs.items():
        if fnmatchcase(name, pattern):
            return "" if cost.is_neutral(value) else cost.why
    if value in NO_VALUES or any(fnmatchcase(name, pattern) for pattern in tool.keys.harmless):
        return ""
    return f"is not a key of {tool.name} that is known here, and may change time or memory"


def needs_file(reading: Reading, name: str, decides: str) -> bool:
    """Whether a key names a file, which has to be given too."""
    value = reading.given.values.get(name)
    if not isinstance(value, str) or value in NO_VALUES:
        return False
    reading.given.passed_over(name)
    file = value.rpartition("/")[2]
    if file not in reading.beside:
        reading.given.fault(name, f"names {shown(value)}, which decides {decides}; give that file as well")
    return True


# Readers of single keys, from which the tables are made.


@dataclass(frozen=True, kw_only=True, slots=True)
class Read:
    """One key path of a config, and its value by the arguments; None leaves it to its default."""

    path: str
    value: Callable[[Arguments], Any] = lambda given: None
    write: Callable[[Any], Mapping[str, Any] | None] = lambda value: None
    """The tool's keys for a value; None for a value that they do not express."""
    names: tuple[str, ...] = ()
    """Names of the argument, where it has several."""


def aliases_of(table: Iterable[Read]) -> tuple[tuple[str, ...], ...]:
    """Names of one argument each in a table."""
    return tuple(each.names for each in table)


def written(path: str, write: Callable[[Any], Mapping[str, Any] | None]) -> Read:
    """A key path that the tool's reader reads together with others, for writing alone."""
    return Read(path=path, write=write)


def count(path: str, *names: str, usual: int | None = None) -> Read:
    """A whole number by the first of several names that is given."""

    def value(given: Arguments) -> int | None:
        found = [number for name in names if name in given.values and (number := given.count(name)) is not None]
        return found[0] if found else usual

    return Read(path=path, value=value, write=lambda number: {names[0]: number}, names=names)


def switch(path: str, name: str, *, usual: bool | None = None, on: Any = True, off: Any = False) -> Read:
    """`on` or `off` by a switch; where it is not given, as its usual value has it."""

    def value(given: Arguments) -> Any:
        if given.values.get(name) in (*NO_VALUES, AUTO):
            given.passed_over(name)
            return None if usual is None else on if usual else off
        return on if given.switch(name) else off

    def write(chosen: Any) -> dict[str, bool] | None:
        return {name: chosen == on} if chosen in (on, off, *OFF) else None

    return Read(path=path, value=value, write=write)


def choice(path: str, name: str, meanings: Mapping[str, Any], *, usual: Any = None) -> Read:
    """The meaning of a word, whose case does not count; a word that is not among them is a fault."""

    def value(given: Arguments) -> Any:
        word = given.text(name, "").lower()
        if not word:
            return usual
        if word not in meanings:
            given.fault(
                name,
                f"{shown(given.values[name])} is not modelled{did_you_mean(word, meanings)}; {', '.join(meanings)} are",
            )
            return usual
        return meanings[word]

    def write(chosen: Any) -> dict[str, str] | None:
        word = next((word for word, meaning in meanings.items() if meaning == chosen), None)
        return None if word is None else {name: word}

    return Read(path=path, value=value, write=write)


def read_table(table: Iterable[Read], given: Arguments) -> dict[str, dict[str, Any]]:
    """The values by section and key."""
    found: dict[str, dict[str, Any]] = {}
    for each in table:
        if (value := each.value(given)) is not None:
            section, _, key = each.path.partition(".")
            found.setdefault(section, {})[key] = value
    return found


def in_sections(values: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The same, with those of `top` at the top level."""
    return {**{name: dict(keys) for name, keys in values.items() if name != "top"}, **values.get("top", {})}


def flat(document: Mapping[Any, Any]) -> dict[str, Any]:
    """The values of a document by path, `zero_optimization.stage`; an empty mapping stays one."""
    values: dict[str, Any] = {}
    for key, value in document.items():
        if isinstance(value, Mapping) and value:
            values |= {f"{key}.{name}": each for name, each in flat(value).items()}
        else:
            values[str(key)] = value
    return values


def model_named(reading: Reading, *names: str, reads_format: bool = False) -> dict[str, Any]:
    """The `model` section by the name of a Hugging Face repository or its local copy; a fault where the name says that its weights have
    fewer bits, unless the caller `reads_format`."""
    given = reading.given
    given.passed_over(*names)
    name = next((name for name in names if given.values.get(name) not in NO_VALUES), None)
    if reading.chosen_model is not None or name is None:
        return {}
    written = str(given.values[name])
    path = shipped_model(written.rstrip("/"))
    if path is None:
        stem = written.rstrip("/").rpartition("/")[2]
        given.fault(
            name,
            f"{shown(written)} is not a shipped model{did_you_mean(stem.lower(), shipped_models())}; "
            "give --set model=NAME, or --set model=FILE with its config.json",
        )
        return {}
    if not reads_format and in_fewer_bits(written):
        problem = f"{shown(written)} has weights in fewer bits; give --set model={path.stem}, and adapters.base where they stay so"
        given.fault(name, problem)
    if note := read_as(written.rstrip("/")):
        given.notes.append(f"{name}: {note}")
    return {"model": path.stem}


def typed(value: Any) -> Any:
    """A text of a command line as YAML reads it, as Hydra and OmegaConf do."""
    if not isinstance(value, str) or value.startswith("$"):
        return value
    try:
        return parse_yaml(value)[0] if value else None
    except NotYamlError:
        return value


def without(given: Arguments, *, values: Iterable[Any]) -> Arguments:
    """The arguments without those that have one of these values."""
    left_out = tuple(values)
    return replace(given, values={name: value for name, value in given.values.items() if value not in left_out})


# Adapters on frozen weights: the one place where their keys are read.

NO_ADAPTER = (*OFF, "full", "none")
OF_SOME = ("layers_to_transform", "layers_pattern", "layer_replication", "target_parameters", "rank_pattern")
"""Ends of keys that choose the adapted matrices more narrowly, or otherwise (peft, tuners/lora/config.py)."""
KERNELS = "_kernel"
"""End of Axolotl's switches of fused adapters."""
WHOLE = ("modules_to_save", "additional_target")
"""Ends of keys that name weights which are trained whole beside adapters."""


FOUR_BITS = ("true", "4")
BITSANDBYTES = ("nf4", "fp4")
"""Four-bit formats of bitsandbytes, which take as many bytes."""
OF_PEFT = "q_proj,v_proj"
"""Matrices that peft adapts where nothing names them (peft, utils/constants.py, of Llama, Mistral, Qwen, Gemma)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BaseKeys:
    """A tool's keys of a base that bitsandbytes keeps in four bits."""

    bits: str = "load_in_4bit"
    """A switch, or the number of bits."""
    form: str = "bnb_4bit_quant_type"
    double: str = ""
    """The switch of double quantisation."""
    usually_double: bool = False
    refused: tuple[str, ...] = ("load_in_8bit",)
    """Keys of formats that are not modelled."""


def base_of(given: Arguments, keys: BaseKeys) -> dict[str, Any]:
    """The keys of `adapters` that say how the base is stored; empty where it has the dtype of the run."""
    for name in keys.refused:
        if (value := given.values.get(name)) not in OFF:
            given.fault(
                name, f"{shown(value)}: frozen weights in 8 bits are not modelled; four-bit and 16-bit ones are"
            )
    bits, form = given.values.get(keys.bits), given.text(keys.form, "nf4").lower()
    given.passed_over(keys.bits, keys.form, keys.double, *keys.refused)
    if bits in OFF:
        return {}
    if str(bits).lower() not in FOUR_BITS:
        given.fault(keys.bits, f"{shown(bits)}: frozen weights of so many bits are not modelled; 4 and 16 are")
    if form not in BITSANDBYTES:
        given.fault(keys.form, f"{shown(form)} is not modelled; {', '.join(BITSANDBYTES)} are")
    is_double = given.switch(keys.double, keys.usually_double) if keys.double else keys.usually_double
    return {"base": "nf4", "double_quantised": is_double}


def adapters_of(
    given: Arguments,
    *,
    kind: str,
    rank: str,
    targets: str,
    usual_rank: int,
    usual_targets: str = OF_PEFT,
    dora: str = "",
    base: BaseKeys | None = None,
) -> dict[str, Any]:
    """The section `adapters` by the names of a tool's keys; empty where every weight is trained."""
    word = given.values.get(kind)
    if given.values.get("lora_dropout") not in (*OFF, "0.0"):
        note = "the time and memory of dropout before adapters are not modelled, and left out"
        given.notes.append(f"lora_dropout: {shown(given.values['lora_dropout'])}: {note}")
    word = word.lower() if isinstance(word, str) else word
    own = [name for name in given.values if name.startswith(("lora_", "peft_"))]
    given.passed_over(kind, *own)
    stored = base_of(given, base) if base else {}
    if word in NO_ADAPTER:
        if base and stored:
            given.fault(
                base.bits, "weights in four bits are trained by adapters alone, and these files have none; remove it"
            )
        return {}
    for name in own:
        if given.values.get(name) in OFF:
            continue
        if name.endswith(OF_SOME):
            problem = f"{shown(given.values[name])}: adapters of some matrices or layers alone are not read"
            given.fault(name, f"{problem}; {ACCEPT} {name} reads the rest without it")
        if name.endswith(KERNELS):
            given.notes.append(f"{name}: fused kernels of adapters are not modelled, and left out")
    for name in (*own, *WHOLE):
        if name.endswith(WHOLE) and given.values.get(name) not in OFF:
            problem = f"{shown(given.values[name])}: weights trained whole beside adapters are not modelled"
            given.fault(name, f"{problem}; {ACCEPT} {name} reads the rest without it")
    if word not in ("lora", "dora", "qlora", "true", True):
        given.fault(kind, f"{shown(word)} is not modelled; lora, dora, qlora and full fine-tuning are")
    is_dora = word == "dora" or (dora in given.values and given.switch(dora))
    chosen = given.values.get(targets)
    given.passed_over(targets)
    names = ",".join(map(str, chosen)) if isinstance(chosen, list) else str(chosen or usual_targets)
    named = "all" if names in ("all-linear", "all", "") else names.replace(" ", "")
    return {"kind": "dora" if is_dora else "lora", "rank": given.count(rank) or usual_rank, "targets": named, **stored}
