"""Megatron-LM's arguments of a model (megatron/training/arguments.py), both ways."""

import ast
import math
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache
from typing import Any

from predict.convert.arguments import Arguments, Statement
from predict.huggingface.config_json import load_model, read_model
from predict.huggingface.families import FAMILIES
from predict.huggingface.families.family import MOST_LAYERS, Family
from predict.layers.attention import Attention
from predict.layers.dense import Dense
from predict.layers.mixture import Mixture
from predict.layers.part import Mixer
from predict.layers.registry import mixers, sizes_of
from predict.model.shipped import shipped_model, shipped_models
from predict.model.spec import DENSE, Experts, LayerKind, MixerShape, ModelSpec
from sampling.files.documents import read_json
from sampling.files.faults import shown
from sampling.files.schema import LARGEST

SIZES: Mapping[str, str] = {
    "num_layers": "layers",
    "hidden_size": "hidden",
    "num_attention_heads": "heads",
    "vocab_size": "vocab",
}
EXPERTS: Mapping[str, str] = {"num_experts": "count", "moe_router_topk": "topk", "moe_ffn_hidden_size": "ffn"}
GROUPS: Mapping[str, str] = {"moe_router_num_groups": "groups", "moe_router_group_topk": "topk_groups"}
ROTARY = ("rope", "yarn", "mrope")
"""Words of `--position-embedding-type` for rotary embedding, at whatever angles."""


def write_model(spec: ModelSpec, statement: Statement) -> None:
    """Add the arguments of a model; what of it Megatron-LM has no argument for stays unsaid."""
    say = statement.say
    say(*(f"model.{name}" for name in SIZES.values()), **{name: getattr(spec, own) for name, own in SIZES.items()})
    say("model.ffn", "model.max_positions")
    statement.arguments.update({"ffn_hidden_size": spec.ffn} if spec.ffn else {})
    if spec.max_positions:
        say(max_position_embeddings=spec.max_positions)
    _write_heads(spec, statement)
    _write_switches(spec, statement)
    if any(kind.mixer != "full" for kind in spec.kinds()):
        mixers = sorted({kind.mixer for kind in spec.kinds()} - {"full"})
        statement.cannot("model.layer_kinds", ", ".join(mixers), "no argument is written for these layers")
    _write_mixer(spec.attention, statement)
    if spec.experts is not None:
        _write_experts(spec, spec.experts, statement)
    if spec.mtp_layers:
        say("model.mtp_layers", mtp_num_layers=spec.mtp_layers)


def _write_mixer(attention: MixerShape, statement: Statement) -> None:
    own = attention.MEGATRON if isinstance(attention, Mixer) else None
    if own is None:
        return
    sizes = {name: getattr(attention, size) for name, size in own.sizes.items()}
    stated = {name: size for name, size in sizes.items() if size or own.defaults[name]}
    statement.say(f"model.{attention.NAME}", "model.rotary_dim", "model.head_dim", "model.kv_heads", **stated)
    statement.say(**{own.switch: True}, qk_layernorm=True)


def _write_heads(spec: ModelSpec, statement: Statement) -> None:
    say = statement.say
    say("model.kv_heads", "model.head_dim")
    if not spec.attention.IS_PLAIN:
        return
    if spec.kv_heads != spec.heads:
        say(group_query_attention=True, num_query_groups=spec.kv_heads)
    if spec.head_dim * spec.heads != spec.hidden:
        say(kv_channels=spec.head_dim)
    if spec.qk_norm and not spec.qk_norm_all_heads:
        say("model.qk_norm", qk_layernorm=True)
    if spec.rotary_dim:
        say("model.rotary_dim", rotary_percent=spec.rotary_dim / spec.head_dim)


def _write_switches(spec: ModelSpec, statement: Statement) -> None:
    say = statement.say
    say("model.gated", "model.norm", "model.rope", "model.tied", "model.attention_bias", "model.mlp_bias")
    switches = {
        "swiglu": spec.gated,
        "untie_embeddings_and_output_weights": not spec.tied,
        "disable_bias_linear": not spec.mlp_bias,
        "add_qkv_bias": spec.attention_bias and not spec.mlp_bias,
    }
    say(**{name: True for name, is_on in switches.items() if is_on})
    say(normalization="RMSNorm" if spec.norm == "rms" else "LayerNorm")
    say(position_embedding_type="rope" if spec.rope else "learned_absolute" if spec.learns_positions else "none")
    if spec.attention_bias and not spec.mlp_bias:
        say("model.qkv_bias_only")
    if spec.output_bias != spec.mlp_bias:
        statement.cannot(
            "model.attention_bias",
            spec.attention_bias,
            "--disable-bias-linear applies to the MLP and to attention's output projection together",
        )


def _write_experts(spec: ModelSpec, experts: Experts, statement: Statement) -> None:
    say = statement.say
    say("model.experts", **{name: getattr(experts, own) for name, own in EXPERTS.items()})
    if experts.shared_ffn:
        say(moe_shared_expert_intermediate_size=experts.shared_ffn)
    if experts.shared_gate:
        say(moe_shared_expert_gate=True)
    if experts.groups > 1:
        say(**{name: getattr(experts, own) for name, own in GROUPS.items()})
    if experts.bias or experts.router_bias:
        statement.cannot("model.experts", experts, "Megatron-LM has no argument for biases of experts and router")
    sparse = [int(kind.sparse) for kind in spec.kinds()]
    if not all(sparse):
        say(moe_layer_freq=f"({'+'.join(f'[{value}]*{count}' for value, count in _runs(sparse))})")


def _runs(values: list[int]) -> list[tuple[int, int]]:
    """Values that follow each other, each with how often: [0, 0, 1] → [(0, 2), (1, 1)]."""
    runs: list[tuple[int, int]] = []
    for value in values:
        if runs and runs[-1][0] == value:
            runs[-1] = (value, runs[-1][1] + 1)
        else:
            runs.append((value, 1))
    return runs


def read_model_arguments(given: Arguments, *, name: str) -> ModelSpec | None:
    """The model of Megatron-LM's arguments, whose vocab is 0 where only a tokenizer gives it; None where no size is given."""
    most = {"layers": MOST_LAYERS}
    sizes = {own: given.count(argument, most.get(own, LARGEST)) for argument, own in SIZES.items()}
    if not any(sizes.values()):
        return None
    for argument, own in SIZES.items():
        if not sizes[own] and own != "vocab":
            given.fault(argument, "missing; give it, or --set model=NAME of a shipped model")
    layers, hidden, heads = (sizes[own] or 1 for own in ("layers", "hidden", "heads"))
    vocab = sizes["vocab"] or 0
    mixer, experts = _read_mixer(given), _read_experts(given, hidden)
    kinds = tuple(LayerKind(sparse=sparse) for sparse in _sparse_layers(given, layers)) if experts is not None else ()
    no_bias, gated = given.switch("disable_bias_linear"), given.switch("swiglu")
    qkv_bias = given.switch("add_qkv_bias")
    head_dim = mixer.query_dim if mixer else given.count("kv_channels") or hidden // heads
    groups = given.count("num_query_groups") or 1
    kv_heads = groups if given.switch("group_query_attention") else None
    rotary = given.number("rotary_percent", 1.0)
    head_norm = given.switch("qk_layernorm")
    positions = given.text("position_embedding_type", "learned_absolute")
    if positions not in (*ROTARY, "learned_absolute", "none"):
        given.fault(
            "position_embedding_type",
            f"{shown(positions)} is not modelled; {', '.join(ROTARY)}, learned_absolute and none are",
        )
    spec = ModelSpec(
        name=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        vocab=vocab,
        kv_heads=heads if mixer else kv_heads or heads,
        head_dim=head_dim,
        ffn=given.count("ffn_hidden_size") or _default_ffn(hidden, gated=gated),
        gated=gated,
        norm="rms" if given.text("normalization", "LayerNorm") == "RMSNorm" else "layer",
        rope=positions in ROTARY or given.switch("use_rotary_position_embeddings"),
        attention_bias=qkv_bias or not no_bias,
        qkv_bias_only=qkv_bias and no_bias,
        mlp_bias=not no_bias,
        tied=not given.switch("untie_embeddings_and_output_weights"),
        max_positions=(given.count("max_position_embeddings") or 0) if positions != "none" else 0,
        layer_kinds=kinds,
        qk_norm=head_norm and mixer is None,
        rotary_dim=int(head_dim * rotary) if rotary < 1 else 0,
        mtp_layers=given.count("mtp_num_layers") or 0,
        mixers=(mixer or Attention(),),
        mlp=Dense(),
        experts=experts,
    )
    return replace(spec, rotary_dim=mixer.rotary_width(spec)) if mixer else spec


def _default_ffn(hidden: int, *, gated: bool) -> int:
    """Megatron-LM's own width of the MLP: 4 · hidden, and 8/3 of it with SwiGLU, in multiples of 64."""
    return int(4 * hidden * 2 / 3 / 64) * 64 if gated else 4 * hidden


def _read_mixer(given: Arguments) -> Mixer | None:
    """The mixer that stands in place of plain attention."""
    for of in mixers():
        if of.MEGATRON and given.switch(of.MEGATRON.switch):
            defaults = of.MEGATRON.defaults
            return of(**{size: given.count(name) or defaults[name] for name, size in of.MEGATRON.sizes.items()})
    return None


def _read_experts(given: Arguments, hidden: int) -> Experts | None:
    count = given.count("num_experts")
    if not count:
        return None
    gated = given.switch("swiglu")
    return Mixture(
        count=count,
        topk=given.count("moe_router_topk") or 2,
        ffn=given.count("moe_ffn_hidden_size") or given.count("ffn_hidden_size") or _default_ffn(hidden, gated=gated),
        shared_ffn=given.count("moe_shared_expert_intermediate_size") or 0,
        shared_gate=given.switch("moe_shared_expert_gate"),
        gated=gated,
        groups=given.count("moe_router_num_groups") or 1,
        topk_groups=given.count("moe_router_group_topk") or 1,
    )


def _sparse_layers(given: Arguments, layers: int) -> list[bool]:
    """Whether each layer is sparse, by `--moe-layer-freq`: one in N, or a list such as ([0]*3+[1]*58)."""
    written = given.value("moe_layer_freq", 1)
    if isinstance(written, str) and written.isdecimal():
        written = int(written)
    if isinstance(written, int) and not isinstance(written, bool) and written > 0:
        return [index % written == 0 for index in range(layers)]
    if isinstance(written, str):
        written = _pattern(written)
    if not isinstance(written, list) or len(written) != layers:
        problem = f"{shown(given.value('moe_layer_freq'))} is not a pattern of {layers} layers"
        given.fault("moe_layer_freq", f"{problem}; write 1, or a list such as ([0]*3+[1]*58)")
        return [True] * layers
    return [bool(value) for value in written]


def _pattern(written: str) -> list[int] | None:
    """The list that an expression such as `([0]*3+[1]*58)` or `[0,1]*16` makes (arguments.py, `moe_freq_type`); None for another."""
    try:
        return _repeated(ast.parse(written.strip(), mode="eval").body)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None


def _repeated(node: ast.expr) -> list[int]:
    match node:
        case ast.List(elts=items):
            return [int(ast.literal_eval(item)) for item in items]
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _repeated(left) + _repeated(right)
        case ast.BinOp(left=left, op=ast.Mult(), right=ast.Constant(value=int(times))) if 0 < times <= MOST_LAYERS:
            found = _repeated(left)
            if len(found) * times <= MOST_LAYERS:
                return found * times
    raise ValueError(ast.dump(node))


ACTIVATIONS: Mapping[bool, str] = {True: "silu", False: "gelu_new"}
"""An activation of each kind, gated or not: which one it is changes no cost."""


WELL_KNOWN = ("llama", "qwen2", "qwen3", "mistral", "mixtral", "qwen3_moe", "deepseek_v3", "gpt2")
"""Families that a model is taken for first, of several that read to its shape."""


def model_section(spec: ModelSpec) -> str | dict[str, Any] | None:
    """The first shipped model of this shape, else the keys of the first family that reads to it, the well-known ones before others;
    None where no family does."""
    if of_shape := shipped_models_of_shape(spec):
        return of_shape[0]
    # where every layer is sparse, a family whose experts have the width of its MLP reads that of the experts
    alike = [spec] if spec.experts is None else [spec, replace(spec, ffn=spec.experts.ffn)]
    for model_type in dict.fromkeys((*WELL_KNOWN, *FAMILIES)):
        for each in alike:
            keys = _keys(each, model_type, FAMILIES[model_type])
            found = read_model(keys, name=spec.name).spec
            if found is not None and _shape(found) == _shape(spec):
                return keys
    return None


def shipped_models_of_shape(spec: ModelSpec) -> list[str]:
    """The shipped models of this shape; of any vocabulary where `spec` has 0, which stands for an unknown one."""
    shapes = {name: _shape(_shipped(name)) for name in shipped_models()}
    wanted = _shape(spec)
    return [name for name, shape in shapes.items() if (shape if spec.vocab else replace(shape, vocab=0)) == wanted]


def _shape(spec: ModelSpec) -> ModelSpec:
    """The model without what changes no cost: its name, and the positions that rotary embedding does not tabulate."""
    kinds = () if set(spec.kinds()) == {DENSE} else spec.layer_kinds
    # where every layer is sparse, no dense MLP has this width
    ffn = spec.ffn if not all(kind.sparse for kind in spec.kinds()) else 0
    return replace(spec, name="", ffn=ffn, layer_kinds=kinds, max_positions=0 if spec.rope else spec.max_positions)


@cache
def _shipped(name: str) -> ModelSpec:
    path = shipped_model(name)
    assert path is not None
    return load_model(path)


def _keys(spec: ModelSpec, model_type: str, family: Family) -> dict[str, Any]:
    """The keys of a family that the model's fields fill; which of them mean the same model, reading them back shows."""
    values = _values(spec)
    keys = {key.name: values[name] for name, key in family.keys.items() if values.get(name) is not None}
    if family.rotary is not None and spec.rotary_dim:
        keys[family.rotary.names[0]] = spec.rotary_dim / spec.head_dim
    return {"model_type": model_type, **keys}


def _values(spec: ModelSpec) -> dict[str, Any]:
    """Values by the names of families' fields."""
    values: dict[str, Any] = {each.name: getattr(spec, each.name) for each in fields(spec)}
    values["activation"] = ACTIVATIONS[spec.gated]
    values |= {"ffn": spec.ffn or None, "max_positions": spec.max_positions or None}
    for mixer in spec.mixers:
        values |= {f"{mixer.NAME}.{name}": size or None for name, size in sizes_of(mixer).items()}
    if spec.experts is not None:
        values |= {f"{Mixture.NAME}.{name}": size for name, size in sizes_of(spec.experts).items()}
    if spec.experts is not None:
        values["experts.shared_count"] = spec.experts.shared_ffn // spec.experts.ffn
        values["pattern.dense_before"] = next((n for n, kind in enumerate(spec.kinds()) if kind.sparse), spec.layers)
    return values | {"pattern.window": spec.window, "pattern.windowed": bool(spec.window)}


# Megatron-LM's arguments that change a model's results and no cost, both ways: the base of the rotary angles and the norms' epsilon.

BASE, EPSILON = "rotary_base", "norm_epsilon"
EPSILONS = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon")
"""The keys of a `config.json` for the norms' epsilon."""


def write_numerics(keys: Mapping[str, Any], statement: Statement) -> None:
    """Add the arguments for the keys of a model's `config.json`; Megatron-LM's own defaults are 10,000 and 1e-5."""
    numerics = _of_config(keys)
    if statement.arguments["position_embedding_type"] != "rope":
        numerics.pop(BASE, None)
    statement.say(**numerics)


def with_numerics(section: str | dict[str, Any], given: Arguments) -> str | dict[str, Any]:
    """The `model` section with the numbers that are given; a shipped model's name stays, with a note on each number that it has
    otherwise. What is not a number stays among what is not read."""
    read = {name: number for name in (BASE, EPSILON) if (number := _number(given.values.get(name)))}
    given.passed_over(*read)
    if isinstance(section, str):
        path = shipped_model(section)
        own = _of_config((path and read_json(path)[0]) or {})
        for name, number in read.items():
            if own.get(name, number) != number:
                given.notes.append(f"{name}: {given.values[name]}, and {own[name]} in {section}; it changes no cost")
        return section
    epsilon = EPSILONS[0] if given.values.get("normalization") == "RMSNorm" else EPSILONS[2]
    names = {BASE: "rope_theta", EPSILON: epsilon}
    return {**section, **{names[name]: _plain(number) for name, number in read.items()}}


def _of_config(keys: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments for the keys of a `config.json`, as far as it has them."""
    angles = {**(keys.get("rope_parameters") or {}), **keys}
    base = angles.get("rope_theta")
    epsilon = next((keys[name] for name in EPSILONS if keys.get(name)), None)
    found = {BASE: base and int(base), EPSILON: epsilon}
    return {name: number for name, number in found.items() if number}


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _plain(number: float) -> float:
    """A whole number without its fraction, as configs have the base."""
    return int(number) if number.is_integer() else number
