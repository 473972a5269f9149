"""Model FLOPs of a step, and MFU: the share of the machine's peak that the model's own arithmetic uses.

Convention of PaLM (Chowdhery et al., arXiv 2204.02311, appendix B): 6 FLOPs a weight and token for every matrix that
multiplies (the embedding look-up does not), plus 12·layers·heads·head_dim·seq_len a token for attention, not halved for
causality; recomputation is not counted.
"""

from __future__ import annotations

from predict.workload.model import ModelSpec
from predict.workload.run import TrainingRun


def model_flops_per_token(model: ModelSpec, seq_len: int) -> float:
    """Forward and backward FLOPs of one token in a sequence of `seq_len`."""
    attention = model.hidden * (2 * model.q_width + 2 * model.kv_width)
    mlp = (3 if model.gated else 2) * model.hidden * model.ffn
    matrices = model.layers * (attention + mlp) + model.vocab * model.hidden
    return 6.0 * matrices + 12.0 * model.layers * model.q_width * seq_len


def model_flops_per_step(run: TrainingRun) -> float:
    return model_flops_per_token(run.model, run.batch.seq_len) * tokens_per_step(run)


def tokens_per_step(run: TrainingRun) -> int:
    return run.batch.global_ * run.batch.seq_len


def mfu(run: TrainingRun, step_time_us: float) -> float:
    """Model FLOPs utilisation against the dense peak of the run's precision, over all ranks."""
    peak = run.cluster.gpu.peak_flops_per_us(run.precision) * run.cluster.world_size
    return model_flops_per_step(run) / (step_time_us * peak)
