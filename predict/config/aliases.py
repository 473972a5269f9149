"""Other names for keys of a config: Megatron-LM's arguments, and `experts.routing`."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from predict.run.execution import NATURAL
from sampling.arithmetic.expert_rows import BALANCED
from sampling.files.faults import Fault, did_you_mean, join, shown

SECTIONS = ("model", "cluster", "plan", "batch", "execution", "adapters", "offload", "tuning", "vision")


class Alias(NamedTuple):
    """The key that a name stands for, and the conversion of its value."""

    section: str
    key: str
    convert: Callable[[Any], Any] = lambda value: value


def _as_number(switch: Any) -> Any:
    """A switch as the number that the key holds: `use_distributed_optimizer` is ZeRO stage 1 (arXiv 1910.02054), and an
    embedding or loss that is accounted for in the split counts as one layer."""
    return int(switch) if isinstance(switch, bool) else switch


def _none_is(default: Any) -> Callable[[Any], Any]:
    """The conversion that reads Megatron's None as `default`."""
    return lambda value: default if value is None else value


CP_METHODS: Mapping[str, str] = {"p2p": "ring", "a2a": "all_to_all", "allgather": "all_gather"}
"""Transformer Engine's names of how context-parallel ranks communicate."""


def _cp_method(name: Any) -> Any:
    return CP_METHODS.get(name, name) if isinstance(name, str) else name


def _joined(names: Any) -> Any:
    return ",".join(map(str, names)) if isinstance(names, list) else names


ALIASES: Mapping[str, Alias] = {
    "tensor_model_parallel_size": Alias(section="plan", key="tp"),
    "sequence_parallel": Alias(section="plan", key="sp"),
    "pipeline_model_parallel_size": Alias(section="plan", key="pp"),
    "num_virtual_stages_per_pipeline_rank": Alias(section="plan", key="vpp", convert=_none_is(1)),
    "data_parallel_size": Alias(section="plan", key="dp"),
    "context_parallel_size": Alias(section="plan", key="cp"),
    "expert_model_parallel_size": Alias(section="plan", key="ep"),
    "expert_tensor_parallel_size": Alias(section="plan", key="etp"),
    "use_distributed_optimizer": Alias(section="plan", key="zero", convert=_as_number),
    "recompute_granularity": Alias(section="plan", key="recompute", convert=_none_is("none")),
    "cp_comm_type": Alias(section="plan", key="cp_method", convert=_cp_method),
    "recompute_method": Alias(section="plan", key="recompute_method", convert=_none_is("uniform")),
    "recompute_num_layers": Alias(section="plan", key="recompute_layers"),
    "recompute_modules": Alias(section="plan", key="recompute_modules", convert=_joined),
    "pipeline_model_parallel_layout": Alias(section="plan", key="layout"),
    "decoder_first_pipeline_num_layers": Alias(section="plan", key="first_stage_layers"),
    "decoder_last_pipeline_num_layers": Alias(section="plan", key="last_stage_layers"),
    "account_for_embedding_in_pipeline_split": Alias(section="plan", key="count_embedding", convert=_as_number),
    "account_for_loss_in_pipeline_split": Alias(section="plan", key="count_loss", convert=_as_number),
    "global_batch_size": Alias(section="batch", key="global"),
    "micro_batch_size": Alias(section="batch", key="micro"),
    "seq_length": Alias(section="batch", key="seq_len"),
    **{
        name: Alias(section="model", key=name)
        for name in ("num_layers", "hidden_size", "num_attention_heads", "num_query_groups", "ffn_hidden_size")
    },
}
"""Names of Megatron-LM's arguments.py. Model keys keep their names here: the key they stand for depends on the model_type."""


EXPERTS = "experts"
ROUTINGS: Mapping[str, str] = {"natural": NATURAL, "forced": BALANCED}
"""How a published run says that tokens fall on experts, and the `execution.expert_load` that it is."""


def _load_of(routing: Any) -> Any:
    return ROUTINGS.get(routing, routing) if isinstance(routing, str) else routing


DOTTED: Mapping[str, Alias] = {
    f"{EXPERTS}.routing": Alias(section="execution", key="expert_load", convert=_load_of),
    f"{EXPERTS}.load": Alias(section="execution", key="expert_load"),
}
"""Names of keys in sections that hold nothing else."""


def alias_of(name: Any) -> Alias | None:
    """The alias of a name written with dashes or underscores."""
    return ALIASES.get(name.replace("-", "_")) if isinstance(name, str) else None


def names_for(section: str) -> list[str]:
    """The aliases that a section accepts."""
    return [name for name, alias in ALIASES.items() if alias.section == section]


def resolve(document: Mapping[Any, Any]) -> tuple[dict[Any, Any], dict[str, Any], list[Fault]]:
    """The document with aliases replaced, the model keys given at its top level, and the faults.

    An alias that disagrees with the name it stands for is a fault, and the name's value stays.
    """
    resolved = {
        key: dict(value) if key in SECTIONS and isinstance(value, dict) else value for key, value in document.items()
    }
    model_keys: dict[str, Any] = {}
    faults: list[Fault] = []
    for name, value in document.items():
        alias = alias_of(name)
        if alias is None:
            continue
        del resolved[name]
        target = model_keys if alias.section == "model" else resolved.setdefault(alias.section, {})
        if isinstance(target, dict):
            faults += _put(target, alias, value, path=name)
    for section in ("plan", "batch"):
        given = resolved.get(section)
        if not isinstance(given, dict):
            continue
        for name, value in list(given.items()):
            alias = alias_of(name)
            if alias is not None and alias.section == section:
                del given[name]
                faults += _put(given, alias, value, path=join(section, name))
    return resolved, model_keys, faults + _without_experts(resolved)


def _without_experts(resolved: dict[Any, Any]) -> list[Fault]:
    """Move the keys of `experts` to where they belong; the faults of those that are none."""
    given = resolved.get(EXPERTS)
    if not isinstance(given, dict):
        return []
    del resolved[EXPERTS]
    faults: list[Fault] = []
    for key, value in given.items():
        path = f"{EXPERTS}.{key}"
        alias = DOTTED.get(path)
        if alias is None:
            known = [name.partition(".")[2] for name in DOTTED]
            faults.append(Fault(path=path, problem=f"unknown key; remove it{did_you_mean(str(key), known)}"))
        elif isinstance(target := resolved.setdefault(alias.section, {}), dict):
            faults += _put(target, alias, value, path=path)
    return faults


def _put(target: dict[Any, Any], alias: Alias, value: Any, *, path: str) -> list[Fault]:
    reads = alias.convert(value)
    there = target.setdefault(alias.key, reads)
    if there == reads:
        return []
    stands_for = join(alias.section, alias.key)
    problem = f"{shown(value)}, but {stands_for} (the same thing) is {shown(there)}; keep one of the two"
    return [Fault(path=path, problem=problem)]
