"""Options that several commands take, the checks of their values, and writing results."""

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from predict import load
from predict.config.overrides import OPTION, flag, parse_overrides
from predict.reports.printed import Renderable
from predict.reports.text import show
from predict.run.calibration_file import calibrated_by
from predict.run.training_run import TrainingRun
from sampling.command_line import log
from sampling.errors import CheckedError, Checks, InfeasibleError, UserError, naming
from sampling.files.disk import require_place, write_atomically
from sampling.files.disk import require_suffix as require_ending
from sampling.files.faults import shown
from sampling.files.places import OWN_DATA_IN_WORDS

Answer = TypeVar("Answer")


def add_config(command: argparse.ArgumentParser) -> None:
    command.add_argument("config", metavar="CONFIG", help="run config (YAML); `predict schema` describes it")
    add_settings(command)


def add_settings(command: argparse.ArgumentParser, *, of_servers: bool = False) -> None:
    """Options that change how a config is read, one `of_servers` or of a training: --set, and the folder of the user's own data."""
    add_overrides(command, OF_SERVERS if of_servers else OF_TRAINING)
    add_data(command)


def add_data(command: argparse.ArgumentParser, *, made: bool = False) -> None:
    """The folder of the user's own data; with `made`, the command makes it where it is missing."""
    command.set_defaults(makes_data=made)
    command.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help=f"folder of your own samples/, regressors/ and runs/ (default: {OWN_DATA_IN_WORDS})",
    )


class _Setting(argparse.Action):
    """The option --set; of a key that is given twice the last value counts, as where one's own follow those of a script, and stderr says
    so."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: object, value: Any, *_: object) -> None:
        before: list[str] = getattr(namespace, self.dest)
        known = {setting.path: setting.value for setting in parse_overrides(before)[0]}
        for setting in parse_overrides([value])[0]:
            if (first := known.get(setting.path, setting.value)) != setting.value:
                log(f"{OPTION} {setting.path}: {shown(setting.value)} replaces {shown(first)}, given before")
        setattr(namespace, self.dest, [*before, value])


OF_TRAINING = (
    "--set plan.tp=2, where dp takes the ranks that are left unless it is set too; a path counts from CONFIG's folder, and an order file "
    "from the working directory"
)
OF_SERVERS = "--set placement.tp=2; a path counts from CONFIG's folder"
"""Example of a setting in the help of `--set`, and the folder from which its paths count."""


def add_overrides(command: argparse.ArgumentParser, example: str = OF_TRAINING) -> None:
    command.add_argument(
        OPTION,
        dest="overrides",
        action=_Setting,
        default=[],
        metavar="KEY=VALUE",
        help=f"override a key, as in {example}; may be repeated, and of one key the last counts",
    )


def add_training(command: argparse.ArgumentParser) -> None:
    """The tokens and the price of a whole training."""
    command.add_argument("--tokens", required=True, metavar="N", help="tokens to train on, such as 300B or 2T")
    command.add_argument(
        "--price", metavar="PRICE", help="what a GPU or node costs, such as 2.5/gpu-h, $2.5/gpu-h or 20/node-h"
    )


def add_json(command: argparse._ActionsContainer) -> None:
    command.add_argument("--json", action="store_true", help="machine-readable result on stdout")


CHECK_HELP = "exit with 4 where the plan is OOM, or AT RISK with an expected peak above the memory"


def add_check(command: argparse._ActionsContainer) -> None:
    command.add_argument("--check", action="store_true", help=CHECK_HELP)


FIT = "make a change that `predict memory` lists where there is one, or take a device with more memory"


def check_fit(options: argparse.Namespace, misfits: Iterable[str], *, said: bool = False) -> None:
    """InfeasibleError, with --check, for the first of the plans whose expected peak is above the memory; '' stands for another. `said`
    where the answer on stdout says why already."""
    misfit = next((why for why in misfits if why), "")
    if options.check and misfit:
        if said:
            raise CheckedError(f"--check: the expected peak is above the memory; {FIT}")
        raise InfeasibleError(f"cluster.hardware: {misfit}; {FIT}")


def add_slo(command: argparse._ActionsContainer, *, whose: str = "") -> None:
    command.add_argument(
        "--slo",
        action="append",
        default=[],
        metavar="OBJECTIVE",
        help=f"{whose}the highest rate of requests at which this holds, such as ttft_p90=1s, tpot_mean=50ms or e2e_p99=20s; may be repeated",
    )


def add_serving_questions(command: argparse._ActionsContainer) -> None:
    """Questions on serving configs."""
    add_slo(command)
    command.add_argument(
        "--price",
        metavar="PRICE",
        help="also the cost of a million tokens, at a price such as 2.5/gpu-h, $2.5/gpu-h or 20/node-h",
    )


def add_step_model(command: argparse._ActionsContainer, *, more: str = "") -> None:
    """The model of a server's steps and its coefficients; `more` names models in addition to those that every command has."""
    command.add_argument(
        "--model",
        default="",
        metavar="NAME",
        help=f"model of the step: kernels (the default, or the one of --coefficients), formula{', published' if more else ' or published'}{more}",
    )
    add_coefficients(command)


def add_coefficients(command: argparse._ActionsContainer, *, whose: str = "") -> None:
    command.add_argument(
        "--coefficients", type=Path, metavar="FILE", help=f"{whose}coefficients that `predict serving-fit` wrote"
    )


def add_target_nodes(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--target-nodes", type=int, metavar="N", help="share the same global batch among the replicas of N nodes"
    )


def add_calibration(command: argparse._ActionsContainer) -> None:
    command.add_argument(
        "--calibration",
        type=Path,
        metavar="FILE",
        help="terms that `predict calibrate` fitted, in place of those of the cluster",
    )


def loaded(options: argparse.Namespace, overrides: Sequence[str] = ()) -> TrainingRun:
    """The run of CONFIG, --set, `overrides` and, where the command takes them, --target-nodes and --calibration."""
    path = getattr(options, "calibration", None)
    settings = [*options.overrides, *overrides, *(["cluster.calibration=null"] if path else [])]
    run = load(options.config, settings, target_nodes=getattr(options, "target_nodes", None))
    if path is None:
        return run
    with naming("--calibration"):
        run = calibrated_by(run, path)
    if run.calibration is None:
        log(f"--calibration: {path} holds no runs, so it changes nothing; `predict calibrate` adds runs to it")
    return run


def given(options: argparse.Namespace, *names: str) -> list[str]:
    """The options that were given, as flags, and configs as they stand in the help."""
    values = {name: getattr(options, name) for name in names}
    stated = [name for name, value in values.items() if value is not False and value not in (None, [], "")]
    return ["CONFIG" if name in ("config", "configs") else flag(name) for name in stated]


def refuse(flags: Sequence[str], why: str) -> None:
    """UserError for options that were given where they do not belong, with the reason and the fix; none for no option."""
    if flags:
        raise UserError(f"{', '.join(flags)}: {why}")


def require_positive(options: argparse.Namespace, *names: str) -> None:
    """UserError with a line for each of the options that is below 1."""
    values = {name: getattr(options, name) for name in names}
    wrong = {name: value for name, value in values.items() if value is not None and value < 1}
    if wrong:
        raise UserError(
            "\n".join(
                f"{flag(name)}: {value} is not a positive number; give 1 or more" for name, value in wrong.items()
            )
        )


def require_output(option: str, path: Path | None, suffixes: Any) -> None:
    """UserError for a result file with another ending than `suffixes`, or that could not be written."""
    with Checks() as checks, writing(option, path or Path()):
        if path is not None and path != Path() and not path.is_dir():
            checks.run(require_suffix, option, path, suffixes)
        checks.run(require_writable, option, path)


def require_writable(option: str, path: Path | None) -> None:
    """UserError, before any work, for a result file that could not be written after it."""
    if path is None:
        return
    with writing(option, path):
        if path.is_dir():
            raise UserError(f"{option}: {path} is a directory; name a file in it")
        if not path.parent.exists():
            raise UserError(f"{option}: {path}: there is no directory {path.parent}; make it, or give another path")
    _require_place(option, path)


def require_folder(option: str, path: Path | None) -> None:
    """UserError, before any work, for a folder of results that could not be made, or written to, after it."""
    if path is None:
        return
    with writing(option, path):
        if path.is_file():
            raise UserError(f"{option}: {path} is a file; give a folder")
    _require_place(option, path)


def _require_place(option: str, path: Path) -> None:
    with naming(option):
        require_place(path)


def require_suffix(option: str, path: Path | None, allowed: Any) -> None:
    if path is not None:
        with naming(option):
            require_ending(path, allowed)


def write_json(option: str, path: Path, content: Any) -> None:
    write_file(option, path, f"{json.dumps(content, indent=1)}\n")


def write_file(option: str, path: Path, text: str) -> None:
    with writing(option, path):
        write_atomically(path, text.encode())


@contextmanager
def writing(option: str, path: Path) -> Iterator[None]:
    """UserError, which names the option, for a result file that the system does not let be written."""
    try:
        yield
    except OSError as error:
        raise cannot_write(option, path, error) from None


def cannot_write(option: str, path: Path, error: OSError) -> UserError:
    return UserError(f"{option}: {path} cannot be written ({error.strerror or error}); give another path")


def print_answer(
    options: argparse.Namespace,
    answer: Answer,
    as_json: Callable[[Answer], Any],
    as_text: Callable[[Answer], Renderable],
) -> None:
    """Print an answer on stdout: as JSON with --json, else as text."""
    if options.json:
        print_json(as_json(answer))
    else:
        show(as_text(answer))


def print_json(content: Any) -> None:
    print(json.dumps(content, indent=1))


def log_not_read(names: Mapping[str, Any]) -> None:
    """Log names of another tool's config that change nothing here, with their values."""
    if names:
        log(f"not read: {', '.join(f'{name} {value}' for name, value in names.items())}")
