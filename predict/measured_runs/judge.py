"""A measured step beside its prediction: whether it is normal, at what probability, and where the missing time is likely to be.

Bayes' rule over explanations of the ratio r = log(measured / predicted). A sound run has r = 0 up to the prediction's interval and the
noise of the measured steps, together a Gaussian of deviation s. A run in which one thing is wrong has the r of its own prediction, as wide;
where that thing has a size, such as the speed of a link, r is anywhere up to what the largest size makes. A last explanation stands for all
else: any r up to a factor of ten. One run in two is taken to be sound. The other half is shared by what may be wrong: a setting that the
config leaves to its default has one share, one that it states a fifth of that, and a slower machine two or three, since it has several
causes.

A step's time alone hardly tells a slower machine from a setting that costs as much. What else is known counts: a file of `predict measure`
is of a run that has the settings that it names, and its reference calls show the machine's pace.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any

from predict import estimate
from predict.config.overrides import OPTION
from predict.interval import Interval, independent_causes
from predict.kinds import Values
from predict.measured_runs.measured_step import MeasuredStep
from predict.measured_runs.step_series import DATA, FEWEST, LATE_RANKS, SAVES, SLOWER, seen_in, usual_noise
from predict.measurement.pace import Pace, pace_over
from predict.memory.advice import changed
from predict.prices.pace import reference_us_of
from predict.run.calibration_terms import NINETY
from predict.run.training_run import TrainingRun
from predict.step.prediction import Prediction
from sampling.errors import UserError
from sampling.files.faults import as_written
from sampling.number_text import duration, percent

SOUND = 0.5
"""Probability that a run is sound before its step is looked at."""
MOST_ELSE = math.log(10)
"""The largest r that anything else makes."""
LEAST_REACH = 0.02
"""The r below which what may be wrong would not be seen."""
LIKELY = 0.1
"""Probability from which on what may be wrong is named."""
STATED = 0.2
"""Weight of a setting that is not what the config states, relative to one that the config leaves to its default. Assumed: whoever wrote it
down meant it, and frameworks seldom do otherwise."""
OF_MACHINE, OF_CPU = 2.0, 3.0
"""Weight of a slower machine relative to the same: lower clocks or a power limit, and a weak device, each as likely as one setting; on a
CPU, whose cores are seldom a job's own, other work too. Assumed."""
PERHAPS, SLOW = 0.5, 0.05
"""Probabilities of a sound run below which a step is perhaps slow, and slow."""
SLOWEST = 3.0
"""Time of all work over its usual time, at most, on a slower machine: one that shares its devices with two jobs of its kind."""
USUAL_SLOWING = 0.3
"""The r that a slower machine usually makes: between the 5 to 30 % by which a pace moves within the hour, and another job that takes half
(`sampling.store.pace`). Assumed."""
MACHINE = "slower_machine"
UNIT = NormalDist()


@dataclass(frozen=True, kw_only=True, slots=True)
class Cause:
    """A cause of lost time, seen or likely."""

    cause: str
    """In a word, for programs."""
    text: str
    cost_us: float
    """Time of each step in the mean, where it is the cause."""
    over_median_us: float = 0.0
    """The part of it that is not in the measured step, which is the median of a log's steps."""
    probability: float = 1.0
    """1 for what the log or the trace shows."""
    settings: Values = field(default_factory=dict)
    """Key path → value of the run without it; the config's own where the run is not as its config says."""
    wrong: Values = field(default_factory=dict)
    """The same keys as the run seems to have them; empty for what no file of the run decides."""
    advice: str = ""
    """What to look at and do; empty where nothing is known."""

    def share_of(self, step_us: float) -> float:
        """Its share of the mean step, of a measured step in µs."""
        return self.cost_us / (step_us + self.over_median_us)


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """A measured step, its prediction, and what both make of each other."""

    prediction: Prediction
    measured: MeasuredStep
    normal_probability: float
    """Probability that the run is sound: that nothing but the prediction's error and noise is between the two."""
    causes: tuple[Cause, ...]
    """What is seen first, the costliest at the top, then what is likely."""
    slowdown: float | None = None
    """The time of a step over that at the pace of the profile's rows, by the reference calls beside the steps; None without them."""

    @property
    def verdict(self) -> str:
        """normal, perhaps slow, or slow; faster, for a step below the prediction's interval that a faster machine does not explain."""
        step_us = self.measured.step_us
        if max(step_us, step_us / (self.slowdown or 1.0)) < self.prediction.step_time.low_us:
            return "faster"
        if self.normal_probability >= PERHAPS:
            return "normal"
        return "perhaps slow" if self.normal_probability >= SLOW else "slow"

    @property
    def ratio(self) -> Interval:
        """Measured over predicted, by the prediction's interval."""
        return self.prediction.step_time.dividing(self.measured.step_us)


@dataclass(frozen=True, kw_only=True, slots=True)
class Suspect:
    """One thing that may be wrong with a run, as settings over its own."""

    cause: str
    wrong: Values = field(default_factory=dict)
    """Key path → value with it; of a thing that has a size, with the largest. Empty where no setting stands for it: it then lengthens the
    whole step, at most SLOWEST times."""
    text: str
    """A sentence with {step}, the step with it, or {speed}, the speed that explains the measured one, as a share."""
    advice: str = ""
    sized: bool = False
    """Whether it has a size, so that any step between the run's own and that of `wrong` has an explanation."""
    usual: float = math.inf
    """The r that it usually makes, where larger ones are rarer; infinite where all up to the largest are equally likely."""
    weight: float = 1.0
    """How likely it is before the step is looked at, relative to a setting that the config leaves to its default."""


LINKS_ADVICE = (
    "run nccl-tests' all_reduce_perf over the same GPUs; NCCL_DEBUG=INFO names the transport of each ring (NET/IB with GDRDMA, not NET/Socket; "
    "P2P/NVLink, not SHM)"
)
ADVICE: Mapping[str, str] = {
    DATA: "give the loader more workers and prefetching, and keep the data on a local disk; a step on made-up data shows whether it helps",
    LATE_RANKS: "compare the ranks' own times (Megatron-LM: --log-straggler; torch.profiler on two ranks) and take the late node out",
    SLOWER: "watch the devices' clocks and temperature, reserved memory and the length of the data over the run",
    SAVES: "write checkpoints asynchronously (Megatron-LM: --async-save; torch.distributed.checkpoint.async_save), or less often",
}
MENDED: Mapping[str, str] = {DATA: "step_overhead_us", LATE_RANKS: "waiting_time"}
"""What a log shows → the key of `execution` that stands for it."""


def suspects(prediction: Prediction) -> Iterator[Suspect]:
    """The things that may be wrong with a predicted run though its config does not say so."""
    run = prediction.run
    yield from (replace(each, weight=_weight(run, each.wrong)) for each in _settings(run))
    yield from _links(run)
    yield _slower_machine(prediction)


def _weight(run: TrainingRun, wrong: Values) -> float:
    """STATED where the config states each of the settings."""
    return STATED if wrong.keys() <= run.given else 1.0


def _settings(run: TrainingRun) -> Iterator[Suspect]:
    """Settings that the run may have in place of its own."""
    execution, plan = run.execution, run.plan
    if run.precision not in ("fp32", "tf32"):
        yield Suspect(cause="fp32", wrong={"precision": "fp32"}, text="Products in fp32 would make the step {step}.")
    if run.precision in ("fp8", "nvfp4", "mxfp4"):
        yield Suspect(cause="bf16", wrong={"precision": "bf16"}, text="Products in bf16 would make the step {step}.")
    if execution.attention != "unfused":
        unfused = {"execution.attention": "unfused"}
        yield Suspect(
            cause="unfused_attention",
            wrong=unfused,
            text="Attention without a fused kernel would make the step {step}.",
        )
    eager = {"execution.elementwise": "eager", "execution.fuse_rms_norm": False}
    yield Suspect(
        cause="eager_kernels", wrong=eager, text="Norms and activations in single operators would make the step {step}."
    )
    apart = {
        "execution.overlap_gradients": False,
        "execution.overlap_parameters": False,
        "execution.overlap_tp": "none",
    }
    yield Suspect(cause="no_overlap", wrong=apart, text="Communication that nothing hides would make the step {step}.")
    if plan.recompute != "full":
        full = {"plan.recompute": "full"}
        yield Suspect(cause="recompute", wrong=full, text="Recomputation of whole layers would make the step {step}.")
    in_turn = {"execution.synchronous_launches": True}
    yield Suspect(
        cause="synchronous_launches",
        wrong=in_turn,
        text="A host that waits for each kernel (CUDA_LAUNCH_BLOCKING=1) would make the step {step}.",
    )


def _links(run: TrainingRun) -> Iterator[Suspect]:
    execution, cluster = run.execution, run.cluster
    if cluster.nodes > 1:
        yield _sized(
            "slow_link",
            {"between_nodes_time": 20 * execution.between_nodes_time},
            "Links between nodes at {speed} of their speed would explain the step.",
            LINKS_ADVICE,
        )
    if cluster.gpus_per_node > 1 and cluster.gpu.kind != "cpu":
        yield _sized(
            "slow_link_in_node",
            {"in_node_time": 4 * execution.in_node_time},
            "Links inside the nodes at {speed} of their speed would explain the step.",
            LINKS_ADVICE,
        )


MACHINE_ADVICE: Mapping[str, str] = {
    "cpu": "measure the step again while nothing else runs (`top` names what does)",
    "cuda": "nvidia-smi -q -d CLOCK,PERFORMANCE,PIDS on every node names a GPU that throttles, and other processes on it; all ranks wait for the "
    "slowest",
    "rocm": "`amd-smi monitor` and `amd-smi process` on every node show a GPU that throttles, and other processes on it; all ranks wait for the "
    "slowest",
}
"""Kind of a device → what shows that it is slower than usual."""
ON_CPU = "other work on its cores, or lower clocks"
ON_GPU = "lower clocks or a power limit, other work, or a weak GPU"
SLOWED_BY: Mapping[str, str] = {"cpu": ON_CPU, "cuda": ON_GPU, "rocm": ON_GPU}
"""Kind of a device → what makes it slower than usual."""


def _slower_machine(prediction: Prediction) -> Suspect:
    """The devices do all their work more slowly; on a CPU, which carries its messages too, that is the whole step."""
    run, kind = prediction.run, prediction.run.cluster.gpu.kind
    if kind == "cpu":
        is_read = bool(reference_us_of(prediction.prices, run.cluster))
        paced = "; `predict one-batch CONFIG --pace now` times this machine's pace" if is_read else ""
        return Suspect(
            cause=MACHINE,
            text=f"This machine at {{speed}} of its usual pace would explain the step: {SLOWED_BY[kind]}.",
            advice=f"{MACHINE_ADVICE[kind]}{paced}",
            sized=True,
            usual=USUAL_SLOWING,
            weight=OF_CPU,
        )
    found = _sized(
        MACHINE,
        {name: SLOWEST * getattr(run.execution, name) for name in ("product_time", "memory_time")},
        f"Its GPUs at {{speed}} of their usual pace would explain the step: {SLOWED_BY[kind]}.",
        MACHINE_ADVICE[kind],
    )
    return replace(found, usual=USUAL_SLOWING, weight=OF_MACHINE)


def _sized(cause: str, wrong: Values, text: str, advice: str) -> Suspect:
    settings = {f"execution.{key}": value for key, value in wrong.items()}
    return Suspect(cause=cause, wrong=settings, text=text, advice=advice, sized=True)


def judge(prediction: Prediction, measured: MeasuredStep) -> Judgement:
    """Whether a measured step of the predicted run is normal, and what is likely to be wrong where it is not."""
    seen = seen_in(measured.logged)
    deviation = _deviation(prediction, measured)
    excess = math.log(measured.step_us / prediction.median_us)
    over_us = sum(each.over_median_us for each in seen if each.cause in (DATA, LATE_RANKS))
    slowed = excess + math.log1p(over_us / measured.step_us)
    pace = pace_over(prediction, measured.references)
    slowdown = pace.slowdown if pace else 1.0
    beside = excess - math.log(slowdown)
    tried = [*_tried(prediction, _open_suspects(prediction, measured, pace), beside, deviation)]
    normal, of_each = _probabilities(beside, deviation, tried)
    alone, _ = _probabilities(slowed, deviation, [])
    causes = [*_of_pace(prediction, measured, pace)] if excess > 0 else []
    causes += [
        Cause(
            cause=each.cause,
            text=each.text,
            cost_us=each.cost_us,
            over_median_us=each.over_median_us,
            settings={f"execution.{key}": getattr(prediction.run.execution, key)}
            if (key := MENDED.get(each.cause))
            else {},
            advice=ADVICE[each.cause],
        )
        for each in seen
    ]
    likely = sorted(zip(of_each, tried, strict=True), key=lambda each: -each[0])
    causes += [_likely(prediction, measured, slowdown, one, chance) for chance, one in likely if chance >= LIKELY]
    return Judgement(
        prediction=prediction,
        measured=measured,
        normal_probability=min(normal, alone),
        causes=tuple(causes),
        slowdown=pace.slowdown if pace else None,
    )


def _deviation(prediction: Prediction, measured: MeasuredStep) -> float:
    """The deviation of the prediction, and of the measured steps: by their quartiles where a log has them, which pauses hardly move."""
    noise = measured.noise if len(measured.logged) < FEWEST else min(measured.noise, usual_noise(measured.logged))
    return independent_causes(prediction.step_time.half_width_log / NINETY, noise)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Tried:
    suspect: Suspect
    step_us: float
    reach: float
    """The r that it makes, at most where it has a size."""


def _open_suspects(prediction: Prediction, measured: MeasuredStep, pace: Pace | None) -> Iterator[Suspect]:
    """The suspects that the measurement does not rule out: settings that it names, and the machine where it shows its pace."""
    for each in suspects(prediction):
        is_known = pace is not None if each.cause == MACHINE else each.wrong.keys() <= measured.settings
        if not is_known:
            yield each


def _of_pace(prediction: Prediction, measured: MeasuredStep, pace: Pace | None) -> Iterator[Cause]:
    """The machine, where the reference calls beside the steps show that it was slower."""
    if pace is None or math.log(pace.slowdown) < LEAST_REACH:
        return
    kind = prediction.run.cluster.gpu.kind
    yield Cause(
        cause=MACHINE,
        text=f"The reference calls beside the steps show this machine at {percent(1 / pace.slowdown)} of the pace of its rows: {SLOWED_BY[kind]}.",
        cost_us=measured.step_us * (1 - 1 / pace.slowdown),
        advice=MACHINE_ADVICE[kind],
    )


def _tried(prediction: Prediction, found: Iterable[Suspect], excess: float, deviation: float) -> Iterator[_Tried]:
    """The suspects that would be seen; nothing is predicted for a step that is as short as its prediction."""
    if excess < deviation:
        return
    for suspect in found:
        step_us = _step_us(prediction, suspect.wrong) if suspect.wrong else SLOWEST * prediction.median_us
        if step_us and (reach := math.log(step_us / prediction.median_us)) >= LEAST_REACH:
            yield _Tried(suspect=suspect, step_us=step_us, reach=reach)


def _step_us(prediction: Prediction, settings: Values) -> float | None:
    """The step under other settings; None where the rules refuse them."""
    try:
        return estimate(with_values(prediction.run, settings), require_fit=False).median_us
    except UserError:
        return None


def with_values(run: TrainingRun, settings: Values) -> TrainingRun:
    """The run under other values by key path, its precision among them."""
    rest = {path: value for path, value in settings.items() if path != "precision"}
    return replace(changed(run, rest), precision=settings.get("precision", run.precision))


def _probabilities(excess: float, deviation: float, tried: Sequence[_Tried]) -> tuple[float, list[float]]:
    """The probability of a sound run, and of each suspect."""
    each = (1 - SOUND) / (1 + sum(one.suspect.weight for one in tried))
    sound = SOUND * UNIT.pdf(excess / deviation) / deviation
    weights = [
        each
        * one.suspect.weight
        * (
            _between(excess, deviation, one.reach, one.suspect.usual)
            if one.suspect.sized
            else UNIT.pdf((excess - one.reach) / deviation) / deviation
        )
        for one in tried
    ]
    whole = sound + sum(weights) + each * _between(excess, deviation, MOST_ELSE)
    if not whole:  # beyond a factor of ten, or shorter than any interval
        return float(excess < 0), [0.0] * len(tried)
    return sound / whole, [weight / whole for weight in weights]


def _between(excess: float, deviation: float, reach: float, usual: float = math.inf) -> float:
    """The density of an r that is anywhere from 0 to `reach`, seen with a Gaussian error; with a `usual` size, one that gets rarer the
    larger it is, as an exponential of that mean does."""
    rarer = 1 / usual
    shift = rarer * deviation**2
    seen = UNIT.cdf((excess - shift) / deviation) - UNIT.cdf((excess - shift - reach) / deviation)
    return seen * math.exp(rarer * (shift / 2 - excess)) * (rarer / -math.expm1(-rarer * reach) if rarer else 1 / reach)


def _likely(prediction: Prediction, measured: MeasuredStep, slowdown: float, one: _Tried, chance: float) -> Cause:
    """A cause as weighed at the pace of the rows. A faster machine makes it cost less; what a slower one adds is the machine's cost."""
    suspect, run = one.suspect, prediction.run
    at_pace_us = measured.step_us / slowdown
    speed = 1 / _size(prediction, at_pace_us, one) if suspect.sized else 1.0
    lost_us = max(0.0, min(at_pace_us, one.step_us) - prediction.median_us)
    return Cause(
        cause=suspect.cause,
        text=suspect.text.format(step=duration(one.step_us * slowdown), speed=percent(speed)),
        cost_us=lost_us * min(1.0, slowdown),
        probability=chance,
        settings={path: value_of(run, path) for path in suspect.wrong},
        wrong={} if suspect.sized else suspect.wrong,
        advice=suspect.advice or _setting_advice(run, suspect.wrong),
    )


def _setting_advice(run: TrainingRun, wrong: Values) -> str:
    """Whether the config states the settings or leaves them to their defaults, and how to state what the run has."""
    open_ = [path for path in wrong if path not in run.given]
    if not open_:
        return "the config or script already says so: check what the run really uses"
    defaults = ", ".join(f"{path} to its default, {as_written(value_of(run, path))}" for path in open_)
    as_it_runs = " ".join(f"{OPTION} {path}={as_written(value)}" for path, value in wrong.items())
    return f"the config leaves {defaults}: check what the run really uses; if it is otherwise, {as_it_runs} predicts the run as it is"


def value_of(run: TrainingRun, path: str) -> Any:
    """The value of a key path of a run, such as `plan.tp`."""
    section, _, key = path.partition(".")
    return getattr(getattr(run, section), key) if key else getattr(run, section)


def _size(prediction: Prediction, step_us: float, one: _Tried) -> float:
    """The size at which a suspect makes a step of this time, times its usual value; by two secants, since a step grows about evenly."""
    if not one.suspect.wrong:
        return min(SLOWEST, step_us / prediction.median_us)
    path, largest = next(iter(one.suspect.wrong.items()))
    most = float(largest / value_of(prediction.run, path))
    low, low_us, high, high_us = 1.0, prediction.median_us, most, one.step_us
    size = min(most, low + (step_us - low_us) / (high_us - low_us) * (high - low))
    middle_us = _at_size(prediction, one.suspect, size)
    if middle_us < step_us:
        low, low_us = size, middle_us
    else:
        high, high_us = size, middle_us
    return size if high_us == low_us else min(most, low + (step_us - low_us) / (high_us - low_us) * (high - low))


def _at_size(prediction: Prediction, suspect: Suspect, size: float) -> float:
    run = prediction.run
    return _step_us(prediction, {path: value_of(run, path) * size for path in suspect.wrong}) or prediction.median_us
