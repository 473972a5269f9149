"""One step of a serving engine as text and JSON, and the rows and coefficients that it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from predict.report.provenance import noted, notes_on_prices
from predict.report.text import figures_table
from predict.serving.batch import StepBatch
from predict.serving.kernels.features import EXECUTION, prices_of
from predict.serving.planning.answer import Answer
from predict.serving.step_model import KERNELS, step_model
from predict.serving.stepper import Stepper
from predict.step.prediction import ALL
from sampling.files.faults import counted
from sampling.number_text import duration, percent

if TYPE_CHECKING:
    from rich.console import RenderableType

    from predict.serving.batch import StepBatch
    from predict.serving.config import ServingRun
    from predict.serving.stepper import Stepper


VERSION = 1


def step_text(run: ServingRun, batch: StepBatch, steppers: Sequence[Stepper]) -> RenderableType:
    """The step by each model, with its interval, and the terms of each."""
    from rich.console import Group

    notes = dict.fromkeys(note for one in steppers for note in notes_on_step(one, batch))
    lines: list[RenderableType] = [
        *noted(list(notes)),
        f"{escape(run.name)}  {escape(server_line(run))}",
        f"batch  {counted(len(batch.decodes), 'decode')} over {sum(batch.decodes):,} cached tokens, {_chunks_text(batch)}",
    ]
    lines += [f"speed of light  {duration(steppers[0].bound_us(batch))}", sources_line(steppers[0], batch)]
    for one in steppers:
        (time,) = one.step_times([batch])
        model = step_model(one.coefficients.model)
        table = figures_table("", ("term",), ("time", "share"))
        ledger = {name: us for name, us in one.ledger_us(batch).items() if us}
        for name, us in ledger.items():
            table.add_row(escape(model.title_of(name)), duration(us), f"{us / sum(ledger.values()):.1%}")
        lines += [
            "",
            f"step by {one.coefficients.model}  {duration(time.median_us)}   (90 %: {duration(time.low_us)} to {duration(time.high_us)})",
            table,
            escape(f"coefficients: {one.coefficients.source}"),
        ]
    if len(steppers) > 1:
        lines += ["", believed_text(steppers)]
    return Group(*lines)


def _chunks_text(batch: StepBatch) -> str:
    """The chunks of a batch: their number, their tokens, and the tokens before them that are in the cache."""
    if not batch.chunks:
        return "no chunk"
    tokens, cached = (sum(getattr(chunk, of) for chunk in batch.chunks) for of in ("tokens", "context"))
    together = " together" if len(batch.chunks) > 1 else ""
    return f"{counted(len(batch.chunks), 'chunk')} of {tokens:,} tokens{f' over {cached:,} cached tokens' if cached else ''}{together}"


def believed(several: Sequence[Stepper]) -> Stepper:
    """The model to believe: of those that were fitted, the one with the narrowest interval on this server."""
    fitted = [one for one in several if step_model(one.coefficients.model).is_fitted]
    return min(fitted or several, key=_width)


def _width(one: Stepper) -> float:
    """Share by which the upper bound of a step is above the step."""
    return one.interval_factors.high - 1


def believed_text(several: Sequence[Stepper]) -> str:
    """Which of several models to believe, and why."""
    best = believed(several)
    others = [
        f"{one.coefficients.model} {percent(_width(one))}{'' if step_model(one.coefficients.model).is_fitted else ', assumed'}"
        for one in several
        if one is not best
    ]
    return (
        f"believe {best.coefficients.model}: its interval is the narrowest of the fitted models, up to {percent(_width(best))} above the step "
        f"({'; '.join(others)})"
    )


def server_line(run: ServingRun) -> str:
    """A server in one line."""
    return f"{run.server.title}, {run.engine_name}"


def step_json(run: ServingRun, batch: StepBatch, steppers: Sequence[Stepper]) -> dict[str, Any]:
    """The stable content of `predict serving-step --json`."""
    return {
        "version": VERSION,
        "config": run.name,
        "batch": {
            "chunks": [{"tokens": chunk.tokens, "context": chunk.context} for chunk in batch.chunks],
            "decodes": list(batch.decodes),
        },
        "speed_of_light_us": steppers[0].bound_us(batch),
        "sources": dict(steppers[0].sources(batch)),
        "models": [_model_json(one, batch) for one in steppers],
        "believed": believed(steppers).coefficients.model,
    }


def _model_json(one: Stepper, batch: StepBatch) -> dict[str, Any]:
    (time,) = one.step_times([batch])
    model, ledger = step_model(one.coefficients.model), dict(one.ledger_us(batch))
    return {
        "model": one.coefficients.model,
        "step_us": {"median": time.median_us, "low": time.low_us, "high": time.high_us},
        "terms_us": ledger,
        "titles": {name: model.title_of(name) for name in ledger},
        "source": one.coefficients.source,
        "notes": notes_on_step(one, batch),
    }


NOTED = 0.01
"""Log half-width from which on a note says that the interval is wider."""


def notes_on_step(stepper: Stepper, batch: StepBatch) -> list[str]:
    """Notes on the rows and on the coefficients that a batch's step rests on."""
    return [*_notes_on_rows(stepper, batch), *_notes_on_coefficients(stepper)]


def _notes_on_coefficients(stepper: Stepper) -> list[str]:
    """A note where the coefficients are of one other server: its requests or steps tell how far off they are there alone."""
    fitted = stepper.coefficients.server
    if fitted in ("", stepper.server.title):
        return []
    other = "may be too narrow: how servers differ is not counted"
    if stepper.untold_width >= NOTED:
        untold = ", ".join(map(step_model(stepper.coefficients.model).title_of, stepper.untold))
        other = f"is wider: no measurement told of {untold}"
    return [f"These coefficients are of {fitted}; the interval of another server {other}"]


def _notes_on_rows(stepper: Stepper, batch: StepBatch) -> list[str]:
    """Notes as the training commands print them, by the kernels of a batch's step; none for a model that prices no kernels."""
    if stepper.coefficients.model != KERNELS.name:
        return []
    server, analytic = stepper.server, stepper.sources(batch).get("analytic", 0.0) > ALL
    return notes_on_prices(server.cluster, EXECUTION, prices_of(server).provenance, analytic=analytic)


def notes_on_answers(answers: Sequence[Answer]) -> list[str]:
    """The notes of several servers as lines that catch the eye, each once."""
    notes = (note for one in answers for note in notes_on_step(one.server.stepper, one.outcomes[0].mean_batch))
    return noted(list(dict.fromkeys(notes)))


def coefficients_line(stepper: Stepper) -> str:
    """The model of the step, and where its coefficients come from."""
    return f"step by {stepper.coefficients.model}; coefficients: {stepper.coefficients.source}"


def sources_line(stepper: Stepper, batch: StepBatch) -> str:
    """The sources of the times of a batch's kernels."""
    shares = ", ".join(f"{share:.0%} {source}" for source, share in stepper.sources(batch).items())
    return f"prices of kernels  {shares}"
