"""The HTML document of a page: one file with its style, its scripts and its content, which asks nothing of any other place.

The content is a block of JSON in which `<`, `>` and `&` are written as escapes, and scripts put texts into the page as text
alone; so a name such as `<script>` is shown, never run. A content security policy allows this very script and style by their hashes.
"""

import base64
import hashlib
import html
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

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
