"""The space of an RL config: keys of rl, plan and cluster that are lists, ranges or `auto`, and the settings of each combination."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from predict.config.choices import AUTO, is_choice, values_of
from predict.config.draft import SECTIONS
from predict.config.overrides import as_settings
from predict.config.replicas import INSIDE_A_REPLICA, replicas_left
from predict.rl.config import RlRun, document_of, rl_run
from predict.rl.section import ASYNC, COLOCATED, NAME, ONE_STEP_OFF, RlSection
from sampling.errors import UserError
from sampling.files.schema import Key, keys_of

PLACEMENT, STALENESS = f"{NAME}.placement", f"{NAME}.staleness"
TP, GPUS = f"{NAME}.rollout.tp", f"{NAME}.rollout.gpus"
DECIDE_DP = (*(f"plan.{key}" for key in INSIDE_A_REPLICA), "cluster.nodes", "cluster.gpus_per_node", GPUS, PLACEMENT)
CAN_BE_AUTO = (PLACEMENT, GPUS, TP)
MOST_COMBINATIONS = 10_000
Values = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class RlSpace:
    """A config without its open keys, and the values of each."""

    path: Path
    document: Values
    axes: Mapping[str, tuple[Any, ...]]
    base: RlRun
    """The run of the first value of every key."""
    of_files: Sequence[str] = ()
    """Settings of a model or cluster that the document names."""
    not_read: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of verl's that change nothing here: name → value."""
    splits: bool = False
    """The engines' GPUs are a part of the cluster's, rather than more."""

    def run(self, settings: Mapping[str, Any]) -> RlRun:
        """The run of one combination. ConfigError where it cannot be."""
        return rl_run(copy.deepcopy(self.document), self.path, [*self.of_files, *as_settings(settings)])

    def combinations(self) -> Iterator[dict[str, Any]]:
        """The settings of each; the last key changes fastest. dp takes the ranks that are left where other degrees or the machines
        vary and it does not."""
        for values in itertools.product(*self.axes.values()):
            settings = dict(zip(self.axes, values, strict=True))
            apart = settings.get(PLACEMENT, _get(self.document, PLACEMENT) or COLOCATED) != COLOCATED
            if self.splits and apart != bool(settings[GPUS]):
                continue  # engines of a colocated step have no GPUs of their own
            yield settings | self._following(settings)

    def _following(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The settings that follow from the values of open keys."""
        cluster, plan = self.base.base.cluster, self.base.base.plan
        placement = settings.get(PLACEMENT, self.base.section.placement)
        found: dict[str, Any] = {}
        if PLACEMENT in settings and placement != ASYNC and STALENESS not in settings:
            found[STALENESS] = 0
        nodes = settings.get("cluster.nodes", cluster.nodes)
        per_node = settings.get("cluster.gpus_per_node", cluster.gpus_per_node)
        if GPUS in settings and self.splits:
            nodes -= settings[GPUS] // per_node
            found["cluster.nodes"] = nodes
        if "plan.dp" not in settings and any(path in settings for path in DECIDE_DP):
            degrees = {key: settings.get(f"plan.{key}", getattr(plan, key)) for key in INSIDE_A_REPLICA}
            found["plan.dp"] = max(1, replicas_left(degrees, {"nodes": nodes, "gpus_per_node": per_node}))
        return found


def space_of(config: Path | str, overrides: Sequence[str]) -> RlSpace:
    """The space of a config under settings, which may be choices too. Where nothing is open, the engines' tensor parallelism is.

    With `auto`, placements are colocated and one step off, engines' degrees powers of two within a node, and the GPUs of engines any
    number of whole nodes of `cluster`, which is then all machines. UserError for a choice that is none; ConfigError lists the faults of the config.
    """
    path = Path(config)
    document, of_files, not_read = document_of(path, overrides)
    opened = dict(_opened(document)) or {TP: AUTO}
    keys = known_keys()
    if wrong := [name for name, choice in opened.items() if choice == AUTO and name not in CAN_BE_AUTO]:
        raise UserError(f"{', '.join(wrong)}: auto is for {', '.join(CAN_BE_AUTO)}; give values, as in [1, 2] or 1..8")
    axes = {name: values_of(name, choice, keys[name]) for name, choice in opened.items() if choice != AUTO}
    for name in opened:
        _remove(document, name)
    first = {name: values[0] for name, values in axes.items()}
    if opened.get(GPUS) == AUTO:
        first |= {PLACEMENT: COLOCATED, GPUS: 0, STALENESS: 0}
    base = rl_run(copy.deepcopy(document), path, [*of_files, *as_settings(first)])
    cluster = base.base.cluster
    auto = {
        PLACEMENT: (COLOCATED, ONE_STEP_OFF),
        GPUS: tuple(cluster.gpus_per_node * nodes for nodes in range(cluster.nodes)),
        TP: tuple(2**power for power in range(cluster.gpus_per_node.bit_length())),
    }
    axes |= {name: values for name, values in auto.items() if opened.get(name) == AUTO}
    _require_few(axes)
    splits = opened.get(GPUS) == AUTO
    return RlSpace(
        path=path, document=document, axes=axes, base=base, of_files=of_files, not_read=not_read, splits=splits
    )


def known_keys() -> dict[str, Key]:
    """Path → the key, of those that may be open."""
    found = {f"{section}.{key.name}": key for section in ("plan", "cluster") for key in SECTIONS[section]}
    for key in keys_of(RlSection):
        found[f"{NAME}.{key.name}"] = key
        if key.of:
            found |= {f"{NAME}.{key.name}.{inner.name}": inner for inner in keys_of(key.of)}
    return found


def _opened(document: Values) -> Iterator[tuple[str, Any]]:
    """The open keys and their choices. A list is the value of a key that holds lists."""
    for path, key in known_keys().items():
        value = _get(document, path)
        if key.kind not in ("list", "section") and is_choice(value):
            yield path, value


def _require_few(axes: Mapping[str, Sequence[Any]]) -> None:
    count = 1
    for values in axes.values():
        count *= len(values)
    if count > MOST_COMBINATIONS:
        raise UserError(
            f"{', '.join(axes)}: {count:,} combinations are more than {MOST_COMBINATIONS:,}; give fewer values"
        )


def _get(document: Values, path: str) -> Any:
    place: Any = document
    for name in path.split("."):
        if not isinstance(place, dict) or name not in place:
            return None
        place = place[name]
    return place


def _remove(document: Values, path: str) -> None:
    *above, name = path.split(".")
    place = _get(document, ".".join(above))
    if isinstance(place, dict):
        place.pop(name, None)
