"""Colours of pictures, pages and schedules: apart for the colour-blind, and on light and dark paper alike.

Hues follow Okabe and Ito ("Color Universal Design", 2008): what computes is blue, what communicates warm, what waits grey. In a
schedule the kind of an action gives the hue, the chunk the shade, in the terminal and in the plot alike.
"""

import numpy as np
from numpy.typing import NDArray

from predict.ledger.waterfall import BUBBLES, COMPUTE, CONTEXT, DATA, EXPERT, MEMORY, RUNTIME, SENDS, TENSOR
from predict.schedules.engine.order import CHUNK, KIND, KINDS, ActionKind, Order

CLASS_COLOURS = {
    COMPUTE: "#2f6fbe",
    MEMORY: "#56a8d8",
    TENSOR: "#d55e00",
    EXPERT: "#e69f00",
    CONTEXT: "#b8860b",
    SENDS: "#cc79a7",
    DATA: "#a4508b",
    RUNTIME: "#6d7681",
    BUBBLES: "#a9b0ba",
}
"""Class of the waterfall → its colour."""
PHASE_COLOURS = {
    "gen": "#2f6fbe",
    "reward": "#56a8d8",
    "reward_model": "#22b3c4",
    "old_log_prob": "#e69f00",
    "ref": "#f0c35e",
    "values": "#b8860b",
    "adv": "#6d7681",
    "update_critic": "#cc79a7",
    "update_actor": "#d55e00",
    "update_weights": "#a4508b",
    "checkpoint": "#7d8b3a",
    "waiting": "#a9b0ba",
}
"""Phase of an RL step, or waiting for the other side → its colour."""
INK, SOFT, LINE, LIMIT, ACCENT = "#1b1f24", "#57606a", "#d0d7de", "#b3261e", "#0b57b0"
"""Text, lesser text, lines, a limit that must hold, and what is to be seen first."""


KIND_NAMES: dict[ActionKind, str] = {
    "F": "forward",
    "B": "input gradient",
    "W": "weight gradient",
    "BW": "backward",
}
BASE: dict[ActionKind, str] = {"F": "#3f73d0", "B": "#22b3c4", "W": "#efa92f", "BW": "#43a053"}
IDLE = "#f0f1f3"
DARK, LIGHT = "#000000", "#ffffff"
SPREAD = (0.5, 0.72)
"""Share of white in the last chunk's colour: with two chunks, and at most."""


def fill(kind: ActionKind, chunk: int, chunks: int) -> str:
    """The colour of a block, as #rrggbb: the first of a rank's chunks darkest, each further one lighter."""
    if chunks < 2:
        return BASE[kind]
    lightest = min(SPREAD[1], SPREAD[0] + 0.08 * (chunks - 2))
    return mixed(BASE[kind], LIGHT, lightest * chunk / (chunks - 1))


def ink(background: str) -> str:
    """Black or white, whichever reads better on this colour (contrast ratio of WCAG 2.1)."""
    shade = _luminance(background)
    return DARK if (shade + 0.05) / 0.05 > 1.05 / (shade + 0.05) else LIGHT


def edge(background: str) -> str:
    """The colour of a block's outline."""
    return mixed(background, DARK, 0.5)


def mixed(colour: str, other: str, share: float) -> str:
    """`colour` with this share of `other` in it."""
    pairs = zip(_channels(colour), _channels(other), strict=True)
    return "#" + "".join(f"{round(one + (two - one) * share):02x}" for one, two in pairs)


def paint_codes(order: Order, rank: int) -> NDArray[np.intp]:
    """The colour code of each action of the rank: its kind's place in KINDS × chunks + its chunk."""
    rows = order.rows[rank]
    return (rows[:, KIND] * len(order.placement.chains) + rows[:, CHUNK]).astype(np.intp)


def paint(code: int, chunks: int) -> tuple[ActionKind, int]:
    """Kind and chunk of a number of `paint_codes`."""
    kind, chunk = divmod(code, chunks)
    return KINDS[kind], chunk


def kinds_of(order: Order) -> list[ActionKind]:
    """The kinds the order has, in the order of KINDS."""
    found = {code for rows in order.rows for code in np.unique(rows[:, KIND]).tolist()}
    return [kind for code, kind in enumerate(KINDS) if code in found]


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def _luminance(colour: str) -> float:
    red, green, blue = (
        value / 12.92 if value <= 0.03928 else ((value + 0.055) / 1.055) ** 2.4
        for value in (channel / 255 for channel in _channels(colour))
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
