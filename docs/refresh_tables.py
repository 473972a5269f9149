"""Put fresh figures into README and docs: `python docs/refresh_tables.py` (or `make tables`).

Each block between `<!-- NAME -->` and `<!-- end -->` is replaced by what the shipped samples, regressors and validation say.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from predict.reports.pictures.schedule_plot import save_plot
from predict.schedules import registry
from predict.schedules.engine.timing import ChunkTimes, simulate
from sampling.number_text import percent, signed_percent, whole_percent
from sampling.store.profiles import SHIPPED

ROOT = Path(__file__).resolve().parent.parent
DEMO = "configs/runs/demo.yml"
RANKS, MICROBATCHES = 8, 32
PICTURES = {
    "afab": 1,
    "1f1b": 1,
    "interleaved-1f1b": 2,
    "zb-h1": 1,
    "zb-auto": 1,
    "zbv": 2,
    "zbv-greedy": 2,
    "v-half": 2,
    "dualpipe": 2,
    "dualpipev": 2,
}
"""One schedule per family, or two that look different → chunks per rank."""
SPLITS = {
    "random": "a random fifth of the rows",
    "shape": "unseen shapes",
    "extrapolation": "the largest fifth (extrapolation)",
}
RAW = ("raw_forest", "raw_xgboost")


def one_batch_output() -> str:
    command = [sys.executable, "-m", "predict", "one-batch", DEMO]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    lines = [line.rstrip() for line in done.stdout.strip().splitlines()]
    return "\n".join(["    $ predict one-batch " + DEMO, "", *(f"    {line}".rstrip() for line in lines)])


def validation_table() -> str:
    content = json.loads((ROOT / "data" / "published" / f"{SHIPPED}-steps.json").read_text())
    lines = ["| run | plan | predicted | measured | error | in the 90 % interval |", "|---|---|--:|--:|--:|---|"]
    for row in content["rows"]:
        predicted_ms, measured_ms = row["predicted_us"]["median"] / 1e3, row["measured_us"] / 1e3
        lines.append(
            f"| {row['run']} | {row['plan']} | {predicted_ms:.0f} ms | {measured_ms:.0f} ms | {signed_percent(row['error'])} "
            f"| {'yes' if row['covered'] else 'no'} |"
        )
    summary = content["summary"]
    lines += [
        "",
        f"{summary['runs']} runs: mean error {percent(summary['mean_error'])}, worst {percent(summary['worst_error'])}, bias "
        f"{signed_percent(summary['bias'])}, intervals cover {whole_percent(summary['coverage'])}.",
    ]
    return "\n".join(lines)


def accuracy_table() -> str:
    """The shipped models' accuracy beside tuned trees alone: per operator, those that err less on unseen shapes."""
    report = json.loads((ROOT / "data" / "regressors" / SHIPPED / "report.json").read_text())
    operators: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in report["operators"]:
        if row["raw_xgboost"] is not None:
            operators.setdefault(row["operator"], {})[row["split"]] = row
    compared = {name: splits for name, splits in operators.items() if "shape" in splits}
    better = {name: min(RAW, key=splits["shape"].__getitem__) for name, splits in compared.items()}

    def means(split: str, names: list[str]) -> tuple[float, float]:
        rows = [(compared[name][split], better[name]) for name in names if split in compared[name]]
        return fmean(row["mape"] for row, _ in rows), fmean(row[raw] for row, raw in rows)

    lines = ["| held out | this project's choice | tuned trees alone | ratio |", "|---|--:|--:|--:|"]
    for split, title in SPLITS.items():
        chosen, raw = means(split, [*compared])
        lines.append(f"| {title} | {percent(chosen / 100)} | {percent(raw / 100)} | {raw / chosen:.1f} × |")
    lines += [
        "",
        "| operator | rows | random | unseen shape | largest | tuned trees, largest |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for call in sorted({name.split()[0] for name in compared}):
        names = [name for name in compared if name.split()[0] == call]
        rows = sum(compared[name]["shape"]["rows"] for name in names)
        errors = [*(means(split, names)[0] for split in SPLITS), means("extrapolation", names)[1]]
        lines.append(f"| {call} | {rows} | " + " | ".join(percent(error / 100) for error in errors) + " |")
    return "\n".join(lines)


def published_table() -> str:
    content = json.loads((ROOT / "benchmarks" / "accuracy.json").read_text())
    lines = [
        "| measurements | tables | random | unseen shape | extrapolation | tuned XGBoost |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    by_group: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in content["summary"]:
        by_group.setdefault(" ".join(row["group"]), {})[row["split"]] = row
    for group, splits in by_group.items():
        if not group.startswith("own"):
            cells = [f"{percent(row['mape'] / 100)} ({whole_percent(row['coverage'])})" for row in splits.values()]
            raw = " / ".join(f"{row['raw_xgboost']:.1f}" for row in splits.values())
            lines.append(f"| {group} | {splits['random']['operators']} | {' | '.join(cells)} | {raw} % |")
    carried = {(row["source"], row["target"], row["family"], row["own_rows"]): row for row in content["transfer"]}
    lines += ["", "| to another device | by its peaks | with 300 rows of its own |", "|---|--:|--:|"]
    for (source, target, family, own_rows), row in carried.items():
        if own_rows:
            alone = carried[source, target, family, 0]
            cells = [f"{percent(of['mape'] / 100)} ({whole_percent(of['coverage'])})" for of in (alone, row)]
            lines.append(f"| {source} to {target}, {family} | {' | '.join(cells)} |")
    return "\n".join(lines)


def schedules_table() -> str:
    """All schedules on one model: even stages, f = b = w of a full rank, transfers free."""
    lines = [
        "| schedule | chunks | bubble | of the longest span | activations held, of a full rank | the rule is from |",
        "|---|--:|--:|--:|--:|---|",
    ]
    for name in registry.names():
        wanted = registry.get(name)
        chunks = 1 if wanted.refusal(RANKS, 2, MICROBATCHES) else 2
        # A rank's share of the model, and so its time, does not depend on how many chunks it is cut into; a chunk of a
        # schedule with two copies is a whole stage.
        copies = wanted.placement(RANKS, chunks).chain_count
        part = copies / chunks
        times = ChunkTimes(forward=part, backward_input=part, backward_weight=part)
        order = registry.order(name, ranks=RANKS, chunks=chunks, microbatches=MICROBATCHES, times=times)
        timeline = simulate(order, times)
        peak = max(timeline.peak_chunks(wanted.released_by_b)) * part
        source = re.split("[,;]", wanted.citation)[0]
        paper = re.search(r"arXiv:([\d.]+\d)", wanted.citation)
        if paper:
            source = f"[{source}](https://arxiv.org/abs/{paper[1]})"
        lines.append(
            f"| `{name}` | {chunks} | {percent(timeline.bubble_fraction)} | {percent(timeline.span_bubble_fraction)} "
            f"| {peak:g} | {source} |"
        )
    return "\n".join(lines)


def draw_schedules() -> None:
    """One picture per family, docs/pictures/NAME.svg."""
    for name, chunks in PICTURES.items():
        times = ChunkTimes(forward=1, backward_input=1, backward_weight=1)
        order = registry.order(name, ranks=4, chunks=chunks, microbatches=8, times=times)
        save_plot(simulate(order, times), ROOT / "docs" / "pictures" / f"{name}.svg", title=name)


def shipped_runs_table() -> str:
    """Errors on the published runs that ship."""
    command = [sys.executable, "-m", "predict", "validate", "published", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    content = json.loads(done.stdout)
    kinds = ("all", "source", "kind")
    return "\n".join(_figures([row for row in content["summary"] if row["key"][0] in kinds]))


def published_runs_table() -> str:
    """Errors on the tables that `make bench-published` was last given."""
    content = json.loads((ROOT / "benchmarks" / "published.json").read_text())
    left_out = ("source", "rests on", "gpus", "precision")
    lines = _figures([row for row in [*content["classes"], *content["summary"]] if row["key"][0] not in left_out])
    predicted = content["rows"] - sum(content["not_expressible"].values())
    lines += ["", f"{predicted} of {content['rows']} rows, {content['date']}, without samples of any of these devices."]
    return "\n".join(lines)


def _figures(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = ["| runs | configurations | mean | median | bias | in the 90 % interval |", "|---|--:|--:|--:|--:|--:|"]
    for row in rows:
        if row["rows"]:
            mean, median, bias = (row[f"{name}_percent"] / 100 for name in ("mean_error", "median_error", "bias"))
            figures = f"{percent(mean)} | {percent(median)} | {signed_percent(bias)} | {whole_percent(row['coverage'])}"
            lines.append(f"| {' '.join(row['key'])} | {row['rows']} | {figures} |")
    return lines


BLOCKS: Mapping[str, Callable[[], str]] = {
    "published, shipped": shipped_runs_table,
    "published": published_runs_table,
    "one-batch output": one_batch_output,
    "validation table": validation_table,
    "accuracy table": accuracy_table,
    "published accuracy": published_table,
    "schedules table": schedules_table,
}


def _filled(page: str, pattern: re.Pattern[str], content: str) -> str:
    return pattern.sub(lambda match: f"{match[1]}{content}\n{match[2]}", page)


def main() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
    texts = {page: page.read_text() for page in pages}
    for name, block in BLOCKS.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        holders = [page for page, text in texts.items() for _ in pattern.findall(text)]
        if len(holders) != 1:
            raise SystemExit(f"{len(holders)} blocks are named {name!r}; keep exactly one, closed by <!-- end -->")
        texts[holders[0]] = _filled(texts[holders[0]], pattern, block())
    for page, text in texts.items():
        page.write_text(text)
    draw_schedules()


if __name__ == "__main__":
    main()
