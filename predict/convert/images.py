"""A vision tower as other tools' files have it: whether it and its projectors are trained. How many images a sequence has, only the
data know."""

from __future__ import annotations

from typing import Any

from predict.convert.arguments import Arguments
from predict.run.vision import ALL, NONE, PROJECTOR

OF_IMAGES = ("image_", "video_")
"""Starts of keys that say how large images or videos are, and so that the data have some."""


def vision_of(given: Arguments, tower: str, projector: str = "") -> dict[str, Any]:
    """The section `vision` by the switches that freeze a tower and its projectors, both on where they are not given; without a switch of
    their own, the projectors follow the tower."""
    switches = [name for name in (tower, projector) if name]
    stated = [name for name in switches if name in given.values]
    tower_frozen, projector_frozen = given.switch(tower, True), given.switch(switches[-1], True)
    if projector_frozen and not tower_frozen:
        given.fault(projector, "a frozen projector above a trained tower is not modelled; set it to false")
    if stated:
        note = "counts with --set vision.images=N, which no file says; without images, the text is trained alone"
        given.notes.append(f"{', '.join(stated)}: {note}")
    if sized := [name for name in given.values if name.startswith(OF_IMAGES) and name not in switches]:
        note = "images are left out, and the text is trained alone, unless --set vision.images=N says how many a sequence has"
        given.notes.append(f"{', '.join(sized)}: {note}")
    trained = ALL if not tower_frozen else NONE if projector_frozen else PROJECTOR
    return {"vision": {"trained": trained}}
