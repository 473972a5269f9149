"""Rules of how tensor, context and data parallelism divide the model and the ranks."""

from predict.config.rules.degrees import spreads, tensor_degrees
from predict.config.rules.rule import Problems, rule
from predict.model.spec import ModelSpec
from predict.run.execution import WHOLE_LAYERS
from predict.run.offload import Offload
from sampling.files.faults import divisors


@rule("plan.dp", "tp · pp · cp · dp is not the number of GPUs")
def degrees_make_the_world(dp: int, tp: int, pp: int, cp: int, nodes: int, gpus_per_node: int) -> Problems:
    model_ranks, world = tp * pp * cp, nodes * gpus_per_node
    says = f"tp · pp · cp · dp = {model_ranks * dp}, but the cluster has nodes · gpus_per_node = {world} ranks"
    if world % model_ranks:
        yield f"{says}; no plan.dp mends that; set tp · pp · cp, now {model_ranks}, to {divisors(world)}"
    elif model_ranks * dp != world:
        yield f"{says}; set plan.dp to {world // model_ranks}"


@rule("plan.tp", "the heads do not divide by tp", of_each_model=True)
def tp_divides_heads(tp: int, heads: int, *, kv_heads: int = 0, ffn: int = 0, framework: str = "") -> Problems:
    if heads % tp:
        advice = tensor_degrees(heads, kv_heads, ffn, framework)
        yield f"{tp} does not divide the {heads} attention heads; set {advice}"


@rule("plan.tp", "the key and value heads do not divide by tp", of_each_model=True)
def tp_divides_kv_heads(tp: int, kv_heads: int, heads: int, framework: str, *, ffn: int = 0) -> Problems:
    if kv_heads != heads and not spreads(kv_heads, tp, framework):
        also = f" (framework {WHOLE_LAYERS} copies no heads)" if kv_heads < tp else ""
        advice = tensor_degrees(heads, kv_heads, ffn, framework)
        yield f"{tp} does not divide the {kv_heads} key and value heads{also}; set {advice}"


@rule("plan.tp", "the width of the MLP does not divide by tp", of_each_model=True)
def tp_divides_ffn(tp: int, ffn: int, *, heads: int = 0, kv_heads: int = 0, framework: str = "") -> Problems:
    if ffn % tp:
        advice = tensor_degrees(heads, kv_heads, ffn, framework)
        yield f"{tp} does not divide the MLP's width {ffn}; set {advice}"


@rule("model.vocab_size", "the vocabulary does not divide by tp")
def tp_divides_vocabulary(
    vocab: int, tp: int, framework: str, *, heads: int = 0, kv_heads: int = 0, ffn: int = 0
) -> Problems:
    if vocab % tp and framework == WHOLE_LAYERS:
        padded = -(-vocab // tp) * tp
        advice = tensor_degrees(heads, kv_heads, ffn, framework, vocab)
        yield (
            f"{vocab} is not a multiple of plan.tp = {tp}, and torch pads no vocabulary; set plan.tp to {advice}, or vocab_size to "
            f"{padded}"
        )


@rule("plan.tp", "tp splits norms over all heads, whose exchange is not modelled", of_each_model=True)
def norms_over_all_heads_stay_whole(tp: int, model: ModelSpec) -> Problems:
    if tp > 1 and model.qk_norm_all_heads:
        yield (
            f"{tp} splits the norms that {model.name} puts over all heads of queries and keys, whose exchange of sums is not "
            "modelled; set plan.tp to 1"
        )


@rule("plan.sp", "sequence parallelism without tensor parallelism")
def sp_needs_tp(sp: bool, tp: int) -> Problems:
    if sp and tp == 1:
        yield "true needs plan.tp above 1; set plan.sp to false, or plan.tp to 2 or more"


@rule("plan.cp_method", "the heads do not divide by tp · cp", of_each_model=True)
def cp_divides_heads(cp_method: str, cp: int, tp: int, heads: int, kv_heads: int) -> Problems:
    if cp_method == "all_to_all" and cp > 1 and (heads % (tp * cp) or kv_heads % (tp * cp)):
        yield (
            f"all_to_all spreads {heads} query heads and {kv_heads} key and value heads over tp · cp = {tp * cp} ranks, "
            "which does not divide both; use ring, or change plan.cp"
        )


@rule("plan.cp", "context parallelism without fused attention")
def cp_needs_fused_attention(cp: int, attention: str) -> Problems:
    if cp > 1 and attention == "unfused":
        yield f"{cp} needs a fused attention kernel; set execution.attention to best, or plan.cp to 1"


@rule("plan.zero", "the state is sharded, but there is one replica alone")
def zero_needs_replicas(zero: int, dp: int, cp: int, gradients_on_host: bool, shards_on: str) -> Problems:
    offload = Offload(gradients_on_host=gradients_on_host, shards_on=shards_on)
    if zero and dp * cp == 1 and not offload.takes_shards:
        yield f"{zero} needs plan.dp above 1; set plan.zero to 0, or plan.dp to 2 or more"


@rule("plan.shard", "the replicas do not divide by shard")
def shards_divide_replicas(shard: int, dp: int, cp: int, zero: int) -> Problems:
    if shard and not zero:
        yield f"{shard} ranks share a state that plan.zero 0 does not shard; set plan.zero to 1 or more, or plan.shard to 0"
    elif shard and dp * cp % shard:
        yield f"{shard} does not divide the dp · cp = {dp * cp} replicas; set {divisors(dp * cp)}"
