"""One published run as its table gives it: text by column, read as numbers where asked for."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from predict.truth_table import Cells, Columns, number_of, read_cells
from predict.validation.truth_columns import RUNS
from sampling.files.schema import LARGEST as LARGEST_SIZE

LARGEST = 1e15
"""No figure of a run comes near it; larger values count as not published."""


class NotExpressibleError(Exception):
    """Why a row cannot be predicted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedRow:
    """A row of a table of published runs; a blank cell is something that was not published."""

    cells: Mapping[str, str]
    fault: str = ""
    """Why the row cannot be read: cells that are not what their columns hold."""
    columns: Columns = field(default=RUNS, repr=False, compare=False)
    """The columns of its table, which declare what a blank cell is taken for."""

    @property
    def row_id(self) -> str:
        return self.cells["row_id"]

    def text(self, column: str) -> str:
        return (self.cells.get(column) or "").strip()

    def number(self, column: str) -> float | None:
        """The number a cell starts with (`250k` is 250,000); None for a blank or wordy one."""
        number = number_of(self.text(column))
        return number if number is not None and abs(number) <= LARGEST else None

    def integer(self, column: str, default: int | None = None, *, least: int = 1, most: float = LARGEST_SIZE) -> int:
        """A whole number from `least` to `most`. A blank cell is taken for `default`, without one for the column's own default.

        NotExpressibleError for another number, and where there is neither one nor a default.
        """
        if not self.text(column):
            taken = self.columns.keys[column].default if default is None else default
            if taken is not None:
                return int(taken)
        number = self.number(column)
        if number is None or number != round(number) or not least <= number <= most:
            raise NotExpressibleError(f"{column}: {self.text(column) or 'not published'}")
        return round(number)

    def gpus(self) -> int:
        """The GPUs of the run: as published, or as its degrees make them."""
        if self.text("dp") and not self.text("n_gpus"):
            return math.prod(map(self.integer, ("tp", "pp", "cp", "dp")))
        return self.integer("n_gpus")

    @property
    def measured_us(self) -> float | None:
        """The step's time: as measured, from the throughput, or from the hardware FLOPs of Megatron's formula."""
        milliseconds = self.number("step_ms")
        seconds = self.number("step_time_s") or (milliseconds / 1e3 if milliseconds else None)
        seconds = seconds or self.number("derived_step_time_s") or self._from_throughput() or self._from_flops()
        return seconds * 1e6 if seconds and seconds > 0 else None

    @property
    def why_not_timed(self) -> str:
        """The part that is missing of a time, for a row without one: the batch, where there is a throughput."""
        throughputs = ("tokens_per_s_per_gpu", "tokens_per_s_total")
        missing = [column for column in ("gbs", "seq_len") if not self.number(column)]
        if any(map(self.number, throughputs)) and missing:
            return f"{' and '.join(missing)}: not published, so that no step time follows from its throughput"
        return "step_time_s: neither a time nor a throughput was published"

    def _from_throughput(self) -> float | None:
        of_gpu, gpus = self.number("tokens_per_s_per_gpu"), self.number("n_gpus")
        batch, seq_len = self.number("gbs"), self.number("seq_len")
        tokens_per_s = of_gpu * gpus if of_gpu and gpus else self.number("tokens_per_s_total")
        return batch * seq_len / tokens_per_s if tokens_per_s and batch and seq_len else None

    def _from_flops(self) -> float | None:
        """F = 96·B·s·l·h²·(1 + s/6h + V/16lh), recomputation included (Narayanan et al., arXiv 2104.04473, equation 3)."""
        tflops, kind = self.number("tflops_per_gpu"), self.text("tflops_kind")
        if tflops is None or "hardware" not in kind:
            return None
        sizes = [self.number(column) for column in ("gbs", "seq_len", "layers", "hidden", "vocab", "n_gpus")]
        if None in sizes:
            return None
        batch, seq_len, layers, hidden, vocab, gpus = (size or 0.0 for size in sizes)
        flops = 96 * batch * seq_len * layers * hidden**2
        flops *= 1 + seq_len / (6 * hidden) + vocab / (16 * layers * hidden)
        return flops / (gpus * tflops * 1e12)


def read_rows(path: Path, option: str = "--truth", columns: Columns = RUNS) -> list[PublishedRow]:
    """The rows of the table that an option names; ConfigError where there is none, where it cannot be read, or for its
    columns. A row without a name is named after its place."""
    return [_of_cells(row, columns) for row in read_cells(path, columns, option)]


def _of_cells(row: Cells, columns: Columns) -> PublishedRow:
    usual = {"row_id": f"row {row.place}"}
    if "source_id" in columns.keys:
        usual["source_id"] = columns.keys["source_id"].default
    return PublishedRow(cells={**usual, **row.stated}, fault=row.fault, columns=columns)
