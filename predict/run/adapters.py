"""Adapters: what a run trains beside a base whose weights stay as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from sampling.files.schema import Key, one_of

ATTENTION, FEED_FORWARD = ("qkv", "proj"), ("up", "down")
TARGETS: Mapping[str, tuple[str, ...]] = {
    "all": ATTENTION + FEED_FORWARD,
    "attention": ATTENTION,
    "mlp": FEED_FORWARD,
    **{name: (name,) for name in ATTENTION + FEED_FORWARD},
    "linear_qkv": ("qkv",),
    "linear_proj": ("proj",),
    "linear_fc1": ("up",),
    "linear_fc2": ("down",),
    "o_proj": ("proj",),
    "down_proj": ("down",),
    "q_proj,k_proj,v_proj": ("qkv",),
    "gate_proj,up_proj": ("up",),
}
"""Names of the products that have adapters, by which Megatron-Bridge and peft call them too, and the products here."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Adapters:
    """Low-rank updates B·A of frozen weights (Hu et al., LoRA, arXiv 2106.09685)."""

    kind: Annotated[str, one_of("none", "lora", "dora")] = "none"
    """none: every weight is trained; lora; or dora, which trains the norm of each output's weights too (arXiv 2402.09353)."""
    rank: Annotated[int, Key(minimum=1, maximum=4096)] = 16
    """Width of the update between A and B."""
    alpha: Annotated[float, Key(minimum=0, maximum=1e6)] = 32.0
    """Scale of the update times its rank, which changes no time."""
    targets: Annotated[str, one_of(*TARGETS, pattern=r"\w+(\s*,\s*\w+)+")] = "all"
    """Products with an adapter, separated by commas: qkv, proj, up and down, or attention, mlp, all; the names of Megatron-Bridge
    (linear_qkv, …) and peft (q_proj,k_proj,v_proj, …) stand for the same."""
    joint: bool = False
    """Products that are fused into one, as query, key and value, share one adapter, as in Megatron-Bridge; otherwise each matrix has its
    own, as in peft."""

    @property
    def are_trained(self) -> bool:
        return self.kind != "none"

    @property
    def products(self) -> tuple[str, ...]:
        """The products that have adapters, in the order of a layer."""
        wanted = unknown_targets(self.targets)[0]
        return tuple(name for name in ATTENTION + FEED_FORWARD if name in wanted)


def unknown_targets(targets: str) -> tuple[set[str], list[str]]:
    """The products that a list of targets names, and the names in it that are none."""
    left = [name.strip() for name in targets.split(",")]
    found: set[str] = set()
    for names, products in TARGETS.items():
        parts = names.split(",")
        if all(part in left for part in parts):
            found |= set(products)
            left = [name for name in left if name not in parts]
    return found, left
