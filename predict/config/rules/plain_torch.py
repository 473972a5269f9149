"""Rules of the framework `torch`, whose layers are timed in one piece: what it cannot run."""

from collections.abc import Sequence
from dataclasses import fields

from predict.config.rules.rule import OTHERS, Problems, not_in_plain_torch, rule
from predict.model.spec import NO_MIXER, ModelSpec
from predict.rank.share import WIDER
from predict.run.execution import WHOLE_LAYERS, Execution
from predict.run.tuning import SFT

PLAIN = Execution()


@rule("plan.cp", f"the framework {WHOLE_LAYERS} does not model context parallelism")
def no_context_parallelism(cp: int, framework: str) -> Problems:
    yield from not_in_plain_torch(framework, cp > 1, f"{cp} asks for context parallelism")


@rule("plan.zero", f"the framework {WHOLE_LAYERS} does not model sharded gradients")
def only_the_optimizer_is_sharded(zero: int, framework: str) -> Problems:
    yield from not_in_plain_torch(framework, zero > 1, f"{zero} shards gradients")


@rule("plan.recompute", f"the framework {WHOLE_LAYERS} recomputes whole layers alone")
def layers_are_recomputed_whole(recompute: str, framework: str) -> Problems:
    yield from not_in_plain_torch(framework, recompute == "selective", "selective asks for selective recomputation")
    yield from not_in_plain_torch(framework, recompute == "ops", "ops asks for recomputation by operators")


@rule("plan.recompute_method", f"the framework {WHOLE_LAYERS} recomputes all layers or none")
def all_layers_are_recomputed(recompute_method: str, recompute: str, framework: str) -> Problems:
    yield from not_in_plain_torch(
        framework, recompute == "full" and recompute_method != "uniform", "block asks for block recomputation"
    )


@rule("adapters.kind", f"the framework {WHOLE_LAYERS} trains LoRA beside plain layers alone")
def plain_torch_trains_plain_adapters(
    kind: str, base: str, joint: bool, at_once: int, model: ModelSpec, framework: str
) -> Problems:
    yield from not_in_plain_torch(framework, kind == "dora", f"{kind} asks for trained norms of weights")
    yield from not_in_plain_torch(
        framework, bool(kind != "none" and base), f"{kind} with base {base} asks for weights in few bits"
    )
    yield from not_in_plain_torch(
        framework, kind != "none" and joint, f"{kind} with joint true asks for adapters of fused products"
    )
    yield from not_in_plain_torch(
        framework, kind != "none" and at_once > 1, f"{kind} with at_once {at_once} asks for several adapters"
    )
    mixed = any(each.mixer not in ("full", NO_MIXER) for each in model.layer_kinds)
    yield from not_in_plain_torch(
        framework, kind != "none" and mixed, f"{kind} asks for adapters of {model.name}, which has other mixers"
    )


@rule("precision", f"the framework {WHOLE_LAYERS} does not model this precision")
def layers_have_one_dtype(precision: str, framework: str) -> Problems:
    yield from not_in_plain_torch(framework, precision in WIDER, f"{precision} asks for {precision} products")


PLAIN_TORCH = ("full", "sliding", "mamba")
"""Mixers that this project's own modules have in plain torch."""


@rule("model.model_type", f"the framework {WHOLE_LAYERS} models plain dense layers alone")
def layers_are_plain(model: ModelSpec, framework: str) -> Problems:
    yield from not_in_plain_torch(
        framework, _has_special_layers(model), f"{model.name} has layers other than plain dense ones"
    )


def _has_special_layers(model: ModelSpec, plain: Sequence[str] = PLAIN_TORCH) -> bool:
    return bool(
        any(kind.sparse or kind.wide or kind.mixer not in (*plain, NO_MIXER) for kind in model.layer_kinds)
        or not model.attention.IS_PLAIN
        or (model.qk_norm and model.qk_norm_all_heads)
        or model.query_gate
        or model.rotary_dim
        or model.logit_cap
        or model.norms_a_layer not in (2, 4)
        or model.parallel_residual
        or model.mtp_layers
    )


@rule("batch.seq_len", f"the framework {WHOLE_LAYERS} has no windows, and sequences are longer than one")
def windows_hold_whole_sequences(seq_len: int, model: ModelSpec, framework: str) -> Problems:
    cuts = model.window and seq_len > model.window and any(kind.mixer == "sliding" for kind in model.layer_kinds)
    yield from not_in_plain_torch(
        framework, bool(cuts), f"{seq_len} is longer than {model.name}'s window of {model.window}"
    )


@rule(
    "plan.tp",
    f"the framework {WHOLE_LAYERS} runs other layers than plain dense ones, adapters and images on one process alone",
)
def other_layers_are_of_one_process(
    model: ModelSpec, kind: str, images: int, tp: int, pp: int, dp: int, framework: str
) -> Problems:
    other = {
        "has layers other than plain dense ones": model.bidirectional
        or model.qk_norm
        or model.norms_a_layer > 2
        or any(each.parts < 2 or each.mixer != "full" for each in model.layer_kinds),
        "trains adapters": kind != "none",
        "reads images": images > 0,
    }
    for what, is_so in other.items():
        spread = f"{tp} (plan.pp {pp}, plan.dp {dp}) spreads {model.name} over several ranks while it {what}"
        yield from not_in_plain_torch(framework, is_so and tp * pp * dp > 1, spread)


@rule(
    "execution.framework",
    f"the framework {WHOLE_LAYERS} runs layers as they are, and a setting would change nothing",
    *(field.name for field in fields(Execution)),
)
def no_setting_is_changed(*values: object) -> Problems:
    given = dict(zip((field.name for field in fields(Execution)), values, strict=True))
    framework = given.pop("framework")
    changed = [name for name, value in given.items() if value != getattr(PLAIN, name)]
    if changed and framework == WHOLE_LAYERS:
        yield (
            f"{WHOLE_LAYERS} runs whole layers as they are, so {', '.join(changed)} would change nothing; remove "
            f"{'it' if len(changed) == 1 else 'them'}, or {OTHERS}"
        )


@rule("execution.framework", f"the framework {WHOLE_LAYERS} reads no patches")
def whole_layers_read_no_patches(framework: str, model: ModelSpec) -> Problems:
    yield from not_in_plain_torch(framework, model.patches is not None, f"{model.name} reads patches")


@rule("vision.images", f"the framework {WHOLE_LAYERS} has plain vision towers alone")
def plain_torch_reads_plain_images(images: int, model: ModelSpec, framework: str) -> Problems:
    tower = model.tower
    if not images or tower is None or tower.patches is None:
        return
    special = _has_special_layers(tower, ("full", "chunked"))
    yield from not_in_plain_torch(
        framework, special, f"{images} asks for the vision tower of {model.name}, which is no plain one"
    )


@rule("tuning.task", f"the framework {WHOLE_LAYERS} runs the pass that trains alone")
def whole_layers_train_alone(task: str, evaluated_share: float, framework: str) -> Problems:
    yield from not_in_plain_torch(framework, task != SFT or bool(evaluated_share), f"{task} asks for further passes")
