"""How a run is spread over its ranks, turned."""

from __future__ import annotations

from tests.predict.step.knobs.knob import (
    MOE,
    allocated,
    bubble,
    exposed,
    first_stage,
    last_stage,
    optimizer,
    plan,
    step,
)

PLAN_KNOBS = [
    plan("tp", 2, 8, False),
    plan("tp", 2, 8, True, exposed("tp")),
    plan("sp", False, True, False, exposed("rms_norm"), plan__tp=8),
    plan("sp", False, True, False, exposed("residual_add"), plan__tp=8),
    # what it gathers in backward is not hidden, the all-reduce without it is
    plan("sp", False, True, True, exposed("tp"), plan__tp=8),
    plan("pp", 1, 4, False),
    plan("pp", 2, 4, True, bubble),
    plan("vpp", 1, 2, False, bubble, plan__pp=4, plan__schedule="looped-bfs"),
    plan("dp", 2, 8, False),
    plan("dp", 1, 8, True, exposed("dp_exposed")),
    plan("cp", 1, 4, False),
    plan("cp", 1, 4, True, exposed("cp")),
    plan("cp_method", "ring", "all_gather", True, exposed("cp"), plan__cp=4),
    plan("cp_method", "all_gather", "all_to_all", True, exposed("cp"), plan__cp=4),
    plan("ep", 1, 8, True, exposed("ep"), MOE, plan__dp=8),
    plan("ep", 1, 8, False, optimizer, MOE, plan__dp=8),
    plan("etp", 1, 4, True, exposed("ep"), MOE, plan__dp=8),
    plan("zero", 0, 1, False, optimizer, plan__dp=8),
    # every microbatch's gradients are reduced
    plan("zero", 1, 2, True, step, plan__dp=8),
    plan("zero", 2, 3, True, exposed("fsdp"), plan__dp=8),
    # copies of a shard are kept on more ranks, and so is their optimizer's state
    plan("shard", 16, 8, True, optimizer, plan__dp=16, plan__zero=1),
    # smaller gatherings inside a node, beside an all-reduce between nodes
    plan("shard", 0, 8, True, exposed("fsdp"), plan__dp=16, plan__zero=3),
    plan("schedule", "1f1b", "zb-h1", False, bubble, plan__pp=4),
    plan("recompute", "none", "selective", True, exposed("attention")),
    plan("recompute", "none", "full", True),
    plan("recompute", "none", "ops", True),
    plan("recompute", "ops", "full", False, allocated),
    plan("recompute_modules", "core_attn", "core_attn, mlp", True, step, plan__recompute="selective"),
    plan("recompute_modules", "layernorm", "core_attn", True, step, plan__recompute="selective"),
    plan("recompute_method", "uniform", "block", False, step, plan__recompute="full"),
    plan("recompute_layers", 1, 4, True, step, plan__recompute="full", plan__recompute_method="block"),
    plan("layout", "4,4", "2,6", False, first_stage, plan__pp=2),
    plan("layout", "4,4", "2,6", True, step, plan__pp=2),
    plan("layout", "4,4", "Et*5|t*3L", False, last_stage, plan__pp=2),
    plan("first_stage_layers", 0, 2, False, first_stage, plan__pp=2),
    plan("last_stage_layers", 0, 2, False, last_stage, plan__pp=2),
    plan("count_embedding", 0, 2, False, first_stage, plan__pp=2),
    plan("count_loss", 0, 2, False, last_stage, plan__pp=2),
]
