"""A run config from other tools' files: launch scripts, YAML, TOML, JSON and Python of the tools in `predict.convert.tools`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import takewhile
from pathlib import Path, PurePath
from typing import Any

from predict.config.document import Document
from predict.config.draft import KEYS_OF_A_MODEL, REQUIRED_SECTIONS, SECTIONS, read_draft
from predict.config.load import load
from predict.config.overrides import OPTION, as_settings, parse_overrides
from predict.convert.arguments import Arguments
from predict.convert.megatron import FLASH, FLASH_OF, OLDER_FLASH
from predict.convert.sources import (
    ACCELERATE,
    CONFIG,
    PYTHON,
    YAML,
    NotReadableError,
    document_of,
    known_tools,
    source_of_document,
    sources_of_text,
    text_of,
    with_launch,
)
from predict.convert.spelling import Dialect
from predict.convert.tool import ACCEPT, SAMPLES, ForeignFile, Reading, Sections, Source, Tool, read_with
from predict.convert.tools import tool_of
from predict.kinds import KINDS, RL, SERVING, TRAINING, kind_of, unknown_settings
from predict.rl.config import load_rl
from predict.rl.section import COLOCATED
from predict.run.execution import Execution
from predict.run.frameworks import framework_settings
from predict.run.offload import GPU, Offload
from predict.run.plan import Plan
from predict.serving.config import load_serving
from sampling.errors import Checks, UserError
from sampling.files.faults import Fault, config_error, counted, shown
from sampling.files.schema import check
from sampling.hardware.cluster import hardware_facts

MOST_NAMED = 3
"""Keys of an unknown file that an error names."""


def read_foreign(paths: Sequence[Path], *, chosen_model: Any, accepted: Sequence[str]) -> dict[str, list[ForeignFile]]:
    """Read each file by what it holds; `chosen_model` is the model that the user names in place of the files', `accepted` the keys that
    may be left out though they matter."""
    read: dict[str, list[ForeignFile]] = {}
    sources: dict[str, list[Source]] = {}
    for path in paths:
        try:
            sources[str(path)] = _sources_of(path)
        except NotReadableError as error:
            read[str(path)] = [_faulty(str(error))]
    files = [source for found in sources.values() for source in found if source.file]
    beside = {PurePath(name).name for name in (*map(str, paths), *(file.file for file in files))}
    taken: set[str] = set()

    def with_file(source: Source) -> Source:
        file = _arguments_file(source, files, name)
        if not file or not (tool_of(source) or tool_of(file)):
            return source
        taken.add(file.file)
        return replace(source, values=_over(file, source))

    for name, found in sources.items():
        commands = [with_file(source) for source in found if tool_of(source)]
        has_trainer = any(source.program not in ("", ACCELERATE) for source in commands)
        for source in found:
            # beside a trainer, a script of another file, or of none, is another step of the work: the data's, or an evaluation
            file = None if tool_of(source) else _arguments_file(source, files, name)
            if not tool_of(source) and (file.file not in taken if file else not has_trainer):
                commands.append(with_file(source))
        parts = [part for source in commands for part in with_launch(source)]
        sources[name] = [with_file(part) if part.program == ACCELERATE else part for part in parts]
    for name, found in sources.items():
        read[name] = [
            _read(source, chosen_model, accepted, frozenset(beside)) for source in found if source.file not in taken
        ]
    return {str(path): read[str(path)] for path in paths}


def _sources_of(path: Path) -> list[Source]:
    """The sources in a file; NotReadableError where there are none."""
    document = document_of(path)
    if document is None:
        found = sources_of_text(text_of(path), path.stem, is_python=path.suffix.lower() == PYTHON)
        if not found:
            raise NotReadableError(f"it launches nothing that is read; give files of {known_tools()}")
        return found
    if problem := _not_foreign(document):
        raise NotReadableError(problem)
    return [replace(source_of_document(document, path.stem), file=str(path))]


def _arguments_file(source: Source, files: Sequence[Source], name: str) -> Source | None:
    """The file of further arguments that a command names, by the longest end of its path; None where none of the files is one,
    ConfigError where several are."""
    tool = tool_of(source)
    key = tool.arguments_file if tool else CONFIG
    named = source.values.get(key) if source.form == "command" else None
    if not isinstance(named, str):
        return None
    same = {file.file: _same_end(PurePath(named), PurePath(file.file)) for file in files}
    nearest = [file for file in files if same[file.file] and same[file.file] == max(same.values())]
    if len(nearest) > 1:
        all_of_them = " and ".join(file.file for file in nearest)
        problem = f"{shown(named)} fits {all_of_them} alike; write more of its path, or give one of them"
        raise config_error([Fault(path=key, problem=problem)], {"": name})
    return nearest[0] if nearest else None


def _same_end(first: PurePath, second: PurePath) -> int:
    """Number of parts at the end of two paths that are the same."""
    pairs = zip(reversed(first.parts), reversed(second.parts), strict=False)
    return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))


def _over(file: Source, command: Source) -> dict[str, Any]:
    """The values of a file of arguments, and over them those of the command that names it, whatever name of an argument each has."""
    values, tool = dict(command.values), tool_of(command)
    if tool is None:
        tool = tool_of(file)
        values.pop(CONFIG)
    assert tool is not None
    own = tool.as_in_file(replace(command, values=values)).values
    replaced = {other for name in own for other in tool.namesakes(name)}
    of_file = {name.replace("-", "_"): value for name, value in file.values.items()}
    return {**{name: value for name, value in of_file.items() if name not in replaced}, **own}


def _read(source: Source, chosen_model: Any, accepted: Sequence[str], beside: frozenset[str]) -> ForeignFile:
    tool = tool_of(source)
    if tool is None and source.form == "command":
        return _unknown_program(source, accepted, beside)
    if tool is None and source.values.keys() >= KEYS_OF_A_MODEL:
        return _faulty(
            f"is the config.json of a model, which says nothing of its run; predict it with `predict one-batch --model {source.file} --gpus 8xh100`"
        )
    if not source.values:
        return _faulty(f"is empty: it holds no keys; give files of {known_tools()}")
    if tool is None:
        named = ", ".join([*list(source.values)[:MOST_NAMED], *(["…"] if len(source.values) > MOST_NAMED else [])])
        return _faulty(f"no tool that is read has its keys ({named}); give files of {known_tools()}")
    if tool.unread:
        return _faulty(f"is of {tool.name}, which is not read; {tool.unread}")
    values = tool.as_in_file(source).values
    reading = Reading(given=Arguments(values=values), source=source, chosen_model=chosen_model, beside=beside)
    return read_with(tool, reading, accepted)


def _unknown_program(source: Source, accepted: Sequence[str], beside: frozenset[str]) -> ForeignFile:
    """A script that no tool is known by: its launcher and the files that it names are read, its other options are faults."""
    files = [name for name, value in source.values.items() if PurePath(str(value)).name in beside]

    def read(reading: Reading) -> Sections:
        given = reading.given
        is_asked_for = isinstance(given.values.get(CONFIG), str) and CONFIG not in files
        given.passed_over(*(given.values if is_asked_for else files))
        return {}

    tool = Tool(name=source.program, read=read, arguments_file=CONFIG)
    reading = Reading(given=Arguments(values=source.values), source=source, beside=beside)
    found = read_with(tool, reading, accepted)
    options = [fault.path for fault in found.faults if fault.path in reading.given.left_over]
    if len(options) > 1:
        named = ", ".join([*options[:MOST_NAMED], *(["…"] if len(options) > MOST_NAMED else [])])
        problem = f"{named} are options of a script that is not known here, and may change time or memory; {ACCEPT} '*' reads the rest without them"
        others = [fault for fault in found.faults if fault.path not in options]
        found = replace(found, faults=[*others, Fault(path=source.program, problem=problem)])
    return replace(found, tool=None)


def _faulty(problem: str) -> ForeignFile:
    return ForeignFile(faults=[Fault(path="", problem=problem)])


OWN_SECTIONS = ("model", "cluster", "plan", "batch", "execution", "precision")


def is_run_config(path: Path) -> bool:
    """Whether a file is a config of this project, however faulty, rather than another tool's; a file that is not there is taken for one."""
    try:
        document = document_of(path)
    except NotReadableError:
        return path.suffix.lower() in YAML
    return document is not None and (
        bool(_not_foreign(document)) or sum(section in document for section in OWN_SECTIONS) > 1
    )


def require_none_accepted(accept: Sequence[str]) -> None:
    """UserError where keys are named to be left out of a file that is not another tool's."""
    if accept:
        raise UserError(f"--accept: {', '.join(accept)}: is for files of other tools; omit it")


def _not_foreign(document: Mapping[Any, Any]) -> str:
    """Why a document is one of ours; empty for another tool's."""
    if all(section in document for section in REQUIRED_SECTIONS):
        return "is a run config already; give it to `predict one-batch`"
    kind = KINDS[kind_of(document)]
    if (
        isinstance(document.get(kind.section), Mapping) and "model" in document
    ):  # Megatron-LM has a `load` too, which is a path
        return f"is {kind.title}, not a file of another tool; give files of {known_tools()}"
    return ""


LOADED_AS_GIVEN = ("transformers", "fsdp-compile")
"""Frameworks that train, where nothing is sharded, the weights in the dtype in which the script loads them; FSDP and DeepSpeed keep fp32
masters."""
USUAL = "usual"
"""Section of what holds where no file says otherwise."""
DEGREES = ("tp", "pp", "cp", "dp")
COUNTED: Mapping[str, Sequence[str]] = {
    "cluster": ("nodes", "gpus_per_node"),
    "plan": DEGREES,
    "batch": ("micro", "global"),
}
EXAMPLES: Mapping[str, str] = {"micro": "1", "seq_len": "4096"}
"""Keys of the batch that nothing else shows, with an example of each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportedConfig:
    """A run config made of other tools' files."""

    document: Document
    notes: tuple[str, ...]
    """How values were taken whose meaning differs here."""
    not_read: Mapping[str, str]
    """Settings of the files that change nothing here: name → value, as written."""
    accepted: Mapping[str, str]
    """Settings that change time or memory and that are left out, as the caller accepts."""
    dialects: tuple[Dialect, ...] = ()
    """The tools of the files, each with the form in which it has them."""


def import_config(
    files: Sequence[Path | str], overrides: Sequence[str] = (), *, accept: Sequence[str] = ()
) -> ImportedConfig:
    """The config that other tools' files of one run make, of a training run, an RL step or a server. `overrides` such as
    `cluster.hardware=h100` add what they do not say; `accept` names keys that may be left out though they change time or memory.

    `.document` is a config for every function of `predict`, `.not_read` the settings that change nothing. ConfigError lists every
    fault, each key that changes time or memory and is not understood, and all that is missing with the setting that gives it.
    """
    paths = [Path(file) for file in files]
    settings, unreadable = parse_overrides(overrides)
    given = {setting.path: setting.value for setting in settings}
    by_file = read_foreign(paths, chosen_model=given.get("model"), accepted=accept)
    read = [each for found in by_file.values() for each in found]
    sources = {"": _in_short(paths)}
    content, clashes = _merged(read)
    kind = kind_of(content)
    with Checks() as checks:
        for named, faults in [
            *((file, [fault for each in found for fault in each.faults]) for file, found in by_file.items()),
            (sources[""], [*clashes, *unreadable, *_faults_of_counts(content)]),
            (OPTION, _faults_of_settings(given)),
        ]:
            with checks.one():
                if faults:
                    raise config_error(faults, {"": named})
        if checks.errors and (unknown := unknown_settings(kind, given)):
            raise config_error(unknown, {"": OPTION})
    with Checks() as checks:
        with checks.one():
            stated = _cluster_of(content, given, sources)
            content = COMPLETED[kind](content, given, sources)
        if checks.errors and (unknown := unknown_settings(kind, given)):
            raise config_error(unknown, {"": OPTION})
    document = Document(name=paths[0].stem.partition(".")[0], content=content, sources=sources).with_settings(overrides)
    LOADED[kind](document)
    return ImportedConfig(
        document=document,
        notes=tuple(dict.fromkeys([*(note for each in read for note in each.notes), *_assumed_nodes(content, stated)])),
        not_read={name: shown(value) for each in read for name, value in each.not_read.items()},
        accepted={name: shown(value) for each in read for name, value in each.accepted.items()},
        dialects=tuple(Dialect(tool=each.tool, form=each.form) for each in read if each.tool),
    )


def _in_short(paths: Sequence[Path]) -> str:
    """The files of a run at the start of each line of an error."""
    more = len(paths) - 1
    return f"{paths[0]} and {counted(more, 'more file')}" if more else str(paths[0])


def _faults_of_counts(content: Mapping[str, Any]) -> list[Fault]:
    """Faults of the numbers of the files from which others are counted; a text of a command line may stand where one is meant."""
    counts = {
        section: {name: value for name, value in content.get(section, {}).items() if name in names}
        for section, names in COUNTED.items()
    }
    return [fault for section, values in counts.items() for fault in _faults_of(section, values)]


def _faults_of_settings(given: Mapping[str, Any]) -> list[Fault]:
    """Faults of the user's settings from which others are counted."""
    return [fault for section in COUNTED for fault in _faults_of(section, _of_section(section, given))]


def _faults_of(section: str, values: Mapping[str, Any]) -> list[Fault]:
    """Faults of the values that are keys of a section."""
    keys = [key for key in SECTIONS[section] if key.name in values]
    return check({key.name: values[key.name] for key in keys}, keys, section=section)[1]


def _assumed_nodes(content: Mapping[str, Any], stated: Mapping[str, Any]) -> list[str]:
    """A note on GPUs per node that no file states."""
    cluster = content.get("cluster")
    if not isinstance(cluster, Mapping) or "gpus_per_node" in stated:
        return []
    taken, usual = cluster["gpus_per_node"], hardware_facts(cluster["hardware"]).gpus_per_node
    reason = f"as {cluster['hardware']} usually has" if taken == usual else "as the plan has ranks"
    return [
        f"cluster.gpus_per_node: no file says it; {taken} are taken, {reason}; --set cluster.gpus_per_node=N changes it"
    ]


def _merged(read: Iterable[ForeignFile]) -> tuple[dict[str, Any], list[Fault]]:
    """The sections of all files, and a fault for each key on which two disagree."""
    content: dict[str, Any] = {}
    faults: list[Fault] = []

    def put(into: dict[str, Any], key: str, value: Any, path: str) -> None:
        there = into.setdefault(key, value)
        if there != value:
            faults.append(
                Fault(path=path, problem=f"{shown(there)} in one file and {shown(value)} in another; correct one")
            )

    for each in read:
        for section, values in each.sections.items():
            if section == USUAL:
                continue
            if isinstance(values, Mapping) and section != "model":
                into = content.setdefault(section, {})
                for key, value in values.items():
                    put(into, key, value, f"{section}.{key}")
            else:
                put(content, section, values, section)
    for each in read:
        for section, values in each.sections.get(USUAL, {}).items():
            content[section] = {**values, **content.get(section, {})}
    return content, faults


def _with_cluster(content: dict[str, Any], given: Mapping[str, Any], sources: Mapping[str, str]) -> dict[str, Any]:
    """The content with the cluster, dp and the global batch that follow from what is known; ConfigError for what is missing."""
    cluster = _cluster_of(content, given, sources)
    plan = {**content.get("plan", {}), **_of_section("plan", given)}
    batch = {**content.get("batch", {}), **_of_section("batch", given)}
    missing = [] if "hardware" in cluster else [_missing("cluster.hardware", "h100")]
    missing += [] if "model" in content or "model" in given else [_missing("model", "llama3-8b")]
    missing += [_missing(f"batch.{key}", example) for key, example in EXAMPLES.items() if key not in batch]
    if missing:
        raise config_error(missing, sources)
    if "precision" not in content and "precision" not in given:
        raise config_error([_missing("precision", "bf16")], sources)
    inside = [plan.get(key, 1) for key in ("tp", "pp", "cp")]
    of_replica = inside[0] * inside[1] * inside[2]
    cluster = _sized(cluster, of_replica * plan["dp"] if "dp" in plan else 0, sources)
    dp = plan.setdefault("dp", max(1, cluster["nodes"] * cluster["gpus_per_node"] // of_replica))
    _settle_shards(plan, dp, cluster["gpus_per_node"])
    _unshard_alone(plan, {**content.get("offload", {}), **_of_section("offload", given)})
    _settle_batch(batch, dp, sources, given)
    return {
        "model": content.get("model", given.get("model")),
        "cluster": _as_named(cluster, given),
        "plan": {key: value for key, value in plan.items() if key in DEGREES or value != getattr(Plan(), key, None)},
        "batch": batch,
        "precision": content.get("precision", given.get("precision")),
        "execution": _execution(content.get("execution", {}), cluster["hardware"], plan.get("zero", 0)),
        **{section: content[section] for section in ("adapters", "offload", "tuning") if section in content},
        **({"vision": content["vision"]} if "vision" in content and given.get("vision.images") else {}),
    }


def _settle_shards(plan: dict[str, Any], dp: int, per_node: int) -> None:
    """The ranks that share a state, of a tool that counts its copies, or has one on each node."""
    instances = plan.pop("instances", 1)
    if instances > 1:
        plan["shard"] = dp * plan.get("cp", 1) // instances
    if plan.get("shard") == "node":
        plan["shard"] = 0 if per_node >= dp else per_node


def _unshard_alone(plan: dict[str, Any], offload: Mapping[str, Any]) -> None:
    """Tools shard over one rank without a word, and hold the whole state there, but for what they offload of it."""
    away = Offload(
        gradients_on_host=bool(offload.get("gradients_on_host")), shards_on=str(offload.get("shards_on", GPU))
    )
    if plan.get("zero") and plan.get("dp", 0) * plan.get("cp", 1) == 1 and not away.takes_shards:
        plan["zero"] = 0


def _settle_batch(batch: dict[str, Any], dp: int, sources: Mapping[str, str], given: Mapping[str, Any]) -> None:
    """The global batch from microbatch, accumulation and replicas, as DeepSpeed's and transformers' arithmetic has it."""
    steps = batch.pop("accumulation", None)
    of_step = batch["micro"] * dp * (steps or 1)
    if steps and batch.setdefault("global", of_step) != of_step:
        problem = (
            f"{batch['global']}, but {batch['micro']} sequences × {steps} steps of accumulation × {dp} replicas make {of_step}; "
            "correct one, or give the number of GPUs that it is for"
        )
        settings = {
            path: value for path, value in given.items() if path.partition(".")[0] in ("batch", "plan", "cluster")
        }
        options = " ".join(f"{OPTION} {setting}" for setting in as_settings(settings))
        raise config_error([Fault(path="batch.global", problem=problem, given_with=options)], sources)
    batch.setdefault("global", of_step)  # Megatron-LM's default: one microbatch of each replica


def _of_rl(content: dict[str, Any], given: Mapping[str, Any], sources: Mapping[str, str]) -> dict[str, Any]:
    """An RL config; lengths that only the data know are asked for."""
    cluster = _cluster_of(content, given, sources)
    rl = {**content["rl"], **_of_section("rl", given)}
    missing = [] if "hardware" in cluster else [_missing("cluster.hardware", "h100")]
    missing += [] if "model" in content or "model" in given else [_missing("model", "qwen3-8b")]
    missing += [_missing(f"rl.{key}", example) for key, example in OF_DATA.items() if key not in rl]
    if rl.get("placement", COLOCATED) != COLOCATED and not ("rollout.gpus" in rl or rl["rollout"].get("gpus")):
        missing.append(_missing("rl.rollout.gpus", "8"))
    if missing:
        raise config_error(missing, sources)
    plan = {**content.get("plan", {}), **_of_section("plan", given)}
    plan = {key: value for key, value in plan.items() if value != getattr(Plan(), key, None) or key in DEGREES}
    cluster = _sized(cluster, 0, sources)
    inside = plan.get("tp", 1) * plan.get("pp", 1) * plan.get("cp", 1)
    dp = plan.setdefault("dp", max(1, cluster["nodes"] * cluster["gpus_per_node"] // inside))
    _settle_shards(plan, dp, cluster["gpus_per_node"])
    _unshard_alone(plan, {**content.get("offload", {}), **_of_section("offload", given)})
    if steps := rl.pop(SAMPLES, None):
        content["rl"] = _of_samples(steps, content["rl"], rl, dp, sources)
    return {
        "model": content.get("model", given.get("model")),
        "cluster": _as_named(cluster, given),
        "plan": plan,
        "precision": content.get("precision", given.get("precision", "bf16")),
        "execution": _execution(content.get("execution", {}), cluster["hardware"], plan.get("zero", 0)),
        "rl": content["rl"],
        **{section: content[section] for section in ("adapters", "offload") if section in content},
    }


def _of_samples(
    counted: Mapping[str, int], read: Mapping[str, Any], rl: Mapping[str, Any], dp: int, sources: Mapping[str, str]
) -> dict[str, Any]:
    """The section `rl` that was read, with what follows from `SAMPLES` (trl, grpo_config.py and grpo_trainer.py); `rl` is the same with the
    user's settings, by which it is counted. ConfigError where prompts or optimizer steps are not whole."""

    def set_or_read(key: str, default: int) -> int:
        return rl[key] if type(rl.get(key)) is int and rl[key] > 0 else default

    micro, n, epochs = (set_or_read(key, read[key]) for key in ("micro", "n", "epochs"))
    of_round, accumulation = micro * dp, counted["accumulation"]
    generated = counted["generated"] or of_round * (counted["rounds"] or accumulation)
    rounds, of_update = generated // of_round, of_round * accumulation
    if generated % n or generated % of_round:
        problem = (
            f"{n} to each prompt: {dp} replicas generate {generated} responses at once, which is not a multiple of {n} and of their microbatches, "
            f"{of_round}; correct them, or give the number of GPUs that they are for"
        )
        raise config_error([Fault(path="rl.n", problem=problem)], sources)
    is_whole = not of_update % n and not generated % of_update
    if not is_whole and "prompts" not in rl:
        problem = (
            f"{n} to each prompt, of which {dp} replicas generate {generated} at once and train on {of_update} in an optimizer step: optimizer "
            "steps on part of a prompt's responses, or on several generations, are not modelled; give a step that is near, for example "
            f"--set rl.prompts={max(1, max(generated, of_update) // n)}"
        )
        raise config_error([Fault(path="rl.n", problem=problem)], sources)
    rollout = dict(read["rollout"])
    if read["placement"] == COLOCATED:
        rollout["max_num_seqs"] = micro * rounds * set_or_read("rollout.tp", rollout["tp"])
    found = {key: value for key, value in read.items() if key not in (SAMPLES, "rollout")}
    # without a correction of the engines' numerics, only samples of earlier weights need their log-probabilities
    found["old_log_prob"] = bool(counted["corrects"] or accumulation % (rounds * epochs))
    mini_batch = {"mini_batch": of_update // n} if is_whole and generated > of_update else {}
    return {"prompts": generated // n, **mini_batch, **found, "rollout": rollout}


OF_DATA: Mapping[str, str] = {
    "prompt": "constant:200",
    "prompt_max": "512",
    "response": "lognormal:mean=1200,p90=2500",
    "response_max": "4096",
}
"""Keys of `rl` that data and model decide, with an example of each."""


def _of_server(content: dict[str, Any], given: Mapping[str, Any], sources: Mapping[str, str]) -> dict[str, Any]:
    """A serving config; the load is asked for, since no command line says it."""
    missing = [] if "hardware" in given else [_missing("hardware", "h100")]
    missing += [] if "model" in content or "model" in given else [_missing("model", "llama3-8b")]
    if not {"load.rate", "load.concurrency", "load.file"} & set(given):
        missing.append(_missing("load.rate", "8 --set load.prompt=600 --set load.output=250"))
    if missing:
        raise config_error(missing, sources)
    placement, engine = content.get("placement", {}), content.get("engine", {})
    return {
        "model": content.get("model", given.get("model")),
        "hardware": given["hardware"],
        "placement": {"tp": 1, "precision": "bf16", **placement},
        "engine": engine,
        **({"speculation": content["speculation"]} if "speculation" in content else {}),
        "load": _of_section("load", given),
    }


COMPLETED = {TRAINING: _with_cluster, RL: _of_rl, SERVING: _of_server}
LOADED = {TRAINING: load, RL: load_rl, SERVING: load_serving}


def _of_section(section: str, given: Mapping[str, Any]) -> dict[str, Any]:
    return {path.partition(".")[2]: value for path, value in given.items() if path.startswith(f"{section}.")}


def _missing(path: str, example: str) -> Fault:
    return Fault(path=path, problem=f"no file says it; give it, for example --set {path}={example}")


def _cluster_of(content: Mapping[str, Any], given: Mapping[str, Any], sources: Mapping[str, str]) -> dict[str, Any]:
    """The cluster that the user names, else that of the files with the user's settings; ConfigError for a name that none goes by."""
    named, keys = given.get("cluster", {}), _of_section("cluster", given)
    if isinstance(named, Mapping):
        return {**content.get("cluster", {}), **named, **keys}
    draft = read_draft({"cluster": named}, [])
    cluster = draft.with_own_paths(draft.section("cluster"))
    beside = [
        Fault(
            path=f"cluster.{key}",
            problem=f"{shown(value)}, but cluster={named} has {shown(cluster.get(key))}; omit one of the two",
        )
        for key, value in keys.items()
        if cluster and value != cluster.get(key)
    ]
    if faults := [*draft.faults, *beside]:
        raise config_error(faults, sources)
    return {key: value for key, value in cluster.items() if value is not None}


def _as_named(cluster: dict[str, Any], given: Mapping[str, Any]) -> Any:
    """The cluster as a config has it: by its name where the user names one."""
    return given["cluster"] if isinstance(given.get("cluster"), str) else cluster


def _sized(cluster: dict[str, Any], world: int, sources: Mapping[str, str]) -> dict[str, Any]:
    """The cluster with its nodes and GPUs per node: those given, else as many usual nodes as `world` ranks fill."""
    per_node = cluster.get("gpus_per_node") or min(hardware_facts(cluster["hardware"]).gpus_per_node, world or 10**9)
    if "nodes" not in cluster and not world:
        raise config_error([_missing("cluster.nodes", "8")], sources)
    return {**cluster, "nodes": cluster.get("nodes") or max(1, world // per_node), "gpus_per_node": per_node}


def _execution(read: Mapping[str, Any], hardware: str, zero: int) -> dict[str, Any]:
    """The framework, and what differs from its settings."""
    read = dict(read)
    framework = read.get("framework", "")
    if read.pop("loaded_in_halves", False) and framework in LOADED_AS_GIVEN and not zero:
        read |= {"master_weights": False, "gradient_dtype": "bf16"}
    architecture = hardware_facts(hardware).architecture if hardware else ""
    usual = {**asdict(Execution()), **framework_settings(framework, architecture), "framework": ""}
    given = {**read, "attention": FLASH_OF.get(architecture, OLDER_FLASH)} if read.get("attention") == FLASH else read
    return {key: value for key, value in given.items() if value != usual[key]}
