"""Names of what rich prints, which is loaded where something is printed."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table as RichTable

Renderable: TypeAlias = "RenderableType"
"""A line, a table, or several of both below each other."""
Table: TypeAlias = "RichTable"
