"""The rules across keys, by topic: what each value must be, given the others."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from math import gcd
from typing import Any

from predict.huggingface.families.family import MOST_LAYERS
from predict.layers.adapters import unknown_targets
from predict.layers.routing import is_number
from predict.model.spec import NO_MIXER, ModelSpec
from predict.rank.share import NARROW, WIDER, padded_vocabulary
from predict.run.adapters import Adapters
from predict.run.execution import ADDING, ADDING_NOTHING, WHOLE_LAYERS, Execution
from predict.run.frameworks import framework_names, memory_profile
from predict.run.lengths import PACKED, PADDED
from predict.run.offload import DISK, GPU, Offload
from predict.run.plan import AUTO, BEST, Plan
from predict.run.stages import split_layers
from predict.run.training_run import SHARDED_GRADIENTS
from predict.run.tuning import DISTILL, REWARD, SFT
from predict.run.vision import ALL
from sampling.arithmetic.expert_rows import BALANCED
from sampling.errors import ConfigError
from sampling.files.faults import Fault, divisors, near_multiples, shown
from sampling.hardware.cluster import hardware_facts
from sampling.hardware.hardware_file import ELEMENT_BYTES, PEAK_OF, Hardware
from sampling.number_text import plain

# Rules across keys, and the check of all of them.
#
# A rule names the key path it blames and takes the values it looks at. It runs when all of them are sound on their own, so a
# fault in one place hides none elsewhere.

Problems = Iterator[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """A check over several values, which yields what is wrong with them: the value, the reason, the fix."""

    path: str
    """The key path that the problems are reported at."""
    needs: tuple[str, ...]
    """Names of the values: keys of the sections, fields of the model, and `model` for all of it."""
    check: Callable[..., Problems]

    @property
    def advised_by(self) -> tuple[str, ...]:
        """Names of further values, which only its advice looks at: its keyword parameters, each with a default for one that is not
        sound."""
        return tuple(getattr(self.check, "__kwdefaults__", None) or ())


RULES: list[Rule] = []


def rule(path: str, *needs: str) -> Callable[[Callable[..., Problems]], Callable[..., Problems]]:
    """Declare a rule that blames `path`. Its parameters are the names of the values it needs, unless `needs` names them."""

    def declare(check: Callable[..., Problems]) -> Callable[..., Problems]:
        parameters = check.__code__.co_varnames[: check.__code__.co_argcount]
        RULES.append(Rule(path=path, needs=needs or tuple(name.rstrip("_") for name in parameters), check=check))
        return check

    return declare


def broken_rules(values: Mapping[str, Any]) -> Iterator[Fault]:
    """A fault for each rule that the values break; rules that lack a value are passed over."""
    for each in RULES:
        if all(need in values for need in each.needs):
            advising = {name: values[name] for name in each.advised_by if name in values}
            for problem in each.check(*(values[need] for need in each.needs), **advising):
                yield Fault(path=each.path, problem=problem, needs=each.needs)


def values_of_model(model: ModelSpec) -> dict[str, Any]:
    """A model's values by the names under which rules ask for them."""
    return {field.name: getattr(model, field.name) for field in fields(model)} | {"model": model}


# Rules of how a batch is divided among replicas, and a sequence among ranks.


@rule("batch.global")
def replicas_divide_the_batch(global_: int, micro: int, dp: int) -> Problems:
    at_once = micro * dp
    if global_ % at_once:
        multiples = near_multiples(global_, at_once)
        yield f"{global_} is not a multiple of batch.micro · plan.dp = {micro} · {dp} = {at_once}; set {multiples}"


@rule("batch.padding")
def padding_needs_lengths(padding: str, lengths: str) -> Problems:
    if padding != PADDED and not lengths:
        yield f"{padding} without batch.lengths changes nothing, since every sequence is as long as a row; give them, or omit it"


@rule("batch.seq_len")
def tp_divides_the_sequence(seq_len: int, sp: bool, tp: int) -> Problems:
    if sp and seq_len % tp:
        yield f"{seq_len} is not a multiple of plan.tp = {tp}, which plan.sp needs; set {near_multiples(seq_len, tp)}"


@rule("batch.seq_len")
def cp_divides_the_sequence(seq_len: int, cp: int) -> Problems:
    if seq_len % cp:
        yield f"{seq_len} is not a multiple of plan.cp = {cp}; set {near_multiples(seq_len, cp)}"


@rule("batch.seq_len")
def tp_and_cp_divide_the_sequence(seq_len: int, sp: bool, tp: int, cp: int) -> Problems:
    if sp and seq_len % tp == 0 and seq_len % cp == 0 and seq_len % (tp * cp):
        nearest = near_multiples(seq_len, tp * cp)
        yield f"{seq_len} is not a multiple of plan.tp · plan.cp = {tp} · {cp} = {tp * cp}, which plan.sp needs; set {nearest}"


@rule("batch.seq_len")
def positions_suffice(seq_len: int, max_positions: int, rope: bool) -> Problems:
    if not rope and 0 < max_positions < seq_len:
        yield f"{seq_len} is longer than the model's {max_positions} learnt positions; set {max_positions} or less"


# Rules of mixtures of experts: how experts are spread over ranks, and what hides their exchange of tokens.


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
    elif expert_load != BALANCED and not experts:
        yield f"{expert_load}, but {model.name} has no experts; remove it"
    elif is_number(expert_load) and not 1 <= float(expert_load) <= experts:
        yield f"{expert_load} is not the load of a busiest rank over the mean, which is from 1 to the {experts} experts; give that"


# Rules of what is trained and of what lies on the host: adapters, tasks of tuning, offloading.


@rule("adapters.targets")
def targets_are_matrices(targets: str, model: ModelSpec) -> Problems:
    wrong, known = unknown_targets(Adapters(targets=targets), model)
    if wrong:
        yield f"{', '.join(wrong)} names no matrix of {model.name} that can have an adapter; give any of {', '.join(known)}"


@rule("adapters.at_once")
def each_adapter_has_sequences(at_once: int, kind: str, global_: int) -> Problems:
    if at_once > 1 and kind == "none":
        yield f"{at_once}, and adapters.kind none trains every weight; set adapters.kind to lora, or remove it"
    elif at_once > global_:
        yield f"{at_once} adapters, and a step has {global_} sequences (batch.global); set {global_} or less"


@rule("adapters.base")
def a_base_in_few_bits_is_frozen(base: str, kind: str, precision: str) -> Problems:
    if base and kind == "none":
        yield f"{base} is of a base beside adapters, and adapters.kind none trains every weight; set adapters.kind to lora, or remove it"
    elif base and precision in NARROW:
        yield f"{base} is widened to 16 bits for its products, which precision {precision} has in fewer; set precision to bf16"


@rule("tuning.teacher")
def distillation_has_a_teacher(task: str, teacher: str) -> Problems:
    if (task == DISTILL) != bool(teacher):
        yield (
            "missing, and tuning.task distill follows a teacher; name one"
            if not teacher
            else f"{shown(teacher)}, which tuning.task {task} does not follow; set it to distill, or remove the teacher"
        )


@rule("tuning.teacher")
def a_teacher_is_on_one_stage(teacher: str, pp: int) -> Problems:
    if teacher and pp > 1:
        yield f"{shown(teacher)} with plan.pp {pp}, where no stages of a teacher are modelled; set plan.pp to 1"


@rule("tuning.task")
def a_reward_model_is_on_one_stage(task: str, pp: int) -> Problems:
    if task == REWARD and pp > 1:
        yield f"{task} with plan.pp {pp}, where its head shares no embedding; set plan.pp to 1"


@rule("tuning.task")
def answers_are_of_decoders(task: str, model: ModelSpec) -> Problems:
    if task not in (SFT, DISTILL) and model.bidirectional:
        yield f"{task}, which judges what a model writes, and {model.name} writes nothing; set it to sft"


@rule("tuning.task")
def whole_layers_train_alone(task: str, evaluated_share: float, framework: str) -> Problems:
    yield from _refused(framework, task != SFT or bool(evaluated_share), f"{task} asks for further passes")


@rule("offload.shards_on")
def shards_are_of_zero_3(shards_on: str, zero: int) -> Problems:
    if shards_on != GPU and zero < 3:
        yield f"{shards_on} is where the shards of plan.zero 3 lie, and plan.zero is {zero}; set plan.zero to 3, or {GPU}"


@rule("offload.optimizer_share")
def what_follows_the_optimizer_has_a_share(
    optimizer_share: float, optimizer_on: str, overlap_optimizer: bool, gradients_on_host: bool
) -> Problems:
    given = {
        "optimizer_on disk": optimizer_on == DISK,
        "overlap_optimizer true": overlap_optimizer,
        "gradients_on_host true": gradients_on_host,
    }
    named = ", ".join(f"offload.{key}" for key, is_given in given.items() if is_given)
    if named and not optimizer_share:
        yield f"0, where the GPU updates all weights, but {named} is of weights that the host updates; set it to 1, or remove that key"


@rule("offload.gradients_on_host")
def gradients_that_leave_are_sharded(gradients_on_host: bool, zero: int) -> Problems:
    if gradients_on_host and zero < SHARDED_GRADIENTS:
        yield f"true, but gradients leave as they are reduced, and plan.zero {zero} keeps them whole; set plan.zero to 2 or 3, or false"


@rule("offload.optimizer_share")
def hosts_run_no_muon(optimizer_share: float, optimizer: str) -> Problems:
    if optimizer_share and optimizer == "muon":
        yield f"{plain(optimizer_share)} with execution.optimizer muon, whose update no host runs; set it to 0, or that to adamw"


@rule("offload.activation_share")
def whole_blocks_stay(activation_share: float, recompute_method: str) -> Problems:
    if activation_share and recompute_method == "block":
        yield (
            f"{plain(activation_share)} with plan.recompute_method block, whose layers keep unlike things; set it to 0, or "
            "plan.recompute_method to uniform"
        )


@rule("offload.activation_share")
def tensors_of_graphs_stay(activation_share: float, cuda_graphs: str) -> Problems:
    if activation_share and cuda_graphs == "layers":
        yield (
            f"{plain(activation_share)} with execution.cuda_graphs layers, whose tensors stay where the graphs were captured; "
            "set it to 0, or execution.cuda_graphs to none"
        )


@rule("offload.optimizer_share")
def nothing_is_offloaded(optimizer_share: float, activation_share: float, framework: str, hardware: str) -> Problems:
    asked = bool(optimizer_share or activation_share)
    if asked and hardware_facts(hardware).kind == "cpu":
        yield f"{plain(optimizer_share)} asks for offloading from a CPU, whose memory is the host's and which updates all weights; remove offload"
        return
    yield from _refused(framework, asked, f"{plain(optimizer_share)} asks for offloading")


# Rules of the hardware: which dtypes it computes in, and how a CPU's cores are shared.


@rule("precision")
def hardware_has_the_precision(precision: str, hardware: str) -> Problems:
    facts = hardware_facts(hardware)
    if precision not in (computed := _precisions_of(facts)):
        yield f"{facts.name} does not compute in {precision}; set one of {', '.join(computed)}"


def _precisions_of(facts: Hardware) -> list[str]:
    """Precisions of products on a device; only NVIDIA's multiply NVFP4."""
    named = [name for name in ELEMENT_BYTES if PEAK_OF.get(name, name) in facts.peak_tflops]
    return [name for name in named if name != "nvfp4" or facts.kind == "cuda"]


RUNS_ON: Mapping[str, tuple[str, ...]] = {"fa3": ("hopper",), "fa4": ("hopper", "blackwell")}
"""Architectures whose instructions a kernel is written for (github.com/Dao-AILab/flash-attention, README)."""


@rule("execution.attention")
def hardware_runs_the_kernel(attention: str, hardware: str) -> Problems:
    architecture = hardware_facts(hardware).architecture
    if architecture not in RUNS_ON.get(attention, (architecture,)):
        yield f"{attention} runs on {' and '.join(RUNS_ON[attention])}, not on {architecture}; set best, or another kernel"


@rule("execution.attention")
def the_kernel_adds_positions(attention: str, model: ModelSpec) -> Problems:
    if model.relative_buckets and attention in ADDING_NOTHING:
        yield f"{attention} does not add relative positions to the scores, which {model.name} has; set {ADDING}, or unfused"


FP8_KERNELS = ("best", "cudnn", "fa3")


@rule("execution.fp8_attention")
def attention_runs_in_fp8(fp8_attention: bool, attention: str, precision: str, hardware: str) -> Problems:
    if not fp8_attention:
        return
    if attention not in FP8_KERNELS:
        yield f"true, but {attention} has no products in fp8; set execution.attention to one of {', '.join(FP8_KERNELS)}"
    elif precision not in ("bf16", *NARROW):
        yield f"true, but activations are in {precision}, not in bf16; set it to false"
    elif "fp8" not in hardware_facts(hardware).peak_tflops:
        yield f"true, but {hardware_facts(hardware).name} does not compute in fp8; set it to false"


@rule("execution.wide_first_layers")
def wide_layers_are_of_narrow_runs(
    wide_first_layers: int, wide_last_layers: int, precision: str, layers: int
) -> Problems:
    wide = wide_first_layers + wide_last_layers
    if wide and precision not in NARROW:
        yield f"{wide} layers stay in 16 bits beside those of fp8 or four bits, but precision is {precision}; set it to 0"
    elif wide > layers:
        yield f"{wide} layers stay in 16 bits with execution.wide_last_layers, of {layers}; set fewer"


@rule("execution.fp8_recipe")
def recipe_needs_fp8(fp8_recipe: str, precision: str) -> Problems:
    if fp8_recipe and precision != "fp8":
        yield (
            f"{fp8_recipe} is a way to scale fp8 products, but precision is {precision}; remove it, or set precision to fp8"
        )


@rule("execution.fp8_weights")
def fp8_weights_need_fp8(fp8_weights: str, precision: str, framework: str) -> Problems:
    if fp8_weights and precision != "fp8":
        yield f"{fp8_weights} is a way to hold the weights of fp8 products, but precision is {precision}; remove it"
    elif fp8_weights and not _has_transformer_engine(framework):
        yield f"{fp8_weights} is Transformer Engine's, whose products {framework} does not run; remove it"


@rule("execution.master_dtype")
def leaner_masters_are_of_bf16_weights(master_dtype: str, precision: str, framework: str) -> Problems:
    if master_dtype in ("", "fp32"):
        return
    if precision not in ("bf16", *NARROW):
        yield f"{master_dtype} is a master of bf16 weights, but precision is {precision}; remove it"
    elif not _has_transformer_engine(framework):
        yield f"{master_dtype} is of Transformer Engine's optimizer, which {framework} does not run; remove it"


def _has_transformer_engine(framework: str) -> bool:
    """Whether a framework's layers run in Transformer Engine; True for names that the rule of frameworks reports."""
    others = framework == WHOLE_LAYERS or framework not in framework_names()
    return others or memory_profile(framework).transformer_engine


@rule("cluster.cores")
def cores_are_of_a_cpu(cores: int, hardware: str) -> Problems:
    facts = hardware_facts(hardware)
    if facts.kind != "cpu":
        yield f"{cores} has no meaning on {facts.name}; remove it"


@rule("cluster.gpus_per_node")
def every_rank_has_a_core(gpus_per_node: int, cores: int, hardware: str) -> Problems:
    if hardware_facts(hardware).kind == "cpu" and cores < gpus_per_node:
        yield (
            f"{gpus_per_node} ranks need a core each, and a machine has {cores}; set it to {cores} or less, or "
            f"cluster.cores to {gpus_per_node} or more"
        )


LONGEST_NAME_BYTES = 200
"""Of a folder's name, with room for what is put behind it: file systems take 255."""


@rule("cluster.profile")
def profile_is_a_name(profile: str) -> Problems:
    if not re.fullmatch(r"\w[\w.-]*", profile):
        yield f"{shown(profile)} is not a plain name; use letters, digits, '.', '_' and '-'"
    elif len(profile.encode()) > LONGEST_NAME_BYTES:
        yield f"{shown(profile)} is too long for the name of a folder; give one of {LONGEST_NAME_BYTES} bytes at most"


# Rules of how tensor, context and data parallelism divide the model and the ranks.


@rule("plan.dp")
def degrees_make_the_world(dp: int, tp: int, pp: int, cp: int, nodes: int, gpus_per_node: int) -> Problems:
    model_ranks, world = tp * pp * cp, nodes * gpus_per_node
    says = f"tp · pp · cp · dp = {model_ranks * dp}, but the cluster has nodes · gpus_per_node = {world} ranks"
    if world % model_ranks:
        yield f"{says}; no plan.dp mends that; set tp · pp · cp, now {model_ranks}, to one of {divisors(world)}"
    elif model_ranks * dp != world:
        yield f"{says}; set plan.dp to {world // model_ranks}"


@rule("plan.tp")
def tp_divides_heads(tp: int, heads: int, *, kv_heads: int = 0, ffn: int = 0, framework: str = "") -> Problems:
    if heads % tp:
        advice = _tensor_degrees(heads, kv_heads, ffn, framework)
        yield f"{tp} does not divide the {heads} attention heads; set one of {advice}"


@rule("plan.tp")
def tp_divides_kv_heads(tp: int, kv_heads: int, heads: int, framework: str, *, ffn: int = 0) -> Problems:
    if kv_heads != heads and not _spreads(kv_heads, tp, framework):
        also = f" (framework {WHOLE_LAYERS} copies no heads)" if kv_heads < tp else ""
        advice = _tensor_degrees(heads, kv_heads, ffn, framework)
        yield f"{tp} does not divide the {kv_heads} key and value heads{also}; set one of {advice}"


@rule("plan.tp")
def tp_divides_ffn(tp: int, ffn: int, *, heads: int = 0, kv_heads: int = 0, framework: str = "") -> Problems:
    if ffn % tp:
        advice = _tensor_degrees(heads, kv_heads, ffn, framework)
        yield f"{tp} does not divide the MLP's width {ffn}; set one of {advice}"


def _spreads(kv_heads: int, tp: int, framework: str) -> bool:
    """Whether key and value heads spread over the ranks: whole ones, or copies of a head."""
    return kv_heads % tp == 0 or (tp % kv_heads == 0 and framework != WHOLE_LAYERS)


def _tensor_degrees(heads: int, kv_heads: int, ffn: int, framework: str) -> str:
    """The smallest degrees that heads, key and value heads and the MLP allow alike, in words; 0 stands for a number that is not known."""
    divide_with_heads = kv_heads in (0, heads)
    return divisors(gcd(heads, ffn), where=lambda tp: divide_with_heads or _spreads(kv_heads, tp, framework))


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
def zero_needs_replicas(zero: int, dp: int, cp: int, gradients_on_host: bool, shards_on: str) -> Problems:
    offload = Offload(gradients_on_host=gradients_on_host, shards_on=shards_on)
    if zero and dp * cp == 1 and not offload.takes_shards:
        yield f"{zero} needs plan.dp above 1; set plan.zero to 0, or plan.dp to 2 or more"


@rule("plan.shard")
def shards_divide_replicas(shard: int, dp: int, cp: int, zero: int) -> Problems:
    if shard and not zero:
        yield f"{shard} ranks share a state that plan.zero 0 does not shard; set plan.zero to 1 or more, or plan.shard to 0"
    elif shard and dp * cp % shard:
        yield f"{shard} does not divide the dp · cp = {dp * cp} replicas; set one of {divisors(dp * cp)}"


# Rules of images.

SHORTEST = "shortest_tokens"
"""Name of the tokens of the shortest sequence, or of a packed row, among the values of rules: no key of a config."""


@rule("vision.images")
def images_need_a_tower(images: int, model: ModelSpec) -> Problems:
    if images and (model.tower is None or model.is_encoder_decoder):
        yield (
            f"{images}, and the vision tower of {model.name} is not known; take a model whose config.json has a vision_config "
            "that is read, such as qwen2.5-vl-7b, or set it to 0"
        )


@rule("vision.image_tokens")
def images_have_a_size(images: int, image_tokens: int, model: ModelSpec) -> Problems:
    patches = model.tower.patches if model.tower else None
    if not images or patches is None:
        return
    if not (image_tokens or patches.tokens):
        yield f"missing, and images of {model.name} have any size; give the tokens of the text that one becomes, such as 256"
    elif image_tokens and patches.tokens not in (0, image_tokens):
        yield f"{image_tokens}, but every image of {model.name} becomes {patches.tokens} tokens; omit it"


@rule("vision.images")
def images_fit_into_the_sequence(
    images: int, image_tokens: int, seq_len: int, shortest_tokens: int, model: ModelSpec
) -> Problems:
    patches = model.tower.patches if model.tower else None
    tokens = images * (image_tokens or patches.tokens) if patches and not patches.attended else 0
    if tokens > shortest_tokens:
        cut = f", whose shortest has {shortest_tokens}" if shortest_tokens < seq_len else ""
        yield f"{images} become {tokens} tokens of a sequence of batch.seq_len {seq_len}{cut}; take fewer, or longer sequences"


@rule("vision.images")
def layers_that_attend_to_images_have_some(images: int, model: ModelSpec) -> Problems:
    if model.encoder and not (images or model.is_encoder_decoder):
        yield f"{images}, and layers of {model.name} attend to images, without which they are left out; give 1 or more"


@rule("batch.encoder_seq_len")
def encoders_have_a_length(encoder_seq_len: int, model: ModelSpec) -> Problems:
    if not (model.encoder and model.is_encoder_decoder):
        if encoder_seq_len:
            yield f"{encoder_seq_len}, and {model.name} is no encoder–decoder; omit it"
        return
    fixed = model.encoder.tokens
    if not (encoder_seq_len or fixed):
        yield f"missing, and the encoder of {model.name} reads any number of tokens; give it, such as 512"
    elif encoder_seq_len and fixed not in (0, encoder_seq_len):
        yield f"{encoder_seq_len}, but the encoder of {model.name} always reads {fixed}; omit it"


@rule("batch.padding")
def rows_beside_an_encoder_are_single(padding: str, model: ModelSpec) -> Problems:
    if padding == PACKED and model.is_encoder_decoder:
        yield f"{PACKED}, and each row of {model.name} has one sequence of its encoder; set {PADDED}"


@rule("plan.pp")
def what_is_attended_to_is_on_one_stage(pp: int, model: ModelSpec) -> Problems:
    if model.encoder and pp > 1:
        yield (
            f"{pp} stages: layers on each of them read what the encoder of {model.name} makes on the first, and sending it on is not modelled; "
            "set it to 1, and plan.tp or plan.zero higher"
        )


@rule("batch.seq_len")
def sequences_have_patches(seq_len: int, model: ModelSpec) -> Problems:
    text = model.patches.text_tokens if model.patches else 0
    if text and seq_len <= text:
        yield f"{seq_len}, of which {text} are the text of {model.name}; add the patches of its images, such as {text + 4096}"


@rule("execution.framework")
def whole_layers_read_no_patches(framework: str, model: ModelSpec) -> Problems:
    yield from _refused(framework, model.patches is not None, f"{model.name} reads patches")


@rule("vision.images")
def plain_torch_reads_plain_images(images: int, model: ModelSpec, framework: str) -> Problems:
    tower = model.tower
    if not images or tower is None or tower.patches is None:
        return
    further = tower.patches.interpolates or len(tower.patches.projectors) > 1
    special = bool(further or _has_special_layers(tower, ("full", "chunked")))
    yield from _refused(
        framework, special, f"{images} asks for the vision tower of {model.name}, which is no plain one"
    )


@rule("vision.trained")
def what_is_trained_of_a_tower_needs_images(images: int, trained: str) -> Problems:
    if trained != ALL and not images:
        yield f"{trained} without vision.images changes nothing; give them, or omit it"


# Rules that a teacher keeps too.

DIVIDING = (
    positions_suffice,
    ep_divides_experts,
    etp_divides_expert_width,
    mixtures_need_sp,
    tp_divides_heads,
    tp_divides_kv_heads,
    tp_divides_ffn,
    norms_over_all_heads_stay_whole,
    cp_divides_heads,
    images_need_a_tower,
    images_have_a_size,
    images_fit_into_the_sequence,
    layers_that_attend_to_images_have_some,
    encoders_have_a_length,
)
"""Rules that every model of a run keeps, a teacher's too: those of how a plan divides it, of its positions, and of images."""
TEACHER_MODEL = "teacher_model"
"""Name of the teacher's model among the values of rules: no key of a config."""
SHARED = (
    *("seq_len", SHORTEST, "tp", "sp", "cp", "cp_method", "ep", "etp", "framework"),
    *("images", "image_tokens", "encoder_seq_len"),
)
"""Values of a run that its teacher has too, of those that these rules need."""


@rule("tuning.teacher", TEACHER_MODEL, *SHARED)
def the_plan_divides_the_teacher(teacher: ModelSpec, *shared: object) -> Problems:
    values = {**values_of_model(teacher), **dict(zip(SHARED, shared, strict=True))}
    for each in RULES:
        if each.check in DIVIDING:
            for problem in each.check(*(values[need] for need in each.needs)):
                yield f"{teacher.name} breaks {each.path}: {problem}"


# Rules of activation recomputation.


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


# Rules of pipeline stages: how layers are split among them, and which schedule runs them.

COPIES = 2
"""Most copies of the model that a schedule runs."""
SPLITTING = ("layout", "first_stage_layers", "last_stage_layers", "count_embedding", "count_loss")


@rule("plan.vpp")
def vpp_needs_pp(vpp: int, pp: int) -> Problems:
    if vpp > 1 and pp == 1:
        yield f"{vpp} needs plan.pp above 1; set plan.vpp to 1"


@rule("plan.pp")
def every_rank_has_a_layer(pp: int, layers: int) -> Problems:
    if layers < pp:
        yield f"{pp} stages are more than the {layers} layers; set it to {layers} or less"


@rule("plan.vpp")
def every_stage_has_a_layer(
    vpp: int, pp: int, layers: int, schedule: str, count_embedding: int, count_loss: int
) -> Problems:
    stages = _fewest_stages(schedule, pp, vpp)
    if pp <= layers and layers + count_embedding + count_loss < stages:
        yield f"{vpp} with plan.pp = {pp} makes {stages} stages, more than the {layers} layers; set plan.pp · plan.vpp to {layers} or less"


def _fewest_stages(schedule: str, pp: int, vpp: int) -> int:
    """Stages of one copy of the model (DualPipe's two chunks of a rank belong to two copies). For `best`, those of the
    schedule with the fewest among all that run `vpp` chunks per rank, whatever the microbatches."""
    from predict.schedules import registry

    if pp * vpp > COPIES * MOST_LAYERS:
        return pp * vpp // COPIES  # too many to place
    names = registry.fitting(pp, vpp, 4 * pp) if schedule == BEST else [schedule]
    depths = [registry.get(name).placement(pp, vpp).depth for name in names if name in registry.names()]
    return min(depths, default=pp * vpp)


@rule("plan.layout")
def layers_are_split_in_one_way(
    layout: str, first_stage_layers: int, last_stage_layers: int, count_embedding: int, count_loss: int
) -> Problems:
    ways = [bool(layout), bool(first_stage_layers or last_stage_layers), bool(count_embedding or count_loss)]
    if sum(ways) > 1:
        yield (
            "plan.layout, plan.first_stage_layers / last_stage_layers and plan.count_embedding / count_loss each split the "
            "layers in their own way; keep one of them"
        )


@rule("plan.layout", "layers", "pp", "vpp", "schedule", *SPLITTING)
def layers_fit_the_stages(layers: int, pp: int, vpp: int, schedule: str, *splitting: int | str) -> Problems:
    from predict.schedules import registry

    chosen = dict(zip(SPLITTING, splitting, strict=True))
    if schedule == BEST or chosen["layout"] == AUTO:
        return
    if schedule not in registry.names() or pp * vpp > COPIES * layers:
        return
    try:
        split_layers(layers, registry.get(schedule).placement(pp, vpp).depth, Plan(pp=pp, vpp=vpp, **chosen))  # type: ignore[arg-type]
    except ConfigError as error:
        yield str(error).removeprefix("plan.layout: ")


@rule("plan.schedule")
def schedule_runs(schedule: str, pp: int, vpp: int, global_: int, micro: int, dp: int) -> Problems:
    from predict.schedules import registry

    microbatches = max(1, global_ // (micro * dp))
    if schedule == BEST:
        if not registry.fitting(pp, vpp, microbatches):
            yield f"no schedule runs plan.pp = {pp}, plan.vpp = {vpp} and {microbatches} microbatches; change one of them"
        return
    try:
        wanted = registry.get(schedule)
    except ConfigError as error:
        yield str(error)
        return
    if reason := wanted.refusal(pp, vpp, microbatches):
        others = registry.fitting_in_words(pp, vpp, microbatches)
        fitting = [chunks for chunks in (1, 2) if wanted.refusal(pp, chunks, microbatches) is None]
        fix = f"set plan.vpp to {fitting[0]}, or" if fitting else "change these counts or"
        yield f"{schedule} {reason}; {fix} take another schedule{others}"


# Rules of the framework `torch`, whose layers are timed in one piece: what it cannot run.

PLAIN = Execution()
OTHERS = "set execution.framework to megatron-core, or to another that is priced operator by operator"


@rule("plan.cp")
def no_context_parallelism(cp: int, framework: str) -> Problems:
    yield from _refused(framework, cp > 1, f"{cp} asks for context parallelism")


@rule("plan.zero")
def only_the_optimizer_is_sharded(zero: int, framework: str) -> Problems:
    yield from _refused(framework, zero > 1, f"{zero} shards gradients")


@rule("plan.recompute")
def layers_are_recomputed_whole(recompute: str, framework: str) -> Problems:
    yield from _refused(framework, recompute == "selective", "selective asks for selective recomputation")
    yield from _refused(framework, recompute == "ops", "ops asks for recomputation by operators")


@rule("plan.recompute_method")
def all_layers_are_recomputed(recompute_method: str, recompute: str, framework: str) -> Problems:
    yield from _refused(
        framework, recompute == "full" and recompute_method != "uniform", "block asks for block recomputation"
    )


@rule("adapters.kind")
def plain_torch_trains_plain_adapters(
    kind: str, base: str, joint: bool, at_once: int, model: ModelSpec, framework: str
) -> Problems:
    yield from _refused(framework, kind == "dora", f"{kind} asks for trained norms of weights")
    yield from _refused(
        framework, bool(kind != "none" and base), f"{kind} with base {base} asks for weights in few bits"
    )
    yield from _refused(
        framework, kind != "none" and joint, f"{kind} with joint true asks for adapters of fused products"
    )
    yield from _refused(
        framework, kind != "none" and at_once > 1, f"{kind} with at_once {at_once} asks for several adapters"
    )
    mixed = any(each.mixer not in ("full", NO_MIXER) for each in model.layer_kinds)
    yield from _refused(
        framework, kind != "none" and mixed, f"{kind} asks for adapters of {model.name}, which has other mixers"
    )


@rule("precision")
def layers_have_one_dtype(precision: str, framework: str) -> Problems:
    yield from _refused(framework, precision in WIDER, f"{precision} asks for {precision} products")


PLAIN_TORCH = ("full", "mamba")
"""Mixers that this project's own modules have in plain torch."""


@rule("model.model_type")
def layers_are_plain(model: ModelSpec, framework: str) -> Problems:
    yield from _refused(framework, _has_special_layers(model), f"{model.name} has layers other than plain dense ones")


def _has_special_layers(model: ModelSpec, plain: Sequence[str] = PLAIN_TORCH) -> bool:
    return bool(
        any(kind.sparse or kind.wide or kind.mixer not in (*plain, NO_MIXER) for kind in model.layer_kinds)
        or not model.attention.IS_PLAIN
        or model.qk_norm
        or model.query_gate
        or model.rotary_dim
        or model.logit_cap
        or model.norms_a_layer != 2
        or model.parallel_residual
        or model.mtp_layers
    )


@rule("plan.tp")
def other_layers_are_of_one_process(
    model: ModelSpec, kind: str, images: int, tp: int, pp: int, dp: int, framework: str
) -> Problems:
    other = {
        "has layers other than plain dense ones": model.bidirectional
        or any(each.parts < 2 or each.mixer != "full" for each in model.layer_kinds),
        "trains adapters": kind != "none",
        "reads images": images > 0,
    }
    for what, is_so in other.items():
        spread = f"{tp} (plan.pp {pp}, plan.dp {dp}) spreads {model.name} over several ranks while it {what}"
        yield from _refused(framework, is_so and tp * pp * dp > 1, spread)


def _refused(framework: str, is_set: bool, what: str) -> Problems:
    if framework == WHOLE_LAYERS and is_set:
        yield f"{what}, which execution.framework {WHOLE_LAYERS} does not model; {OTHERS}"


@rule("execution.framework", *(field.name for field in fields(Execution)))
def no_setting_is_changed(*values: object) -> Problems:
    given = dict(zip((field.name for field in fields(Execution)), values, strict=True))
    framework = given.pop("framework")
    changed = [name for name, value in given.items() if value != getattr(PLAIN, name)]
    if changed and framework == WHOLE_LAYERS:
        yield (
            f"{WHOLE_LAYERS} runs whole layers as they are, so {', '.join(changed)} would change nothing; remove "
            f"{'it' if len(changed) == 1 else 'them'}, or {OTHERS}"
        )
