"""The ranges that shapes are drawn from: `configs/sampling/<kind>.yml`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

from sampling.files.faults import Fault
from sampling.files.places import CONFIGS
from sampling.files.schema import Key, Text, read
from sampling.hardware.cluster import hardware_facts

SizeRange = tuple[Annotated[int, Key(maximum=2**63 - 1)], ...]
"""The smallest and the largest size; shapes are drawn between them evenly on a log scale."""
RatioRange = tuple[float, ...]
Sizes = Annotated[tuple[int, ...], Key(minimum=1)]


@dataclass(frozen=True, kw_only=True, slots=True)
class VariantRanges:
    """Ranges of calls that plain dense layers do not make: mixtures of experts, other attention, other precisions."""

    experts: SizeRange
    topk: SizeRange
    skews: Annotated[tuple[Annotated[float, Key(minimum=0)], ...], Key(minimum=1)]
    """Exponents A of the power laws by which tokens are routed to experts; 0 for evenly."""
    windows: SizeRange
    """Keys that a query of sliding-window attention sees."""
    head_dims: Sizes
    kernels: tuple[str, ...] = ()
    """Attention backends, by name."""
    dtypes: tuple[str, ...] = ()
    """Precisions of GEMMs besides the models' own."""
    compiled: bool = False
    """Whether some layers are also timed under torch.compile."""
    every: int = 1
    """The variants are drawn for every n-th model."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectiveSweep:
    """Every collective over every group that the cluster offers, by message size."""

    sizes: int
    """Number of message sizes from the smallest to the largest, evenly on a log scale."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ShapeRanges:
    """Ranges of the models whose calls are timed."""

    dtype: Text
    tokens: SizeRange
    """Tokens of a microbatch: batch × seq_len."""
    seq_len: SizeRange
    hidden: SizeRange
    head_dims: Sizes
    ffn_ratio: RatioRange
    """Width of the feed-forward over the hidden size."""
    vocab: SizeRange
    layers: SizeRange
    """Layers of a gradient cell and of the optimizer's weights."""
    message_bytes: SizeRange
    variants: VariantRanges | None = None
    collectives: CollectiveSweep | None = None

    def contradictions(self) -> Iterator[Fault]:
        yield from _unordered(self, "")
        if self.variants:
            yield from _unordered(self.variants, "variants.")


def _unordered(ranges: ShapeRanges | VariantRanges, section: str) -> Iterator[Fault]:
    for field in fields(ranges):
        if field.type not in ("SizeRange", "RatioRange"):
            continue
        sizes = getattr(ranges, field.name)
        if len(sizes) != 2 or sizes[0] > sizes[1]:
            yield Fault(
                path=section + field.name, problem=f"{list(sizes)} is not the smallest and the largest size; give both"
            )


def read_ranges(path: Path | None, hardware: str) -> ShapeRanges:
    """Read the ranges in `path`, by default those of the kind of `hardware`; ConfigError lists every fault."""
    kind = "cpu" if hardware_facts(hardware).kind == "cpu" else "gpu"
    return read(
        ShapeRanges, path or CONFIGS / "sampling" / f"{kind}.yml", fix="see configs/sampling/cpu.yml for the keys"
    )
