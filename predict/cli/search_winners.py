"""The files of a search's winners: run configs, and launch arguments of other tools."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from predict import launch_arguments
from predict.cli.options import log, write_file
from predict.convert.launch import TOOLS
from predict.plan_search.answer import Answer
from sampling.errors import UserError
from sampling.files.faults import counted

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
