"""Settings of a config that its user does not know: `plan.vpp: unknown`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from predict.config.draft import Draft
from sampling.files.faults import Fault

UNKNOWN = "unknown"
ONE_CHUNK, INTERLEAVED = "1f1b", "interleaved-1f1b"
PLACEHOLDERS: Mapping[str, int | None] = {
    "plan.vpp": None,
    "plan.ep": None,
    "plan.recompute": None,
    "batch.micro": 1,
}
"""Keys that may be unknown, and their values meanwhile; None for the default."""


def without_unknown(draft: Draft) -> tuple[Draft, tuple[str, ...]]:
    """The draft with placeholders for the keys that are unknown, and those keys; a later setting replaces an earlier value.

    `plan.schedule` is among them where it is interleaved and its chunks are unknown.
    """
    document = {name: dict(value) if isinstance(value, dict) else value for name, value in draft.document.items()}
    stated = {setting.path: setting.value for setting in draft.settings}
    unknown = [path for path in PLACEHOLDERS if stated.get(path, _given(document, path)) == UNKNOWN]
    for path in unknown:
        section, _, key = path.partition(".")
        document[section].pop(key, None)
        if (value := PLACEHOLDERS[path]) is not None:
            document[section][key] = value
    if "plan.vpp" in unknown and stated.get("plan.schedule", _given(document, "plan.schedule")) == INTERLEAVED:
        document["plan"]["schedule"] = ONE_CHUNK  # runs the one chunk of the placeholder
        unknown.append("plan.schedule")
    settings = [setting for setting in draft.settings if setting.path not in unknown]
    return replace(draft, document=document, settings=settings), tuple(unknown)


def _given(document: Mapping[Any, Any], path: str) -> Any:
    section, _, key = path.partition(".")
    given = document.get(section)
    return given.get(key) if isinstance(given, dict) else None


def refusals(unknown: Sequence[str]) -> list[Fault]:
    """A fault for each key that is unknown, where one run is asked for."""
    fix = "only `predict one-batch CONFIG` and predict.likely_steps take it; give a value here"
    return [Fault(path=path, problem=f"{UNKNOWN}: {fix}") for path in unknown if path in PLACEHOLDERS]
