"""The stages of the model that each pipeline rank holds: where the schedule places them, and the kinds of their layers."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Any

from predict.model.spec import LayerKind, ModelSpec
from predict.run.plan import AUTO, Plan
from predict.run.training_run import TrainingRun
from predict.schedules.engine.order import Placement
from sampling.errors import ConfigError
from sampling.files.faults import shown

EMBEDDING, LAYER, MORE_TOKENS, LOSS = "E", "t", "m", "L"
"""Megatron's letters of `--pipeline-model-parallel-layout`."""
MOST_DIGITS = 9
MOST_LETTERS = 100_000
"""Most letters that a layout may have when its repeats are written out."""


def layers_of_stages(layers: int, stages: int) -> tuple[int, ...]:
    """Layers of each stage; those that do not divide evenly go to the first stages."""
    even, extra = divmod(layers, stages)
    return tuple(even + (stage < extra) for stage in range(stages))


def split_layers(layers: int, stages: int, plan: Plan) -> tuple[int, ...]:
    """Layers of each stage, in the order in which a token passes them. ConfigError where the plan's choices do not fit."""
    if plan.layout == AUTO:
        raise ConfigError("plan.layout: auto is chosen by an estimate; give a layout here")
    if plan.layout:
        return _explicit(plan.layout, layers, stages)
    if plan.first_stage_layers or plan.last_stage_layers:
        return _by_first_and_last_rank(layers, stages, plan)
    counted = plan.count_embedding + plan.count_loss
    if not counted or stages == 1:
        return layers_of_stages(layers, stages)
    shares = list(layers_of_stages(layers + counted, stages))
    shares[0] -= plan.count_embedding
    shares[-1] -= plan.count_loss
    if min(shares) < 0:
        raise ConfigError(
            f"plan.count_loss: {plan.count_embedding} for the embedding and {plan.count_loss} for the loss exceed the first or "
            f"last stage's share of {layers + counted} over {stages} stages; lower them, or take fewer stages"
        )
    return tuple(shares)


def _by_first_and_last_rank(layers: int, stages: int, plan: Plan) -> tuple[int, ...]:
    """The split by Megatron's `decoder_first_pipeline_num_layers` and `…_last_…`, which count a pipeline rank's layers over
    all its chunks."""
    ranks = plan.pp
    chunks = stages // ranks
    given = {0: plan.first_stage_layers, ranks - 1: plan.last_stage_layers}
    given = {rank: own for rank, own in given.items() if own}
    between, left = ranks - len(given), layers - sum(given.values())
    if (between == 0 and left) or left < 0 or (between and left % between):
        raise ConfigError(
            f"plan.first_stage_layers: {plan.first_stage_layers} first and {plan.last_stage_layers} last leave {left} layers "
            f"for {between} pipeline ranks, which do not share them evenly; change them"
        )
    of_rank = [given.get(rank, left // between if between else 0) for rank in range(ranks)]
    uneven = [own for own in of_rank if own % chunks]
    if uneven:
        raise ConfigError(
            f"plan.vpp: {chunks} chunks do not share the {uneven[0]} layers of a pipeline rank evenly; change either"
        )
    return tuple(of_rank[stage % ranks] // chunks for stage in range(stages))


def stages_in(layout: str) -> int:
    """The number of stages of a layout; ConfigError for one that cannot be read."""
    return len(_shares(layout))


def _shares(layout: str) -> list[int]:
    return _numbers(layout) if re.fullmatch(r"\s*\d+\s*(,\s*\d+\s*)*", layout) else _letters(layout)


def _explicit(layout: str, layers: int, stages: int) -> tuple[int, ...]:
    shares = _shares(layout)
    if len(shares) != stages:
        raise ConfigError(
            f"plan.layout: {shown(layout)} has {len(shares)} stages, but plan.pp · plan.vpp makes {stages}; give one for each"
        )
    if sum(shares) != layers:
        raise ConfigError(
            f"plan.layout: {shown(layout)} holds {sum(shares)} layers, the model has {layers}; correct the counts"
        )
    return tuple(shares)


def _numbers(layout: str) -> list[int]:
    if longest := max((number for number in layout.split(",") if len(number.strip()) > MOST_DIGITS), default=""):
        raise ConfigError(f"plan.layout: {shown(longest)} layers are too many for a stage; correct the count")
    return [int(number) for number in layout.split(",")]


def _letters(layout: str) -> list[int]:
    """Layers of each stage in `Et*4|(t*4|)*14tmL`: letters of a stage, `|` between stages, `*N` repeats a letter or bracket."""
    text = _repeated(layout.replace(" ", "").replace(",", ""), layout)
    if foreign := set(text) - {EMBEDDING, LAYER, MORE_TOKENS, LOSS, "|"}:
        raise ConfigError(
            f"plan.layout: {sorted(foreign)[0]!r} in {shown(layout)} is unknown; use E, t, m and L for embedding, layer, "
            "multi-token prediction and loss, | between stages, *N and brackets"
        )
    first, last = text.find("|"), text.rfind("|")
    displaced = {
        EMBEDDING: text.count(EMBEDDING) > 1 or -1 < first < text.rfind(EMBEDDING),
        MORE_TOKENS: -1 < text.find(MORE_TOKENS) < last,
        LOSS: text.count(LOSS) > 1 or -1 < text.find(LOSS) < last,
    }
    if any(displaced.values()):
        letter = next(letter for letter, is_displaced in displaced.items() if is_displaced)
        raise ConfigError(
            f"plan.layout: {letter} in {shown(layout)} is out of place; put E once, in the first stage, m and L in the last, L once"
        )
    return [stage.count(LAYER) for stage in text.split("|")]


def _repeated(text: str, layout: str) -> str:
    """The text with its `*N` of brackets and letters written out."""
    pattern = re.compile(r"\(([^()]*)\)(?:\*(\d+))?|([A-Za-z|])\*(\d+)")
    while found := pattern.search(text):
        inner, times = (found[1], found[2] or "1") if found[3] is None else (found[3], found[4])
        if len(times) > len(str(MOST_LETTERS)) or len(text) + len(inner) * int(times) > MOST_LETTERS:
            raise ConfigError(f"plan.layout: {times} in {shown(layout)} is too many; correct the count")
        text = text[: found.start()] + inner * int(times) + text[found.end() :]
    return text


def slices(shares: Sequence[int]) -> list[range]:
    """The indices of each stage's layers."""
    return [range(end - share, end) for end, share in zip(accumulate(shares), shares, strict=True)]


KEPT = 128
"""Pipelines whose stages are kept."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """The layers of one chunk of a pipeline rank."""

    kinds: tuple[LayerKind, ...]
    """Kinds of its layers, first to last."""
    first: bool
    """It starts with the embedding."""
    last: bool
    """It ends with the head."""
    shared_table: bool
    """The rank holds both embedding and head, and they share one table."""
    further_embedding: bool = False
    """Further predicted tokens need a copy of the embedding here, which no other stage of the rank holds."""

    def __hash__(self) -> int:
        """A hash of what is short: stages are looked up for every plan, and most are found as the object itself."""
        return hash((len(self.kinds), self.first, self.last, self.shared_table))

    @cached_property
    def counts(self) -> Mapping[LayerKind, int]:
        """The number of its layers of each kind, in the order of the first of each."""
        return Counter(self.kinds)


def placement_of(run: TrainingRun) -> Placement:
    """The placement of the stages by the run's schedule, which is a named one and not `best`."""
    return run.schedule.placement(run.plan.pp, run.plan.vpp)


def layers_of_ranks(run: TrainingRun) -> tuple[int, ...]:
    """The number of layers by pipeline rank. Raises ConfigError where the plan's split of the layers does not fit."""
    placement = placement_of(run)
    return _sums_of_ranks(placement, split_layers(run.model.layers, placement.depth, run.plan))


@lru_cache(maxsize=KEPT)
def _sums_of_ranks(placement: Placement, layers: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sum(layers[number] for number in own) for own in placement.stages)


def stages_of_ranks(run: TrainingRun) -> tuple[tuple[Stage, ...], ...]:
    """The stages by pipeline rank and chunk; equal ones are one object. Raises ConfigError where the plan's split of
    the layers does not fit."""
    placement = placement_of(run)
    return _stages(run.model, placement, split_layers(run.model.layers, placement.depth, run.plan))


@lru_cache(maxsize=KEPT)
def _stages(model: ModelSpec, placement: Placement, layers: tuple[int, ...]) -> tuple[tuple[Stage, ...], ...]:
    """The stages of a model, each with so many layers."""
    kinds, shares = model.kinds(), slices(layers)
    last, tied, further = placement.depth - 1, model.tied, bool(model.mtp_layers)
    codes = {kind: code for code, kind in enumerate(dict.fromkeys(kinds))}
    coded = [codes[kind] for kind in kinds]
    made: dict[tuple[Any, ...], Stage] = {}

    def stage(number: int, own: tuple[int, ...]) -> Stage:
        layers = shares[number]
        ends = number == 0, number == last, tied and 0 in own and last in own
        further_embedding = further and number == last and 0 not in own and not tied
        key = (*ends, further_embedding, *coded[layers.start : layers.stop])
        if key not in made:
            made[key] = Stage(
                kinds=kinds[layers.start : layers.stop],
                first=ends[0],
                last=ends[1],
                shared_table=ends[2],
                further_embedding=further_embedding,
            )
        return made[key]

    return tuple(tuple(stage(number, own) for number in own) for own in placement.stages)
