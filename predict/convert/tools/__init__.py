"""The tools whose files are read: one file per tool, found by being in this folder."""

from predict.convert.tool import Source, Tool
from sampling.additions import modules_of


def tools() -> list[Tool]:
    return [each for module in modules_of(__name__) for each in getattr(module, "TOOLS", ())]


def tool_of(source: Source) -> Tool | None:
    """The tool whose marks fit a source best; None where none does."""
    best = max(tools(), key=lambda tool: tool.fit(source))
    return best if best.fit(source) else None
