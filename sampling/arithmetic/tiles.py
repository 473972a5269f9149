"""Tiles of a matrix product, and waves of tiles over a GPU's multiprocessors, as features of a time model.

A GPU computes whole tiles, as many at a time as it has multiprocessors. An almost empty last wave and a tile that extends
past the edge cost as much as full ones (NVIDIA, Matrix Multiplication Background User's Guide, 2023).
"""

from __future__ import annotations

from sampling.arithmetic.arrays import ceil, common_divisor, log2, smaller

TILES = ((64, 64), (64, 128), (128, 128), (128, 256), (256, 128))
"""Rows and columns of common tiles; libraries do not report which one they choose."""
NAMED_TILES = tuple((f"waves_{height}x{width}", height, width) for height, width in TILES)
ROW_EDGES = tuple((f"rows_fill_{edge}", edge) for edge in (64, 128, 256))
COLUMN_EDGES = tuple((f"columns_fill_{edge}", edge) for edge in (128, 256))
FEW_WAVES = 16.0
"""Number of waves from which one more is within the noise."""
ALIGNMENT_LIMIT = 128
"""Elements; a size divisible by more is not loaded any faster."""


def wave_features(rows: int, columns: int, products: int, multiprocessors: int) -> dict[str, float]:
    """Used share of the multiprocessors' time for each tile shape; empty for a device whose multiprocessors are not stated.

    `rows` × `columns` is the output of one product, `products` the number that run at once.
    """
    if not multiprocessors:
        return {}
    features = {}
    for name, height, width in NAMED_TILES:
        waves = products * -(-rows // height) * -(-columns // width) / multiprocessors
        features[f"{name}_fill"] = waves / ceil(waves)
        features[f"{name}_few"] = smaller(waves, FEW_WAVES)
    for name, edge in ROW_EDGES:
        features[name] = rows / (-(-rows // edge) * edge)
    for name, edge in COLUMN_EDGES:
        features[name] = columns / (-(-columns // edge) * edge)
    return features


def alignment_features(**sizes: int) -> dict[str, float]:
    """Log of the largest power of two that divides each size."""
    return {f"log2_alignment_{name}": log2(common_divisor(size, ALIGNMENT_LIMIT)) for name, size in sizes.items()}
