"""Model FLOPs of a step, and MFU: the share of the machine's peak that the model's own arithmetic uses.

Convention of PaLM (Chowdhery et al., arXiv 2204.02311, appendix B), but for the embedding look-up, which multiplies nothing and which
`conventions.palm` counts: 6 FLOPs per weight and token for every matrix that multiplies, plus 12·heads·head_dim·seq_len per token and
layer for attention, not halved for causality; recomputation is not counted. Beyond PaLM's dense layers: routed experts count as those a
token is sent to, with the router and the shared experts; a sliding layer counts the keys within its window; the recurrence of a linear
layer counts 15 FLOPs per element of its state, the cost of one token at a time, however it is chunked. Multi-token prediction is left
out, and so is what a diffusion transformer does once for a sample, whatever its tokens: products of its condition, and keys and values of
its text.
"""

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from predict.model.spec import LayerKind, ModelSpec
from predict.run.training_run import TrainingRun
from predict.run.vision import ALL, NONE

PALM_NO_LOOKUP = "palm_no_lookup"
"""Name of this convention, by which every MFU is counted but the ledger's others."""


class _TokenFlops(NamedTuple):
    """The FLOPs of a token but for the length of its sequence, of all layers together."""

    fixed: float
    """Forward and backward, whatever the length."""
    widths: Mapping[int, int]
    """Keys that a token sees at most, 0 for the whole sequence → width of the scores and values of the layers that see as many."""

    def attention(self, seq_len: int) -> float:
        """The part that grows with the sequence: scores, and the values they weigh, not halved for causality."""
        return 6.0 * sum(width * (min(seq_len, reach) if reach else seq_len) for reach, width in self.widths.items())

    def all(self, seq_len: int) -> float:
        return self.fixed + self.attention(seq_len)


@lru_cache(maxsize=64)
def _token_flops(model: ModelSpec) -> _TokenFlops:
    """Counted once for a model: the thousands of lengths that a rollout leaves would each count all layers."""
    kinds = model.kind_counts()
    matrices = sum(count * _matrix_elements(model, kind) for kind, count in kinds.items())
    matrices += (model.vocab + model.head_transform * model.hidden) * model.hidden
    recurrences = sum(count * model.mixer(kind).recurrence_flops(model) for kind, count in kinds.items())
    widths: Counter[int] = Counter()
    for kind, count in kinds.items():
        mixer = model.mixer(kind)
        widths[mixer.reach(model, kind)] += count * mixer.score_width(model)
        widths[0] += count * mixer.index_width(model)
    return _TokenFlops(fixed=6.0 * matrices + recurrences, widths=dict(widths))


def model_flops_per_token(model: ModelSpec, seq_len: int) -> float:
    """Forward and backward FLOPs of one token in a sequence of `seq_len`."""
    of_layers = _token_flops(model).all(seq_len)
    if not model.patches:
        return of_layers
    return of_layers + (_pixel_flops(model, seq_len) + _projector_flops(model, seq_len)) / seq_len


def _pixel_flops(model: ModelSpec, length: int) -> float:
    """Forward and backward FLOPs of the product over the pixels of a sequence's patches, of which class tokens have none."""
    patches = model.patches
    if patches is None:
        return 0.0
    return 6.0 * (patches.with_pixels(length) * patches.pixels * model.hidden + patches.stem_elements(length))


def _projector_flops(model: ModelSpec, length: int) -> float:
    """Those of the projectors, over the tokens of the text that a sequence becomes."""
    return 6.0 * model.patches.tokens_of(length) * model.patches.output_elements if model.patches else 0.0


def attention_flops_per_token(model: ModelSpec, seq_len: int) -> float:
    """The part of `model_flops_per_token` that grows with the sequence."""
    return _token_flops(model).attention(seq_len)


def _matrix_elements(model: ModelSpec, kind: LayerKind) -> int:
    """Weights of one layer that multiply each token."""
    return model.mixer(kind).elements_per_token(model) + model.feed_forward(kind).elements_per_token(model)


FORWARD_SHARE = 1 / 3
"""Share of a matrix's FLOPs that its forward has, of those of forward and backward; verl divides by 3 too
(verl/workers/engine_workers.py)."""
FROZEN_SHARE = 2 / 3
"""Share of a product's FLOPs that is left where its weight has no gradient: forward, and the gradient of its input; or where its input has
none: forward, and the gradient of its weight."""


def model_flops_per_step(run: TrainingRun) -> float:
    """FLOPs of a step's sequences and images; of frozen weights without those of their gradients, and without the adapters' own."""
    return _text_flops_per_step(run) + tower_flops_per_step(run)


def tower_flops_per_step(run: TrainingRun) -> float:
    """FLOPs of the vision tower over a step's images, or of the encoder, and of keys and values that layers make of its output: what is not
    trained runs forward alone, and takes no gradient; of frozen weights beside adapters those of their gradients are left out."""
    tower = run.tower
    if tower is None:
        return 0.0
    images, length = tower.batch.global_, tower.batch.seq_len
    whole = images * length * model_flops_per_token(tower.model, length)
    projectors = images * _projector_flops(tower.model, length)
    of_projectors = 1.0 if run.vision.trained != NONE else FORWARD_SHARE
    of_tower = 1.0 if run.vision.trained == ALL else FORWARD_SHARE
    if tower.adapters.are_trained and run.vision.trained == ALL:
        of_tower = FROZEN_SHARE
    attended = images * _attended_flops(run.model, tower.model, length)
    # forward, the gradient of what the tower made, and that of the weights that make keys and values of it
    of_attended = FORWARD_SHARE * (1 + (run.vision.trained != NONE) + (not run.adapters.are_trained))
    return of_tower * (whole - projectors) + of_projectors * projectors + of_attended * attended


def _attended_flops(model: ModelSpec, tower: ModelSpec, length: int) -> float:
    """Forward and backward FLOPs of the keys and values of a sequence of the tower in all layers that attend to it."""
    made = tower.patches.tokens_of(length) if tower.patches else 0
    each = sum(count * model.mixer(kind).elements_beside(model) for kind, count in model.kind_counts().items())
    return 6.0 * made * each if model.encoder else 0.0


def _text_flops_per_step(run: TrainingRun) -> float:
    model, sequences = run.model, run.sequences
    of_model = sum(count * length * model_flops_per_token(model, length) for length, count in sequences.items())
    if not run.adapters.are_trained:
        return of_model
    of_attention = sum(count * length * attention_flops_per_token(model, length) for length, count in sequences.items())
    return FROZEN_SHARE * (of_model - of_attention) + of_attention


def tokens_per_step(run: TrainingRun) -> int:
    """Tokens of the step's sequences, without padding."""
    return sum(length * count for length, count in run.sequences.items())


def mfu(run: TrainingRun, step_time_us: float) -> float:
    """Model FLOPs utilisation against the dense peak of the run's precision, over all ranks."""
    peak = run.cluster.gpu.peak_flops_per_us(run.precision) * run.cluster.world_size
    return model_flops_per_step(run) / (step_time_us * peak)
