"""`predict speed-of-light`: the least time that a device's peaks leave a step, or any torch module."""

import argparse
import sys
from pathlib import Path

from predict import speed_of_light, step_speed_of_light
from predict.bounds.analysis import Analysis
from predict.cli.options import add_json, add_settings, given, print_answer, refuse, require_folder, write_file
from predict.reports import bounds
from sampling.command_line import log
from sampling.errors import UserError
from sampling.files.disk import is_file

DESCRIPTION = """\
The least time that the peaks of a device leave the operators of a step, and any torch module, in three models.

unfused: every operator reads and writes memory; fused: tensors between operators stay on the chip; fused + prefetched: besides,
memory and products overlap all along. Each by the rules documented (one maximum of sums) and intended (a maximum for each operator);
a module also in the kernels that compilers would make of it. docs/how-to/speed-of-light.md says more.

FILE.py is run as Python, by you and with your rights: run no file that you do not trust. The command says so before it does, and asks
where stdin is a terminal. Its tensors lie on torch's meta device, so that no weight takes memory.
"""
EXAMPLES = """\
examples:
  predict speed-of-light configs/runs/llama3-70b-64xh100.yml
  predict speed-of-light docs/examples/speed_of_light/transformer_layer.py --arch h100-sxm
  predict speed-of-light docs/examples/speed_of_light/transformer_layer.py --arch b200 --precision fp8 --output out/results
"""
FILE_ONLY = ("arch", "precision", "output", "yes")
ARCH, PRECISION = "h100-sxm", "bf16"
PRECISIONS = ("bf16", "fp16", "fp32", "tf32", "fp8")


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "target",
        metavar="CONFIG|FILE.py",
        help="run config (YAML), or a Python file with a torch module `Model`, `get_inputs()` and, where Model takes arguments, "
        "`get_init_inputs()`",
    )
    module = command.add_argument_group("of FILE.py")
    module.add_argument(
        "--arch",
        metavar="NAME|FILE.yaml",
        help=f"a device of configs/hardware, or a file of one, also in SOLAR's format (default: {ARCH})",
    )
    module.add_argument(
        "--precision",
        choices=PRECISIONS,
        help=f"precision of its floating-point tensors and products (default: {PRECISION})",
    )
    module.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="write analysis.yaml and perf_<arch>.yaml there; DIR is made if missing",
    )
    module.add_argument("--yes", action="store_true", help="run FILE.py without asking first")
    add_json(command)
    add_settings(command)


def run(options: argparse.Namespace) -> None:
    if not options.target.endswith(".py"):
        refuse(
            given(options, *FILE_ONLY),
            "applies only to FILE.py; a run config has cluster.hardware and precision (--set), and its answer goes to stdout, with --json too",
        )
        print_answer(
            options, step_speed_of_light(options.target, options.overrides), bounds.step_json, bounds.step_text
        )
        return
    refuse(given(options, "overrides"), "applies only to a run config; omit it")
    require_folder("--output", options.output)
    _agree(options.target, yes=options.yes)
    analysis = speed_of_light(options.target, arch=options.arch or ARCH, precision=options.precision or PRECISION)
    if options.output is not None:
        _write(options.output, analysis)
    print_answer(options, analysis, bounds.module_json, bounds.module_text)


def _agree(file: str, *, yes: bool) -> None:
    """Says that the file is run, and asks first where somebody can answer. UserError where they do not agree."""
    if not is_file(file):
        return
    if yes or sys.stdin is None or not sys.stdin.isatty():
        log(f"running {file} as Python, with your rights")
        return
    print(f"{file} is run as Python, with your rights. Run it? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UserError(f"{file}: not run; answer y where you trust it, or give --yes")


def _write(folder: Path, analysis: Analysis) -> None:
    files = {
        "analysis.yaml": bounds.analysis_content(analysis),
        f"perf_{analysis.device.entry}.yaml": bounds.perf_content(analysis),
    }
    for name, content in files.items():
        write_file("--output", folder / name, bounds.as_yaml(content))
        log(f"wrote {folder / name}")
