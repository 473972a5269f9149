"""Put fresh figures into the README: `python docs/refresh_readme.py` (or `make readme`).

Each block between `<!-- NAME -->` and `<!-- end -->` is replaced by what the shipped samples, regressors and validation say.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DEMO = "configs/runs/demo.yml"
SPLITS = ("random", "shape", "largest")


def one_batch_output() -> str:
    command = [sys.executable, "-m", "predict.cli", "one-batch", DEMO]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    lines = [line.rstrip() for line in done.stdout.strip().splitlines()]
    return "\n".join(["    $ predict one-batch " + DEMO, "", *(f"    {line}".rstrip() for line in lines)])


def validation_table() -> str:
    content = json.loads((ROOT / "data" / "published" / "this-machine-steps.json").read_text())
    lines = ["| run | plan | predicted | measured | error | in the 90 % interval |", "|---|---|--:|--:|--:|---|"]
    for row in content["rows"]:
        predicted_ms, measured_ms = row["predicted_us"]["median"] / 1e3, row["measured_us"] / 1e3
        lines.append(
            f"| {row['run']} | {row['plan']} | {predicted_ms:.0f} ms | {measured_ms:.0f} ms | {row['error']:+.1%} "
            f"| {'yes' if row['covered'] else 'no'} |"
        )
    summary = content["summary"]
    lines += [
        "",
        f"{summary['runs']} runs: mean error {summary['mean_error']:.1%}, worst {summary['worst_error']:.1%}, bias "
        f"{summary['bias']:+.1%}, intervals cover {summary['coverage']:.0%}.",
    ]
    return "\n".join(lines)


def accuracy_table() -> str:
    report = json.loads((ROOT / "data" / "regressors" / "this-machine" / "report.json").read_text())
    lines = ["| held out | this project's choice | trees on raw time | ratio |", "|---|--:|--:|--:|"]
    names = {
        "random": "a random fifth of the rows",
        "shape": "unseen shapes",
        "largest": "the largest fifth (extrapolation)",
    }
    for split in SPLITS:
        mean = report["means"][split]
        lines.append(f"| {names[split]} | {mean['chosen']:.1f} % | {mean['raw']:.1f} % | {mean['ratio']:.1f} × |")
    lines += ["", *_by_operator(report["operators"])]
    return "\n".join(lines)


def _by_operator(rows: list[Mapping[str, Any]]) -> list[str]:
    lines = ["| operator | rows | random | unseen shape | largest | raw time, largest |", "|---|--:|--:|--:|--:|--:|"]
    for name in sorted({row["name"] for row in rows}):
        own = [row for row in rows if row["name"] == name and row["raw"]]
        if own:
            cells = [_mean([row["chosen"][split] for row in own]) for split in SPLITS]
            cells.append(_mean([row["raw"]["largest"] for row in own]))
            lines.append(f"| {name} | {sum(row['rows'] for row in own)} | " + " | ".join(cells) + " |")
    return lines


def _mean(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{sum(known) / len(known):.1f} %" if known else "–"


BLOCKS: Mapping[str, Callable[[], str]] = {
    "one-batch output": one_batch_output,
    "validation table": validation_table,
    "accuracy table": accuracy_table,
}


def main() -> None:
    readme = ROOT / "README.md"
    text = readme.read_text()
    for name, block in BLOCKS.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        content = block()
        text, found = pattern.subn(lambda match, content=content: f"{match[1]}{content}\n{match[2]}", text)  # type: ignore[misc]
        if found != 1:
            raise SystemExit(f"README.md: {found} blocks named {name!r}; keep exactly one, closed by <!-- end -->")
    readme.write_text(text)


if __name__ == "__main__":
    main()
