"""Rules of how a batch, its sequences and the experts of a mixture are shared among ranks."""

from math import gcd

from predict.config.rules.degrees import tensor_degrees
from predict.config.rules.rule import Problems, rule
from predict.layers.routing import is_number
from predict.model.spec import ModelSpec
from predict.run.lengths import PADDED
from sampling.arithmetic.expert_rows import BALANCED
from sampling.files.faults import divisors, near_multiples


@rule("batch.global", "the batch does not divide into microbatches on every replica")
def replicas_divide_the_batch(global_: int, micro: int, dp: int) -> Problems:
    at_once = micro * dp
    if global_ % at_once:
        multiples = near_multiples(global_, at_once)
        yield f"{global_} is not a multiple of batch.micro · plan.dp = {micro} · {dp} = {at_once}; set {multiples}"


@rule("batch.padding", "a way of padding for sequences that are all as long as a row")
def padding_needs_lengths(padding: str, lengths: str) -> Problems:
    if padding != PADDED and not lengths:
        yield f"{padding} without batch.lengths changes nothing, since every sequence is as long as a row; give them, or omit it"


@rule("batch.seq_len", "the sequence does not divide by tp")
def tp_divides_the_sequence(
    seq_len: int, sp: bool, tp: int, *, heads: int = 0, kv_heads: int = 0, ffn: int = 0, framework: str = ""
) -> Problems:
    if sp and seq_len % tp:
        advice = tensor_degrees(heads, kv_heads, ffn, framework, seq_len)
        yield (
            f"{seq_len} is not a multiple of plan.tp = {tp}, which plan.sp needs; set plan.tp to {advice}, or batch.seq_len to "
            f"{near_multiples(seq_len, tp)}"
        )


@rule("batch.seq_len", "the sequence does not divide by cp")
def cp_divides_the_sequence(seq_len: int, cp: int, *, nodes: int = 0, gpus_per_node: int = 0) -> Problems:
    if seq_len % cp:
        advice = divisors(gcd(seq_len, nodes * gpus_per_node))
        yield (
            f"{seq_len} is not a multiple of plan.cp = {cp}; set plan.cp to {advice}, or batch.seq_len to {near_multiples(seq_len, cp)}"
        )


@rule("batch.seq_len", "the sequence does not divide by tp · cp")
def tp_and_cp_divide_the_sequence(seq_len: int, sp: bool, tp: int, cp: int) -> Problems:
    if sp and seq_len % tp == 0 and seq_len % cp == 0 and seq_len % (tp * cp):
        nearest = near_multiples(seq_len, tp * cp)
        yield f"{seq_len} is not a multiple of plan.tp · plan.cp = {tp} · {cp} = {tp * cp}, which plan.sp needs; set {nearest}"


@rule("batch.seq_len", "the sequence is longer than the model's positions", of_each_model=True)
def positions_suffice(seq_len: int, model: ModelSpec) -> Problems:
    if model.learns_positions and 0 < (most := model.max_positions) < seq_len:
        yield f"{seq_len} is longer than the model's {most} learnt positions; set {most} or less"


@rule("plan.ep", "ep is above 1 for a model without experts")
def ep_needs_experts(ep: int, etp: int, model: ModelSpec) -> Problems:
    if not model.experts and ep * etp > 1:
        yield f"{ep} (plan.etp {etp}) spreads experts, and {model.name} has none; set both to 1"


@rule("plan.ep", "the experts do not divide by ep", of_each_model=True)
def ep_divides_experts(ep: int, model: ModelSpec) -> Problems:
    if model.experts and model.experts.count % ep:
        yield f"{ep} does not divide the {model.experts.count} experts; set {divisors(model.experts.count)}"


@rule("plan.etp", "an expert's width does not divide by etp", of_each_model=True)
def etp_divides_expert_width(etp: int, model: ModelSpec) -> Problems:
    if model.experts and model.experts.ffn % etp:
        yield f"{etp} does not divide the experts' width {model.experts.ffn}; set {divisors(model.experts.ffn)}"


@rule("plan.ep", "the ranks of a pipeline stage do not divide by ep · etp")
def experts_fold_into_a_stage(ep: int, etp: int, tp: int, cp: int, dp: int) -> Problems:
    ranks = tp * cp * dp
    if ranks % (ep * etp):
        yield (
            f"ep · etp = {ep * etp} does not divide the tp · cp · dp = {ranks} ranks of a stage, which experts fold into; "
            f"set {divisors(ranks)}"
        )


@rule("plan.sp", "a mixture under tensor parallelism lacks sequence parallelism", of_each_model=True)
def mixtures_need_sp(sp: bool, tp: int, model: ModelSpec) -> Problems:
    if model.experts and tp > 1 and not sp:
        yield "false, but Megatron's mixtures with plan.tp above 1 need it; set plan.sp to true"


@rule("execution.overlap_ep", "the model lacks the experts that would hide the exchange")
def shared_experts_hide_the_exchange(overlap_ep: str, model: ModelSpec) -> Problems:
    if overlap_ep == "shared_expert" and not (model.experts and model.experts.shared_ffn):
        yield f"shared_expert, but {model.name} has no shared expert; set it to none or microbatch"
    elif overlap_ep == "microbatch" and not model.experts:
        yield f"{overlap_ep}, but {model.name} has no experts; set it to none"


@rule("execution.expert_load", "the load is not that of the model's experts")
def load_is_of_the_experts(expert_load: str, model: ModelSpec) -> Problems:
    experts = model.experts.count if model.experts else 0
    if "," in expert_load:
        counts = [float(count) for count in expert_load.split(",")]
        if len(counts) != experts or sum(counts) == 0:
            yield f"{len(counts)} counts for {experts} experts; give one for each, not all 0, or balanced"
    elif expert_load != BALANCED and not experts:
        yield f"{expert_load}, but {model.name} has no experts; remove it"
    elif is_number(expert_load) and not 1 <= float(expert_load) <= experts:
        yield f"{expert_load} is not the load of a busiest rank over the mean, which is from 1 to the {experts} experts; give that"
