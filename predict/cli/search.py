"""`predict search`: the best plans of all that a config leaves open."""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from predict import launch_arguments
from predict.cli.made_config import log_part_of_node
from predict.cli.options import (
    add_coefficients,
    add_data,
    add_json,
    add_overrides,
    add_slo,
    given,
    log,
    log_not_read,
    print_json,
    refuse,
    require_folder,
    require_output,
    require_positive,
    require_writable,
    write_file,
)
from predict.cli.sweep import progress_of_combinations, server_options
from predict.convert.launch import TOOLS
from predict.kinds import KINDS, TRAINING, Kind, ServerOptions, kind, kind_of, refuse_server_options
from predict.plan_search.answer import Answer
from predict.plan_search.options import BACKENDS, OBJECTIVE_NAMES
from predict.plan_search.search import Found, in_words
from predict.plan_search.whole_search import FirstAnswer, Listener
from sampling.errors import Checks, UserError
from sampling.files.faults import counted
from sampling.number_text import duration
from sampling.progress import Progress, progress_display

if TYPE_CHECKING:
    from predict.config.document import Document
    from predict.plan_search.options import SearchOptions


OF_TRAINING_PLANS = (
    *("gpus", "batch", "cluster", "max_gpus", "min_interval_overlap", "tokens", "pareto", "write", "report"),
    *("measure", "why", "save", "jobs", "address", "max_memory", "backend"),
)
"""Options that only a search of training plans has."""
TABLES = (".csv", ".json")
PAGES = (".html",)
EXAMPLES = """\
examples:
  predict search configs/searches/llama3-70b-64xh100.yml
  predict search configs/runs/llama3-70b-64xh100.yml --set plan=auto --set batch.micro=auto --tokens 2T --price 2.5/gpu-h
  predict search --model llama3-8b --gpus 16xh100 --top 5 --json
  predict search --model llama3-8b --gpus 16xh100 --report plans.html
  predict search configs/searches/llama3-70b-64xh100.yml --set plan.tp=1..8 --set execution.overlap_tp=auto --max-memory 0.9
  predict search configs/rl/qwen3-30b-a3b-grpo.yml --set rl.placement=auto --set rl.rollout.gpus=auto --set rl.rollout.tp=auto
  predict search configs/serving/llama3-8b-h100.yml --set placement.tp=1..4 --slo ttft_p90=1s --price 2.5/gpu-h
  predict search configs/searches/llama3-70b-64xh100.yml --pareto out/front.csv --write out/winners --why
"""
DESCRIPTION = """\
Find the best plans of all that a config leaves open.

A key of plan, batch, execution or cluster may be a list ([1, 2, 4]), a range (1..8 doubles, 1..8..1 counts) or auto (what the
framework offers). Of the plan, the degrees, zero, schedule and recompute are searched where they are left out, and so is
batch.micro. The answer is that of pricing every legal plan: those that are not priced need more memory than there is, or more
time than the best found, by floors that no estimate undercuts.

Of a serving config, keys of placement, engine and load may be open (placement.tp where none is), and every combination is predicted.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "config", metavar="CONFIG", nargs="?", help="run config (YAML) with open keys; or give --model"
    )
    add_overrides(command)
    add_data(command)
    _add_space(command.add_argument_group("which plans"))
    _add_best(command.add_argument_group("which of them are the best"))
    _add_results(command.add_argument_group("what is printed and written"))
    _add_work(command.add_argument_group("who prices them"))


def _add_space(group: argparse._ActionsContainer) -> None:
    group.add_argument(
        "--model",
        metavar="NAME",
        help="without a CONFIG: a shipped model, or the path of a config.json; of servers: the model of their steps, kernels (the "
        "default), formula or published",
    )
    add_coefficients(group, whose="of servers: ")
    group.add_argument("--gpus", metavar="NxHARDWARE", help="with --model: how many of which device, such as 64xh100")
    group.add_argument(
        "--batch", type=int, metavar="N", help="with --model: sequences per step (default: about 4 million tokens)"
    )
    group.add_argument(
        "--cluster",
        action="append",
        default=[],
        metavar="NAME",
        help="search this cluster in place of the config's, by its name or file; may be repeated",
    )
    group.add_argument(
        "--max-memory",
        type=float,
        metavar="SHARE",
        help="share of the device's memory that a plan may take (default: 1)",
    )
    group.add_argument("--max-gpus", type=int, metavar="N", help="leave out clusters of more GPUs")


def _add_best(group: argparse._ActionsContainer) -> None:
    group.add_argument(
        "--objective",
        metavar="NAME",
        help=f"what is least in the best plan (mfu: most), per token: {', '.join(OBJECTIVE_NAMES)} (default: time); of servers: cost (the "
        "default with --price), gpu-time (the default without), rate, e2e, ttft or tpot",
    )
    group.add_argument("--top", type=int, default=20, metavar="N", help="plans in the answer (default: 20)")
    group.add_argument(
        "--min-interval-overlap",
        type=float,
        metavar="SHARE",
        help="keep the plans whose interval overlaps the best one's by this share; 0 keeps all ties",
    )


def _add_results(group: argparse._ActionsContainer) -> None:
    group.add_argument(
        "--tokens",
        metavar="N",
        help="what a whole training of so many tokens costs, such as 2T: GPU-hours, days, energy",
    )
    group.add_argument(
        "--price",
        metavar="PRICE",
        help="with --tokens, or of servers: what a GPU or node costs, such as 2.5/gpu-h or 20/node-h",
    )
    add_slo(group, whose="of servers: ")
    group.add_argument(
        "--pareto",
        type=Path,
        metavar="FILE",
        help="find the front of time, memory and GPUs too, and write it (.csv or .json)",
    )
    group.add_argument(
        "--write",
        type=Path,
        metavar="DIR",
        help="write each winner as a run config, and as launch arguments of Megatron-LM, Megatron-Bridge, torchtitan and DeepSpeed",
    )
    group.add_argument(
        "--report", type=Path, metavar="FILE", help="write the plans as a page, with the best one in full: .html"
    )
    group.add_argument(
        "--measure", type=int, metavar="N", help="run the first N plans for real on this machine, in turns, and compare"
    )
    group.add_argument("--why", action="store_true", help="give an example of each reason that leaves plans out")
    add_json(group)


def _add_work(group: argparse._ActionsContainer) -> None:
    group.add_argument("--save", type=Path, metavar="FILE", help="keep what is priced there, and go on from it")
    group.add_argument("--jobs", type=int, metavar="N", help="processes (default: one per core)")
    group.add_argument("--backend", choices=BACKENDS, help="who prices (default: processes of this machine)")
    group.add_argument("--address", metavar="HOST:PORT", help="of the Dask scheduler or Ray cluster")


def run(options: argparse.Namespace) -> None:
    kind_name = kind_of(options.config)
    if kind_name == TRAINING:
        _search_plans(options)
    else:
        _search_combinations(options, kind(kind_name))


def _search_combinations(options: argparse.Namespace, of: Kind[Any, Any]) -> None:
    """Predict every combination of the config's open keys and print the best."""
    from predict import estimate
    from predict.plan_search.sweep import default_objective, long_table, opened_space, require_objective, search_all
    from predict.reports.sweep import search_json, search_text
    from predict.reports.text import show
    from sampling.hardware.this_device import code_version

    objective = options.objective or default_objective(of, options.price)
    with Checks() as checks:
        with checks.one():
            refuse(
                given(options, *OF_TRAINING_PLANS),
                f"does not go with {KINDS[of.name].title}, of which every combination is predicted; omit it",
            )
        checks.run(require_positive, options, "top")
        checks.run(require_objective, of, objective, options.price)
        with checks.one():
            space = opened_space(options.config, options.overrides, estimate, server_options(options))
    with progress_of_combinations("search", of) as progress:
        found = search_all(space, objective, progress)
    log_not_read(of.not_read(found.predictions[0]))
    if options.json:
        print_json(search_json(found, long_table(found, commit=code_version()), top=options.top))
    else:
        show(search_text(found, top=options.top, objective=objective))


def _search_plans(options: argparse.Namespace) -> None:
    """Find the best plans of all that a run config leaves open, and print and write them."""
    from predict import estimate
    from predict.plan_search.whole_search import whole_search

    with Checks() as checks:
        checks.run(_check_results, options)
        checks.run(refuse_server_options, ServerOptions(slo=options.slo, coefficients=options.coefficients))
        with checks.one():
            search_options = _search_options(options)
        with checks.one():
            config = _config(options)
    with on_stderr() as listener:
        answer = whole_search(config, options.overrides, search_options, estimate, listener)
    complete = answer.found.complete
    if options.measure and complete:
        answer = measured(answer, options.measure)
    _print(options, answer)
    if not complete:
        raise KeyboardInterrupt


def _check_results(options: argparse.Namespace) -> None:
    """UserError, before any work, with every fault of the options that say what is measured and written."""
    with Checks() as checks:
        checks.run(require_positive, options, "batch", "measure")
        checks.run(require_folder, "--write", options.write)
        checks.run(require_output, "--pareto", options.pareto, TABLES)
        checks.run(require_output, "--report", options.report, PAGES)
        checks.run(require_writable, "--save", options.save)


def _search_options(options: argparse.Namespace) -> SearchOptions:
    """The options of the search; UserError with every one that cannot be."""
    from predict.plan_search.options import SearchOptions

    chosen = {name: getattr(options, name) for name in ("objective", "max_memory", "backend")}
    return SearchOptions(
        **{name: value for name, value in chosen.items() if value is not None},
        top=options.top,
        max_gpus=options.max_gpus,
        min_interval_overlap=options.min_interval_overlap,
        clusters=tuple(options.cluster),
        tokens=options.tokens,
        price=options.price,
        front=options.pareto is not None,
        save=options.save,
        jobs=options.jobs,
        address=options.address,
    )


def _config(options: argparse.Namespace) -> Path | Document:
    if options.config is not None:
        refuse(
            given(options, "model", "gpus", "batch"),
            "cannot be combined with CONFIG; omit it, or change the config with --set",
        )
        return Path(options.config)
    if not (options.model and options.gpus):
        raise UserError(
            "CONFIG: missing; give a config, or --model with --gpus, as in --model llama3-70b --gpus 64xh100"
        )
    from predict.plan_search.default_plan import open_config

    made = open_config(options.model, options.gpus, batch=options.batch, overrides=options.overrides)
    log_part_of_node(made)
    return made


def _print(options: argparse.Namespace, answer: Answer) -> None:
    if options.write:
        write_winners(options.write, answer)
    if answer.front is not None:
        from predict.reports.search import front_file

        write_file("--pareto", options.pareto, front_file(answer.front, options.pareto.suffix.lower()))
    if options.report:
        from predict.reports.page.content import search_content
        from predict.reports.page.document import report_page

        title = f"{answer.plans[0].prediction.run.name}: plans found"
        write_file("--report", options.report, report_page(search_content(answer), title=title))
    if options.json:
        from predict.reports.search import answer_json

        print_json(answer_json(answer, why=options.why))
        return
    from predict.reports.search import answer_text
    from predict.reports.text import show

    show(answer_text(answer, why=options.why))


ROUNDS = 3
"""Turns in which plans are measured, so that a slow spell of the machine falls on all alike."""


def measured(answer: Answer, count: int) -> Answer:
    """The answer with the measured steps of its first plans."""
    from predict.measurement.real_step import measure_interleaved
    from predict.measurement.requirements import require_measurable

    runs, refusals = {}, []
    for place, plan in enumerate(answer.plans, 1):
        run = replace(plan.prediction.run, name=f"plan {place}")
        try:
            require_measurable(run, "torch")
        except UserError as error:
            refusals.append(str(error))
            continue
        runs[place] = run
        if len(runs) == count:
            break
    for refusal in refusals:
        log(f"left out: {refusal}")
    if not runs:  # what the search found is worth more than a refusal
        return answer
    results = measure_interleaved(
        [(run, "torch") for run in runs.values()], rounds=ROUNDS, steps_per_round=None, progress=log
    )
    medians = {place: result.median_us for place, result in zip(runs, results, strict=True) if result}
    return replace(answer, measured_us=tuple(medians.get(place) for place in range(1, max(runs) + 1)))


# Progress of `predict search` on stderr.


@contextmanager
def on_stderr() -> Iterator[Listener]:
    """A listener that writes lines, and while plans are priced shows their progress."""
    with ExitStack() as opened:
        yield _OnStderr(opened=opened)


@dataclass(kw_only=True)
class _OnStderr(Listener):
    opened: ExitStack

    @cached_property
    def progress(self) -> Progress:
        """The display, opened when the first plans are priced: its time left is that of pricing."""
        return self.opened.enter_context(progress_display("search"))

    def legal(self, plans: int, legal: int) -> None:
        log(f"{counted(plans, 'plan')}, {legal:,} legal")

    def first(self, first: FirstAnswer) -> None:
        chosen = f" with {in_words(first.settings)}" if first.settings else ", the config's own plan"
        log(f"first answer: {duration(first.step_us)} per step{chosen}")

    def candidates(self, fit: int, seconds: float) -> None:
        log(f"{fit:,} may fit in memory" + (f"; about {math.ceil(seconds)} s left" if fit else ""))

    def taken_over(self, estimates: int) -> None:
        log(f"--save: {estimates:,} estimates of an earlier search are taken over")

    def round(self, found: Found) -> None:
        enough = len(found.ranked) >= found.top  # before that, no plan's floor rules it out
        total = max(found.candidates, found.priced) if enough else found.priced + found.top
        self.progress(found.priced, total, _best_in_words(found))


def _best_in_words(found: Found) -> str:
    if not found.best:
        return "none that fits so far"
    best = found.best[0]
    rate = found.priced / found.seconds if found.seconds else 0.0
    settings = found.surveys[best.survey].space.settings(best.outcome.number)
    return f"{rate:.0f} plans/s, best so far {duration(best.outcome.step_us)}: {in_words(settings)}"


# The files of a search's winners: run configs, and launch arguments of other tools.

OPTION = "--write"


def write_winners(directory: Path, answer: Answer) -> None:
    """Each winner as a run config, `01.yml`, and its launch arguments for each tool in the folder `01`; what the tools do not
    express is said on stderr, once however many plans it is true of."""
    digits = len(str(len(answer.plans)))
    not_expressed: Counter[str] = Counter()
    for place, plan in enumerate(answer.plans, 1):
        name = f"{place:0{digits}}"
        config = directory / f"{name}.yml"
        write_file(OPTION, config, plan.question.config(plan.settings).as_yaml())
        not_expressed.update(_write_arguments(config, directory / name))
    many = counted(len(answer.plans), "plan")
    log(f"{OPTION}: {many} in {directory}, each as a run config and in a folder as arguments of {', '.join(TOOLS)}")
    for line, plans in not_expressed.items():
        log(
            f"not expressed by {line}"
            + ("" if plans == len(answer.plans) else f" ({counted(plans, 'plan')} of {many})")
        )


def _write_arguments(config: Path, folder: Path) -> list[str]:
    """Notes on what each tool leaves out of the config; a tool that cannot run it at all has no file."""
    lines = []
    for tool in TOOLS:
        try:
            written = launch_arguments(config, tool)
        except UserError as error:
            lines.append(f"{tool}, which has no file: {error}")
            continue
        for name, text in written.files.items():
            write_file(OPTION, folder / name, text)
        lines += [f"{tool}: {each}" for each in written.not_expressed]
    return lines
