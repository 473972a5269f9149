"""Rows that the kernels of a server's steps rest on: notes before the first figure, and their shares."""

from __future__ import annotations

from collections.abc import Sequence

from predict.report.provenance_text import noted, notes_on_prices
from predict.serving.batch import StepBatch
from predict.serving.kernels.features import EXECUTION, prices_of
from predict.serving.planning.answer import Answer
from predict.serving.step_model import KERNELS, step_model
from predict.serving.stepper import Stepper
from predict.step.prediction import ALL

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
