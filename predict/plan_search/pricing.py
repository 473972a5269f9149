"""Workers: the cores of this machine, or a cluster of Dask or Ray, that batches are handed to; always through joblib."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

from predict.plan_search.legal import run_of
from predict.plan_search.options import Backend
from predict.run.training_run import TrainingRun
from predict.step.scheduling import Estimate
from sampling.errors import InfeasibleError, UserError

Result = TypeVar("Result")
FEWEST_BATCHES = 8
"""Batches for which processes are worth their start, of about two seconds."""
TRIES = 3
"""Times that a batch is handed out whose worker was lost."""
ANSWERS_WITHIN = "10s"
"""How long a Dask scheduler may take to answer."""


class Workers:
    """Runs a function over many arguments, and returns the results in their order whoever made them."""

    def __init__(self, backend: Backend = "processes", *, address: str | None = None, jobs: int | None = None) -> None:
        self.backend, self._address = backend, address
        self.jobs = jobs or os.cpu_count() or 1
        self._open = ExitStack()
        self._parallel: Any = None

    def __enter__(self) -> Workers:
        """Opens a cluster at once, so that one that is not there is reported before any work; processes when they pay."""
        if self.backend != "processes":
            self._pool()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._open.close()

    def map(self, function: Callable[..., Result], arguments: Sequence[tuple[Any, ...]]) -> list[Result]:
        """`function(*each)` for each of the arguments; a batch whose worker dies is repeated."""
        if self.backend == "processes" and (self.jobs == 1 or len(arguments) < FEWEST_BATCHES):
            return [function(*each) for each in arguments]
        from joblib import delayed
        from joblib.externals.loky.process_executor import BrokenProcessPool

        for tried in range(1, TRIES + 1):
            try:
                return list(self._pool()(delayed(function)(*each) for each in arguments))
            except BrokenProcessPool:
                self._open.close()
                self._parallel = None
                if tried == TRIES:
                    raise
        raise AssertionError

    def _pool(self) -> Any:
        if self._parallel is None:
            from joblib import Parallel

            self._open.enter_context(self._context())
            parallel = Parallel(n_jobs=self.jobs if self.backend == "processes" else -1)
            self._parallel = self._open.enter_context(parallel)
        return self._parallel

    def _context(self) -> AbstractContextManager[Any]:
        if self.backend == "dask":
            return _dask(self._address, self._open)
        if self.backend == "ray":
            return _ray(self._address)
        from joblib import parallel_config

        context: AbstractContextManager[Any] = parallel_config("loky")
        return context


def _dask(address: str | None, opened: ExitStack) -> AbstractContextManager[Any]:
    from joblib import parallel_config

    try:
        from distributed import Client
    except ImportError:
        raise UserError("--backend dask: Dask is not installed here; pip install 'steptime[dask]'") from None
    try:
        client = Client(address, timeout=ANSWERS_WITHIN) if address else Client(processes=True, dashboard_address=None)
    except (OSError, ValueError) as error:
        raise UserError(
            f"--address: no Dask scheduler answers at {address!r} ({error}); start one with `dask scheduler`"
        ) from None
    opened.enter_context(client)
    context: AbstractContextManager[Any] = parallel_config("dask")
    return context


def _ray(address: str | None) -> AbstractContextManager[Any]:
    from joblib import parallel_config

    try:
        import ray
        from ray.util.joblib import register_ray
    except ImportError:
        raise UserError("--backend ray: Ray is not installed here; pip install 'steptime[ray]'") from None
    try:
        ray.init(address=address, ignore_reinit_error=True, log_to_driver=False)
    except (ConnectionError, ValueError) as error:
        raise UserError(
            f"--address: no Ray cluster answers at {address!r} ({error}); start one with `ray start --head`"
        ) from None
    register_ray()
    context: AbstractContextManager[Any] = parallel_config("ray")
    return context


# Outcomes: what the full estimate of a plan says, in the few numbers that plans are ranked by.


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """One plan's step time and memory, or why it has none."""

    number: int
    """The plan's place among the legal ones."""
    step_us: float = 0.0
    memory_bytes: float = 0.0
    """Expected peak per GPU."""
    board_w: float = 0.0
    """Mean W of a GPU's board; 0 where its power is not known."""
    refusal: str = ""
    """Why the plan cannot run, where only its schedule shows it."""


Batch = Sequence[tuple[int, Mapping[str, Any]]]
"""Numbers of plans, and the settings of each."""


def outcomes(estimate: Estimate, base: TrainingRun, batch: Batch) -> list[Outcome]:
    """The outcome of each plan of a batch, in its order."""
    return [_outcome(estimate, number, run_of(base, settings)) for number, settings in batch]


def _outcome(estimate: Estimate, number: int, run: TrainingRun) -> Outcome:
    try:
        prediction = estimate(run)
    except InfeasibleError as error:
        return Outcome(number=number, refusal=str(error))
    return Outcome(
        number=number,
        step_us=prediction.median_us,
        memory_bytes=prediction.memory.point_bytes,
        board_w=prediction.power.mean_w if prediction.power else 0.0,
    )
