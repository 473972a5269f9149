"""`predict job`: calendar time and cost of a whole training, with its saves, failures and evaluations."""

import argparse
import math
import textwrap
from pathlib import Path

from predict import estimate, job
from predict.cli import options as cli
from predict.ledger.job_settings import JobSettings, job_settings
from predict.ledger.training_cost import parse_tokens, whole_training
from predict.ledger.whole_job import Phase
from predict.measured_runs.records import cluster_of, learnt, recorded_jobs
from predict.plan_search.offers import offered_jobs, read_offers
from predict.reports.job import job_json, job_text, no_offer, offers_json, offers_text
from predict.reports.memory import misfit
from predict.reports.text import show
from predict.run.training_run import TrainingRun
from sampling.command_line import log
from sampling.errors import CheckedError, Checks, UserError, naming
from sampling.files.faults import counted
from sampling.files.schema import field_docs
from sampling.number_text import as_given

EXAMPLES = """\
examples:
  predict job configs/runs/llama3-70b-64xh100.yml --tokens 2T --price 2.5/gpu-h
  predict job configs/runs/llama3-70b-64xh100.yml --tokens 2T --with gpu_hours_a_failure=20000 --with save=sync
  predict job configs/runs/llama3-70b-64xh100.yml --tokens 2T --offers docs/examples/offers.yml --deadline 190
  predict job configs/runs/llama3-70b-64xh100.yml --tokens 2T --phase '50B batch.global=64' --phase '40B batch.seq_len=16384'
"""
WIDTH, KEY_WIDTH = 110, 26
"""Columns of the help's list of keys, and of the keys in it."""


def _keys_of_with() -> str:
    """A line or more for each key of --with: what it is, and what it is by itself."""
    lines = []
    for name, text in field_docs(JobSettings).items():
        lines += textwrap.wrap(
            f"{name:<{KEY_WIDTH - 2}}{text}", WIDTH, initial_indent="  ", subsequent_indent=" " * KEY_WIDTH
        )
    return "\n".join(lines)


DESCRIPTION = f"""\
Calendar time and cost of a whole training, with its saves, failures and evaluations, each key of which --with sets:

{_keys_of_with()}
"""


def add_options(command: argparse.ArgumentParser) -> None:
    cli.add_config(command)
    cli.add_training(command)
    command.add_argument(
        "--with",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="what happens beside the steps, by the keys below; may be repeated",
    )
    command.add_argument(
        "--phase",
        dest="phases",
        action="append",
        default=[],
        metavar="'TOKENS KEY=VALUE …'",
        help="so many of the tokens with other settings of the config, such as '50B batch.global=64' while the batch grows, or '40B "
        "batch.seq_len=16384' at the end; may be repeated",
    )
    command.add_argument(
        "--recorded",
        nargs="?",
        const="",
        metavar="CLUSTER",
        help="failures, restarts and saves as the jobs show them that `predict record --job` kept (default: those of the config's cluster)",
    )
    command.add_argument(
        "--offers",
        type=Path,
        metavar="FILE",
        help="a YAML file of machines at a price, reserved or spot, on each of which the job is predicted: the cheapest first",
    )
    command.add_argument(
        "--deadline",
        type=float,
        metavar="DAYS",
        help="with --offers: those first that are done in time, in 95 %% of the draws; exit with 4 where none is",
    )
    cli.add_json(command)
    cli.add_check(command)


def run(options: argparse.Namespace) -> None:
    runs: list[tuple[float, TrainingRun]] = []
    with Checks() as checks:
        checks.run(whole_training, options.tokens, price=options.price)
        checks.run(_require_offers, options)
        with checks.one():
            settings = job_settings(options.settings)
        with checks.one():
            run = cli.loaded(options)
        for text in options.phases:
            with checks.one():
                runs.append(_phase(options, text))
    if options.recorded is not None:
        folder = options.recorded or cluster_of(options.config, options.overrides, run)
        jobs = recorded_jobs(folder)
        settings = learnt(settings, jobs, run)
        log(f"--recorded: failures and saves as {counted(len(jobs), 'job')} of {folder} had them")
    if options.offers is not None:
        _answer_offers(options, settings)
        return
    prediction = estimate(run)
    phases = [Phase(prediction=estimate(one), tokens=tokens) for tokens, one in runs]
    found = job(prediction, options.tokens, price=options.price, settings=settings, phases=phases)
    if options.json:
        cli.print_json(job_json(prediction, found))
    else:
        texts = [f"{place}. {text.partition(' ')[2]}" for place, text in enumerate(options.phases, 1)]
        of_phases = {text: one.prediction for text, one in zip(texts, phases, strict=True)}
        show(job_text(prediction, found, settings, of_phases))
    cli.check_fit(
        options,
        [misfit(each.memory) for each in (prediction, *(one.prediction for one in phases))],
        said=True,
    )


def _require_offers(options: argparse.Namespace) -> None:
    if options.offers is None:
        cli.refuse(
            cli.given(options, "deadline"), "needs --offers, the machines to choose among; give them, or omit it"
        )
        return
    cli.refuse(cli.given(options, "price", "phases"), "cannot be combined with --offers; omit it")
    if options.deadline is not None and not 0 < options.deadline < math.inf:
        raise UserError(f"--deadline: {as_given(options.deadline)} is not a number of days; give one above 0")


def _answer_offers(options: argparse.Namespace, settings: JobSettings) -> None:
    with naming("--offers"):
        offers = read_offers(options.offers)
    found = offered_jobs(
        options.config,
        offers,
        options.tokens,
        overrides=options.overrides,
        settings=settings,
        deadline_days=options.deadline,
    )
    if options.json:
        cli.print_json(offers_json(found))
    else:
        show(offers_text(found, options.deadline))
    if problem := no_offer(found[0], options.deadline):
        raise CheckedError(f"--offers: {problem if options.json else 'none of them will do'}")


def _phase(options: argparse.Namespace, text: str) -> tuple[float, TrainingRun]:
    """The tokens of a phase, and its run."""
    tokens, *settings = text.split() or [""]
    with naming(f"--phase {text!r}"):
        return parse_tokens(tokens), cli.loaded(options, settings)
