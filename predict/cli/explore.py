"""`predict explore`: a local page on which every key of a config is a control."""

import argparse

from predict.cli.options import add_config
from predict.explorer.server import explore
from sampling.command_line import log

EXAMPLES = """\
examples:
  predict explore configs/runs/llama3-70b-64xh100.yml
  predict explore configs/runs/demo.yml --set batch.micro=1 --port 8899
  predict explore configs/runs/llama3-70b-64xh100.yml --tokens 2T --price 2.5/gpu-h
  predict explore configs/rl/qwen3-30b-a3b-grpo.yml
"""
DESCRIPTION = """\
A page on which every key of a config is a control, and the answer, the waterfall, memory and the pipeline follow each change.

It is served to this machine alone, at an address with a random token, until Ctrl-C. The config itself stays as it is: copy the
settings from the page. Nothing beyond the package is needed.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    add_config(command)
    command.add_argument(
        "--tokens", metavar="N", help="also the whole job of so many tokens, such as 2T, with its saves and failures"
    )
    command.add_argument("--price", metavar="PRICE", help="with --tokens: what a GPU or node costs, such as 2.5/gpu-h")
    command.add_argument("--port", type=int, default=0, metavar="N", help="port of 127.0.0.1 (default: a free one)")


def run(options: argparse.Namespace) -> None:
    with explore(
        options.config, options.overrides, port=options.port, tokens=options.tokens, price=options.price
    ) as server:
        print(server.address, flush=True)
        log("open it in a browser of this machine; Ctrl-C ends it")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            log("ended")
