"""Model FLOPs of a step, and MFU: the share of the machine's peak that the model's own arithmetic uses.

Convention of PaLM (Chowdhery et al., arXiv 2204.02311, appendix B): 6 FLOPs a weight and token for every matrix that
multiplies (the embedding look-up does not), plus 12·heads·head_dim·seq_len a token and layer for attention, not halved for
causality; recomputation is not counted. Beyond PaLM's dense layers: of the routed experts those a token is sent to, with the
router and the shared ones; of a sliding layer the keys within its window; for the recurrence of a linear layer 15 FLOPs an
element of its state, which is what one token at a time costs, however it is chunked. Multi-token prediction is left out.
"""

from __future__ import annotations

from collections import Counter

from predict.model.layer_kinds import LayerKind
from predict.model.spec import ModelSpec
from predict.run.training_run import TrainingRun


def model_flops_per_token(model: ModelSpec, seq_len: int) -> float:
    """Forward and backward FLOPs of one token in a sequence of `seq_len`."""
    kinds = Counter(model.kinds())
    matrices = sum(count * _matrices(model, kind) for kind, count in kinds.items()) + model.vocab * model.hidden
    recurrences = sum(count * _recurrence_flops(model, kind) for kind, count in kinds.items())
    return 6.0 * matrices + recurrences + attention_flops_per_token(model, seq_len)


def attention_flops_per_token(model: ModelSpec, seq_len: int) -> float:
    """The part that grows with the sequence: scores, and the values they weigh, not halved for causality."""
    latent = model.latent
    widths = latent.query_dim + latent.value_dim if latent else 2 * model.head_dim
    keys = {"full": seq_len, "sliding": min(seq_len, model.window), "linear": 0}
    return 6.0 * model.heads * widths * sum(keys[kind.mixer] for kind in model.kinds())


def _matrices(model: ModelSpec, kind: LayerKind) -> int:
    """Weights of one layer that multiply each token."""
    return _mixer_matrices(model, kind) + _mlp_matrices(model, kind)


def _mixer_matrices(model: ModelSpec, kind: LayerKind) -> int:
    if kind.mixer == "linear" and model.linear:
        return model.linear.matrices(model.hidden)
    if model.latent:
        return model.latent.matrices(model.hidden, model.heads)
    return model.hidden * (2 * model.q_width + model.query_gate_width + 2 * model.kv_width)


def _mlp_matrices(model: ModelSpec, kind: LayerKind) -> int:
    if kind.sparse and model.experts:
        return model.experts.matrices(model.hidden)
    return (3 if model.gated else 2) * model.hidden * model.ffn


def _recurrence_flops(model: ModelSpec, kind: LayerKind) -> float:
    """Decay, read, update and output of every head's state, forward and backward, of one token."""
    linear = model.linear
    if kind.mixer != "linear" or linear is None:
        return 0.0
    return 15.0 * linear.value_heads * linear.key_dim * linear.value_dim


def model_flops_per_step(run: TrainingRun) -> float:
    return model_flops_per_token(run.model, run.batch.seq_len) * tokens_per_step(run)


def tokens_per_step(run: TrainingRun) -> int:
    return run.batch.global_ * run.batch.seq_len


def mfu(run: TrainingRun, step_time_us: float) -> float:
    """Model FLOPs utilisation against the dense peak of the run's precision, over all ranks."""
    peak = run.cluster.gpu.peak_flops_per_us(run.precision) * run.cluster.world_size
    return model_flops_per_step(run) / (step_time_us * peak)
