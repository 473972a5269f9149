"""Rules of how tensor, context and data parallelism divide the model and the ranks."""

from __future__ import annotations

from predict.config.rules.rule import Problems, rule
from predict.model.spec import ModelSpec
from predict.rank.weights import padded_vocabulary
from predict.run.execution import WHOLE_LAYERS
from sampling.files.faults import divisors


@rule("plan.dp")
def degrees_make_the_world(dp: int, tp: int, pp: int, cp: int, nodes: int, gpus_per_node: int) -> Problems:
    model_ranks, world = tp * pp * cp, nodes * gpus_per_node
    says = f"tp · pp · cp · dp = {model_ranks * dp}, but the cluster has nodes · gpus_per_node = {world} ranks"
    if world % model_ranks:
        yield f"{says}; no plan.dp mends that; set tp · pp · cp, now {model_ranks}, to one of {divisors(world)}"
    elif model_ranks * dp != world:
        yield f"{says}; set plan.dp to {world // model_ranks}"


@rule("plan.tp")
def tp_divides_heads(tp: int, heads: int) -> Problems:
    if heads % tp:
        yield f"{tp} does not divide the {heads} attention heads; set one of {divisors(heads)}"


@rule("plan.tp")
def tp_divides_kv_heads(tp: int, kv_heads: int, heads: int, framework: str) -> Problems:
    copied = tp % kv_heads == 0 and framework != WHOLE_LAYERS  # the ranks keep copies of a head
    if kv_heads % tp and kv_heads != heads and not copied:
        also = f" (framework {WHOLE_LAYERS} copies no heads)" if kv_heads < tp else ""
        yield f"{tp} does not divide the {kv_heads} key and value heads{also}; set one of {divisors(kv_heads)}"


@rule("plan.tp")
def tp_divides_ffn(tp: int, ffn: int) -> Problems:
    if ffn % tp:
        yield f"{tp} does not divide the MLP's width {ffn}; set one of {divisors(ffn)}"


@rule("model.vocab_size")
def tp_divides_vocabulary(vocab: int, tp: int, framework: str) -> Problems:
    if vocab % tp and framework == WHOLE_LAYERS:
        padded = padded_vocabulary(vocab, tp)
        yield f"{vocab} is not a multiple of plan.tp = {tp}; Megatron would pad it to {padded}: set vocab_size to {padded}"


@rule("plan.tp")
def norms_over_all_heads_stay_whole(tp: int, model: ModelSpec) -> Problems:
    if tp > 1 and model.qk_norm_all_heads:
        yield (
            f"{tp} splits the norms that {model.name} puts over all heads of queries and keys, whose exchange of sums is not "
            "modelled; set plan.tp to 1"
        )


@rule("plan.sp")
def sp_needs_tp(sp: bool, tp: int) -> Problems:
    if sp and tp == 1:
        yield "true needs plan.tp above 1; set plan.sp to false, or plan.tp to 2 or more"


@rule("plan.cp_method")
def cp_divides_heads(cp_method: str, cp: int, tp: int, heads: int, kv_heads: int) -> Problems:
    if cp_method == "all_to_all" and cp > 1 and (heads % (tp * cp) or kv_heads % (tp * cp)):
        yield (
            f"all_to_all spreads {heads} query heads and {kv_heads} key and value heads over tp · cp = {tp * cp} ranks, "
            "which does not divide both; use ring, or change plan.cp"
        )


@rule("plan.cp")
def cp_needs_fused_attention(cp: int, attention: str) -> Problems:
    if cp > 1 and attention == "unfused":
        yield f"{cp} needs a fused attention kernel; set execution.attention to best, or plan.cp to 1"


@rule("plan.zero")
def zero_needs_replicas(zero: int, dp: int, cp: int) -> Problems:
    if zero and dp * cp == 1:
        yield f"{zero} needs plan.dp above 1; set plan.zero to 0, or plan.dp to 2 or more"


@rule("plan.shard")
def shards_divide_replicas(shard: int, dp: int, cp: int, zero: int) -> Problems:
    if shard and not zero:
        yield f"{shard} ranks share a state that plan.zero 0 does not shard; set plan.zero to 1 or more, or plan.shard to 0"
    elif shard and dp * cp % shard:
        yield f"{shard} does not divide the dp · cp = {dp * cp} replicas; set one of {divisors(dp * cp)}"
