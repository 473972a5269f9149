"""`predict plot`: one picture of a plan, as a file."""

import argparse
from pathlib import Path

from predict.cli.options import add_settings, require_output, write_file, writing
from predict.reports.pictures.figure_file import save_figure
from predict.reports.pictures.figures import KINDS, figure_page, plot
from sampling.command_line import log
from sampling.extras import require_library

PAGE = ".html"
SUFFIXES = (".svg", ".png", PAGE)
EXAMPLES = """\
examples:
  predict plot waterfall configs/runs/llama3-70b-64xh100.yml -o out/waterfall.svg
  predict plot memory configs/runs/demo.yml --set plan.recompute=full -o out/memory.png
  predict plot timeline configs/runs/demo.yml -o out/timeline.html
  predict plot timeline configs/rl/qwen3-30b-a3b-grpo.yml -o out/rl.svg
"""
DESCRIPTION = """\
One picture of a plan.

waterfall: where the step goes, with intervals; memory: of each pipeline rank over the step; heatmap: throughput by sequence and
microbatch; pareto: the plans one setting away, by throughput and memory; timeline: the pipeline. A .html file is a page of its own.
Of an RL config: waterfall, its phases; timeline, what trainer and engines do over a step; memory, while it generates and updates; heatmap,
throughput by the longest response and n.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("kind", metavar="KIND", choices=KINDS, help=", ".join(KINDS))
    command.add_argument("config", metavar="CONFIG", help="run config (YAML); `predict schema` describes it")
    add_settings(command)
    command.add_argument("-o", "--output", type=Path, metavar="FILE", required=True, help=".svg, .png or .html")


def run(options: argparse.Namespace) -> None:
    require_output("--output", options.output, SUFFIXES)
    if options.output.suffix.lower() == PAGE:
        write_file("--output", options.output, figure_page(options.kind, options.config, options.overrides))
    else:
        require_library("matplotlib")
        title = f"{options.kind} of {Path(options.config).stem}"
        with writing("--output", options.output):
            save_figure(lambda: plot(options.kind, options.config, options.overrides), options.output, title=title)
    log(f"wrote {options.output}")
