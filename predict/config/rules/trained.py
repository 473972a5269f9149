"""Rules of what is trained and of what lies on the host: adapters, tasks of tuning, their teachers, offloading."""

from predict.config.rules.rule import (
    RULES,
    SHORTEST,
    TEACHER_MODEL,
    Problems,
    not_in_plain_torch,
    rule,
    values_of_model,
)
from predict.layers.adapters import unknown_targets
from predict.model.spec import ModelSpec
from predict.rank.share import NARROW
from predict.run.adapters import Adapters
from predict.run.execution import WHOLE_LAYERS
from predict.run.offload import DISK, GPU
from predict.run.training_run import SHARDED_GRADIENTS
from predict.run.tuning import DISTILL, REWARD, SFT
from sampling.files.faults import shown
from sampling.hardware.cluster import hardware_facts
from sampling.number_text import plain


@rule("adapters.targets", "a target of the adapters is no matrix of the model")
def targets_are_matrices(targets: str, model: ModelSpec) -> Problems:
    wrong, known = unknown_targets(Adapters(targets=targets), model)
    if wrong:
        yield f"{', '.join(wrong)} names no matrix of {model.name} that can have an adapter; give any of {', '.join(known)}"


@rule("adapters.at_once", "several adapters at once without adapters")
def several_adapters_are_adapters(at_once: int, kind: str) -> Problems:
    if at_once > 1 and kind == "none":
        yield f"{at_once}, and adapters.kind none trains every weight; set adapters.kind to lora, or remove it"


@rule("adapters.base", "a base in few bits without adapters, or under products in few bits")
def a_base_in_few_bits_is_frozen(base: str, kind: str, precision: str) -> Problems:
    if base and kind == "none":
        yield f"{base} is of a base beside adapters, and adapters.kind none trains every weight; set adapters.kind to lora, or remove it"
    elif base and precision in NARROW:
        yield f"{base} is widened to 16 bits for its products, which precision {precision} has in fewer; set precision to bf16"


@rule("tuning.teacher", "distillation without a teacher, or a teacher of another task")
def distillation_has_a_teacher(task: str, teacher: str) -> Problems:
    if (task == DISTILL) != bool(teacher):
        yield (
            "missing, and tuning.task distill follows a teacher; name one"
            if not teacher
            else f"{shown(teacher)}, which tuning.task {task} does not follow; set it to distill, or remove the teacher"
        )


@rule("tuning.teacher", "a teacher on several pipeline stages")
def a_teacher_is_on_one_stage(teacher: str, pp: int) -> Problems:
    if teacher and pp > 1:
        yield f"{shown(teacher)} with plan.pp {pp}, where no stages of a teacher are modelled; set plan.pp to 1"


@rule("tuning.task", "a reward model on several pipeline stages")
def a_reward_model_is_on_one_stage(task: str, pp: int) -> Problems:
    if task == REWARD and pp > 1:
        yield f"{task} with plan.pp {pp}, where its head shares no embedding; set plan.pp to 1"


@rule("tuning.task", "the task judges what a model writes, and an encoder writes nothing")
def answers_are_of_decoders(task: str, model: ModelSpec) -> Problems:
    if task not in (SFT, DISTILL) and model.bidirectional:
        yield f"{task}, which judges what a model writes, and {model.name} writes nothing; set it to sft"


@rule("offload.shards_on", "shards of weights lie on the host, and no weights are sharded")
def shards_are_of_zero_3(shards_on: str, zero: int) -> Problems:
    if shards_on != GPU and zero < 3:
        yield f"{shards_on} is where the shards of plan.zero 3 lie, and plan.zero is {zero}; set plan.zero to 3, or {GPU}"


@rule("offload.optimizer_share", "a key of an offloaded optimizer, and none is offloaded")
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


@rule("offload.gradients_on_host", "gradients lie on the host, and are not sharded")
def gradients_that_leave_are_sharded(gradients_on_host: bool, zero: int) -> Problems:
    if gradients_on_host and zero < SHARDED_GRADIENTS:
        yield f"true, but gradients leave as they are reduced, and plan.zero {zero} keeps them whole; set plan.zero to 2 or 3, or false"


@rule("offload.optimizer_share", "Muon, which no host runs")
def hosts_run_no_muon(optimizer_share: float, optimizer: str) -> Problems:
    if optimizer_share and optimizer == "muon":
        yield f"{plain(optimizer_share)} with execution.optimizer muon, whose update no host runs; set it to 0, or that to adamw"


@rule("offload.activation_share", "activations lie on the host under block recomputation")
def whole_blocks_stay(activation_share: float, recompute_method: str) -> Problems:
    if activation_share and recompute_method == "block":
        yield (
            f"{plain(activation_share)} with plan.recompute_method block, whose layers keep unlike things; set it to 0, or "
            "plan.recompute_method to uniform"
        )


@rule("offload.activation_share", "activations of layers that are CUDA graphs lie on the host")
def tensors_of_graphs_stay(activation_share: float, cuda_graphs: str) -> Problems:
    if activation_share and cuda_graphs == "layers":
        yield (
            f"{plain(activation_share)} with execution.cuda_graphs layers, whose tensors stay where the graphs were captured; "
            "set it to 0, or execution.cuda_graphs to none"
        )


@rule("offload.optimizer_share", f"a CPU, or the framework {WHOLE_LAYERS}, offloads nothing")
def nothing_is_offloaded(optimizer_share: float, activation_share: float, framework: str, hardware: str) -> Problems:
    asked = bool(optimizer_share or activation_share)
    if asked and hardware_facts(hardware).kind == "cpu":
        yield f"{plain(optimizer_share)} asks for offloading from a CPU, whose memory is the host's and which updates all weights; remove offload"
        return
    yield from not_in_plain_torch(framework, asked, f"{plain(optimizer_share)} asks for offloading")


SHARED = (
    *("seq_len", SHORTEST, "tp", "sp", "cp", "cp_method", "ep", "etp", "framework"),
    *("images", "image_tokens", "encoder_seq_len"),
)
"""Values of a run that its teacher has too, of those that its rules need."""


@rule(
    "tuning.teacher",
    "the plan does not divide the teacher, or its positions are fewer than the sequence's",
    TEACHER_MODEL,
    *SHARED,
)
def the_plan_divides_the_teacher(teacher: ModelSpec, *shared: object) -> Problems:
    values = {**values_of_model(teacher), **dict(zip(SHARED, shared, strict=True))}
    for each in RULES:
        if each.of_each_model:
            for problem in each.check(*(values[need] for need in each.needs)):
                yield f"{teacher.name} breaks {each.path}: {problem}"
