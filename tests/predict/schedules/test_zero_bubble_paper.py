"""Bubble rates that the zero-bubble paper prints: Qi, Wan, Huang & Lin, ICLR 2024, arXiv:2401.10241."""

from __future__ import annotations

import pytest

from tests.predict.schedules.paper_bubbles import bubble_of

SCHEDULES = ("1f1b", "interleaved-1f1b", "zb-h1", "zb-h2", "zb-auto-1p", "zb-auto-2p")
"""1F1B, 1F1B-I, ZB-H1, ZB-H2, ZB-1p and ZB-2p of the paper; the last two may keep p and 2p microbatches of activations."""
PRINTED = (
    ((8, 24, 24), (18522, 18086, 9337, 601), (0.2431, 0.1055, 0.1585, 0.1083, 0.1585, 0.0433)),
    ((8, 32, 24), (18513, 18086, 9331, 626), (0.1985, 0.0818, 0.1242, 0.0837, 0.1242, 0.0039)),
    ((8, 64, 24), (18546, 18097, 9321, 762), (0.124, 0.0443, 0.0674, 0.0444, 0.0674, 0.0026)),
    ((8, 24, 32), (29718, 29444, 19927, 527), (0.2347, 0.0808, 0.1323, 0.0698, 0.1323, 0.0029)),
    ((8, 32, 32), (29802, 29428, 19530, 577), (0.1898, 0.0628, 0.1045, 0.0559, 0.1045, 0.0022)),
    ((8, 64, 32), (29935, 29621, 19388, 535), (0.1091, 0.032, 0.0554, 0.0294, 0.0554, 0.001)),
    ((16, 48, 48), (11347, 11248, 8132, 377), (0.2552, 0.1104, 0.1397, 0.0672, 0.1397, 0.0066)),
)
"""Ranks, microbatches and layers; profiled µs of F, B, W and the transfer; the bubble rate of each schedule."""


@pytest.mark.parametrize(("counts", "profiled_us", "printed"), PRINTED)
def test_bubble_rates_are_the_printed_ones(
    counts: tuple[int, int, int], profiled_us: tuple[float, float, float, float], printed: tuple[float, ...]
) -> None:
    for name, bubble in zip(SCHEDULES, printed, strict=True):
        # the paper's simulator lets only the first microbatch of a group wait for the wrap-around of interleaved 1F1B
        allowed = 4e-3 if name == "interleaved-1f1b" else 1e-4
        assert bubble_of(name, counts, profiled_us) == pytest.approx(bubble, abs=allowed), name
