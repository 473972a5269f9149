"""One published run as its table gives it: text by column, read as numbers where asked for."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sampling.errors import SamplesError
from sampling.files.keys import LARGEST as LARGEST_SIZE
from sampling.files.regular import NotReadError, read_text

NEEDED = ("row_id", "gpu", "n_gpus", "seq_len")
LARGEST = 1e15
"""No figure of a run comes near it; larger values, and text that is not a number, count as not published."""
OTHER_NAMES = {
    "run_id": "row_id",
    "mp": "tp",
    "seq": "seq_len",
    "micro_batch": "mbs",
    "microbatches": "grad_accum",
    "same_run_typical_s": "step_time_s",
    "attention": "attn",
    "zero": "zero_fsdp",
    "act_ckpt": "recompute",
    "activation_checkpointing": "recompute",
    "tokens_s_gpu": "tokens_per_s_per_gpu",
    "tflops_gpu": "tflops_per_gpu",
}
"""Columns of other tables of runs, and their names here."""


class NotExpressibleError(Exception):
    """Why a row cannot be predicted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedRow:
    """A row of a table of published runs; a blank cell is something that was not published."""

    cells: Mapping[str, str]

    @property
    def row_id(self) -> str:
        return self.cells["row_id"]

    def text(self, column: str) -> str:
        return (self.cells.get(column) or "").strip()

    def number(self, column: str) -> float | None:
        """The number a cell starts with (`250k` is 250,000); None for a blank or wordy one."""
        text = self.text(column).split(" ")[0].replace(",", "")
        factor = 1000 if text.endswith("k") else 1
        try:
            number = float(text.removesuffix("k")) * factor
        except ValueError:
            return None
        return number if abs(number) <= LARGEST else None

    def integer(self, column: str, default: int | None = None, *, least: int = 1, most: float = LARGEST_SIZE) -> int:
        """A whole number from `least` to `most`; NotExpressibleError for another, and where there is neither one nor a default."""
        number = self.number(column)
        if number is None and default is not None and not self.text(column):
            return default
        if number is None or number != round(number) or not least <= number <= most:
            raise NotExpressibleError(f"{column}: {self.text(column) or 'not published'}")
        return round(number)

    @property
    def measured_us(self) -> float | None:
        """The step's time: as measured, from the throughput, or from the hardware FLOPs of Megatron's formula."""
        milliseconds = self.number("step_ms")
        seconds = self.number("step_time_s") or (milliseconds / 1e3 if milliseconds else None)
        seconds = seconds or self.number("derived_step_time_s") or self._from_throughput() or self._from_flops()
        return seconds * 1e6 if seconds and seconds > 0 else None

    def _from_throughput(self) -> float | None:
        tokens_per_s, gpus = self.number("tokens_per_s_per_gpu"), self.number("n_gpus")
        batch, seq_len = self.number("gbs"), self.number("seq_len")
        if not (tokens_per_s and gpus and batch and seq_len):
            return None
        return batch * seq_len / (tokens_per_s * gpus)

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


def read_rows(path: Path, option: str = "--truth") -> Iterator[PublishedRow]:
    """The rows of the CSV file that an option names; SamplesError where it cannot be read or lacks what every row needs."""
    try:
        table = list(csv.DictReader(io.StringIO(read_text(path).removeprefix("\ufeff"))))
    except (NotReadError, csv.Error) as error:
        raise SamplesError(f"{option}: {path} cannot be read ({error}); give a CSV file of published runs") from None
    if not table:
        raise SamplesError(f"{option}: {path} holds no rows; give a CSV file of published runs")
    table = [_renamed(cells, place) for place, cells in enumerate(table, 1)]
    if lacking := [column for column in NEEDED if column not in table[0]]:
        raise SamplesError(f"{option}: {path} lacks the columns {', '.join(lacking)}; name the columns so")
    yield from (PublishedRow(cells=cells) for cells in table)


def _renamed(cells: Mapping[str, str], place: int) -> dict[str, str]:
    """The cells under our names of the columns; a row without a name is named after its place."""
    own = {column: text for column, text in cells.items() if column not in OTHER_NAMES or OTHER_NAMES[column] in cells}
    own |= {OTHER_NAMES[column]: text for column, text in cells.items() if column not in own}
    return {"row_id": f"row {place}", "source_id": "table", **own}
