"""Rules of plans beyond tensor, pipeline and data parallelism, and of how a framework runs them."""

from __future__ import annotations

from dataclasses import fields

from predict.config.rules import Problem, rule
from predict.model.spec import ModelSpec
from predict.run.execution import WHOLE_LAYERS, Execution
from predict.run.plan import BEST, Plan
from predict.run.stage_layout import split_layers
from sampling.errors import ConfigError
from sampling.files.faults import divisors, near_multiples

OTHERS = "choose execution.framework: megatron-core, or another that is made of operators"


@rule("plan.cp", "cp", "framework")
def _whole_layers_have_no_context_parallelism(cp: int, framework: str) -> Problem:
    return _of_operators_alone(framework, cp > 1, f"{cp}: context parallelism")


@rule("plan.zero", "zero", "framework")
def _whole_layers_shard_the_optimizer_alone(zero: int, framework: str) -> Problem:
    return _of_operators_alone(framework, zero > 1, f"{zero}: sharded gradients and weights")


@rule("plan.recompute", "recompute", "framework")
def _whole_layers_repeat_all_or_nothing(recompute: str, framework: str) -> Problem:
    return _of_operators_alone(framework, recompute == "selective", "selective recomputation")


@rule("precision", "precision", "framework")
def _whole_layers_are_of_one_dtype(precision: str, framework: str) -> Problem:
    return _of_operators_alone(framework, precision in ("fp8", "tf32"), f"{precision} products")


@rule("model.model_type", "spec", "framework")
def _whole_layers_are_plain(spec: ModelSpec, framework: str) -> Problem:
    plain = not (
        spec.layer_kinds or spec.latent or spec.qk_norm or spec.query_gate or spec.rotary_dim or spec.logit_cap
    )
    plain = plain and spec.norms_a_layer == 2 and not spec.parallel_residual and not spec.mtp_layers
    return _of_operators_alone(framework, not plain, f"{spec.name}: layers other than plain dense ones")


def _of_operators_alone(framework: str, asked: bool, what: str) -> Problem:
    if framework != WHOLE_LAYERS or not asked:
        return None
    return f"{what}: not modelled with execution.framework {WHOLE_LAYERS}; {OTHERS}"


@rule("plan.ep", "ep", "etp", "spec")
def _experts_need_a_mixture(ep: int, etp: int, spec: ModelSpec) -> Problem:
    if spec.experts or ep * etp == 1:
        return None
    return f"{ep} (plan.etp {etp}) spreads experts, and {spec.name} has none; set both to 1"


@rule("plan.ep", "ep", "spec")
def _experts_over_ranks(ep: int, spec: ModelSpec) -> Problem:
    if not spec.experts or spec.experts.count % ep == 0:
        return None
    return f"{ep} does not divide the {spec.experts.count} experts; set one of {divisors(spec.experts.count)}"


@rule("plan.etp", "etp", "spec")
def _expert_width_over_ranks(etp: int, spec: ModelSpec) -> Problem:
    if not spec.experts or spec.experts.ffn % etp == 0:
        return None
    return f"{etp} does not divide the experts' width {spec.experts.ffn}; set one of {divisors(spec.experts.ffn)}"


@rule("plan.ep", "ep", "etp", "tp", "cp", "dp")
def _experts_tile_a_stage(ep: int, etp: int, tp: int, cp: int, dp: int) -> Problem:
    ranks = tp * cp * dp
    if ranks % (ep * etp) == 0:
        return None
    return f"ep · etp = {ep * etp} does not divide the tp · cp · dp = {ranks} ranks of a stage, which experts fold into; set one of {divisors(ranks)}"


@rule("plan.sp", "sp", "tp", "spec")
def _mixtures_route_shares_of_the_sequence(sp: bool, tp: int, spec: ModelSpec) -> Problem:
    if not spec.experts or tp == 1 or sp:
        return None
    return "false, but Megatron's mixtures with plan.tp above 1 need it; set plan.sp to true"


@rule("plan.shard", "shard", "dp", "cp", "zero")
def _shards_tile_the_replicas(shard: int, dp: int, cp: int, zero: int) -> Problem:
    if not shard:
        return None
    if not zero:
        return f"{shard} ranks share a state that plan.zero 0 does not shard; set plan.zero to 1 or more, or plan.shard to 0"
    if dp * cp % shard == 0:
        return None
    return f"{shard} does not divide the dp · cp = {dp * cp} replicas; set one of {divisors(dp * cp)}"


@rule("plan.cp_method", "cp_method", "cp", "tp", "heads", "kv_heads")
def _heads_over_context_ranks(cp_method: str, cp: int, tp: int, heads: int, kv_heads: int) -> Problem:
    if cp_method != "all_to_all" or cp == 1 or (heads % (tp * cp) == 0 and kv_heads % (tp * cp) == 0):
        return None
    return (
        f"all_to_all shares {heads} heads, {kv_heads} of them of keys, among tp · cp = {tp * cp} ranks, which do not divide "
        "both; take ring, or change plan.cp"
    )


@rule("plan.cp", "cp", "attention")
def _unfused_attention_is_whole(cp: int, attention: str) -> Problem:
    if cp == 1 or attention != "unfused":
        return None
    return f"{cp} needs a fused attention kernel; set execution.attention to best, or plan.cp to 1"


@rule("batch.seq_len", "seq_len", "sp", "tp", "cp")
def _sequence_over_tp_and_cp(seq_len: int, sp: bool, tp: int, cp: int) -> Problem:
    if not sp or seq_len % tp or seq_len % cp or seq_len % (tp * cp) == 0:
        return None
    nearest = near_multiples(seq_len, tp * cp)
    return f"{seq_len} is not a multiple of plan.tp · plan.cp = {tp} · {cp} = {tp * cp}, which plan.sp needs; set {nearest}"


@rule("plan.layout", "layout", "first_stage_layers", "last_stage_layers", "count_embedding", "count_loss")
def _one_way_of_splitting(layout: str, first: int, last: int, count_embedding: int, count_loss: int) -> Problem:
    ways = [bool(layout), bool(first or last), bool(count_embedding or count_loss)]
    if sum(ways) < 2:
        return None
    return (
        "plan.layout, plan.first_stage_layers / last_stage_layers and plan.count_embedding / count_loss each split the "
        "layers in their own way; keep one of them"
    )


@rule(
    "plan.layout",
    "layers",
    "pp",
    "vpp",
    "schedule",
    "layout",
    "first_stage_layers",
    "last_stage_layers",
    "count_embedding",
    "count_loss",
)
def _layers_fit_the_stages(
    layers: int,
    pp: int,
    vpp: int,
    schedule: str,
    layout: str,
    first_stage_layers: int,
    last_stage_layers: int,
    count_embedding: int,
    count_loss: int,
) -> Problem:
    from predict.schedules import registry

    if schedule == BEST or schedule not in registry.names():
        return None
    depth = registry.get(schedule).placement(pp, vpp).depth
    plan = Plan(
        pp=pp,
        vpp=vpp,
        layout=layout,
        first_stage_layers=first_stage_layers,
        last_stage_layers=last_stage_layers,
        count_embedding=count_embedding,
        count_loss=count_loss,
    )
    try:
        split_layers(layers, depth, plan)
    except ConfigError as error:
        return str(error).removeprefix("plan.layout: ")
    return None


@rule("execution.overlap_ep", "overlap_ep", "spec")
def _shared_experts_hide_the_exchange(overlap_ep: str, spec: ModelSpec) -> Problem:
    if overlap_ep != "shared_expert" or (spec.experts and spec.experts.shared_ffn):
        return None
    return f"shared_expert, but {spec.name} has no shared expert; set it to none or microbatch"


@rule("execution.fp8_recipe", "fp8_recipe", "precision")
def _recipe_of_fp8(fp8_recipe: str, precision: str) -> Problem:
    if not fp8_recipe or precision == "fp8":
        return None
    return (
        f"{fp8_recipe} is a way to scale fp8 products, but precision is {precision}; remove it, or set precision to fp8"
    )


@rule("execution.expert_load", "expert_load", "spec")
def _a_count_for_each_expert(expert_load: str, spec: ModelSpec) -> Problem:
    if "," not in expert_load:
        return None
    counts = [float(count) for count in expert_load.split(",")]
    experts = spec.experts.count if spec.experts else 0
    if len(counts) == experts and sum(counts) > 0:
        return None
    return f"{len(counts)} counts for {experts} experts; give one for each, not all 0, or balanced"


@rule("plan.recompute_method", "recompute_method", "recompute", "framework")
def _a_method_of_full_recomputation(recompute_method: str, recompute: str, framework: str) -> Problem:
    if recompute_method == "uniform":
        return None
    if recompute != "full":
        return f"{recompute_method} is a way of full recomputation, but plan.recompute is {recompute}; remove it, or set that to full"
    return _of_operators_alone(framework, True, "block recomputation")


@rule("plan.recompute_layers", "recompute_layers", "recompute_method")
def _layers_of_a_block(recompute_layers: int, recompute_method: str) -> Problem:
    if recompute_layers == 1 or recompute_method == "block":
        return None
    return f"{recompute_layers} layers are of plan.recompute_method block, which is {recompute_method}; remove it, or set that to block"


@rule("execution.expert_load", "expert_load", "spec")
def _loads_are_of_experts(expert_load: str, spec: ModelSpec) -> Problem:
    if expert_load == "balanced" or "," in expert_load or spec.experts:
        return None
    return f"{expert_load}, but {spec.name} has no experts; remove it"


@rule("execution.overlap_ep", "overlap_ep", "spec")
def _exchanges_are_of_experts(overlap_ep: str, spec: ModelSpec) -> Problem:
    if overlap_ep in ("none", "shared_expert") or spec.experts:
        return None
    return f"{overlap_ep}, but {spec.name} has no experts; set it to none"


@rule("execution.framework", *(field.name for field in fields(Execution)))
def _whole_layers_run_as_they_are(*values: object) -> Problem:
    settings = dict(zip((field.name for field in fields(Execution)), values, strict=True))
    if settings["framework"] != WHOLE_LAYERS:
        return None
    changed = [
        field.name for field in fields(Execution) if field.name != "framework" and settings[field.name] != field.default
    ]
    if not changed:
        return None
    return f"{WHOLE_LAYERS} runs whole layers as they are, so {', '.join(changed)} would change nothing; remove that, or {OTHERS}"
