"""The model of a published run, from the sizes that its row states and the words that say how its layers differ."""

from __future__ import annotations

import re

from predict.model.families.family import MOST_LAYERS
from predict.model.layer_kinds import DENSE, LayerKind
from predict.model.parts.latent_attention import LatentAttention
from predict.model.parts.mixture import Experts
from predict.model.shipped import shipped_model
from predict.model.spec import ModelSpec
from predict.validate.published.row import NotExpressibleError, PublishedRow

USUAL_VOCABULARY = 50_257
"""GPT-2's, where a table of GPT-like models states none."""
TOTAL_SIZE = re.compile(r"-\d+B$")
"""The count of all parameters, which some tables add to the name: `DeepSeek-V2-236B`."""
LATENT = re.compile(
    r"q(?:_lora)?\s*(\d+)\s*kv(?:_lora)?\s*(\d+)\s*(?:qk_)?nope\s*(\d+)\s*(?:qk_)?rope\s*(\d+)\s*v\s*(\d+)"
)


def model_of(row: PublishedRow) -> ModelSpec:
    """Its ModelSpec, by its sizes or else by its name in configs/models; NotExpressibleError where neither tells."""
    if not row.text("layers"):
        return _by_name(row.text("model"))
    layers, hidden, heads = row.integer("layers", most=MOST_LAYERS), row.integer("hidden"), row.integer("heads")
    of_llama = "rms" in row.text("norm").lower()
    gated = bool(row.integer("gated_mlp", int(of_llama), least=0))
    latent = _latent(row)
    experts = _experts(row, hidden)
    kinds = _kinds(row, layers, sparse=experts is not None)
    if not row.number("head_dim") and not latent and hidden % heads:
        raise NotExpressibleError(f"head_dim: not published, and {heads} heads do not divide hidden {hidden}")
    head_dim = latent.query_dim if latent else row.integer("head_dim", hidden // heads)
    return ModelSpec(
        name=row.text("model") or "model",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=row.integer("kv_heads", heads),
        head_dim=head_dim,
        ffn=row.integer("ffn", _llama_width(hidden) if gated else 4 * hidden),
        vocab=round(row.number("vocab") or USUAL_VOCABULARY),
        gated=gated,
        norm="rms" if gated else "layer",
        rope=gated or bool(row.text("dp_bucket_elems")),  # GPT-NeoX rotates its GPTs too
        attention_bias=not gated,
        mlp_bias=not gated,
        tied=not gated,
        max_positions=row.integer("seq_len"),
        layer_kinds=kinds if set(kinds) != {DENSE} else (),
        window=_window(row) or 0,
        latent=latent,
        experts=experts,
    )


def _llama_width(hidden: int) -> int:
    """Two thirds of four times the hidden width, up to a whole 256 (Touvron et al., arXiv 2302.13971, section 2.2)."""
    return -(-(8 * hidden // 3) // 256) * 256


def _by_name(name: str) -> ModelSpec:
    path = shipped_model(name) or shipped_model(TOTAL_SIZE.sub("", name))
    if path is None:
        raise NotExpressibleError(f"layers: not published, and configs/models has no {name or 'model without a name'}")
    return ModelSpec.from_hf_config(path)


def _notes(row: PublishedRow) -> str:
    return f"{row.text('moe_layer_note')} {row.text('attn')}"


def _latent(row: PublishedRow) -> LatentAttention | None:
    found = latent_of(_notes(row))
    if found is None and "MLA" in row.text("attn"):
        raise NotExpressibleError("attn: the ranks of latent attention are not published")
    return found


def latent_of(text: str) -> LatentAttention | None:
    """Latent attention with the ranks and widths that a text such as `q 1536 kv 512 nope 128 rope 64 v 128` tells."""
    found = LATENT.search(text)
    if found is None:
        return None
    q_rank, kv_rank, nope_dim, rope_dim, value_dim = map(int, found.groups())
    return LatentAttention(q_rank=q_rank, kv_rank=kv_rank, nope_dim=nope_dim, rope_dim=rope_dim, value_dim=value_dim)


def _experts(row: PublishedRow, hidden: int) -> Experts | None:
    if not row.number("experts"):
        return None
    ffn = row.integer("moe_ffn")
    stated = re.search(r"shared intermediate (\d+)", _notes(row))
    shared = int(stated[1]) if stated else row.integer("shared_experts", 0, least=0) * ffn
    return Experts(count=row.integer("experts"), topk=row.integer("topk"), ffn=ffn, shared_ffn=shared)


def _window(row: PublishedRow) -> int | None:
    found = re.search(r"sliding window (\d+)", _notes(row))
    return int(found[1]) if found else None


def _kinds(row: PublishedRow, layers: int, *, sparse: bool) -> tuple[LayerKind, ...]:
    """Layer by layer; a window alternates with full attention, the first of both being the window's (as GPT-OSS has it)."""
    notes = _notes(row)
    dense_first = re.search(r"(?:first )?(\d+) (?:layers )?dense", notes)
    every_second = "every 2nd layer" in notes
    kinds = []
    for layer in range(layers):
        is_sparse = sparse and layer >= (int(dense_first[1]) if dense_first else 0)
        is_sparse = is_sparse and (not every_second or layer % 2 == 1)
        windowed = _window(row) is not None and layer % 2 == 0
        kinds.append(LayerKind(mixer="sliding" if windowed else "full", sparse=is_sparse))
    return tuple(kinds)
