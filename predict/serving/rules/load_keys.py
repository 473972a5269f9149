"""Keys of a load that do not go together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from predict.serving.scheduler.traffic import Load, Traffic
from sampling.files.faults import Fault

OF_PROMPTS = ("distinct_prompts", "shared_tokens")
"""Keys that go with a file: it may not tell which prompts are the same."""
OF_FILE = ("file", *OF_PROMPTS)
ONE_OF_TWO = (
    *(
        pair
        for of in ("prompt", "output")
        for pair in ((of, f"{of}_lengths"), (f"{of}_lengths", of), (of, f"{of}_max"))
    ),
    *(("rate", "concurrency"), ("rate", "requests"), ("concurrency", "rate")),
)
"""Keys of which the first, as an option that is not 0 or empty, replaces the second of the config."""


def without_replaced(load: Mapping[str, Any], options: frozenset[str]) -> dict[str, Any]:
    """The keys of a load, but for those of the config in whose place a file is given as an option; `options` are the keys that are."""
    if "file" not in options:
        replaced = {other for one, other in ONE_OF_TWO if one in options and load[one] and other not in options}
        return {key: value for key, value in load.items() if key not in replaced}
    return {key: value for key, value in load.items() if key in OF_FILE or key in options or not _is_known(key)}


def load_key_faults(load: Mapping[str, Any]) -> Iterator[Fault]:
    """Keys that would change nothing beside others."""
    if load.get("file"):
        for key in load:
            if key not in OF_FILE and _is_known(key):
                yield _apart(key, "load.file, whose requests are served as they are")
    elif load.get("requests") and not load.get("concurrency"):
        yield _apart("requests", "an open loop, whose rate and duration_s give them; give concurrency with it")
    if load.get("rate") and load.get("concurrency"):
        yield _apart("concurrency", "load.rate: a loop is closed or open; keep one of the two")
    for of in ("prompt", "output"):
        distribution = f"{of}_lengths"
        if load.get(distribution) and of in load:
            yield _apart(of, f"load.{distribution}, which gives the lengths")
        elif load.get(f"{of}_max") and not load.get(distribution):
            yield _apart(f"{of}_max", f"load.{of}, a number; give load.{distribution} with it")
    if load.get("spread") and load.get("prompt_lengths") and load.get("output_lengths"):
        yield _apart("spread", "load.prompt_lengths and load.output_lengths, which have their own")
    if all(load.get(key) for key in OF_PROMPTS):
        yield _apart("shared_tokens", "distinct_prompts, which are whole prompts")


def prompt_key_faults(load: Load, traffic: Traffic) -> Iterator[Fault]:
    """Keys on which prompts are the same beside a file that tells it."""
    if (traffic.group >= 0).any():
        for key in OF_PROMPTS:
            if getattr(load, key):
                yield _apart(key, "load.file, whose prompt_id says which prompts are the same")


def _is_known(key: str) -> bool:
    return key in {each.name for each in fields(Load)}


def _apart(key: str, other: str) -> Fault:
    return Fault(path=f"load.{key}", problem=f"does not go with {other}; remove it")
