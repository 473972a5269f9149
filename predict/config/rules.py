"""The rules across keys: what each value must be, given the others.

A rule names the key path it blames and the values it looks at, and runs when all of them are sound on their own; so a
fault in one place hides none elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from predict.run.execution import WHOLE_LAYERS
from predict.run.plan import BEST
from predict.workload.rank.weights import padded_vocabulary
from sampling.errors import ConfigError
from sampling.files.faults import Fault, divisors, near_multiples, shown
from sampling.hardware.cluster import hardware_facts

Problem = str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """A check over several values; it returns the problem, or None."""

    path: str
    needs: tuple[str, ...]
    check: Callable[..., Problem]


RULES: list[Rule] = []


def rule(path: str, *needs: str) -> Callable[[Callable[..., Problem]], Callable[..., Problem]]:
    """Declare a rule that blames `path` and looks at the values `needs`, which it is called with in that order."""

    def declare(check: Callable[..., Problem]) -> Callable[..., Problem]:
        RULES.append(Rule(path=path, needs=needs, check=check))
        return check

    return declare


def broken_rules(values: Mapping[str, Any]) -> Iterator[Fault]:
    """A fault for each rule that the values break; rules that lack a value are passed over."""
    for each in RULES:
        if all(need in values for need in each.needs):
            problem = each.check(*(values[need] for need in each.needs))
            if problem is not None:
                yield Fault(path=each.path, problem=problem)


@rule("plan.tp", "tp", "heads")
def _heads_over_tp(tp: int, heads: int) -> Problem:
    if heads % tp == 0:
        return None
    return f"{tp} does not divide the {heads} attention heads; set one of {divisors(heads)}"


@rule("plan.tp", "tp", "kv_heads", "heads", "framework")
def _kv_heads_over_tp(tp: int, kv_heads: int, heads: int, framework: str) -> Problem:
    if kv_heads % tp == 0 or kv_heads == heads:
        return None
    if tp % kv_heads == 0 and framework != WHOLE_LAYERS:
        return None  # the ranks keep copies of a head
    also = f" (framework {WHOLE_LAYERS} copies no heads)" if kv_heads < tp else ""
    return f"{tp} does not divide the {kv_heads} key and value heads{also}; set one of {divisors(kv_heads)}"


@rule("plan.tp", "tp", "ffn")
def _ffn_over_tp(tp: int, ffn: int) -> Problem:
    if ffn % tp == 0:
        return None
    return f"{tp} does not divide the MLP's width {ffn}; set one of {divisors(ffn)}"


@rule("model.vocab_size", "vocab", "tp", "framework")
def _vocabulary_over_tp(vocab: int, tp: int, framework: str) -> Problem:
    if vocab % tp == 0 or framework != WHOLE_LAYERS:
        return None
    padded = padded_vocabulary(vocab, tp)
    return f"{vocab} is not a multiple of plan.tp = {tp}; Megatron would pad it to {padded}: set vocab_size to {padded}"


@rule("plan.sp", "sp", "tp")
def _sequence_parallel_needs_tp(sp: bool, tp: int) -> Problem:
    return "true needs plan.tp above 1; set plan.sp to false, or plan.tp to 2 or more" if sp and tp == 1 else None


@rule("batch.seq_len", "seq_len", "sp", "tp")
def _sequence_over_tp(seq_len: int, sp: bool, tp: int) -> Problem:
    if not sp or seq_len % tp == 0:
        return None
    return f"{seq_len} is not a multiple of plan.tp = {tp}, which plan.sp needs; set {near_multiples(seq_len, tp)}"


@rule("batch.seq_len", "seq_len", "cp")
def _sequence_over_cp(seq_len: int, cp: int) -> Problem:
    if seq_len % cp == 0:
        return None
    return f"{seq_len} is not a multiple of plan.cp = {cp}; set {near_multiples(seq_len, cp)}"


@rule("batch.seq_len", "seq_len", "max_positions", "rope")
def _positions(seq_len: int, max_positions: int, rope: bool) -> Problem:
    if rope or seq_len <= max_positions:
        return None
    return f"{seq_len} is longer than the model's {max_positions} learnt positions; set {max_positions} or less"


@rule("plan.zero", "zero", "dp", "cp")
def _sharding_needs_replicas(zero: int, dp: int, cp: int) -> Problem:
    if zero and dp * cp == 1:
        return f"{zero} needs plan.dp above 1; set plan.zero to 0, or plan.dp to 2 or more"
    return None


@rule("plan.vpp", "vpp", "pp")
def _virtual_stages_need_pp(vpp: int, pp: int) -> Problem:
    return f"{vpp} needs plan.pp above 1; set plan.vpp to 1" if vpp > 1 and pp == 1 else None


@rule("plan.pp", "pp", "layers")
def _layers_over_ranks(pp: int, layers: int) -> Problem:
    return f"{pp} makes {pp} stages of {layers} layers; set it to {layers} or less" if layers < pp else None


def _stages(schedule: str, pp: int, vpp: int) -> int:
    """Of one copy of the model: DualPipe's two chunks a rank are of two copies. For best, of the schedule with the fewest
    among those that run so many chunks, whatever the microbatches."""
    from predict.schedules import registry

    names = registry.fitting(pp, vpp, 4 * pp) if schedule == BEST else [schedule]
    depths = [registry.get(name).placement(pp, vpp).depth for name in names if name in registry.names()]
    return min(depths, default=pp * vpp)


@rule("plan.vpp", "vpp", "pp", "layers", "schedule", "count_embedding", "count_loss")
def _layers_over_stages(
    vpp: int, pp: int, layers: int, schedule: str, count_embedding: int, count_loss: int
) -> Problem:
    stages = _stages(schedule, pp, vpp)
    if layers + count_embedding + count_loss >= stages or layers < pp:
        return None
    return f"{vpp} × plan.pp = {pp} makes {stages} stages of {layers} layers; set pp · vpp to {layers} or less"


@rule("batch.global", "global", "micro", "dp")
def _batch_over_replicas(global_: int, micro: int, dp: int) -> Problem:
    at_once = micro * dp
    if global_ % at_once == 0:
        return None
    multiples = near_multiples(global_, at_once)
    return f"{global_} is not a multiple of batch.micro · plan.dp = {micro} · {dp} = {at_once}; set {multiples}"


@rule("plan.dp", "dp", "tp", "pp", "cp", "nodes", "gpus_per_node")
def _ranks(dp: int, tp: int, pp: int, cp: int, nodes: int, gpus_per_node: int) -> Problem:
    model_ranks, world = tp * pp * cp, nodes * gpus_per_node
    if model_ranks * dp == world:
        return None
    says = f"tp · pp · cp · dp = {model_ranks * dp}, but the cluster has nodes · gpus_per_node = {world} ranks"
    if world % model_ranks:
        return f"{says}; no dp mends that: choose tp · pp · cp (now {model_ranks}) among {divisors(world)}"
    return f"{says}; set plan.dp to {world // model_ranks}"


@rule("precision", "precision", "hardware")
def _precision_of_hardware(precision: str, hardware: str) -> Problem:
    facts = hardware_facts(hardware)
    known = list(facts.peak_tflops)
    if precision in known:
        return None
    return f"{precision} is not among what {facts.name} computes in; set one of {', '.join(known)}"


@rule("cluster.cores", "cores", "hardware")
def _cores_of_cpu(cores: int, hardware: str) -> Problem:
    facts = hardware_facts(hardware)
    return f"{cores} means nothing on {facts.name}; remove it" if facts.kind != "cpu" else None


@rule("cluster.gpus_per_node", "gpus_per_node", "cores", "hardware")
def _ranks_over_cores(gpus_per_node: int, cores: int, hardware: str) -> Problem:
    if hardware_facts(hardware).kind != "cpu" or cores >= gpus_per_node:
        return None
    says = f"{gpus_per_node} ranks cannot share {cores} cores of a machine, each needs one"
    return f"{says}; set it to {cores} or less, or cluster.cores to {gpus_per_node} or more"


@rule("cluster.profile", "profile")
def _profile_is_a_name(profile: str) -> Problem:
    if re.fullmatch(r"\w[\w.-]*", profile):
        return None
    return f"{shown(profile)} is not a plain name; use letters, digits, '.', '_' and '-'"


@rule("plan.schedule", "schedule", "pp", "vpp", "global", "micro", "dp")
def _schedule_runs(schedule: str, pp: int, vpp: int, global_: int, micro: int, dp: int) -> Problem:
    from predict.schedules import registry

    microbatches = max(1, global_ // (micro * dp))
    if schedule == BEST:
        return (
            None
            if registry.fitting(pp, vpp, microbatches)
            else f"no schedule runs plan.pp = {pp}, plan.vpp = {vpp} and {microbatches} microbatches"
        )
    try:
        wanted = registry.get(schedule)
    except ConfigError as error:
        return str(error)
    reason = wanted.refusal(pp, vpp, microbatches)
    if reason is None:
        return None
    others = registry.fitting_in_words(pp, vpp, microbatches)
    fitting = [chunks for chunks in (1, 2) if wanted.refusal(pp, chunks, microbatches) is None]
    if fitting:
        return f"{schedule} {reason}; set plan.vpp to {fitting[0]}, or take another schedule{others}"
    return f"{schedule} {reason}; change these counts or take another schedule{others}"


@rule("plan.recompute", "recompute", "schedule")
def _schedule_recomputes(recompute: str, schedule: str) -> Problem:
    from predict.schedules import registry

    if recompute == "none" or schedule == BEST:
        return None
    try:
        reason = registry.get(schedule).recompute_refusal
    except ConfigError:  # the rule of plan.schedule says so
        return None
    if reason is None:
        return None
    return f"{recompute} does not go with {schedule}, which {reason}; set plan.recompute to none, or take a schedule with whole backwards"
