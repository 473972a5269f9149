"""Plans, or steps of reinforcement learning, as one HTML page that opens from disk."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from predict import days, estimate, job, load, rl_step
from predict.kinds import RL, kind_of
from predict.plan_search.rl import length_map
from predict.reports.page.content import report_content
from predict.reports.page.rl import rl_content
from sampling.errors import UserError


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """A page, and the names of another tool's config that change nothing on it, config by config."""

    html: str
    not_read: Sequence[Mapping[str, Any]] = ()


def report(
    configs: Sequence[Path | str],
    overrides: Sequence[str] = (),
    *,
    tokens: str | float | None = None,
    price: str | None = None,
) -> Page:
    """One page of the steps of configs, side by side, or of one with its throughput at other lengths; `.html` is the page.

    With `tokens` such as `2T`, also what a whole training takes and costs, with its saves and failures, at a `price` such as `2.5/gpu-h`.
    UserError for configs of several kinds; ConfigError lists every fault of a config.
    """
    kinds = [kind_of(config) for config in configs]
    if RL not in kinds:
        predictions = [estimate(load(config, overrides), require_fit=False) for config in configs]
        costs = [None if tokens is None else days(each, tokens, price=price) for each in predictions]
        jobs = [None if tokens is None else job(each, tokens, price=price) for each in predictions]
        content = report_content(configs, overrides, predictions, costs, jobs)
        return Page(html=report_page(content, title=" and ".join(each.run.name for each in predictions)))
    if others := [str(config) for config, kind in zip(configs, kinds, strict=True) if kind != RL]:
        raise UserError(
            f"CONFIG: {', '.join(others)}: not an RL config, where others here are; give each kind a page of its own"
        )
    steps = [rl_step(config, overrides) for config in configs]
    maps = [length_map(config, overrides, estimate) for config in configs] if len(steps) == 1 else []
    title = " and ".join(step.rl.name for step in steps)
    return Page(
        html=report_page(rl_content(steps, maps), title=title), not_read=tuple(step.rl.not_read for step in steps)
    )


# The HTML document of a page: one file with its style, its scripts and its content, which asks nothing of any other place.
#
# The content is a block of JSON in which `<`, `>` and `&` are written as escapes, and scripts put texts into the page as text
# alone; so a name such as `<script>` is shown, never run. A content security policy allows this very script and style by their hashes.

ASSETS = Path(__file__).parent / "assets"
CHARTS = (
    "base",
    "waterfall",
    "memory",
    "heat_map",
    "plans",
    "timeline",
    "tornado",
    "headline",
    "job",
    "phases",
    "ledgers",
    "page",
)
"""Scripts that every page has, in their order."""
REPORT = "report"


def report_page(content: Mapping[str, Any], *, title: str, sections: Sequence[str] | None = None) -> str:
    """The page of a report, which holds its style and its script; with `sections`, some of it alone."""
    content = dict(content) | ({"sections": list(sections)} if sections else {})
    body = (
        f'<header class="page"><h1>{html.escape(title)}</h1><div id="about"></div></header>\n<main></main>\n'
        "<noscript><p>This page draws its charts with a script that it holds itself; allow scripts to see them.</p></noscript>\n"
        f'<script type="application/json" id="content">{as_block(content)}</script>\n'
        f"<script>{scripts(REPORT)}</script>"
    )
    head = (
        f'<meta http-equiv="Content-Security-Policy" content="{policy(script=_by_hash(scripts(REPORT)), style=_by_hash(style()))}">\n'
        f"<style>{style()}</style>"
    )
    return page(title, head, body)


def page(title: str, head: str, body: str) -> str:
    """A document whose head has these elements too."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<link rel="icon" href="data:,">\n'
        f"<title>{html.escape(title)}</title>\n{head}\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def policy(*, script: str = "'none'", style: str = "'none'", connect: str = "'none'") -> str:
    """The content security policy of a page with one source of scripts, one of style and one place to ask."""
    return (
        f"default-src 'none'; img-src data:; connect-src {connect}; style-src {style}; script-src {script}; "
        "base-uri 'none'; form-action 'none'"
    )


def _by_hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def as_block(content: Mapping[str, Any]) -> str:
    """JSON that may stand inside a script element: nothing in it can end the element."""
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def scripts(last: str) -> str:
    """The scripts of all charts, and the one that starts the page."""
    return "\n".join((ASSETS / f"{name}.js").read_text(encoding="utf-8") for name in (*CHARTS, last))


@cache
def style() -> str:
    return (ASSETS / "page.css").read_text(encoding="utf-8")
