"""Fields of a model that follow from others of its `config.json`, and the faults of values that do not fit together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from predict.huggingface.families.family import Family, Number
from sampling.files.faults import Fault, divisors, join, near_multiples, shown
from sampling.files.keys import Scalar

STRETCHING = ("linear", "dynamic", "yarn")
"""Scalings of rotary embeddings that add positions to those that `config.json` states."""

MOST_STRETCHED = 1e6


def derive(fields: dict[str, Scalar], family: Family, given: Mapping[Any, Any]) -> Iterator[Fault]:
    """Fill in the fields that follow from others, with a fault where they cannot."""
    heads, hidden = fields.get("heads"), fields.get("hidden")
    stated = fields.get("max_positions")
    fields["max_positions"] = stretched_positions(stated if isinstance(stated, int) else 0, family, given)
    if isinstance(hidden, int) and "ffn" not in fields and _left_out("ffn", family, given):
        fields["ffn"] = 4 * hidden
    if isinstance(heads, int) and "kv_heads" not in fields and _left_out("kv_heads", family, given):
        fields["kv_heads"] = heads
    yield from _uneven_groups(fields, family)
    if family.has("latent"):
        yield from _latent_heads(fields, family)
    elif isinstance(heads, int) and isinstance(hidden, int) and "head_dim" not in fields:
        yield from _even_head_dim(fields, family, given, hidden, heads)
    if family.has("experts"):
        yield from _experts_out_of_reach(fields, family)
    if family.has("linear"):
        yield from _uneven_linear_heads(fields, family)
    yield from _odd_heads(fields, family, given)


def stretched_positions(positions: int, family: Family, given: Mapping[Any, Any]) -> int:
    """Positions that the scaling of rotary embeddings makes of those of a `config.json`, as vLLM derives max_model_len from them: times the
    factor, yarn's from the original positions; llama3 and longrope state them already."""
    scaling = given.get("rope_scaling") or given.get("rope_parameters")
    if not isinstance(scaling, Mapping) or family.positions_are_stretched:
        return positions
    factor, original = scaling.get("factor"), scaling.get("original_max_position_embeddings")
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind not in STRETCHING or not isinstance(factor, int | float) or not 1 <= factor <= MOST_STRETCHED:
        return positions
    return int(factor * (original if kind == "yarn" and isinstance(original, int) else positions))


def _left_out(field: str, family: Family, given: Mapping[Any, Any]) -> bool:
    """Whether a field rightly has no value of its own, so that it follows from others."""
    key = family.keys.get(field)
    if key is None:
        return True
    return (key.nullable and given[key.name] is None) if key.name in given else not key.required


def _even_head_dim(
    fields: dict[str, Scalar], family: Family, given: Mapping[Any, Any], hidden: int, heads: int
) -> Iterator[Fault]:
    if not _left_out("head_dim", family, given):
        return
    if hidden % heads:
        key = family.keys
        problem = f"{hidden} is not a multiple of the {heads} heads ({key['heads'].name}) and no head_dim is given"
        yield Fault(path=key["hidden"].name, problem=f"{problem}; set {near_multiples(hidden, heads)}")
    else:
        fields["head_dim"] = hidden // heads


def _latent_heads(fields: dict[str, Scalar], family: Family) -> Iterator[Fault]:
    nope, rope, heads, kv_heads = (
        fields.get(name) for name in ("latent.nope_dim", "latent.rope_dim", "heads", "kv_heads")
    )
    if isinstance(nope, int) and isinstance(rope, int):
        fields["head_dim"], fields["rotary_dim"] = nope + rope, rope
    if isinstance(heads, int) and isinstance(kv_heads, int) and kv_heads != heads:
        problem = f"{kv_heads}, but latent attention has a key for each of the {heads} query heads; set {heads}"
        yield Fault(path=family.keys["kv_heads"].name, problem=problem)
    if isinstance(rope, int) and rope % 2:
        problem = f"{rope} is odd, and rotary embedding turns pairs; make it even"
        yield Fault(path=family.keys["latent.rope_dim"].name, problem=problem)


def _experts_out_of_reach(fields: dict[str, Scalar], family: Family) -> Iterator[Fault]:
    count, topk = fields.get("experts.count"), fields.get("experts.topk")
    if isinstance(count, int) and isinstance(topk, int) and topk > count:
        keys = family.keys
        problem = f"{topk} experts a token, of {count} ({keys['experts.count'].name}); set {count} or less"
        yield Fault(path=keys["experts.topk"].name, problem=problem)
    groups, chosen = fields.get("experts.groups"), fields.get("experts.topk_groups")
    if not (isinstance(count, int) and isinstance(topk, int) and isinstance(groups, int) and isinstance(chosen, int)):
        return
    at, of = family.keys["experts.groups"].name, family.keys["experts.topk_groups"].name
    if count % groups:
        yield Fault(path=at, problem=f"{groups} groups do not divide the {count} experts; set one of {divisors(count)}")
    elif chosen > groups or chosen * (count // groups) < topk <= count:
        least = -(-topk // (count // groups))
        problem = f"{topk} experts cannot come from {chosen} of the {groups} groups of {count // groups}"
        yield Fault(path=of, problem=f"{problem}; set {least} to {groups}")


def _uneven_linear_heads(fields: Mapping[str, Scalar], family: Family) -> Iterator[Fault]:
    keys, values = fields.get("linear.key_heads"), fields.get("linear.value_heads")
    if isinstance(keys, int) and isinstance(values, int) and values % keys:
        at, other = family.keys["linear.value_heads"].name, family.keys["linear.key_heads"].name
        problem = f"{values} is not a multiple of the {keys} key heads ({other}); set {near_multiples(values, keys)}"
        yield Fault(path=at, problem=problem)


def decide_by_numbers(fields: dict[str, Scalar], family: Family, given: Mapping[Any, Any]) -> Iterator[Fault]:
    """Fill in the fields that numbers decide, with a fault for each value that is not a valid number."""
    for field, cap in family.caps.items():
        path, value = _number(cap, given)
        fields[field] = value is not None
        if value is not None and not (_is_number(value) and value > 0):
            yield Fault(path=path, problem=f"{shown(value)} is not a bound; give a number above 0, or null for none")
    if family.rotary is not None:
        yield from _partial_rotary(fields, *_number(family.rotary, given))


def _number(number: Number, given: Mapping[Any, Any]) -> tuple[str, Any]:
    """A number's value, and the key path it has or would have."""
    for name in number.names:
        if name in given:
            return name, given[name]
    rotary = given.get("rope_parameters")
    for name in number.names:
        if isinstance(rotary, Mapping) and name in rotary:
            return join("rope_parameters", name), rotary[name]
    return number.names[0], number.default


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _partial_rotary(fields: dict[str, Scalar], path: str, share: Any) -> Iterator[Fault]:
    head_dim = fields.get("head_dim")
    if not (_is_number(share) and 0 < share <= 1):
        problem = f"{shown(share)} is not a share of a head's width; give a number above 0 and at most 1"
        yield Fault(path=path, problem=problem)
    elif isinstance(head_dim, int) and share < 1:
        fields["rotary_dim"] = rotated = int(head_dim * share)
        if rotated % 2 or not rotated:
            problem = f"{shown(share)} rotates {rotated} of a head's {head_dim}, and rotary embedding turns pairs"
            yield Fault(path=path, problem=f"{problem}; make that an even number above 0")


def _odd_heads(fields: Mapping[str, Scalar], family: Family, given: Mapping[Any, Any]) -> Iterator[Fault]:
    head_dim = fields.get("head_dim")
    whole = fields["rope"] and family.rotary is None and not family.has("latent")
    if whole and isinstance(head_dim, int) and head_dim % 2:
        own = family.keys.get("head_dim")
        at = own.name if own and given.get(own.name) is not None else family.keys["hidden"].name
        problem = f"makes heads {head_dim} wide, and rotary embedding turns pairs; make the head width even"
        yield Fault(path=at, problem=f"{shown(given.get(at))} {problem}")


def _uneven_groups(fields: Mapping[str, Scalar], family: Family) -> Iterator[Fault]:
    heads, kv_heads = fields.get("heads"), fields.get("kv_heads")
    if isinstance(heads, int) and isinstance(kv_heads, int) and heads % kv_heads and not family.has("latent"):
        problem = f"{kv_heads} does not divide the {heads} query heads; set one of {divisors(heads)}"
        yield Fault(path=family.keys["kv_heads"].name, problem=problem)
