"""Rules of mixtures of experts: how experts are spread over ranks, and what hides their exchange of tokens."""

from __future__ import annotations

from predict.config.rules.rule import Problems, rule
from predict.model.spec import ModelSpec
from sampling.files.faults import divisors


@rule("plan.ep")
def ep_needs_experts(ep: int, etp: int, model: ModelSpec) -> Problems:
    if not model.experts and ep * etp > 1:
        yield f"{ep} (plan.etp {etp}) spreads experts, and {model.name} has none; set both to 1"


@rule("plan.ep")
def ep_divides_experts(ep: int, model: ModelSpec) -> Problems:
    if model.experts and model.experts.count % ep:
        yield f"{ep} does not divide the {model.experts.count} experts; set one of {divisors(model.experts.count)}"


@rule("plan.etp")
def etp_divides_expert_width(etp: int, model: ModelSpec) -> Problems:
    if model.experts and model.experts.ffn % etp:
        yield f"{etp} does not divide the experts' width {model.experts.ffn}; set one of {divisors(model.experts.ffn)}"


@rule("plan.ep")
def experts_fold_into_a_stage(ep: int, etp: int, tp: int, cp: int, dp: int) -> Problems:
    ranks = tp * cp * dp
    if ranks % (ep * etp):
        yield (
            f"ep · etp = {ep * etp} does not divide the tp · cp · dp = {ranks} ranks of a stage, which experts fold into; "
            f"set one of {divisors(ranks)}"
        )


@rule("plan.sp")
def mixtures_need_sp(sp: bool, tp: int, model: ModelSpec) -> Problems:
    if model.experts and tp > 1 and not sp:
        yield "false, but Megatron's mixtures with plan.tp above 1 need it; set plan.sp to true"


@rule("execution.overlap_ep")
def shared_experts_hide_the_exchange(overlap_ep: str, model: ModelSpec) -> Problems:
    if overlap_ep == "shared_expert" and not (model.experts and model.experts.shared_ffn):
        yield f"shared_expert, but {model.name} has no shared expert; set it to none or microbatch"
    elif overlap_ep == "microbatch" and not model.experts:
        yield f"{overlap_ep}, but {model.name} has no experts; set it to none"


@rule("execution.expert_load")
def load_is_of_the_experts(expert_load: str, model: ModelSpec) -> Problems:
    experts = model.experts.count if model.experts else 0
    if "," in expert_load:
        counts = [float(count) for count in expert_load.split(",")]
        if len(counts) != experts or sum(counts) == 0:
            yield f"{len(counts)} counts for {experts} experts; give one for each, not all 0, or balanced"
    elif expert_load != "balanced" and not experts:
        yield f"{expert_load}, but {model.name} has no experts; remove it"
