"""Rules of activation recomputation."""

from __future__ import annotations

from predict.config.rules.rule import Problems, rule
from predict.run.plan import BEST
from sampling.errors import ConfigError


@rule("plan.recompute")
def schedule_recomputes(recompute: str, schedule: str) -> Problems:
    from predict.schedules import registry

    if recompute == "none" or schedule == BEST:
        return
    try:
        reason = registry.get(schedule).recompute_refusal
    except ConfigError:  # the rule of plan.schedule reports it
        return
    if reason:
        yield (
            f"{recompute} does not go with {schedule}, which {reason}; set plan.recompute to none, or take a schedule that "
            "does not split the backward"
        )


@rule("plan.recompute_method")
def block_is_full_recomputation(recompute_method: str, recompute: str) -> Problems:
    if recompute_method != "uniform" and recompute != "full":
        yield (
            f"{recompute_method} is a way of full recomputation, but plan.recompute is {recompute}; remove it, or set "
            "plan.recompute to full"
        )


@rule("plan.recompute_layers")
def layers_are_of_blocks(recompute_layers: int, recompute_method: str) -> Problems:
    if recompute_layers != 1 and recompute_method != "block":
        yield (
            f"{recompute_layers} has a meaning only with plan.recompute_method block, but that is {recompute_method}; "
            "remove it, or set plan.recompute_method to block"
        )
