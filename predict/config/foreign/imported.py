"""A run config from other tools' files: Megatron-LM's arguments, torchtitan's TOML, DeepSpeed's JSON and Primus' YAML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from predict.config.document import Document
from predict.config.foreign.foreign_file import ForeignFile, read_foreign
from predict.config.foreign.megatron.execution import FLASH, FLASH_OF, OLDER_FLASH
from predict.config.load import load
from predict.config.overrides import parse_overrides
from predict.run.execution import Execution
from predict.run.frameworks import framework_settings
from predict.run.plan import Plan
from sampling.errors import Checks
from sampling.files.faults import Fault, config_error, shown
from sampling.hardware.cluster import hardware_facts

DEGREES = ("tp", "pp", "cp", "dp")
EXAMPLES: Mapping[str, str] = {"micro": "1", "seq_len": "4096"}
"""Keys of the batch that nothing else tells, with an example of each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportedConfig:
    """A run config made of other tools' files."""

    document: Document
    notes: tuple[str, ...]
    """How values were taken whose meaning differs here."""
    not_read: Mapping[str, str]
    """Settings of the files that change nothing here, or that are unknown: name → value, as written."""


def import_config(files: Sequence[Path], overrides: Sequence[str] = ()) -> ImportedConfig:
    """The run config that several files of one run make together; `overrides` such as `cluster.hardware=h100` add what they
    do not say. ConfigError lists every fault, and all that is missing with the setting that gives it."""
    given = {setting.path: setting.value for setting in parse_overrides(overrides)[0]}
    read = [read_foreign(file, chosen_model=given.get("model")) for file in files]
    sources = {"": ", ".join(map(str, files))}
    content, clashes = _merged(read)
    with Checks() as checks:
        for named, faults in [
            *zip(map(str, files), (each.faults for each in read), strict=True),
            (sources[""], clashes),
        ]:
            with checks.one():
                if faults:
                    raise config_error(faults, {"": named})
    content = _with_cluster(content, given, sources)
    document = Document(name=files[0].stem.partition(".")[0], content=content, sources=sources).with_settings(overrides)
    load(document)
    return ImportedConfig(
        document=document,
        notes=tuple(note for each in read for note in each.notes),
        not_read={name: shown(value) for each in read for name, value in each.not_read.items()},
    )


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
            if isinstance(values, Mapping) and section != "model":
                into = content.setdefault(section, {})
                for key, value in values.items():
                    put(into, key, value, f"{section}.{key}")
            else:
                put(content, section, values, section)
    return content, faults


def _with_cluster(content: dict[str, Any], given: Mapping[str, Any], sources: Mapping[str, str]) -> dict[str, Any]:
    """The content with the cluster, dp and the global batch that follow from what is known; ConfigError for what is missing."""
    cluster = dict(content.get("cluster", {}))
    cluster |= {key.removeprefix("cluster."): value for key, value in given.items() if key.startswith("cluster.")}
    plan = {**content.get("plan", {}), **_of_section("plan", given)}
    batch = {**content.get("batch", {}), **_of_section("batch", given)}
    named = isinstance(given.get("cluster"), str)
    missing = [] if named or "hardware" in cluster else [_missing("cluster.hardware", "h100")]
    missing += [] if "model" in content or "model" in given else [_missing("model", "llama3-8b")]
    missing += [_missing(f"batch.{key}", example) for key, example in EXAMPLES.items() if key not in batch]
    if missing:
        raise config_error(missing, sources)
    inside = [plan.get(key, 1) for key in ("tp", "pp", "cp")]
    of_replica = inside[0] * inside[1] * inside[2]
    if not named:
        cluster = _sized(cluster, of_replica * plan["dp"] if "dp" in plan else 0, sources)
        world = cluster["nodes"] * cluster["gpus_per_node"]
        plan.setdefault("dp", max(1, world // of_replica))
    dp = plan.get("dp", 1)
    instances = plan.pop("instances", 1)
    if instances > 1:
        plan["shard"] = dp * plan.get("cp", 1) // instances
    # Megatron-LM's default: one microbatch of each replica
    batch.setdefault("global", batch["micro"] * dp)
    return {
        "model": content.get("model", given.get("model")),
        "cluster": given["cluster"] if named else cluster,
        "plan": {key: value for key, value in plan.items() if key in DEGREES or value != getattr(Plan(), key, None)},
        "batch": batch,
        "precision": content.get("precision", given.get("precision")),
        "execution": _execution(content.get("execution", {}), cluster.get("hardware", "")),
    }


def _of_section(section: str, given: Mapping[str, Any]) -> dict[str, Any]:
    return {path.partition(".")[2]: value for path, value in given.items() if path.startswith(f"{section}.")}


def _missing(path: str, example: str) -> Fault:
    return Fault(path=path, problem=f"no file says it; give it, for example --set {path}={example}")


def _sized(cluster: dict[str, Any], world: int, sources: Mapping[str, str]) -> dict[str, Any]:
    """The cluster with its nodes and GPUs per node: those given, else as many usual nodes as `world` ranks fill."""
    per_node = cluster.get("gpus_per_node") or min(hardware_facts(cluster["hardware"]).gpus_per_node, world or 10**9)
    if "nodes" not in cluster and not world:
        raise config_error([_missing("cluster.nodes", "8")], sources)
    return {**cluster, "nodes": cluster.get("nodes") or max(1, world // per_node), "gpus_per_node": per_node}


def _execution(read: Mapping[str, Any], hardware: str) -> dict[str, Any]:
    """The framework, and what differs from its settings."""
    framework = read.get("framework", "")
    architecture = hardware_facts(hardware).architecture if hardware else ""
    usual = {**asdict(Execution()), **framework_settings(framework, architecture), "framework": ""}
    settled = {**read, "attention": FLASH_OF.get(architecture, OLDER_FLASH)} if read.get("attention") == FLASH else read
    return {key: value for key, value in settled.items() if value != usual[key]}
