"""`predict validate`: predictions held against what was measured here, held out, or published."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from predict.cli.options import add_check, add_data, add_json, add_overrides, flag, given, require_positive
from predict.cli.validate_kinds import (
    GPU,
    memory,
    published,
    ranking,
    rl,
    rl_configs,
    runs,
    samples,
    serving,
    serving_configs,
)
from sampling.errors import Checks, UserError
from sampling.files.faults import did_you_mean
from sampling.store.profiles import OWN

WORDS = (OWN, GPU, "samples", "published", "memory", "ranking", "serving", "rl")
"""Words that may stand in place of configs."""
APART = WORDS[2:]
OWN_OPTIONS = {
    "samples": ("measurements",),
    "published": ("truth", "profile", "calibrate_on", "calibration", "widths", "leave_out"),
    "memory": ("truth",),
    "ranking": ("truth", "widths"),
    "serving": ("truth", "model", "coefficients"),
    "rl": ("truth",),
    "runs": ("overrides", "keep", "profile", "check"),
    "rl-configs": ("overrides",),
    "serving-configs": ("overrides", "coefficients"),
}
"""Options of each kind of validation, except --json and --rounds."""

DESCRIPTION = """\
Hold predictions against measurements: of configs, which are run here, or by one of these words.

this-machine   the runs of configs/runs/this-machine and configs/runs/transformers, run here
this-gpu       the runs of configs/runs/this-gpu on the GPU found here; without a GPU, the steps that sessions brought to --profile
samples        the time models on rows held out; its tables are kept in benchmarks
published      training steps that others printed: those that ship, or the rows of --truth
memory         measured peaks of memory in --truth
ranking        the order of the measured plans in --truth, and which of them run out of memory
serving        measured serving runs in the folder --truth
rl             published steps of reinforcement learning in --truth
"""
EXAMPLES = """\
examples:
  predict validate configs/runs/demo.yml
  predict validate this-machine --rounds 1
  predict validate samples
  predict validate published --truth data/published/runs.csv
  predict validate configs/rl/this-machine/*.yml
  predict validate serving --truth docs/examples/serving --model formula
  predict validate configs/serving/this-machine/*.yml
"""


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "what",
        metavar="WORD|CONFIG",
        nargs="+",
        help="configs, or one of the words above",
    )
    _add_truth(command)
    add_overrides(command)
    add_data(command)
    command.add_argument(
        "--rounds", type=int, help="interleaved rounds of measuring (default: 3, on a GPU 1 of ten seconds and more)"
    )
    command.add_argument(
        "--keep",
        action="store_true",
        default=None,
        help="this-machine, this-gpu: keep the figures as the error of its profile, in data/published",
    )
    add_check(command)
    add_json(command)


def _add_truth(command: argparse.ArgumentParser) -> None:
    """Options for tables that others measured, and for how they are judged."""
    command.add_argument(
        "--truth",
        type=Path,
        metavar="FILE",
        help="published, memory, ranking, rl: a CSV file of measured runs, one per row; serving: the folder of serving_experiments.csv",
    )
    command.add_argument(
        "--model",
        default="",
        metavar="NAME",
        help="serving: kernels (the default), formula, or published: the formula as published",
    )
    command.add_argument(
        "--coefficients",
        type=Path,
        metavar="FILE",
        help="serving: coefficients that `predict serving-fit` wrote, of --model's",
    )
    command.add_argument(
        "--profile", default="", metavar="NAME", help="published, this-machine, this-gpu: the samples to price all from"
    )
    command.add_argument(
        "--calibrate-on",
        type=Path,
        metavar="FILE",
        help="published: fit the terms of `predict calibrate` to the runs of a CSV file, write them to --calibration, use them",
    )
    command.add_argument("--calibration", type=Path, metavar="FILE", help="published: use, or write, these terms")
    command.add_argument(
        "--widths",
        action="store_true",
        default=None,
        help="published: learn from these runs how wide each unknown makes an interval, and judge it on sources left out; "
        "ranking: how wide each differing setting makes the ratio of two plans",
    )
    command.add_argument(
        "--leave-out",
        action="store_true",
        default=None,
        help="published: learn each constant that was read off published runs again without each source, and judge it there",
    )
    command.add_argument(
        "--measurements",
        type=Path,
        metavar="DIR",
        help="samples: published measurements to judge too, a folder with estimate-train-time/ or aiconfigurator/",
    )


def run(options: argparse.Namespace) -> None:
    _require_known(options.what)
    what = options.what[0] if options.what in ([name] for name in APART) else _kind_of_configs(options.what)
    known = dict.fromkeys(name for names in OWN_OPTIONS.values() for name in names)
    with Checks() as checks:
        with checks.one():
            if extra := given(options, *(name for name in known if name not in OWN_OPTIONS[what])):
                own = ", ".join(map(flag, OWN_OPTIONS[what]))
                raise UserError(
                    f"{', '.join(extra)}: does not go with `predict validate {what}`, which takes {own}; omit it"
                )
        checks.run(require_positive, options, "rounds")
    VALIDATE[what](options)


def _kind_of_configs(named: Sequence[str]) -> str:
    """Whether the configs are run configs, RL configs or serving configs; UserError for several kinds."""
    from predict.kinds import KINDS, TRAINING, kind_of

    kinds = {name: kind_of(name) for name in named if name not in WORDS}
    for name, kind in kinds.items():
        if kind != TRAINING and set(kinds.values()) != {kind}:
            raise UserError(
                f"{name}: is {KINDS[kind].title}, and others are not; give either kind in a command of its own"
            )
        if kind != TRAINING:
            return f"{kind}-configs"
    return "runs"


def _require_known(what: Sequence[str]) -> None:
    """UserError for a name that is neither one of WORDS nor a config's path."""
    for name in what:
        if name in WORDS and len(what) > 1:
            raise UserError(f"{name}: goes alone; give it in a command of its own")
        if name not in WORDS and not Path(name).suffix and not Path(name).exists():
            near = did_you_mean(name, WORDS) or "."
            raise UserError(f"{name}: is none of {', '.join(WORDS)}, nor the path of a config{near}")


VALIDATE = {
    "samples": samples,
    "published": published,
    "memory": memory,
    "ranking": ranking,
    "serving": serving,
    "rl": rl,
    "runs": runs,
    "rl-configs": rl_configs,
    "serving-configs": serving_configs,
}
