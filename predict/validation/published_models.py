"""The model of a published run, from the sizes that its row states and the words that say how its layers differ.

What a row leaves open is taken for what is usual (`assumptions` says so); where nothing is usual, the row is refused.
"""

import math
import re
from dataclasses import replace

from predict.huggingface.config_json import load_model
from predict.huggingface.families.family import MOST_LAYERS
from predict.layers.attention import Attention
from predict.layers.dense import Dense
from predict.layers.mixture import Mixture
from predict.layers.part import Mixer
from predict.layers.registry import mixer_of_text
from predict.ledger.conventions import megatron_of
from predict.model.shipped import shipped_model
from predict.model.spec import DENSE, LayerKind, ModelSpec
from predict.run.stages import MORE_TOKENS
from predict.validation.published_row import NotExpressibleError, PublishedRow
from predict.validation.published_software import framework_of
from predict.validation.truth_columns import MOST_MTP_LAYERS

USUAL_VOCABULARY = 50_257
"""GPT-2's, where a table of GPT-like models states none."""
TOTAL_SIZE = re.compile(r"-\d+B$")
"""The count of all parameters, which some tables add to the name: `DeepSeek-V2-236B`."""
SIZES = ("hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "experts", "topk", "moe_ffn")
EVERY_SECOND, ALL_SPARSE = "every 2nd layer", "all layers"
SHAPE = ("layers", "hidden", "heads", "kv_heads", "head_dim")
"""Sizes by which a row's model is the one of its name in configs/models."""
NEVER_STATED = ("qk_norm", "qk_norm_all_heads", "query_gate", "sinks", "scaled_rope")
"""Parts of attention that no table states, which are then those of the model of that name."""


def model_of(row: PublishedRow) -> ModelSpec:
    """Its ModelSpec, by its sizes or else by its name in configs/models; NotExpressibleError where it has neither."""
    _refuse_unmodelled(row)
    model = _by_sizes(row) if row.text("layers") else _by_name(row)
    return replace(model, mtp_layers=_mtp_layers(row, model))


def _refuse_unmodelled(row: PublishedRow) -> None:
    if row.text("kind") == "hybrid" or row.text("position") == "none":
        what = "kind: hybrid layers are" if row.text("kind") == "hybrid" else "position: none is"
        raise NotExpressibleError(f"{what} not modelled in a table of runs")


def _by_sizes(row: PublishedRow) -> ModelSpec:
    layers, hidden, heads = row.integer("layers", most=MOST_LAYERS), row.integer("hidden"), row.integer("heads")
    gated = _is_gated(row)
    biases = bool(row.integer("linear_bias", int(not gated), least=0))
    mixer = _mixer(row)
    experts = _experts(row, hidden)
    kinds = _kinds(row, layers, sparse=experts is not None)
    if not row.number("head_dim") and not mixer and hidden % heads:
        raise NotExpressibleError(f"head_dim: not published, and {heads} heads do not divide hidden {hidden}")
    head_dim = mixer.query_dim if mixer else row.integer("head_dim", hidden // heads)
    stated = ModelSpec(
        name=row.text("model") or "model",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=row.integer("kv_heads", heads),
        head_dim=head_dim,
        ffn=row.integer("ffn", _llama_width(hidden) if gated else 4 * hidden),
        vocab=round(row.number("vocab") or row.number("vocab_padded") or USUAL_VOCABULARY),
        gated=gated,
        norm=_norm(row) or ("rms" if gated else "layer"),
        rope=row.text("position") == "rope" if row.text("position") else gated or is_of_neox(row),
        attention_bias=biases,
        mlp_bias=biases,
        tied=bool(row.integer("tied_embedding", int(not gated), least=0)),
        max_positions=row.integer("seq_len"),
        layer_kinds=kinds if set(kinds) != {DENSE} else (),
        window=_window(row) or 0,
        mixers=(mixer or Attention(),),
        mlp=Dense(),
        experts=experts,
    )
    shipped = _shipped(row)
    if shipped is None or any(getattr(stated, size) != getattr(shipped, size) for size in SHAPE):
        return stated
    of_name = (*NEVER_STATED, *(() if row.text("tied_embedding") else ("tied",)))
    return replace(stated, **{name: getattr(shipped, name) for name in of_name})


def _llama_width(hidden: int) -> int:
    """Two thirds of four times the hidden width, up to a whole 256 (Touvron et al., arXiv 2302.13971, section 2.2)."""
    return -(-(8 * hidden // 3) // 256) * 256


def _is_gated(row: PublishedRow) -> bool:
    if row.text("gated_mlp"):
        return bool(row.integer("gated_mlp", least=0))
    if not row.text("norm"):
        raise NotExpressibleError("gated_mlp: not published; give 1 (SwiGLU, three matrices) or 0 (GELU, two)")
    return _norm(row) == "rms"


def _norm(row: PublishedRow) -> str:
    return next((name for name in ("rms", "layer") if name in row.text("norm").lower()), "")


def is_of_neox(row: PublishedRow) -> bool:
    """Whether a setting of GPT-NeoX is stated, which rotates its GPTs too."""
    return bool(row.text("dp_bucket_elems"))


def _by_name(row: PublishedRow) -> ModelSpec:
    if stated := next((column for column in SIZES if row.number(column)), ""):
        raise NotExpressibleError(f"layers: not published, although {stated} is; give it too")
    name = row.text("model")
    path = shipped_model(name) or shipped_model(TOTAL_SIZE.sub("", name))
    if path is None:
        raise NotExpressibleError(f"layers: not published, and configs/models has no {name or 'model without a name'}")
    return load_model(path)


PREDICTS_FURTHER = ("nemo",)
"""Frameworks whose recipes train the layers of multi-token prediction that a model has: Megatron-Bridge (recipes/deepseek/deepseek_v3.py:
mtp_num_layers is 1) and MLPerf Training v6.0's DeepSeek-V3 (conf/model/671b.yaml: MTP_NUM_LAYERS is 1)."""


def _mtp_layers(row: PublishedRow, model: ModelSpec) -> int:
    """Layers of multi-token prediction: those that the row states; else all or none of those of the model of that name, as the row's
    FLOPs or the framework's recipes have it."""
    if (stated := stated_mtp_layers(row)) is not None:
        return stated
    if not (own := _own_mtp_layers(row)):
        return 0
    trained = _counts_further_tokens(row, model, own)
    return own if (framework_of(row) in PREDICTS_FURTHER if trained is None else trained) else 0


def stated_mtp_layers(row: PublishedRow) -> int | None:
    """Layers of multi-token prediction in the row's column, layout or notes; None where it has none of these."""
    if row.text("mtp_layers"):
        return row.integer("mtp_layers", least=0, most=MOST_MTP_LAYERS)
    if layout := stated_layout(row):
        return layout.count(MORE_TOKENS)
    found = re.search(r"(w/o|w/) MTP|MTP depth (\d+)", row.text("notes"))
    if found is None:
        return None
    if found[2]:
        return min(int(found[2]), MOST_MTP_LAYERS)
    return max(1, _own_mtp_layers(row)) if found[1] == "w/" else 0


def _own_mtp_layers(row: PublishedRow) -> int:
    """Those of the model of that name."""
    shipped = _shipped(row)
    return shipped.mtp_layers if shipped else 0


def _counts_further_tokens(row: PublishedRow, model: ModelSpec, own: int) -> bool | None:
    """Whether a row's model FLOPs of a token are those of a model that predicts further tokens, as Megatron-LM counts them; None where
    the row does not state them, or they are far from both counts, so that they were made in another way."""
    tflops, tokens_per_s, seq_len = map(row.number, ("tflops_per_gpu", "tokens_per_s_per_gpu", "seq_len"))
    tokens_per_s = tokens_per_s or (row.number("tokens_per_s_total") or 0.0) / row.gpus()
    if not (tflops and tokens_per_s and seq_len and row.text("tflops_kind") == "model"):
        return None
    without, with_them = (
        megatron_of(replace(model, mtp_layers=layers), [round(seq_len)]) / seq_len for layers in (0, own)
    )
    share = math.log(tflops * 1e12 / tokens_per_s / without) / math.log(with_them / without)
    return share > 0.5 if -0.5 < share < 1.5 else None


def stated_layout(row: PublishedRow) -> str:
    """The pipeline's layout in Megatron's letters; empty where the row has none."""
    found = re.search(r"layout=(\S+)", row.text("pp_schedule"))
    return found[1] if found else ""


def _notes(row: PublishedRow) -> str:
    return f"{row.text('moe_layer_note')} {row.text('attn')} {row.text('mla')}"


def _mixer(row: PublishedRow) -> Mixer | None:
    """The mixer that stands in place of plain attention."""
    found = mixer_of_text(_notes(row))
    if found is None and ("MLA" in row.text("attn") or row.text("kind") == "mla"):
        raise NotExpressibleError("attn: the ranks of latent attention are not published")
    return found


def _experts(row: PublishedRow, hidden: int) -> Mixture | None:
    if not row.number("experts"):
        if row.number("topk") or row.number("moe_ffn") or row.text("kind") == "moe":
            because = next((f"{name} is" for name in ("topk", "moe_ffn") if row.number(name)), "kind is moe")
            raise NotExpressibleError(f"experts: not published, although {because}; give their number")
        return None
    ffn = row.integer("moe_ffn")
    stated = re.search(r"shared intermediate (\d+)", _notes(row))
    of_count = row.integer("shared_experts", least=0) * ffn
    shared = int(stated[1]) if stated else row.integer("shared_ffn", of_count, least=0)
    experts = Mixture(count=row.integer("experts"), topk=row.integer("topk"), ffn=ffn, shared_ffn=shared)
    of_name = _shipped(row)
    shipped = of_name.experts if of_name else None
    if shipped and (shipped.count, shipped.topk) == (experts.count, experts.topk):
        # no table states how the router chooses, or biases
        return replace(
            experts,
            groups=shipped.groups,
            topk_groups=shipped.topk_groups,
            bias=shipped.bias,
            router_bias=shipped.router_bias,
            clamped=shipped.clamped,
        )
    return experts


def _shipped(row: PublishedRow) -> ModelSpec | None:
    """The model of the row's name in configs/models."""
    path = shipped_model(TOTAL_SIZE.sub("", row.text("model")))
    return load_model(path) if path else None


def _window(row: PublishedRow) -> int | None:
    found = re.search(r"sliding window (\d+)", _notes(row))
    return int(found[1]) if found else None


def _kinds(row: PublishedRow, layers: int, *, sparse: bool) -> tuple[LayerKind, ...]:
    """Layer by layer; a window alternates with full attention, the first of both being the window's (as GPT-OSS has it)."""
    notes = _notes(row)
    dense_first = re.search(r"(?:first )?(\d+) (?:layers? )?dense", notes)
    every_second = EVERY_SECOND in notes
    if sparse and row.text("moe_layer_note") and not (dense_first or every_second or ALL_SPARSE in notes):
        fix = f"say {ALL_SPARSE}, first 3 layers dense, or {EVERY_SECOND}"
        raise NotExpressibleError(f"moe_layer_note: {row.text('moe_layer_note')} names no sparse layers; {fix}")
    listed = sparse_layers(row.text("moe_layer_freq"), layers)
    kinds = []
    for layer in range(layers):
        is_sparse = sparse and listed[layer] and layer >= (int(dense_first[1]) if dense_first else 0)
        is_sparse = is_sparse and (not every_second or layer % 2 == 1)
        windowed = _window(row) is not None and layer % 2 == 0
        kinds.append(LayerKind(mixer="sliding" if windowed else "full", sparse=is_sparse))
    return tuple(kinds)


def sparse_layers(pattern: str, layers: int) -> list[bool]:
    """Which layers are mixtures: all, every Nth, or those of a list such as `([0]*1+[1]*15)` (Megatron-LM, --moe-layer-freq)."""
    pattern = pattern or "1"
    if pattern.isdecimal() and int(pattern):
        return [layer % int(pattern) == 0 for layer in range(layers)]
    runs = re.findall(r"\[([01])\](?:\*(\d+))?", pattern)
    if sum(int(many or 1) for _, many in runs) != layers:
        raise NotExpressibleError(f"moe_layer_freq: {pattern} is not a list of {layers} layers")
    return [kind == "1" for kind, many in runs for _ in range(int(many or 1))]
