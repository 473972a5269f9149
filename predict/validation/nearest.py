"""Published runs of the nearest kind: on the same device, and with a model, a number of GPUs, a sequence and a precision like a run's own.

A mixture of experts stands beside mixtures alone, and adapters beside adapters: at one size of the model their utilisation differs by more
than what the distance counts.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from predict.model.spec import ModelSpec
from predict.run.model_flops import model_flops_per_token
from predict.run.training_run import TrainingRun
from predict.validation.published import SHIPPED_RUNS
from predict.validation.published_models import model_of
from predict.validation.published_row import NotExpressibleError, PublishedRow, read_rows
from predict.validation.published_software import adapters_of_row, precision_of
from sampling.errors import ConfigError
from sampling.hardware.cluster import Gpu, hardware_facts, hardware_named

MOST = 3
OF_GPUS, OF_LENGTH = 0.3, 0.5
"""Weight of a factor in the number of GPUs, and in the length of the sequence, beside one in the model's size: a step's utilisation depends
less on them. Assumed."""
OF_PRECISION = 1.0
"""Distance between two precisions, as a factor of e in the model's size. Assumed."""
FARTHEST = 2.0
"""Distance beyond which a run is of another kind."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NearRun:
    """A published run and its figures."""

    row_id: str
    source: str
    model: str
    gpus: int
    seq_len: int
    precision: str
    framework: str
    """As it was published; empty where it was not."""
    step_us: float
    tokens_per_second_per_gpu: float
    mfu: float
    distance: float
    """0 for one of the same kind; 1 for a model e times as large."""


def nearest_published(run: TrainingRun, *, most: int = MOST) -> tuple[NearRun, ...]:
    """The published runs of the nearest kind, the nearest first; none where the table has none on the device."""
    found = sorted(_near(run), key=lambda each: each.distance)
    return tuple(each for each in found if each.distance <= FARTHEST)[:most]


def _near(run: TrainingRun) -> Iterator[NearRun]:
    for row in read_rows(SHIPPED_RUNS):
        hardware = hardware_named(row.text("gpu"), row.number("gpu_mem_gb"))
        if hardware and _is_like(hardware, run.cluster.gpu) and (near := _of_row(run, row)):
            yield near


def kind_in_words(run: TrainingRun) -> str:
    """The kind of a run, which the published ones beside it share: `a mixture of experts`."""
    kind = "a mixture of experts" if run.model.experts else "a dense model"
    if run.model.is_encoder_decoder:
        kind = "an encoder–decoder"
    elif run.model.patches:
        kind = "a model of patches"
    elif run.tower:
        kind = f"{kind} with images"
    return f"adapters of {kind}" if run.adapters.are_trained else kind


def _is_of_its_kind(run: TrainingRun, row: PublishedRow, model: ModelSpec) -> bool:
    """Whether a row, with its model, is of a run's kind; all rows are of text."""
    of_text = run.tower is None and run.model.patches is None
    as_sparse = bool(model.experts) == bool(run.model.experts)
    return of_text and as_sparse and bool(adapters_of_row(row)) == run.adapters.are_trained


def _is_like(hardware: str, gpu: Gpu) -> bool:
    """Whether a device has a run's own chip, and as much memory: boards of a chip with another amount have another bandwidth too."""
    facts = hardware_facts(hardware)
    return all(getattr(facts, name) == getattr(gpu, name) for name in ("architecture", "peak_tflops", "memory_gib"))


def _of_row(run: TrainingRun, row: PublishedRow) -> NearRun | None:
    """A row beside the run; None where it does not state enough."""
    try:
        model, (precision, _) = model_of(row), precision_of(row)
        gpus, batch, seq_len = row.gpus(), row.integer("gbs"), row.integer("seq_len")
        peak = run.cluster.gpu.peak_flops_per_us(precision)
    except (NotExpressibleError, ConfigError):
        return None
    if row.fault or not row.measured_us or not _is_of_its_kind(run, row, model):
        return None
    tokens_per_us = batch * seq_len / row.measured_us / gpus
    distance = math.hypot(
        math.log(model.active_parameters / run.model.active_parameters),
        OF_GPUS * math.log(gpus / run.cluster.world_size),
        OF_LENGTH * math.log(seq_len / run.batch.seq_len),
        OF_PRECISION * (precision != run.precision),
    )
    return NearRun(
        row_id=row.row_id,
        source=row.text("source"),
        model=model.name,
        gpus=gpus,
        seq_len=seq_len,
        precision=precision,
        framework=row.text("framework"),
        step_us=row.measured_us,
        tokens_per_second_per_gpu=1e6 * tokens_per_us,
        mfu=tokens_per_us * model_flops_per_token(model, seq_len) / peak,
        distance=distance,
    )
