"""Rules of the hardware: which dtypes it computes in, which kernels it runs, and how a CPU's cores are shared."""

import re
from collections.abc import Mapping

from predict.config.rules.rule import Problems, rule
from predict.model.spec import ModelSpec
from predict.rank.share import NARROW
from predict.run.execution import ADDING, ADDING_NOTHING, WHOLE_LAYERS
from predict.run.frameworks import framework_names, memory_profile
from sampling.files.faults import shown
from sampling.hardware.cluster import hardware_facts
from sampling.hardware.hardware_file import ELEMENT_BYTES, PEAK_OF, Hardware


@rule("precision", "the device does not compute in this precision")
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


@rule("execution.attention", "the kernel of attention is not written for this device")
def hardware_runs_the_kernel(attention: str, hardware: str) -> Problems:
    architecture = hardware_facts(hardware).architecture
    if architecture not in RUNS_ON.get(attention, (architecture,)):
        yield f"{attention} runs on {' and '.join(RUNS_ON[attention])}, not on {architecture}; set best, or another kernel"


@rule("execution.attention", "a kernel of attention that adds no relative positions, which the model has")
def the_kernel_adds_positions(attention: str, model: ModelSpec) -> Problems:
    if model.relative_buckets and attention in ADDING_NOTHING:
        yield f"{attention} does not add relative positions to the scores, which {model.name} has; set {ADDING}, or unfused"


FP8_KERNELS = ("best", "cudnn", "fa3")


@rule("execution.fp8_attention", "attention in fp8 with a kernel, a precision or a device that has none")
def attention_runs_in_fp8(fp8_attention: bool, attention: str, precision: str, hardware: str) -> Problems:
    if not fp8_attention:
        return
    if attention not in FP8_KERNELS:
        yield f"true, but {attention} has no products in fp8; set execution.attention to one of {', '.join(FP8_KERNELS)}"
    elif precision not in ("bf16", *NARROW):
        yield f"true, but activations are in {precision}, not in bf16; set it to false"
    elif "fp8" not in hardware_facts(hardware).peak_tflops:
        yield f"true, but {hardware_facts(hardware).name} does not compute in fp8; set it to false"


@rule(
    "execution.wide_first_layers",
    "layers that stay in 16 bits at another precision than fp8 or four bits, or more than there are",
)
def wide_layers_are_of_narrow_runs(
    wide_first_layers: int, wide_last_layers: int, precision: str, layers: int
) -> Problems:
    wide = wide_first_layers + wide_last_layers
    if wide and precision not in NARROW:
        yield f"{wide} layers stay in 16 bits beside those of fp8 or four bits, but precision is {precision}; set it to 0"
    elif wide > layers:
        yield f"{wide} layers stay in 16 bits with execution.wide_last_layers, of {layers}; set fewer"


@rule("execution.fp8_recipe", "a recipe of fp8 at another precision")
def recipe_needs_fp8(fp8_recipe: str, precision: str) -> Problems:
    if fp8_recipe and precision != "fp8":
        yield (
            f"{fp8_recipe} is a way to scale fp8 products, but precision is {precision}; remove it, or set precision to fp8"
        )


@rule("execution.fp8_weights", "a way to hold fp8 weights at another precision, or without Transformer Engine")
def fp8_weights_need_fp8(fp8_weights: str, precision: str, framework: str) -> Problems:
    if fp8_weights and precision != "fp8":
        yield f"{fp8_weights} is a way to hold the weights of fp8 products, but precision is {precision}; remove it"
    elif fp8_weights and not _has_transformer_engine(framework):
        yield f"{fp8_weights} is Transformer Engine's, whose products {framework} does not run; remove it"


@rule("execution.master_dtype", "lean master weights at another precision, or without Transformer Engine")
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


@rule("cluster.cores", "cores are given for a GPU")
def cores_are_of_a_cpu(cores: int, hardware: str) -> Problems:
    facts = hardware_facts(hardware)
    if facts.kind != "cpu":
        yield f"{cores} has no meaning on {facts.name}; remove it"


@rule("cluster.gpus_per_node", "the machine has fewer cores than ranks")
def every_rank_has_a_core(gpus_per_node: int, cores: int, hardware: str) -> Problems:
    if hardware_facts(hardware).kind == "cpu" and cores < gpus_per_node:
        yield (
            f"{gpus_per_node} ranks need a core each, and a machine has {cores}; set it to {cores} or less, or "
            f"cluster.cores to {gpus_per_node} or more"
        )


LONGEST_NAME_BYTES = 200
"""Of a folder's name, with room for what is put behind it: file systems take 255."""


@rule("cluster.profile", "the profile is not a plain name")
def profile_is_a_name(profile: str) -> Problems:
    if not re.fullmatch(r"\w[\w.-]*", profile):
        yield f"{shown(profile)} is not a plain name; use letters, digits, '.', '_' and '-'"
    elif len(profile.encode()) > LONGEST_NAME_BYTES:
        yield f"{shown(profile)} is too long for the name of a folder; give one of {LONGEST_NAME_BYTES} bytes at most"
