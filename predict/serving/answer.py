"""The answer of a server to a load, or to several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from predict.config.document import Config
from predict.serving.coefficients import chosen_coefficients
from predict.serving.config import load_serving
from predict.serving.loaded_server import LoadedServer
from predict.serving.questions import ServerAnswer, answer, questions_of
from predict.serving.stepper import Stepper
from sampling.errors import Checks


def serving_answer(
    config: Config,
    overrides: Sequence[str] = (),
    *,
    find_capacity: bool = False,
    rates: Sequence[float] = (),
    slo: Sequence[str] = (),
    price: str | None = None,
    model: str = "",
    coefficients: Path | str | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> ServerAnswer:
    """A server under the load of a serving config, or under each of `rates`, as `predict serving` reports it.

    `.outcomes[0].latency.ttft.mean_us`, `.capacity` (with `find_capacity`), `.kept.rate` (with `slo`, such as
    `ttft_p90=1s`), `.costs` (with `price`, such as `2.5/gpu-h`). `model` is the model of the step, and `coefficients` a file
    that `predict serving-fit` wrote; `progress` is called with how many simulations are done, of how many at most.
    ConfigError and UserError list every fault of the input; InfeasibleError where the weights do not fit, or no rate
    keeps the objectives.
    """
    with Checks() as checks:
        with checks.one():
            questions = questions_of(slo, price, rates=rates, find_capacity=find_capacity)
        with checks.one():
            weights = chosen_coefficients(model, None if coefficients is None else Path(coefficients))
        with checks.one():
            run = load_serving(config, overrides)
    return answer(LoadedServer(run, Stepper(run.server, weights)), questions, progress)
