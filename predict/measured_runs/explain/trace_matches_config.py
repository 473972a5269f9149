"""Whether a trace shows the run that it is compared with: by its ranks, its device, and the shapes of its matrix products."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from predict.measured_runs.explain.naming import FORWARD
from predict.measured_runs.explain.predicted import PredictedStep
from predict.measured_runs.explain.timeline import SOME
from predict.measured_runs.log_matches_config import unit_mistake
from predict.run.plan import BEST
from predict.run.training_run import TrainingRun
from predict.schedules import registry
from predict.schedules.engine.order import KIND, F
from predict.step.breakdown import P2P
from sampling.call import Call
from sampling.errors import UserError
from sampling.importers.torch_trace.events import Trace
from sampling.number_text import duration, plain, whole_percent
from sampling.operators.gemm import Gemm


def weighted_median(ratios: Sequence[tuple[float, float]]) -> float:
    """The median of (ratio, weight); 1 of none."""
    half = sum(weight for _, weight in ratios) / 2
    for ratio, weight in sorted(ratios):
        half -= weight
        if half <= 0:
            return ratio
    return 1.0


LEAST_FOUND = 0.1
"""Share of the time of a trace's matrix products below which shapes that are predicted, too, are a coincidence: frameworks cut some
products otherwise than the prediction has them, but never nearly all."""
OFTEN = 1.4
"""Ratio of the runs of products from which on a trace is of another batch, of other layers, or of more than a step: such ratios are
whole numbers and their fractions, where a product of one shape more or less among many moves the median little."""
MOST_SLOWED, LONGER = 0.1, 1.5
"""Bounds of a logged step over the traced one of the same run: a profiler slows steps, and repeats differ."""
CallTimes = Mapping[tuple[Call, str], tuple[float, float]]
"""Call and direction → (runs, µs) a step."""


def pipeline_rank(rank: int, run: TrainingRun) -> int:
    """The pipeline rank of a global rank, as frameworks number them: those of one pipeline rank in a row."""
    return rank * run.plan.pp // run.cluster.world_size


def require_of_run(trace: Trace, rank: int, run: TrainingRun, file: Path) -> None:
    """UserError that lists every way in which a trace's ranks and device are not those of the run."""
    if faults := [*_misfits(trace, rank, run)]:
        raise UserError(f"--trace: {file}: not of {run.name}: {'; '.join(faults)}; give the config of the traced run")


def _misfits(trace: Trace, rank: int, run: TrainingRun) -> Iterator[str]:
    ranks = run.cluster.world_size
    if "distributedInfo" in trace.header and trace.world_size != ranks:
        yield f"its run has a world size of {trace.world_size}, the config one of {ranks}"
    elif rank >= ranks:
        yield f"it is of rank {rank}, the config's ranks end at {ranks - 1}"
    on_cpu = run.cluster.gpu.kind == "cpu"
    if trace.kernels and on_cpu:
        yield "it holds kernels of a GPU, the config is for a CPU"
    elif trace.ops and not (trace.kernels or on_cpu):
        yield f"it holds no kernels of a GPU, the config is for {run.cluster.gpu.name}"


def require_same_step(
    run: TrainingRun,
    predicted: PredictedStep,
    *,
    calls: CallTimes,
    headings: Mapping[str, float],
    sent: Collection[str],
    splits: Mapping[int, bool],
    forwards_first: Mapping[int, bool],
    logged_us: float | None,
) -> None:
    """UserError where a traced step, with its calls, its µs by heading, the headings of its messages, and the pipeline
    ranks that split their backward or do not, and run all forwards first or do not, is not the predicted one, or the
    logged step not the traced one."""
    _require_same_plan(run, sent)
    _require_same_schedule(run, splits, forwards_first)
    step_us = sum(headings.values())
    if predicted.headings.get(Gemm.NAME) and not headings.get(Gemm.NAME):
        raise UserError(
            f"--trace: not of {run.name}: it shows no matrix product, and the config has some; record whole training steps with "
            "torch.profiler.profile(record_shapes=True)"
        )
    _require_same_products(run, predicted.calls, calls)
    if mistaken := unit_mistake(step_us / predicted.step_us):
        raise UserError(
            f"--trace: not of {run.name}: its step takes {duration(step_us)}, about {mistaken} the {duration(predicted.step_us)} that are "
            "predicted; check the unit of its times, which torch's profiler writes in µs"
        )
    if logged_us is not None and not MOST_SLOWED < logged_us / step_us < LONGER:
        raise UserError(
            f"--log: a step of {duration(logged_us)}, where the traced one takes {duration(step_us)} with its profiler; give the log of the "
            "traced run, or its time with the unit that it is in"
        )


def _require_same_plan(run: TrainingRun, sent: Collection[str]) -> None:
    """UserError where a trace's messages cannot be of the run's plan; a trace without any shows nothing."""
    pp = run.plan.pp
    fault = ""
    if P2P in sent and pp == 1:
        fault = "it holds sends between ranks, which plan.pp = 1 does not have"
    elif sent and P2P not in sent and pp > 1:
        fault = f"it holds messages, but none of the sends between pipeline ranks that plan.pp = {pp} has"
    if fault:
        raise UserError(f"--trace: not of {run.name}: {fault}; give the config of the traced run, with its plan")


def _require_same_schedule(run: TrainingRun, splits: Mapping[int, bool], forwards_first: Mapping[int, bool]) -> None:
    """UserError where a trace shows another order of forwards and backwards than the schedule has."""
    plan = run.plan
    if plan.pp == 1 or plan.schedule == BEST:
        return
    if fault := _other_backward(run, splits) or _other_order(run, forwards_first):
        raise UserError(
            f"--trace: not of {run.name}: {fault}, and plan.schedule = {plan.schedule} does not; give the schedule of the traced run"
        )


def _other_backward(run: TrainingRun, splits: Mapping[int, bool]) -> str:
    """The fault of a split backward that the schedule does not have, or of none where the schedule has one. The first rank has nothing to
    send back, so that it need not split."""
    expected, after_first = run.schedule.splits_backward, [splits[rank] for rank in splits if rank]
    if not expected and any(splits.values()):
        return "it computes the gradients of weights apart from those of inputs, as zero-bubble schedules do"
    if expected and after_first and not any(after_first):
        return "it computes the gradients of weights together with those of inputs"
    return ""


def _other_order(run: TrainingRun, forwards_first: Mapping[int, bool]) -> str:
    """The fault of a rank that runs all forwards first where the schedule does not, or the other way round. Recomputation runs forwards
    among the backwards, so that with it a forward after the first backward shows nothing; and frameworks interleave chunks differently."""
    plan = run.plan
    if not forwards_first or plan.vpp > 1:
        return ""
    order = registry.order(run.schedule, ranks=plan.pp, chunks=plan.vpp, microbatches=run.microbatches)
    for rank, first in sorted(forwards_first.items()):
        forwards = order.rows[rank][:, KIND] == F
        expected = forwards.argmin() / forwards.sum()  # the share of forwards before the first backward
        if first and expected <= SOME:
            return f"its pipeline rank {rank} runs all forwards before the first backward"
        if not first and expected == 1 and plan.recompute == "none":
            return f"its pipeline rank {rank} runs backwards before its last forward"
    return ""


def _require_same_products(run: TrainingRun, predicted: CallTimes, measured: CallTimes) -> None:
    """UserError where hardly any of a trace's matrix products has a shape that the prediction has, or where those that have run more or
    less often in its step. A trace without shapes shows neither."""
    times_us = {key: time_us for key, (_, time_us) in measured.items() if isinstance(key[0], Gemm)}
    whole_us = sum(times_us.values())
    found_us = sum(time_us for key, time_us in times_us.items() if key in predicted)
    if found_us < LEAST_FOUND * whole_us:
        raise UserError(
            f"--trace: not of {run.name}: {whole_percent(found_us / whole_us)} of the time of its matrix products is of shapes that the config has; give "
            "the config of the traced run, with its model, batch and plan"
        )
    ratio = _as_often(predicted, measured)
    if not 1 / OFTEN < ratio < OFTEN:
        raise UserError(
            f"--trace: not of {run.name}: its matrix products run {plain(ratio)} times as often in a step as the config's; give the config of the "
            "traced run, with its layers and batch, or record whole steps (record.step() after each)"
        )


def _as_often(predicted: CallTimes, measured: CallTimes) -> float:
    """Runs of forward products in the trace over those predicted, the median by time; 1 where none is in both. A backward is two
    products or one, as a framework fuses them."""
    both = [key for key in measured if key in predicted and isinstance(key[0], Gemm) and key[1] == FORWARD]
    ratios = [(measured[key][0] / predicted[key][0], measured[key][1]) for key in both if predicted[key][0]]
    return weighted_median(ratios)
