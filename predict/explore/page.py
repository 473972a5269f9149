"""The explorer's page: the report's charts, and the controls beside them."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

from predict.report.page.document import as_block, page, scripts


def explorer_page(first: Mapping[str, Any]) -> str:
    """The page with its first answer in it."""
    name = html.escape(str(first["config"]))
    body = (
        f'<div class="explorer"><aside aria-label="settings"><h1>{name}</h1><div id="controls"></div></aside>\n'
        '<main><div id="about" aria-live="polite"></div><div id="tools" class="bar"></div><div id="answer"></div></main></div>\n'
        "<noscript><p>This page asks its server by a script; allow scripts to use it.</p></noscript>\n"
        f'<script type="application/json" id="content">{as_block(first)}</script>'
    )
    return page(f"explore {first['config']}", body, scripts("explore"), connects=True)
