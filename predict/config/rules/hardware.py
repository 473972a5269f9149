"""Rules of the hardware: which dtypes it computes in, and how a CPU's cores are shared."""

from __future__ import annotations

import re

from predict.config.rules.rule import Problems, rule
from sampling.files.faults import shown
from sampling.hardware.cluster import hardware_facts


@rule("precision")
def hardware_has_the_precision(precision: str, hardware: str) -> Problems:
    facts = hardware_facts(hardware)
    if precision not in facts.peak_tflops:
        yield f"{facts.name} does not compute in {precision}; set one of {', '.join(facts.peak_tflops)}"


@rule("execution.fp8_recipe")
def recipe_needs_fp8(fp8_recipe: str, precision: str) -> Problems:
    if fp8_recipe and precision != "fp8":
        yield (
            f"{fp8_recipe} is a way to scale fp8 products, but precision is {precision}; remove it, or set precision to fp8"
        )


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


@rule("cluster.profile")
def profile_is_a_name(profile: str) -> Problems:
    if not re.fullmatch(r"\w[\w.-]*", profile):
        yield f"{shown(profile)} is not a plain name; use letters, digits, '.', '_' and '-'"
