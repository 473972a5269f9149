"""`predict search`: the best plans of all that a config leaves open."""

import argparse
import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path

from predict import estimate
from predict.cli import options as cli
from predict.cli.made_config import log_part_of_node
from predict.cli.sweep import server_options
from predict.config.document import Config
from predict.convert.launch import TOOLS, launch_files
from predict.kinds import KINDS, TRAINING, EnumeratedKind, ServerOptions, kind, kind_of, refuse_server_options
from predict.ledger.training_cost import require_paid
from predict.plan_search.answer import Answer
from predict.plan_search.default_plan import open_config
from predict.plan_search.options import BACKENDS, OBJECTIVES, SearchOptions, not_of_plans
from predict.plan_search.search import Found, in_words
from predict.plan_search.sweep import opened_space, require_objective
from predict.plan_search.whole_search import FirstAnswer, Listener, whole_search
from predict.reports.search import answer_json, answer_text, front_file
from predict.reports.text import show
from sampling.command_line import log
from sampling.errors import Checks, UserError
from sampling.files.faults import counted
from sampling.number_text import count, duration
from sampling.progress import Progress, progress_display

OF_TRAINING_PLANS = (
    *("gpus", "batch", "cluster", "max_gpus", "min_interval_overlap", "tokens", "pareto", "write", "report"),
    *("measure", "save", "jobs", "address", "max_memory", "backend"),
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
    cli.add_overrides(command)
    cli.add_data(command)
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
    cli.add_coefficients(group, whose="of servers: ")
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
        help=f"what is least in the best plan (mfu: most), per token: {', '.join(OBJECTIVES)} (default: time); of servers: cost (the "
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
    cli.add_slo(group, whose="of servers: ")
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
    cli.add_json(group)


def _add_work(group: argparse._ActionsContainer) -> None:
    group.add_argument("--save", type=Path, metavar="FILE", help="keep what is priced there, and go on from it")
    group.add_argument("--jobs", type=int, metavar="N", help="processes (default: one per core)")
    group.add_argument("--backend", choices=BACKENDS, help="who prices (default: processes of this machine)")
    group.add_argument("--address", metavar="HOST:PORT", help="of the Dask scheduler or Ray cluster")


def run(options: argparse.Namespace) -> None:
    config, search_options = _checked(options)
    with on_stderr() as listener:
        answer = whole_search(config, options.overrides, search_options, estimate, listener)
    cli.log_not_read(kind(answer.kind).not_read(answer.ranked[0].prediction))
    if isinstance(answer, Answer):
        answer = _with_results(options, answer)
    if options.json:
        if isinstance(answer, Answer):
            for note in answer.plans[0].prediction.run.notes:
                log(note)
        cli.print_json(answer_json(answer, why=options.why))
    else:
        show(answer_text(answer, why=options.why))
    if not answer.complete:
        raise KeyboardInterrupt


def _checked(options: argparse.Namespace) -> tuple[Config, SearchOptions]:
    """The config and the options of its search; UserError, before any work, with every fault of these and of what is written."""
    of = kind(kind_of(options.config))
    is_training = of.name == TRAINING
    config: Config = options.config
    with Checks() as checks:
        if is_training:
            checks.run(_check_results, options)
            checks.run(refuse_server_options, ServerOptions(slo=options.slo, coefficients=options.coefficients))
        else:
            with checks.one():
                cli.refuse(cli.given(options, *OF_TRAINING_PLANS), not_of_plans(KINDS[of.name].title))
        checks.run(require_objective, of, options.objective, options.price)
        with checks.one():
            search_options = _search_options(options, step_model="" if is_training else options.model or "")
        with checks.one():
            if is_training:
                config = _run_config(options)
            elif isinstance(of, EnumeratedKind):
                opened_space(of, config, options.overrides, estimate, server_options(options))
    return config, search_options


def _check_results(options: argparse.Namespace) -> None:
    """UserError with every fault of the options that say what is measured and written."""
    with Checks() as checks:
        checks.run(cli.require_positive, options, "batch", "measure")
        checks.run(cli.require_folder, "--write", options.write)
        checks.run(cli.require_output, "--pareto", options.pareto, TABLES)
        checks.run(cli.require_output, "--report", options.report, PAGES)
        checks.run(cli.require_writable, "--save", options.save)
        checks.run(require_paid, options.tokens, options.price)


def _search_options(options: argparse.Namespace, *, step_model: str) -> SearchOptions:
    """The options of the search; UserError with every one that cannot be."""
    chosen = {each.name: getattr(options, each.name, None) for each in fields(SearchOptions)}
    return SearchOptions(
        **{name: value for name, value in chosen.items() if value is not None}
        | {
            "clusters": tuple(options.cluster),
            "slo": tuple(options.slo),
            "model": step_model,
            "front": options.pareto is not None,
        },
    )


def _run_config(options: argparse.Namespace) -> Config:
    if options.config is not None:
        cli.refuse(
            cli.given(options, "model", "gpus", "batch"),
            "cannot be combined with CONFIG; omit it, or change the config with --set",
        )
        return Path(options.config)
    if not (options.model and options.gpus):
        raise UserError(
            "CONFIG: missing; give a config, or --model with --gpus, as in --model llama3-70b --gpus 64xh100"
        )
    made = open_config(options.model, options.gpus, batch=options.batch, overrides=options.overrides)
    log_part_of_node(made)
    return made


def _with_results(options: argparse.Namespace, answer: Answer) -> Answer:
    """The answer with what is measured of it; its files are written."""
    if options.measure and answer.complete:
        from predict.measurement.real_step import measured_plans

        answer = measured_plans(answer, options.measure, log)
    if options.write:
        _write_winners(options.write, answer)
    if answer.front is not None:
        cli.write_file("--pareto", options.pareto, front_file(answer.front, options.pareto.suffix.lower()))
    if options.report:
        from predict.reports.page.content import search_content
        from predict.reports.page.report import report_page

        title = f"{answer.plans[0].prediction.run.name}: plans found"
        cli.write_file("--report", options.report, report_page(search_content(answer), title=title))
    return answer


def _write_winners(directory: Path, answer: Answer) -> None:
    """Write each winner as a config and as arguments of other tools; what the tools do not express is said on stderr, once however many
    plans it is true of."""
    written = launch_files([plan.question.config(plan.settings) for plan in answer.plans])
    for name, text in written.files.items():
        cli.write_file("--write", directory / name, text)
    many = counted(len(answer.plans), "plan")
    log(f"--write: {many} in {directory}, each as a run config and in a folder as arguments of {', '.join(TOOLS)}")
    for line, plans in written.not_expressed.items():
        some = "" if plans == len(answer.plans) else f" ({counted(plans, 'plan')} of {many})"
        log(f"not expressed by {line}{some}")


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
        log(f"{fit:,} within the memory by their floor" + (f"; about {math.ceil(seconds)} s left" if fit else ""))

    def taken_over(self, estimates: int) -> None:
        log(f"--save: {counted(estimates, 'estimate')} of an earlier search taken over")

    def combination(self, done: int, count: int, name: str) -> None:
        self.progress(done, count, name)

    def round(self, found: Found) -> None:
        enough = len(found.ranked) >= found.top  # before that, no plan's floor rules it out
        total = max(found.candidates, found.priced) if enough else found.priced + found.top
        self.progress(found.priced, total, _best_in_words(found))


def _best_in_words(found: Found) -> str:
    if not found.best:
        return "none that is expected to fit so far"
    best = found.best[0]
    rate = found.priced / found.seconds if found.seconds else 0.0
    settings = found.surveys[best.survey].space.settings(best.outcome.number)
    return f"{count(rate)} plans/s, best so far {duration(best.outcome.step_us)}: {in_words(settings)}"
