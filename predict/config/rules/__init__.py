"""The rules across the keys of a config, a file per topic, and the check of all of them."""

from collections.abc import Iterator, Mapping
from typing import Any

# imported for their rules, whose faults are reported in this order
# isort: off
from predict.config.rules import sharing, trained, hardware, division, images, pipeline, plain_torch  # noqa: F401
# isort: on

from predict.config.rules.rule import RULES
from sampling.files.faults import Fault

__all__ = ["RULES", "broken_rules"]


def broken_rules(values: Mapping[str, Any]) -> Iterator[Fault]:
    """A fault for each rule that the values break; rules that lack a value are passed over."""
    for each in RULES:
        yield from each.broken(values)
