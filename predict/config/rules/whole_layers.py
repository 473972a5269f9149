"""Rules of the framework `torch`, whose layers are timed in one piece: what it cannot run."""

from __future__ import annotations

from dataclasses import fields

from predict.config.rules.rule import Problems, rule
from predict.model.spec import ModelSpec
from predict.run.execution import WHOLE_LAYERS, Execution

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


@rule("precision")
def layers_have_one_dtype(precision: str, framework: str) -> Problems:
    yield from _refused(framework, precision in ("fp8", "tf32"), f"{precision} asks for {precision} products")


@rule("model.model_type")
def layers_are_plain(model: ModelSpec, framework: str) -> Problems:
    special = (
        model.layer_kinds
        or not model.attention.IS_PLAIN
        or model.qk_norm
        or model.query_gate
        or model.rotary_dim
        or model.logit_cap
        or model.norms_a_layer != 2
        or model.parallel_residual
        or model.mtp_layers
    )
    yield from _refused(framework, bool(special), f"{model.name} has layers other than plain dense ones")


def _refused(framework: str, asked: bool, what: str) -> Problems:
    if framework == WHOLE_LAYERS and asked:
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
