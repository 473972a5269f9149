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
INK, SOFT, LINE, LIMIT, ACCENT = "#1b1f24", "#57606a", "#d0d7de", "#b3261e", "#0b57b0"
"""Text, lesser text, lines, a limit that must hold, and what is to be seen first."""
