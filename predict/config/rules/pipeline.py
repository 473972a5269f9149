"""Rules of the pipeline: what is recomputed, how layers are split among stages, and which schedule runs them."""

from predict.config.rules.rule import Problems, rule
from predict.huggingface.families.family import MOST_LAYERS
from predict.run.frameworks import recompute_refusal
from predict.run.plan import AUTO, BEST, Plan
from predict.run.stages import split_layers
from predict.schedules import registry
from sampling.errors import ConfigError

COPIES = 2
"""Most copies of the model that a schedule runs."""
SPLITTING = ("layout", "first_stage_layers", "last_stage_layers", "count_embedding", "count_loss")


@rule("plan.recompute", "the framework's pipelines do not recompute under this schedule")
def schedule_recomputes(recompute: str, schedule: str, framework: str) -> Problems:
    if recompute == "none" or schedule == BEST:
        return
    try:
        reason = recompute_refusal(framework, registry.get(schedule))
    except ConfigError:  # the rule of plan.schedule reports it
        return
    if reason:
        yield (
            f"{recompute} does not go with {schedule}, which {reason}; set plan.recompute to none, take a schedule that does "
            "not split the backward, or another framework"
        )


@rule("plan.recompute_method", "block recomputation without full recomputation")
def block_is_full_recomputation(recompute_method: str, recompute: str) -> Problems:
    if recompute_method != "uniform" and recompute != "full":
        yield (
            f"{recompute_method} is a way of full recomputation, but plan.recompute is {recompute}; remove it, or set "
            "plan.recompute to full"
        )


@rule("plan.recompute_layers", "a number of recomputed layers without block recomputation")
def layers_are_of_blocks(recompute_layers: int, recompute_method: str) -> Problems:
    if recompute_layers != 1 and recompute_method != "block":
        yield (
            f"{recompute_layers} has a meaning only with plan.recompute_method block, but that is {recompute_method}; "
            "remove it, or set plan.recompute_method to block"
        )


@rule("plan.vpp", "vpp is above 1 without a pipeline")
def vpp_needs_pp(vpp: int, pp: int) -> Problems:
    if vpp > 1 and pp == 1:
        yield f"{vpp} needs plan.pp above 1; set plan.vpp to 1"


@rule("plan.pp", "a pipeline rank would have no layer")
def every_rank_has_a_layer(pp: int, layers: int) -> Problems:
    if layers < pp:
        yield f"{pp} stages are more than the {layers} layers; set it to {layers} or less"


@rule("plan.vpp", "a chunk of the pipeline would have no layer")
def every_stage_has_a_layer(
    vpp: int, pp: int, layers: int, schedule: str, count_embedding: int, count_loss: int
) -> Problems:
    stages = _fewest_stages(schedule, pp, vpp)
    if pp <= layers and layers + count_embedding + count_loss < stages:
        yield f"{vpp} with plan.pp = {pp} makes {stages} stages, more than the {layers} layers; set plan.pp · plan.vpp to {layers} or less"


def _fewest_stages(schedule: str, pp: int, vpp: int) -> int:
    """Stages of one copy of the model (DualPipe's two chunks of a rank belong to two copies). For `best`, those of the
    schedule with the fewest among all that run `vpp` chunks per rank, whatever the microbatches."""
    if pp * vpp > COPIES * MOST_LAYERS:
        return pp * vpp // COPIES  # too many to place
    names = registry.fitting(pp, vpp, 4 * pp) if schedule == BEST else [schedule]
    depths = [registry.get(name).placement(pp, vpp).depth for name in names if name in registry.names()]
    return min(depths, default=pp * vpp)


@rule("plan.layout", "the layers are split in two ways at once")
def layers_are_split_in_one_way(
    layout: str, first_stage_layers: int, last_stage_layers: int, count_embedding: int, count_loss: int
) -> Problems:
    ways = [bool(layout), bool(first_stage_layers or last_stage_layers), bool(count_embedding or count_loss)]
    if sum(ways) > 1:
        yield (
            "plan.layout, plan.first_stage_layers / last_stage_layers and plan.count_embedding / count_loss each split the "
            "layers in their own way; keep one of them"
        )


@rule("plan.layout", "the layout does not fit the layers and the stages", "layers", "pp", "vpp", "schedule", *SPLITTING)
def layers_fit_the_stages(layers: int, pp: int, vpp: int, schedule: str, *splitting: int | str) -> Problems:
    chosen = dict(zip(SPLITTING, splitting, strict=True))
    if schedule == BEST or chosen["layout"] == AUTO:
        return
    if schedule not in registry.names() or pp * vpp > COPIES * layers:
        return
    try:
        split_layers(layers, registry.get(schedule).placement(pp, vpp).depth, Plan(pp=pp, vpp=vpp, **chosen))  # type: ignore[arg-type]
    except ConfigError as error:
        yield str(error).removeprefix("plan.layout: ")


@rule("plan.schedule", "the schedule does not run pp, vpp and this number of microbatches")
def schedule_runs(schedule: str, pp: int, vpp: int, global_: int, micro: int, dp: int) -> Problems:
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
