"""Runs of a small model on a few cores, and their prediction by a cost model without noise."""

from dataclasses import replace
from typing import Any

from predict import estimate
from predict.prices.open import SpeedOfLight
from predict.prices.price_list import CostModel, PriceList
from predict.run.training_run import TrainingRun
from predict.step.prediction import Prediction
from tests.tiny_runs import LLAMA, tiny_run

MODEL = replace(LLAMA, layers=8, hidden=256, heads=8, kv_heads=4, head_dim=32, ffn=768, vocab=4096)


def run(*, model: dict[str, Any] | None = None, batch: dict[str, int] | None = None, **plan: Any) -> TrainingRun:
    sizes = {"global_": 16, "micro": 2, "seq_len": 128, **(batch or {})}
    batch_sizes = (sizes["global_"], sizes["micro"], sizes["seq_len"])
    return tiny_run(replace(MODEL, **(model or {})), cores=8, batch=batch_sizes, **plan)


def predicted(subject: TrainingRun, model: CostModel | None = None) -> Prediction:
    prices = PriceList([model or SpeedOfLight()], subject.cluster, profile_error=0.05)
    return estimate(subject, prices=prices)


def step_us(subject: TrainingRun) -> float:
    return predicted(subject).step_time.median_us
