"""A predicted step as text and JSON, alone and next to another prediction of the same run."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from predict.memory.advice import Advice
from predict.plan_search.unknown_settings import LikelySteps, stated
from predict.reports import text
from predict.reports.memory import NO_CHANGE, VERDICT, headlines, misfit, smallest_in_words, summary, turning_text
from predict.reports.printed import Renderable, Table
from predict.reports.text import fact, figures_table, first_lines_of, head, stacked, step_fact
from predict.run.frameworks import refused_by_runtime
from predict.serialise import as_json, picked, versioned
from predict.step.breakdown import NOT_COMPUTE
from predict.step.prediction import Prediction
from sampling.files.faults import counted
from sampling.number_text import Show, count, duration, percent, significant, size, whole_percent

MOST_UNKNOWNS = 3
"""Unknowns that the text names; the JSON has all of them."""
ROUNDING = 1e-9
"""Share of the step below which a sum of floats is nothing."""
LEAST_SHARE = 5e-4
"""Share of the step below which a figure would show 0.0 %."""
FEW_TOKENS = 10
"""Tokens per second below which a rate is shown with decimals."""


def prediction_text(
    prediction: Prediction, advice: Sequence[Advice] = (), *, full_sources: bool = False, notes: bool = True
) -> Renderable:
    """Step time first, then what it rests on, where it goes, each stage, and the sources; before all that, that the plan does
    not fit. `advice` are changes that would make it fit; without `notes` what the step rests on is shown elsewhere."""
    run = prediction.run
    rate, per_gpu = prediction.tokens_per_second, prediction.tokens_per_second_per_gpu
    fits_with = turning_text(advice[0]) if advice else NO_CHANGE
    sources = text.last_lines(prediction.provenance, analytic=prediction.is_analytic, full=full_sources)
    return text.stacked(
        *headlines([misfit(prediction.memory)]),
        *(text.first_lines_of(prediction) if notes else ()),
        text.head(run.name, text.run_text(run)),
        "",
        text.step_fact(prediction.step_time),
        text.fact("interval", in_words(prediction.unknowns)),
        text.fact("throughput", f"{_per_second(rate)} tokens/s   {_per_second(per_gpu)} per GPU"),
        text.fact(
            "MFU",
            f"{percent(prediction.mfu)} of the {run.precision} peak, look-ups of embeddings not counted   bubble {percent(prediction.bubble_fraction)} of the schedule",
        ),
        text.fact("rests on", " · ".join(_sources(prediction))),
        *([text.fact("images", "none: the text alone; --set vision.images=N")] if run.is_text_alone else []),
        text.fact("memory", summary(prediction.memory)),
        *([] if prediction.feasible else [text.fact("fits with", fits_with)]),
        text.fact("smallest", smallest_in_words(prediction.smallest_cluster, prediction.one_replica)),
        "",
        text.account_table(
            "  where the step goes, mean over pipeline ranks", _account(prediction), prediction.step_time.median_us
        ),
        "",
        _stages(prediction),
        "",
        *map(text.escape, sources),
    )


def _per_second(rate: float) -> str:
    """A rate of tokens as a whole number, or where that would hide it with two digits."""
    return count(rate) if rate >= FEW_TOKENS else significant(rate, 2)


def in_words(unknowns: Mapping[str, float]) -> str:
    """The unknowns that widen the interval most, each with the interval that it would leave by itself."""
    wide = [(name, math.expm1(width)) for name, width in unknowns.items()][:MOST_UNKNOWNS]
    return " · ".join(f"{name} ±{whole_percent(share)}" for name, share in wide if share >= 0.005)


def _sources(prediction: Prediction) -> Iterator[str]:
    yield from (f"{whole_percent(share)} {name}" for name, share in prediction.sources.items() if share >= LEAST_SHARE)
    if prediction.run.calibration:
        yield "calibrated"


def _account(prediction: Prediction) -> list[tuple[str, float]]:
    """µs by heading, compute before the rest, each the longest first; the rest only where it takes time."""
    least_us = ROUNDING * prediction.step_time.median_us
    longest = sorted(prediction.breakdown_us.items(), key=lambda item: -item[1])
    compute = [item for item in longest if item[0] not in NOT_COMPUTE]
    return compute + [item for item in longest if item[0] in NOT_COMPUTE and abs(item[1]) > least_us]


def _stages(prediction: Prediction) -> Table:
    return text.table(
        "  pipeline ranks, per microbatch; gradients, optimizer per step",
        enumerate(prediction.stages),
        {},
        {
            "rank": lambda stage: str(stage[0]),
            "layers": lambda stage: str(stage[1].layers),
            "forward": lambda stage: duration(stage[1].forward_us),
            "backward": lambda stage: duration(stage[1].backward_us),
            "gradients": lambda stage: duration(stage[1].gradients_us),
            "optimizer": lambda stage: duration(stage[1].step_us),
        },
    )


def prediction_json(prediction: Prediction) -> dict[str, Any]:
    """The prediction in plain values: times in µs, sizes in bytes, shares as fractions."""
    run = prediction.run
    refused = refused_by_runtime(run.execution.framework, run.plan, run.microbatches)
    return versioned(
        "one-batch",
        picked(prediction, "run=run.name feasible")
        | {"refused_by_runtime": refused}
        | picked(
            prediction,
            """schedule=run.plan.schedule step_time_us=step_time unknowns_log=unknowns tokens_per_second tokens_per_second_per_gpu
            mfu bubble_fraction breakdown_us sources stages one_replica smallest_cluster""",
        )
        | text.own_values(run.plan)
        | {"memory": picked(prediction.memory, VERDICT)}
        | picked(prediction, "execution=run.execution provenance"),
    )


def predictions_json(predictions: Mapping[str, Prediction]) -> dict[str, Any]:
    """One prediction by itself; several under their modes."""
    contents = {mode: prediction_json(prediction) for mode, prediction in predictions.items()}
    return versioned("one-batch", contents) if len(contents) > 1 else next(iter(contents.values()))


def side_by_side(benchmark: Prediction, simulate: Prediction) -> Table:
    """Step time and ledger of the prediction from timed layers and of the simulated one; and the first over the second."""
    headings = _headings(benchmark, simulate)
    pairs = zip(_figures(benchmark, headings), _figures(simulate, headings), strict=True)
    return text.table(
        f"{benchmark.run.name}: from timed layers, and simulated",
        pairs,
        {"": lambda pair: pair[0][0]},
        {
            "benchmark": lambda pair: pair[0][2](pair[0][1]),
            "simulate": lambda pair: pair[1][2](pair[1][1]),
            "ratio": lambda pair: significant(pair[0][1] / pair[1][1]) if pair[1][1] > 0 else "",
        },
    )


def _figures(one: Prediction, headings: Sequence[str]) -> list[tuple[str, float, Show]]:
    """Name, value and form of each figure."""
    step = one.step_time
    return [
        ("step time", step.median_us, duration),
        ("  low (90 %)", step.low_us, duration),
        ("  high", step.high_us, duration),
        ("tokens/s", one.tokens_per_second, count),
        ("MFU", one.mfu, percent),
        ("bubble", one.bubble_fraction, percent),
        *((f"{source} share", share, whole_percent) for source, share in one.sources.items()),
        *((heading, one.breakdown_us.get(heading, 0.0), duration) for heading in headings),
    ]


def _headings(*pair: Prediction) -> list[str]:
    """The headings that are not negligible in either ledger, the largest first."""
    weights: dict[str, float] = {}
    for one in pair:
        for name, time_us in one.breakdown_us.items():
            weights[name] = max(weights.get(name, 0.0), abs(time_us) / one.step_time.median_us)
    return sorted((name for name, weight in weights.items() if weight >= LEAST_SHARE), key=lambda name: -weights[name])


# The answer for a run that is partly unknown, for a terminal and as JSON: one interval, the runs that it may be, and the ledger of
# the middle one.


def likely_text(likely: LikelySteps) -> Renderable:
    """The interval of all runs first, then each of them, then the middle one as `one-batch` shows it."""
    known_as = " · ".join(map(likely.in_words, likely.unknown))
    return stacked(
        *first_lines_of(*likely.predictions),
        head(likely.middle.run.name, f"{known_as}: {counted(len(likely.predictions), 'equally likely run')}"),
        "",
        step_fact(likely.step_time),
        fact("interval", in_words(likely.unknowns)),
        fact("unknown", " · ".join(map(_width, likely.unknown, likely.widths.values()))),
        "",
        _runs(likely),
        "",
        f"one of them alone, the middle one by step time (the answer above, {duration(likely.step_time.median_us)}, is of all):",
        prediction_text(likely.middle, notes=False),
    )


def _width(path: str, width: float) -> str:
    return f"{path} moves the step by ±{percent(math.expm1(width))}"


def _runs(likely: LikelySteps) -> Table:
    table = figures_table("", (), (*likely.unknown, "step time", "memory", ""), keys=len(likely.unknown))
    for one in likely.predictions:
        values = [str(stated(one.run, path)) for path in likely.unknown]
        table.add_row(*values, duration(one.median_us), size(one.memory.point_bytes), one.memory.verdict)
    return table


def likely_json(likely: LikelySteps) -> dict[str, Any]:
    """The middle run as `one-batch --json` gives it under `middle`; the interval of all runs, its causes, and each run."""
    runs = [
        {path: stated(one.run, path) for path in likely.unknown}
        | {"step_time_us": as_json(one.step_time), "memory_verdict": one.memory.verdict}
        for one in likely.predictions
    ]
    content = picked(likely, "step_time_us=step_time unknowns_log=unknowns unknown") | {"runs": runs}
    return versioned("one-batch", content | {"middle": prediction_json(likely.middle)})
