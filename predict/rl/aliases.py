"""verl's argument names, which an RL config may use in place of the keys they stand for, dotted or as verl's own YAML nests them."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sampling.files.faults import Fault, nearest, shown
from sampling.files.places import shipped_json

ROOTS = ("data", "actor_rollout_ref", "algorithm", "critic", "trainer", "async_training")
"""Sections of verl's configuration."""
ESTIMATORS: Mapping[str, str] = {"gae": "ppo", "grpo": "grpo", "reinforce_plus_plus": "reinforce++"}
"""verl's adv_estimator → algorithm."""


def _estimator(value: Any) -> Any:
    return ESTIMATORS.get(value, value) if isinstance(value, str) else value


def _padding(removed: Any) -> Any:
    return ("removed" if removed else "kept") if isinstance(removed, bool) else removed


_NAMES = shipped_json("verl-names.json")
VERL: Mapping[str, str] = _NAMES["names"]
"""verl's name → the key it stands for."""
CONVERSIONS: Mapping[str, Callable[[Any], Any]] = {
    "algorithm.adv_estimator": _estimator,
    "actor_rollout_ref.model.use_remove_padding": _padding,
}
"""verl's name → the conversion of its value, where that is not the key's."""
SIMILAR = frozenset(_NAMES["similar"])
"""Names of verl's that are not read and could be taken for misspelt ones that are (its generated reference configs at
00bbce4 and 035682e)."""


def resolved(path: str, value: Any) -> tuple[str, Any]:
    """The key and value that a name of verl's stands for; another name as it is."""
    if path not in VERL:
        return path, value
    return VERL[path], CONVERSIONS[path](value) if path in CONVERSIONS else value


def fault_of(path: str, value: Any) -> Fault | None:
    """The fault of a name under verl's sections that is not read: a misspelt one, or a value in place of a section. None for another,
    which changes nothing here."""
    above, _, name = path.rpartition(".")
    if not above:
        return Fault(path=path, problem=f"{shown(value)} is not a mapping; give verl's keys of {path}, or remove it")
    beside = [known.rpartition(".")[2] for known in VERL if known.rpartition(".")[0] == above]
    whole = [f"{above}.{each}" for each in nearest(name, beside)]
    near = "" if path in SIMILAR or not whole else f"; did you mean {' or '.join(map(repr, whole))}?"
    return Fault(path=path, problem=f"verl's argument is not read here{near} If not, remove it") if near else None


def leaves(values: Mapping[Any, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """The dotted paths of a nested mapping, and their values."""
    for name, value in values.items():
        path = f"{above}.{name}" if above else str(name)
        if isinstance(value, Mapping):
            yield from leaves(value, path)
        else:
            yield path, value
