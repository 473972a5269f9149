"""The rules across keys, by topic: what each value must be, given the others."""

from predict.config.rules import batch, experts, hardware, ranks, recompute, stages, whole_layers
from predict.config.rules.rule import RULES, broken_rules

__all__ = ["RULES", "TOPICS", "broken_rules"]

TOPICS = (ranks, batch, stages, recompute, experts, hardware, whole_layers)
