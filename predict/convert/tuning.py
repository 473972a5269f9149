"""Tuning by other tools' files: the section `tuning`, batches of pairs as sequences, and whether a vision tower is trained."""

from collections.abc import Mapping
from typing import Any

from predict.convert.arguments import Arguments
from predict.convert.tool import OFF, tool_file
from predict.run.tuning import DPO, REWARD
from predict.run.vision import ALL, NONE, PROJECTOR
from sampling.files.faults import did_you_mean, shown

WORDS: Mapping[str, Mapping[str, Any]] = tool_file("preferences")["words"]
"""Word of a tool → what it means here."""
PRECOMPUTED = ("precompute_ref_log_probs", "dpo_use_precomputed_ref", "precompute_reference_log_probs")
IN_PAIRS = (DPO, REWARD)
"""Tasks whose samples are a chosen and a rejected sequence."""
CLASSES: Mapping[str, str] = tool_file("preferences")["classes"]
"""TRL's class → the word."""


def tuning_of(given: Arguments, name: str, word: Any) -> dict[str, Any]:
    """The section `tuning` under its name, by the word of the key `name`; empty for tuning by next tokens."""
    precomputed = [each for each in PRECOMPUTED if given.values.get(each) not in OFF and given.switch(each)]
    given.passed_over(*PRECOMPUTED)
    if word in OFF:
        return {}
    text = str(word).lower()
    if text not in WORDS:
        given.fault(name, f"{shown(word)} is not modelled{did_you_mean(text, WORDS)}; {', '.join(WORDS)} are")
        return {}
    found = dict(WORDS[text])
    if precomputed and found.get("reference") != "none":
        found["reference"] = "precomputed"
    return {"tuning": found}


def note_on_lengths(given: Arguments, seq_len: Any, *packing: str) -> None:
    """A note where no switch packs sequences, which are then as long as their samples, or as the longest beside them."""
    if seq_len and all(given.values.get(name) in (*OFF, "no") for name in packing):
        given.notes.append(
            f"batch.seq_len: sequences are not packed, and each is taken to be {seq_len} long; --set batch.lengths=FORM says how long they "
            "are, batch.padding what becomes of shorter ones"
        )


def in_sequences(sections: dict[str, Any]) -> dict[str, Any]:
    """The sections with pairs counted as two sequences, those of the tool's usual settings too."""
    if sections.get("tuning", {}).get("task") not in IN_PAIRS:
        return sections
    doubled = {**sections, "batch": _doubled(sections.get("batch", {}))}
    if "usual" in sections:
        usual = sections["usual"]
        doubled["usual"] = {**usual, "batch": _doubled(usual.get("batch", {}))}
    return doubled


def _doubled(batch: dict[str, Any]) -> dict[str, Any]:
    return {**batch, **{key: 2 * batch[key] for key in ("micro", "global") if key in batch}}


# A vision tower as other tools' files have it: whether it and its projectors are trained. How many images a sequence has, only the
# data know.

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
