"""One step of a serving engine as text and JSON, and the rows and coefficients that it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from typing import TYPE_CHECKING, Any

from predict.model.shipped import notes_on_name
from predict.reports.printed import Renderable
from predict.reports.text import escape, fact, head, noted, notes_on_prices, stacked, step_fact, table
from predict.serialise import each_picked, versioned
from predict.serving.batch import StepBatch
from predict.serving.formats import published_note, widened_note
from predict.serving.kernels import EXECUTION, prices_of
from predict.serving.questions import ServerAnswer
from predict.serving.served_step import ServedStep
from predict.serving.simulate import OVERLOAD
from predict.serving.step_model import KERNELS, step_model
from predict.serving.stepper import Stepper
from predict.step.prediction import ALL
from sampling.files.faults import counted
from sampling.number_text import duration, percent, plain, whole_percent

if TYPE_CHECKING:
    from predict.serving.coefficients import Coefficients, Weight
    from predict.serving.config import ServingRun


NOTED = 0.01
"""Log half-width from which on a note says that the interval is wider."""


def step_text(found: ServedStep) -> Renderable:
    """The step by each model, with its interval, and the terms of each."""
    run, batch, steppers = found.run, found.batch, found.steppers
    notes = dict.fromkeys(note for one in steppers for note in notes_on_step(one, batch))
    decodes = f"{counted(len(batch.decodes), 'decode')} over {sum(batch.decodes):,} cached tokens"
    return stacked(
        *noted(list(notes)),
        head(run.name, server_line(run)),
        "",
        fact("batch", f"{decodes}, {_chunks_text(batch)}"),
        fact("bound", f"{duration(steppers[0].bound_us(batch))} at the speed of light"),
        fact("rests on", sources_text(steppers[0], batch)),
        *(part for one in steppers for part in _by_model(one, batch)),
        *(["", most_certain_text(steppers)] if len(steppers) > 1 else []),
    )


def _by_model(one: Stepper, batch: StepBatch) -> list[Renderable]:
    (time,) = one.step_times([batch])
    model = step_model(one.coefficients.model)
    ledger = {name: us for name, us in one.ledger_us(batch).items() if us}
    terms = table(
        "",
        ledger.items(),
        {"term": lambda term: model.title_of(term[0])},
        {"time": lambda term: duration(term[1]), "share": lambda term: percent(term[1] / sum(ledger.values()))},
    )
    return [
        "",
        f"step by {one.coefficients.model}",
        step_fact(time),
        fact("rests on", escape(f"coefficients: {one.coefficients.source}")),
        "",
        terms,
    ]


def _chunks_text(batch: StepBatch) -> str:
    """The chunks of a batch: their number, their tokens, and the tokens before them that are in the cache."""
    if not batch.chunks:
        return "no chunk"
    tokens, cached = (sum(getattr(chunk, of) for chunk in batch.chunks) for of in ("tokens", "context"))
    together = " together" if len(batch.chunks) > 1 else ""
    return f"{counted(len(batch.chunks), 'chunk')} of {tokens:,} tokens{f' over {cached:,} cached tokens' if cached else ''}{together}"


def most_certain(several: Sequence[Stepper]) -> Stepper:
    """The model with the narrowest interval on this server, of those that were fitted."""
    fitted = [one for one in several if step_model(one.coefficients.model).is_fitted]
    return min(fitted or several, key=_width)


def _width(one: Stepper) -> float:
    """Share by which the upper bound of a step is above the step."""
    return one.interval_factors.high - 1


def most_certain_text(several: Sequence[Stepper]) -> str:
    """The model to rely on among several, and why."""
    best = most_certain(several)
    others = [
        f"{one.coefficients.model} {percent(_width(one))}{'' if step_model(one.coefficients.model).is_fitted else ', assumed'}"
        for one in several
        if one is not best
    ]
    return (
        f"rely on {best.coefficients.model}: of the fitted models it has the narrowest interval, up to {percent(_width(best))} above the step "
        f"({'; '.join(others)})"
    )


def server_line(run: ServingRun) -> str:
    """A server in one line."""
    fleet, prefill, more = run.fleet, run.prefill, ""
    if prefill:
        more = f"; {fleet.prefill_replicas} × tp {prefill.tp} for prompts, {fleet.replicas} × tp {run.server.tp} for answers, {counted(run.gpus, 'GPU')}"
    elif not fleet.is_alone:
        most = f" to {fleet.most_replicas}" if fleet.most_replicas else ""
        more = f"; {fleet.replicas}{most} replicas, {counted(run.gpus, 'GPU')}, {fleet.router.replace('_', ' ')}"
    return f"{run.server.title}, {run.engine_name}{more}"


def step_json(found: ServedStep) -> dict[str, Any]:
    """The content of `predict serving-step --json`."""
    batch, steppers = found.batch, found.steppers
    return versioned(
        "serving-step",
        {
            "config": found.run.name,
            "batch": {"chunks": each_picked(batch.chunks, "tokens context"), "decodes": batch.decodes},
            "speed_of_light_us": steppers[0].bound_us(batch),
            "sources": steppers[0].sources(batch),
            "models": [_model_json(one, batch) for one in steppers],
            "believed": most_certain(steppers).coefficients.model,
        },
    )


def _model_json(one: Stepper, batch: StepBatch) -> dict[str, Any]:
    (time,) = one.step_times([batch])
    model, ledger = step_model(one.coefficients.model), one.ledger_us(batch)
    return {
        "model": one.coefficients.model,
        "step_us": time,
        "terms_us": ledger,
        "titles": {name: model.title_of(name) for name in ledger},
        "source": one.coefficients.source,
        "notes": notes_on_step(one, batch),
    }


def notes_on_step(stepper: Stepper, batch: StepBatch) -> list[str]:
    """Notes on the model's name, and on the rows and the coefficients that a batch's step rests on."""
    server = stepper.server
    precision = server.placement.precision
    of_formats = (
        published_note(server.model_given_as, precision, server.published_formats),
        widened_note(precision, server.cluster.gpu),
    )
    named = notes_on_name(server.model_given_as)
    return [*named, *_notes_on_rows(stepper, batch), *_notes_on_coefficients(stepper), *filter(None, of_formats)]


def _notes_on_coefficients(stepper: Stepper) -> list[str]:
    """A note where the coefficients were fitted to another server: its requests or steps show how far off they are on that server alone."""
    fitted = stepper.coefficients.server
    if fitted in ("", stepper.server.title):
        return []
    other = "may be too narrow: how servers differ is not counted"
    if stepper.unmeasured_width >= NOTED:
        unmeasured = ", ".join(map(step_model(stepper.coefficients.model).title_of, stepper.unmeasured))
        other = f"is wider: no measurement covers {unmeasured}"
    return [f"These coefficients are of {fitted}; the interval of another server {other}"]


def _notes_on_rows(stepper: Stepper, batch: StepBatch) -> list[str]:
    """Notes as the training commands print them, by the kernels of a batch's step; none for a model that prices no kernels."""
    if stepper.coefficients.model != KERNELS.name:
        return []
    server, analytic = stepper.server, stepper.sources(batch).get("analytic", 0.0) > ALL
    return notes_on_prices(server.cluster, EXECUTION, prices_of(server).provenance, analytic=analytic)


def notes_on_answers(answers: Sequence[ServerAnswer]) -> list[str]:
    """The notes of several servers as lines that catch the eye, each once."""
    notes = (note for one in answers for note in notes_on_step(one.server.stepper, one.outcomes[0].mean_batch))
    return noted(list(dict.fromkeys(notes)))


def coefficients_line(stepper: Stepper) -> str:
    """The model of the step, and where its coefficients come from."""
    return f"step by {stepper.coefficients.model}; coefficients: {stepper.coefficients.source}"


CAPACITY_BELOW = (
    f"a full engine may be up to {whole_percent(1 - exp(-OVERLOAD))} slower than its steps, as measured ones became within minutes: the interval "
    "of a capacity reaches further down than up"
)


def sources_text(stepper: Stepper, batch: StepBatch) -> str:
    """The sources of the times of a batch's kernels."""
    return "kernels: " + " · ".join(
        f"{whole_percent(share)} {source}" for source, share in stepper.sources(batch).items()
    )


def coefficients_text(coefficients: Coefficients) -> Renderable:
    """Fitted coefficients: each weight with its interval, its prior and its meaning."""
    model, weights = step_model(coefficients.model), coefficients.weights
    runs = len(coefficients.experiments)
    outside_steps = f"{duration(coefficients.client.first_token_us)} in addition to the steps"
    waits = outside_steps if runs else "an unknown time: steps do not show it"
    fitted = {name: term for name, term in model.terms.items() if term.low < term.high}
    terms = table(
        "",
        model.terms.items(),
        {"term": lambda item: model.title_of(item[0]), "meaning": lambda item: item[1].meaning},
        {
            "value": lambda item: plain(weights[item[0]].value),
            "90 % interval": lambda item: _weight_bounds(weights[item[0]]) if item[0] in fitted else "not fitted",
            "prior": lambda item: plain(item[1].prior),
        },
    )
    at_bounds = [
        model.title_of(name) for name, term in fitted.items() if weights[name].value in (term.low or None, term.high)
    ]
    bounds = f"at the bound of what is plausible: {', '.join(at_bounds)}; is CONFIG the model, GPU and engine that was measured?"
    unmeasured = f"no measurement covers {', '.join(map(model.title_of, coefficients.untold))}: at the prior"
    return stacked(
        f"{coefficients.model}, fitted to {counted(runs, 'experiment') if runs else 'single steps'}: {escape(coefficients.source)}",
        "",
        terms,
        "",
        f"up to the first token the client waits {waits}",
        f"{'steps of an experiment' if runs else 'blocks of like steps'} left out: within {percent(coefficients.half_width)} (log half-width) for 90 %",
        *([bounds] if at_bounds else []),
        *([unmeasured] if coefficients.untold else []),
    )


def _weight_bounds(weight: Weight) -> str:
    return f"{plain(weight.low)} to {plain(weight.high)}"
