"""`predict serving-fit`: coefficients of a step model fitted to measured serving runs."""

import argparse
from pathlib import Path

from predict.cli.options import add_json, add_settings, given, print_answer, refuse, require_writable, write_json
from predict.reports.serving_step import coefficients_text
from predict.serving.coefficients import coefficients_json
from predict.serving.fit import serving_fit
from sampling.command_line import log

EXAMPLES = """\
examples:
  predict serving-fit docs/examples/serving --model formula --source made-up
  predict serving-fit docs/examples/answered/*.csv --config configs/serving/llama3-8b-h100.yml --output out/mine.json
"""
DESCRIPTION = """\
Fit the coefficients of a step model to measured serving runs.

TRACES is a folder with serving_experiments.csv, a row for each stage of runs of any servers. Or, with --config, it is files of requests
that one server answered, a file for each of three loads or more: CSV tables of arrival_s, prompt, output, ttft_ms, e2e_ms and, where
prompts repeat, prompt_id; or .json: per-request lifecycle metrics of inference-perf, or what `vllm bench serve --save-detailed` writes.

With --config they may also be the engine's own steps: CSV tables of step_ms, decodes, decode_context and, where the step computes prompts,
prefills, prefill_tokens, prefill_context; contexts are tokens in the cache, those of all requests of the step together.

Weights are least squares within physical bounds about stated priors, on the time per output token at the measured load, each stage
weighed by how much a simulation amplifies its error; the client's part of TTFT follows from simulations. Intervals are those of
leaving out one experiment, or file, at a time. --source says what the runs are.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "traces",
        type=Path,
        nargs="+",
        metavar="TRACES",
        help="folder of serving_experiments.csv; with --config, files of requests or of steps",
    )
    command.add_argument("--config", metavar="CONFIG", help="serving config (YAML) of the server that answered")
    command.add_argument("--model", default="kernels", metavar="NAME", help="kernels (the default) or formula")
    command.add_argument(
        "--source", default="", metavar="TEXT", help="provenance of the runs, kept with the coefficients"
    )
    command.add_argument("--output", type=Path, metavar="FILE", help="write the coefficients there (.json)")
    add_settings(command, of_servers=True)
    add_json(command)


def run(options: argparse.Namespace) -> None:
    require_writable("--output", options.output)
    if not options.config and options.traces[1:] == [] and not options.traces[0].is_file():
        refuse(given(options, "overrides"), "applies only with --config; omit it")
    found = serving_fit(
        options.traces, options.overrides, config=options.config, model=options.model, source=options.source
    )
    if options.output:
        write_json("--output", options.output, coefficients_json(found))
        log(f"wrote {options.output}")
    print_answer(options, found, coefficients_json, coefficients_text)
