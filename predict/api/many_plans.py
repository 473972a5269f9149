"""Questions on many plans: the best of them, and what a change makes of a step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from predict import estimate, load, one_batch
from predict.kinds import ServerOptions

if TYPE_CHECKING:
    from predict.config.draft import Document
    from predict.plan_search.answer import Answer
    from predict.plan_search.compare import Difference
    from predict.plan_search.options import Backend, ObjectiveName
    from predict.plan_search.sensitivity import Sensitivities
    from predict.plan_search.sweep import Progress, SweptRows
    from predict.plan_search.whole_search import Listener


def default_config(model: str, gpus: str, *, batch: int | None = None, overrides: Sequence[str] = ()) -> Document:
    """The config of the plan that a framework's user tries first, for a model on GPUs such as `64xh100`; `as_yaml()` writes it.

    `batch` is the sequences of a step; `overrides` are settings that the plan is chosen around: give them to `one_batch` too.
    UserError for what cannot be; InfeasibleError, with a number of GPUs that would do, where no plan fits.
    """
    from predict.plan_search.default_plan import default_config as choose

    return choose(model, gpus, batch=batch, overrides=overrides)


def search(
    config: Path | str | Document,
    overrides: Sequence[str] = (),
    *,
    clusters: Sequence[str] = (),
    objective: ObjectiveName = "time",
    top: int = 20,
    max_memory: float = 1.0,
    max_gpus: int | None = None,
    min_interval_overlap: float | None = None,
    tokens: str | None = None,
    price: str | None = None,
    front: bool = False,
    save: Path | str | None = None,
    jobs: int | None = None,
    backend: Backend = "processes",
    address: str | None = None,
    listener: Listener | None = None,
) -> Answer:
    """The best plans, exactly, of all that a config leaves open: keys that are lists, ranges, `auto`, or left out; of RL and serving
    configs see `search_combinations`.

    `.plans` are the best, each with its settings, prediction and ratio to the best; `.found.left_out` counts the others by reason.
    The parameters are those of the command, as `plan_search.options` describes them; `listener` is told of progress. ConfigError
    and UserError for bad input; InfeasibleError, with the smallest change that helps, where nothing fits.
    """
    from predict.plan_search.options import SearchOptions
    from predict.plan_search.whole_search import whole_search

    search_options = SearchOptions(
        clusters=tuple(clusters),
        objective=objective,
        top=top,
        max_memory=max_memory,
        max_gpus=max_gpus,
        min_interval_overlap=min_interval_overlap,
        tokens=tokens,
        price=price,
        front=front,
        save=None if save is None else Path(save),
        jobs=jobs,
        backend=backend,
        address=address,
    )
    return whole_search(config, overrides, search_options, estimate, listener)


def search_combinations(
    config: Path | str,
    overrides: Sequence[str] = (),
    *,
    objective: str | None = None,
    slo: Sequence[str] = (),
    price: str | None = None,
    model: str = "",
    coefficients: Path | str | None = None,
    progress: Progress | None = None,
) -> SweptRows[Any]:
    """The best RL steps, or servers, of all that a config leaves open, each combination predicted.

    `.best` are those that can run, best first, each with its `settings` and `prediction`, `.left_out` the others with the reason.
    `progress` is called with how many are done, and of how many. ConfigError and UserError for bad input; InfeasibleError where none can
    run.
    """
    from predict.plan_search.sweep import default_objective, opened_space, require_objective, search_all

    of_servers = ServerOptions(slo=slo, price=price, model=model, coefficients=coefficients)
    space = opened_space(config, overrides, estimate, of_servers)
    require_objective(space.kind, objective, price)
    return search_all(space, objective or default_objective(space.kind, price), progress)


def sweep(
    config: Path | str | Document,
    vary: Sequence[str],
    overrides: Sequence[str] = (),
    *,
    slo: Sequence[str] = (),
    price: str | None = None,
    model: str = "",
    coefficients: Path | str | None = None,
    progress: Progress | None = None,
) -> SweptRows[Any]:
    """Predict a config of any kind under every combination of keys such as `batch.seq_len=2k..128k` and `batch.micro=1,2,4`.

    A combination that cannot run keeps its reason. dp takes the ranks that are left where the other degrees vary and it does
    not. `slo`, `price`, `model` and `coefficients` are of servers, as in `serving_answer`. `progress` is called with how many are done,
    and of how many. UserError for an unknown key, an empty range, and where no combination can run.
    """
    from predict.plan_search.sweep import sweep as run_all

    of_servers = ServerOptions(slo=slo, price=price, model=model, coefficients=coefficients)
    return run_all(config, vary, overrides, estimate, progress, of_servers)


def compare(
    first: Path | str | Document, *others: Path | str | Document, overrides: Sequence[str] = ()
) -> tuple[Difference, ...]:
    """The differences of configs from the first: settings, the step heading by heading, and memory term by term."""
    from predict.plan_search.compare import compare as differences

    return differences(one_batch(first, overrides), [one_batch(other, overrides) for other in others])


def sensitivity(config: Path | str | Document, overrides: Sequence[str] = ()) -> Sensitivities:
    """The effect on the step of 10 % more of each figure of the hardware, its links and the framework, and of each other value of a
    setting of `execution`, ranked; each is predicted by itself."""
    from predict.plan_search.sensitivity import sensitivity as ranked

    return ranked(load(config, overrides), estimate, lambda setting: load(config, [*overrides, setting]))
