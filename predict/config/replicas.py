"""Replicas that the other degrees leave: dp where a config does not give it, or gives it for other degrees than a setting does."""

import math
from collections.abc import Mapping
from typing import Any

from predict.config.draft import Draft, Values

INSIDE_A_REPLICA = ("tp", "pp", "cp")
DECIDE_DP = (*(f"plan.{key}" for key in INSIDE_A_REPLICA), "cluster", "cluster.nodes", "cluster.gpus_per_node")


def with_replicas_left(draft: Draft, plan: Values, cluster: Values) -> Values:
    """The plan with the dp that its other degrees leave of the cluster's ranks, where it follows from them. Degrees that do not divide
    the ranks stay as they are, so that the rules say why."""
    dp = replicas_left(plan, cluster) if are_left(draft) else 0
    return {**plan, "dp": dp} if dp else plan


def are_left(draft: Draft) -> bool:
    """Whether dp follows from the other degrees: where nothing gives it, and where a setting changes one of DECIDE_DP and none gives dp."""
    given = draft.document.get("plan")
    in_plan = isinstance(given, dict) and "dp" in given
    is_set = "plan.dp" in draft.set_paths or ("plan" in draft.set_paths and in_plan)
    return not is_set and not (in_plan and draft.set_paths.isdisjoint(DECIDE_DP))


def replicas_left(plan: Mapping[str, Any], cluster: Mapping[str, Any]) -> int:
    """The replicas that tp · pp · cp leave of the cluster's ranks; 0 where they do not divide them."""
    inside = math.prod(plan.get(key, 1) for key in INSIDE_A_REPLICA)
    world: int = cluster.get("nodes", 0) * cluster.get("gpus_per_node", 0)
    return 0 if world % inside else world // inside
