"""The parts of every answer in a terminal: head, facts, tables, intervals, notes on its provenance, and where it is printed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from predict.interval import Interval
from predict.reports.printed import Renderable, Table
from predict.run.adapters import Adapters
from predict.run.execution import Execution
from predict.run.frameworks import refused_by_runtime
from predict.run.plan import Plan
from predict.run.training_run import TrainingRun
from predict.step.prediction import Prediction
from sampling import command_line
from sampling.call import Call
from sampling.command_line import console
from sampling.files.faults import counted
from sampling.hardware.cluster import Cluster
from sampling.number_text import Show, bar, count, duration, durations, percent, plain, significant, whole_percent
from sampling.wrapping import hang_of, line_starts

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult


Row = TypeVar("Row")
Columns = Mapping[str, Callable[[Row], str]]
"""Heading of a column → the text of a row's cell."""
PIPE_WIDTH, UNLIMITED = 140, 10_000
INDENT, LABEL = 2, 12
"""Blanks before a fact's label, and characters of the label with the blanks behind it."""


def show(report: Renderable) -> None:
    """Print an answer on stdout: coloured in a terminal, plain in a pipe or with NO_COLOR."""
    command_line.show(stacked(report), piped_width=PIPE_WIDTH)


def width() -> int:
    """Columns that `show` has."""
    return console(piped_width=PIPE_WIDTH).width


def first_that_fits(*forms: Table) -> Table:
    """The first form of a table that is no wider than the terminal; the last where all are."""
    from rich.measure import Measurement

    place = console(piped_width=PIPE_WIDTH)
    unlimited = place.options.update_width(UNLIMITED)
    return next((form for form in forms if Measurement.get(place, unlimited, form).maximum <= place.width), forms[-1])


def stacked(*parts: Renderable) -> Renderable:
    """Lines and tables below each other."""
    from rich.console import Group

    return Group(*(Hanging(part) if type(part) is str else part for part in parts))


def escape(text: str) -> str:
    """A text, such as a name from a file, that rich shows as it is."""
    from rich.markup import escape as of_rich

    return of_rich(text)


def head(name: str, about: str) -> str:
    """The first line of an answer: what it is of."""
    return f"[bold]{escape(name)}[/]  {escape(about)}"


class Hanging(str):
    """A text whose lines, where they are wrapped, go on beside their label, or without one to the right of where they begin."""

    label = 0
    """Characters of the label, with the blanks around it, which are shown as they are."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown = console.render_str(self[: self.label], markup=False) + console.render_str(self[self.label :])
        for line in shown.split("\n", allow_blank=True):
            starts = line_starts(line.plain, options.max_width, label=self.label)
            for number, piece in enumerate(line.divide(starts)):
                piece.rstrip()
                if number:
                    piece.pad_left(hang_of(line.plain, self.label))
                yield piece


def fact(label: str, text: str) -> str:
    """A line below the head: a label, and what there is to say under it, which may have marks of rich."""
    return hanging(f"{'':{INDENT}}{label:<{LABEL}}", text)


def hanging(label: str, text: str) -> str:
    """A label as it is, and a text beside it, which may have marks of rich; its further lines stand below its first."""
    made = Hanging(label + text)
    made.label = len(label)
    return made


def step_fact(step: Interval) -> str:
    """The step time with its 90 % interval."""
    below, above = (abs(bound - step.median_us) / step.median_us for bound in (step.low_us, step.high_us))
    return fact(
        "step time",
        f"[bold]{duration(step.median_us)}[/]   −{whole_percent(below)} +{whole_percent(above)}   ({interval_text(step)})",
    )


def chance(probability: float) -> str:
    """A probability in whole percent, its ends called so."""
    if probability < 0.01:
        return "less than 1 %"
    return "more than 99 %" if probability > 0.99 else f"{count(100 * probability)} %"


def interval_text(time: Interval) -> str:
    """`90 %: 634 to 826 ms`."""
    return f"90 %: {durations(time.low_us, time.high_us)}"


def figures_table(title: str, names: Sequence[str], figures: Sequence[str], *, keys: int = 0) -> Table:
    """A table without rows, with left-aligned columns `names` before right-aligned columns `figures`; its title is one line. `keys` is the
    number of leading columns that tell the rows apart, by default the names."""
    from rich.text import Text

    from predict.reports.narrow_table import GAP, NarrowTable

    heading = Text.from_markup(title, style="bold", overflow="ignore")
    heading.no_wrap = True
    made = NarrowTable(title=heading if title else None, title_justify="left", box=None, padding=(0, 0, 0, GAP))
    made.keys = keys
    for name in names:
        made.add_column(name)
    for name in figures:
        made.add_column(name, justify="right")
    return made


def table(
    title: str, rows: Iterable[Row], names: Columns[Row], figures: Columns[Row], notes: Columns[Row] | None = None
) -> Table:
    """A table of declared columns: names at the left, figures at the right edge of theirs, and notes behind them.

    Names and notes are shown as they are; figures may have marks of rich.
    """
    notes = notes or {}
    made = figures_table(title, tuple(names), tuple(figures))
    for heading in notes:
        made.add_column(heading)
    for row in rows:
        words = [[escape(cell(row)) for cell in columns.values()] for columns in (names, notes)]
        made.add_row(*words[0], *(cell(row) for cell in figures.values()), *words[1])
    return made


def account_table(
    title: str, parts: Iterable[tuple[str, float]], whole: float, *, unit: str = "time", write: Show = duration
) -> Table:
    """The parts of a whole with their shares, and a bar for each that is not part of the one before it, as an indented one is."""
    return table(
        title,
        parts,
        {"": lambda part: part[0]},
        {unit: lambda part: write(part[1]), "share": lambda part: percent(part[1] / whole)},
        {"": lambda part: "" if part[0].startswith(" ") else bar(part[1] / whole)},
    )


WHOLE = 1e-6
"""Distance from a whole number that is rounding."""


def uneven_counts(counts: Iterable[float], ranks: int) -> list[str]:
    """A remark on counts of calls that `plain` shows with a part, where there are any, on the mean of so many pipeline ranks."""
    uneven = [each for each in counts if "." in plain(each)]
    if not uneven:
        return []
    reasons = [f"the mean of {ranks} pipeline ranks"] if ranks > 1 else []
    if not all(_is_whole(each * ranks) for each in uneven):
        reasons.append("a call of which the GPU does a part")
    return [f"a count that is not whole: {', or '.join(reasons)}"]


def _is_whole(value: float) -> bool:
    return abs(value - round(value)) < WHOLE


MUTE = (0, False, "", None)
"""Values of a field that say nothing."""


def call_text(call: Call) -> str:
    """`gemm fp8 m=2048 n=576 k=7168`."""
    given = {name: value for name, value in call.fields().items() if name != "dtype" and value not in MUTE}
    stated = [name if value is True else f"{name}={value}" for name, value in given.items()]
    return " ".join([call.NAME, *filter(None, [call.fields().get("dtype")]), *stated])


def run_text(run: TrainingRun) -> str:
    """`llama3-8b, tp 2 · pp 4 · dp 8, 1f1b, 16 × 1 sequences of 8,192 on each of 8 replicas (128 per step), bf16, as megatron-core runs
    it`."""
    what = "sequences" if run.real is None else f"rows ({run.batch.padding} of {run.batch.lengths})"
    batch = f"{run.microbatches:,} × {run.batch.micro:,} {what} of {run.batch.seq_len:,}"
    if run.plan.dp > 1:
        batch += f" on each of {run.plan.dp:,} replicas ({run.batch.global_:,} per step)"
    if tower := run.tower:
        images, length = run.vision.images, tower.batch.seq_len
        batch += (
            f", beside {length:,} of its encoder"
            if run.model.is_encoder_decoder
            else f", each with {counted(images, 'image')} of {length:,} patches"
        )
    return (
        f"{run.model.name}, {_adapters(run.adapters)}{_plan(run.plan)}, {run.plan.schedule}, {batch}, {run.precision}, "
        f"as {run.execution.framework} runs it"
    )


def _adapters(adapters: Adapters) -> str:
    if not adapters.are_trained:
        return ""
    base = f" of an {adapters.base} base" if adapters.base else ""
    many = f"{adapters.at_once} × " if adapters.at_once > 1 else ""
    return f"{many}{adapters.kind} of rank {adapters.rank} on {', '.join(adapters.names)}{base}, "


def _plan(plan: Plan) -> str:
    """The degrees that are above 1; tp, pp and dp always."""
    chunks = f" × {plan.vpp}" if plan.vpp > 1 else ""
    parts = [f"tp {plan.tp}{' + sp' if plan.sp else ''}", f"pp {plan.pp}{chunks}", f"dp {plan.dp}"]
    parts += [f"{name} {getattr(plan, name)}" for name in ("cp", "ep", "etp") if getattr(plan, name) > 1]
    if plan.zero:
        parts.append(f"ZeRO-{plan.zero}{f' over {plan.shard}' if plan.shard else ''}")
    if plan.recompute != "none":
        parts.append(f"{plan.recompute} recompute")
    return " · ".join([*parts, *(f"{key} {value}" for key, value in own_values(plan).items())])


def own_values(plan: Plan) -> dict[str, str]:
    """The layout and the recomputed modules of a plan that has others than the usual ones: an estimate may have chosen them."""
    modules = ",".join(plan.modules_recomputed)
    return {
        **({"layout": plan.layout} if plan.layout else {}),
        **({"recompute_modules": modules} if modules not in ("", Plan().recompute_modules) else {}),
    }


Provenance = Mapping[str, Any]


def first_lines_of(*predictions: Prediction) -> list[str]:
    """The first lines of predictions that are printed together, each once."""
    lines = (first_lines(each.run, each.provenance, analytic=each.is_analytic) for each in predictions)
    return list(dict.fromkeys(line for each in lines for line in each))


def first_lines(run: TrainingRun, provenance: Provenance, *, analytic: bool) -> list[str]:
    """The first notes as lines that catch the eye."""
    return noted(first_notes(run, provenance, analytic=analytic))


def first_notes(run: TrainingRun, provenance: Provenance, *, analytic: bool) -> list[str]:
    """Notes that belong before the first figure: a model that stands for the one that is named, rows that are missing or of another device,
    terms that were fitted, and a plan that its framework does not run."""
    refusal = refused_by_runtime(run.execution.framework, run.plan, run.microbatches)
    refused = [f"predicted, but {run.execution.framework} does not run it: {refusal}"] if refusal else []
    named = map(_sentence, run.notes)
    on_prices = notes_on_prices(run.cluster, run.execution, provenance, analytic=analytic)
    return list(dict.fromkeys([*refused, *named, *on_prices]))


def notes_on_prices(cluster: Cluster, execution: Execution, provenance: Provenance, *, analytic: bool) -> list[str]:
    """The same for the prices of a cluster, whoever asked for them."""
    notes = list(provenance.get("better_rows", []))
    notes += provenance["notes"] if provenance["samples"] is None or not analytic else []
    if analytic:
        none = "" if provenance["samples"] is None else f"No samples for profile {cluster.profile!r} cover this run: "
        notes.append(
            f"{none}kernels and links of {cluster.gpu.name} are priced at shares of its peaks: {_efficiencies(cluster, execution)}"
        )
    if provenance.get("calibration"):
        notes.append(_calibrated(provenance))
    return [_sentence(note) for note in notes]


def noted(notes: Sequence[str]) -> list[str]:
    """Notes as lines that catch the eye."""
    return [f"[bold yellow]{escape(_sentence(note))}[/]" for note in notes]


def _sentence(note: str) -> str:
    return note[:1].upper() + note[1:]


LISTED_BY_ONE_BATCH = "list them with `predict one-batch … --sources`"


def last_lines(
    provenance: Provenance, *, analytic: bool, full: bool = False, listed: str = LISTED_BY_ONE_BATCH
) -> list[str]:
    """The samples and the benchmark that the times come from; the sources of the hardware's figures where there are none, which
    are counted, or with `full` listed. `listed` says where else they are."""
    lines = [] if analytic or provenance["samples"] is None else [_samples_line(provenance["samples"])]
    lines += _device_lines(provenance.get("device", {}))
    if "benchmark" in provenance:
        lines.append(_benchmark(provenance["benchmark"]))
    if full:
        cited = provenance["sources"].items()
        lines += ["sources:", *(f"  {figure}: {source}" for figure, source in cited)]
    elif not lines:
        lines.append(f"sources: {len(provenance['sources'])} cited figures of {provenance['hardware']}; {listed}")
    return lines


def with_provenance(
    report: Renderable, run: TrainingRun, provenance: Provenance, *, analytic: bool, first: Sequence[str] = ()
) -> Renderable:
    """A report between the first and the last lines; `first` are lines before them."""
    sources = map(escape, last_lines(provenance, analytic=analytic))
    return stacked(*first, *first_lines(run, provenance, analytic=analytic), report, "", *sources)


def _samples_line(samples: Mapping[str, Any]) -> str:
    """The profile, the device it was taken on, when, and by what."""
    manifest = samples["provenance"]
    dates = sorted({session["date"] for session in manifest["sessions"]})
    device, days = manifest["device"], " to ".join(dict.fromkeys((dates[0], dates[-1])))
    if device.get("imported"):
        sources = ", ".join(_sources_with_rows(manifest["sessions"]))
        return f"samples: {manifest['profile']}, imported from {sources} for {device['name']}, {days}"
    torch = manifest["sessions"][-1]["versions"]["torch"]
    return f"samples: {manifest['profile']}, taken on {device['name']}, {days}, torch {torch}"


def _device_lines(device: Mapping[str, Any]) -> Iterator[str]:
    """Lines on what samples say of the device as a whole, in place of the hardware file's and the framework's figures."""
    if floors := device.get("launch_floor_us"):
        yield f"sampled: the host launches a layer in {', '.join(_floor(*each) for each in floors.items())}"
    for dtype, ratio in device.get("sustained", {}).items():
        clocks = "".join(f"; {_clocks(state, found)}" for state, found in device.get("clocks", {}).items())
        yield f"sampled: {dtype} products take {significant(ratio['value'])} as long in a long run ({ratio['rows']} timings{clocks})"


def _floor(phase: str, floor: Mapping[str, float]) -> str:
    return f"{count(floor['median_us'])} µs {phase} (90 %: {count(floor['low_us'])} to {count(floor['high_us'])} µs)"


def _clocks(state: str, found: Mapping[str, float]) -> str:
    readings = {"clock_mhz": "MHz", "power_w": "W"}
    return (
        f"{state} at {' and '.join(f'{count(found[name])} {unit}' for name, unit in readings.items() if name in found)}"
    )


def _sources_with_rows(sessions: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Each source once; a table without rows brought nothing."""
    yield from dict.fromkeys(session["source"] for session in sessions if session.get("rows", 1))


def _efficiencies(cluster: Cluster, execution: Execution) -> str:
    shares = dict(cluster.gpu.efficiency)
    shares["gemm"] = execution.gemm_efficiency or shares["gemm"]
    return ", ".join(f"{'links' if name == 'wire' else name} {plain(value)}" for name, value in shares.items())


def _calibrated(provenance: Provenance) -> str:
    """The terms that change something by half a percent, and what they rest on."""
    rests = provenance["calibrated_on"]
    terms = [
        f"{name.replace('_', ' ')} × {plain(value)}"
        for name, value in provenance["calibration"].items()
        if abs(value - 1) >= 0.005
    ]
    error = rests["left_out_percent"]
    off = "" if error is None else f", each {percent(error / 100)} off as predicted from the others"
    runs = counted(len(rests["runs"]), "measured run")
    return f"Calibrated to {runs} ({rests['date']}{off}): {', '.join(terms) or 'no term moves'}"


def _benchmark(benchmark: Mapping[str, Any]) -> str:
    """The benchmark that timed the layers."""
    degrees = " · ".join(f"{name} {benchmark['reduced_plan'][name]}" for name in ("tp", "pp", "cp", "ep"))
    device = f"{benchmark['world_size']} × {benchmark['device']['name']}"
    return f"benchmark: whole layers of {benchmark['run']} timed at {degrees} on {device}"
