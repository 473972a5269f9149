"""The plan that a trace's process groups and collectives show: degrees by the groups' names, else by what is sent among how many."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from predict.measured_runs.explain.messages import kind_of
from sampling.importers.torch_trace.events import Trace

NAMES: Mapping[str, re.Pattern[str]] = {
    degree: re.compile(pattern, re.IGNORECASE)
    for degree, pattern in {
        "tp": r"^(mesh_|model_)?tp(:\d+)?$|^tensor(_model)?_parallel(_group)?$",
        "pp": r"^(mesh_)?pp(:\d+)?$|^pipeline(_model)?_parallel(_group)?$",
        "cp": r"^(mesh_)?cp$|^context_parallel(_group)?$|^sequence_parallel(_group)?$",
        "ep": r"^(mesh_)?ep(:\d+)?$|^expert(_model)?_parallel(_group)?$",
        "dp": r"^(mesh_)?(dp|fsdp|dp_shard)(:\d+)?$|^data_parallel(_group)?$",
    }.items()
}
"""Degree → the names that Megatron-LM (`…_PARALLEL_GROUP`), torch's meshes (`mesh_tp`) and vLLM (`tp:0`) give its groups. Groups of two
kinds together, such as `DATA_PARALLEL_GROUP_WITH_CP`, are none of these."""
SENDS, GATHERS = ("send", "recv", "sendrecv"), ("allgather", "reducescatter")


@dataclass(frozen=True, kw_only=True, slots=True)
class SeenPlan:
    """World size, and the degrees that show."""

    world_size: int
    degrees: Mapping[str, int] = field(default_factory=dict)
    """tp, pp, cp, ep, dp and zero → degree."""
    uncertain: tuple[str, ...] = ()


def seen_plan(traces: Sequence[Trace]) -> SeenPlan:
    """The plan of a run whose ranks, one or several, these are."""
    shown = max([len(traces), *(trace.world_size for trace in traces)])
    named = _named(traces)
    if named:
        world = max(shown, _inside(named))
        return SeenPlan(world_size=world, degrees=_with_replicas(named, world))
    guessed = _by_messages(traces, shown)
    world = max(shown, _inside(guessed))
    notes = tuple(
        f"plan.{name}: {degree} by the collectives, whose groups bear no names" for name, degree in guessed.items()
    )
    return SeenPlan(world_size=world, degrees=_with_replicas(guessed, world), uncertain=notes)


def _inside(degrees: Mapping[str, int]) -> int:
    """Ranks of one replica, which a run has at least."""
    return degrees.get("tp", 1) * degrees.get("pp", 1) * degrees.get("cp", 1)


def _with_replicas(degrees: Mapping[str, int], world: int) -> dict[str, int]:
    inside = _inside(degrees)
    if world == 1 or (degrees and "dp" not in degrees and world % inside == 0):
        return {"tp": 1, "pp": 1, "cp": 1, **degrees, "dp": world // inside}
    return dict(degrees)


def _named(traces: Iterable[Trace]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, size in _groups(traces):
        for degree, pattern in NAMES.items():
            if size and pattern.match(name):
                found[degree] = max(found.get(degree, 1), size)
    return found


def _groups(traces: Iterable[Trace]) -> Iterable[tuple[str, int]]:
    """(name, ranks) of the groups in the headers, and of those of the messages."""
    for trace in traces:
        distributed = trace.header.get("distributedInfo")
        listed = distributed.get("pg_config") if isinstance(distributed, dict) else None
        for each in listed if isinstance(listed, list) else ():
            if isinstance(each, dict):
                yield str(each.get("pg_desc", "")), _whole(each.get("pg_size")) or len(each.get("ranks") or ())
        for arguments in _messages(trace):
            yield str(arguments.get("Process Group Description", "")), _whole(arguments.get("Group size"))


def _messages(trace: Trace) -> Iterable[Mapping[str, Any]]:
    """Arguments of what the process groups recorded."""
    arguments = (each.arguments for of in (trace.kernels, trace.ops) for each in of)
    return (each for each in arguments if "Group size" in each)


def _by_messages(traces: Sequence[Trace], world: int) -> dict[str, int]:
    """Degrees by the kinds of messages and the sizes of their groups; where groups of one size do two things, the likelier."""
    sizes: dict[str, Counter[int]] = {}
    for trace in traces:
        for arguments in _messages(trace):
            kind = kind_of(str(arguments.get("Collective name", "")))
            sizes.setdefault(kind, Counter())[_whole(arguments.get("Group size"))] += 1
    found: dict[str, int] = {}
    sends = [size for kind in SENDS for size in sizes.get(kind, ()) if size > 1]
    if sends:
        found["pp"] = min(sends)
    gathers = [size for kind in GATHERS for size in sizes.get(kind, ()) if size > 1]
    reduces = [size for size in sizes.get("allreduce", ()) if size > 1]
    if gathers and all(kind in sizes for kind in GATHERS):
        found |= {"dp": max(gathers), "zero": 3}
    elif reduces and world > 1 and max(reduces) == world:
        found["dp"] = world
    return found


def _whole(value: object) -> int:
    return (
        value
        if isinstance(value, int) and not isinstance(value, bool)
        else int(value)
        if isinstance(value, str) and value.isdecimal()
        else 0
    )
