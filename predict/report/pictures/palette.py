"""Colours of pictures and pages beyond those of memory and schedules: apart for the colour-blind, and on light and dark paper alike.

Hues follow Okabe and Ito ("Color Universal Design", 2008): what computes is blue, what communicates warm, what waits grey.
"""

from __future__ import annotations

from predict.ledger.waterfall import classes

CLASS_COLOURS = {
    classes.COMPUTE: "#2f6fbe",
    classes.MEMORY: "#56a8d8",
    classes.TENSOR: "#d55e00",
    classes.EXPERT: "#e69f00",
    classes.CONTEXT: "#b8860b",
    classes.SENDS: "#cc79a7",
    classes.DATA: "#a4508b",
    classes.RUNTIME: "#6d7681",
    classes.BUBBLES: "#a9b0ba",
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
