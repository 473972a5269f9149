"""Fields of a model that follow from others of its `config.json`, and the faults of values that do not fit together."""

from collections.abc import Iterator, Mapping
from typing import Any

from predict.huggingface.families.family import Family, Number
from predict.huggingface.layer_kinds import blocks_key
from predict.layers.part import Mixer
from predict.layers.registry import mixers
from sampling.files.faults import Fault, did_you_mean, divisors, join, near_multiples, shown
from sampling.files.schema import Scalar

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
    names = {field: key.name for field, key in family.keys.items()}
    own = own_mixers(family)
    for mixer in own:
        if mixer.IS_ATTENTION:
            yield from mixer.derived(fields, names)
    if not _own_heads(family) and isinstance(heads, int) and isinstance(hidden, int) and "head_dim" not in fields:
        yield from _even_head_dim(fields, family, given, hidden, heads)
    if family.has("experts"):
        yield from _experts_out_of_reach(fields, family)
    for mixer in own:
        if not mixer.IS_ATTENTION:
            yield from mixer.derived(fields, names)
    yield from _odd_heads(fields, family, given)


def own_mixers(family: Family) -> list[type[Mixer]]:
    """The mixers whose sizes the family states."""
    return [of for of in mixers() if family.has(of.NAME)]


def _own_heads(family: Family) -> bool:
    """Whether its attention is a mixer of its own, whose heads have other widths than plain attention's."""
    return any(of.IS_ATTENTION for of in own_mixers(family))


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


def _experts_out_of_reach(fields: dict[str, Scalar], family: Family) -> Iterator[Fault]:
    count, topk = fields.get("experts.count"), fields.get("experts.topk")
    if isinstance(count, int) and isinstance(topk, int) and 0 < count < topk:
        keys = family.keys
        problem = f"{topk} experts a token, of {count} ({keys['experts.count'].name}); set {count} or less"
        yield Fault(path=keys["experts.topk"].name, problem=problem)
    groups, chosen = fields.get("experts.groups"), fields.get("experts.topk_groups")
    if not (isinstance(count, int) and isinstance(topk, int) and isinstance(groups, int) and isinstance(chosen, int)):
        return
    at, of = family.keys["experts.groups"].name, family.keys["experts.topk_groups"].name
    if count % groups:
        yield Fault(path=at, problem=f"{groups} groups do not divide the {count} experts; set {divisors(count)}")
    elif chosen > groups or chosen * (count // groups) < topk <= count:
        least = -(-topk // (count // groups))
        problem = f"{topk} experts cannot come from {chosen} of the {groups} groups of {count // groups}"
        yield Fault(path=of, problem=f"{problem}; set {least} to {groups}")


def decide_by_numbers(fields: dict[str, Scalar], family: Family, given: Mapping[Any, Any]) -> Iterator[Fault]:
    """Fill in the fields that numbers decide, with a fault for each value that is not a valid number."""
    for name, cap in family.caps.items():
        path, value = _number(cap, given)
        fields[name] = value is not None
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


def decide_by_names(fields: dict[str, Scalar], family: Family, given: Mapping[Any, Any]) -> Iterator[Fault]:
    """Fill in the fields that named values decide, and the number of layers where only their list says it."""
    for key, values in family.choices.items():
        value = given.get(key)
        if value in (list(values)):
            fields |= values[value]
        else:
            names = [name for name in values if isinstance(name, str)]
            advice = f"set one of {', '.join(names)}{did_you_mean(value, names)}" if names else "omit it"
            problem = f"{shown(value)} is not modelled here; {advice}"
            yield Fault(path=key, problem=problem)
    if not family.pattern.blocks or "layers" in fields:
        return
    key = blocks_key(given)
    blocks = given.get(key)
    if isinstance(blocks, list | str) and blocks:
        fields["layers"] = len(blocks)
    else:
        yield Fault(path=key, problem=f"{shown(blocks)} is not a list of names; give the part that each layer is")


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
    whole = fields["rope"] and family.rotary is None and not _own_heads(family)
    if whole and isinstance(head_dim, int) and head_dim % 2:
        own = family.keys.get("head_dim")
        at = own.name if own and given.get(own.name) is not None else family.keys["hidden"].name
        problem = f"makes heads {head_dim} wide, and rotary embedding turns pairs; make the head width even"
        yield Fault(path=at, problem=f"{shown(given.get(at))} {problem}")


def _uneven_groups(fields: Mapping[str, Scalar], family: Family) -> Iterator[Fault]:
    heads, kv_heads = fields.get("heads"), fields.get("kv_heads")
    if isinstance(heads, int) and isinstance(kv_heads, int) and heads % kv_heads and not _own_heads(family):
        problem = f"{kv_heads} does not divide the {heads} query heads; set {divisors(heads)}"
        yield Fault(path=family.keys["kv_heads"].name, problem=problem)
