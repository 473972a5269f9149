"""How a matrix product falls into tiles, and the tiles into waves over a device's multiprocessors.

A GPU computes whole tiles, as many at a time as it has multiprocessors, so that a last wave that is almost empty, or a
tile that hangs over the edge, costs as much as a full one (NVIDIA, Matrix Multiplication Background User's Guide, 2023).
"""

from __future__ import annotations

from sampling.arithmetic.arrays import ceil, common_divisor, least, log2

TILES = ((64, 64), (64, 128), (128, 128), (128, 256), (256, 128))
"""Rows and columns of the tiles that kernels are commonly built of; which one a library takes, it does not say."""
NAMED_TILES = tuple((f"waves_{height}x{width}", height, width) for height, width in TILES)
ROW_EDGES = tuple((f"rows_fill_{edge}", edge) for edge in (64, 128, 256))
COLUMN_EDGES = tuple((f"columns_fill_{edge}", edge) for edge in (128, 256))
FEW_WAVES = 16.0
"""Beyond so many waves, one more or less is within the noise."""
ALIGNMENT_LIMIT = 128
"""Elements; a size divisible by more is loaded no faster."""


def wave_features(rows: int, columns: int, products: int, multiprocessors: int) -> dict[str, float]:
    """Share of the multiprocessors' time that is used, a tile shape each; nothing for a device without a stated number.

    `rows` × `columns` is one product's output, `products` how many run at once.
    """
    if not multiprocessors:
        return {}
    features = {}
    for name, height, width in NAMED_TILES:
        waves = products * -(-rows // height) * -(-columns // width) / multiprocessors
        features[f"{name}_fill"] = waves / ceil(waves)
        features[f"{name}_few"] = least(waves, FEW_WAVES)
    for name, edge in ROW_EDGES:
        features[name] = rows / (-(-rows // edge) * edge)
    for name, edge in COLUMN_EDGES:
        features[name] = columns / (-(-columns // edge) * edge)
    return features


def alignment_features(**sizes: int) -> dict[str, float]:
    """Log of the largest power of two that divides each size."""
    return {f"log2_alignment_{name}": log2(common_divisor(size, ALIGNMENT_LIMIT)) for name, size in sizes.items()}
