"""The explorer's page: the report's charts, and the controls next to them."""

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from predict.config.draft import DECLARED_BY, PRECISION, SECTIONS
from predict.model.shipped import shipped_models
from predict.reports.page.report import as_block, page
from predict.run.training_run import TrainingRun
from sampling.files.schema import LARGEST, Key, field_docs, keys_of

SCRIPT, STYLE = "explore.js", "page.css"
"""Files that the page's server has beside it."""


def explorer_page(first: Mapping[str, Any]) -> str:
    """The page with its first answer in it."""
    name = html.escape(str(first["config"]))
    body = (
        f'<div class="explorer"><aside aria-label="settings"><h1>{name}</h1><div id="controls"></div></aside>\n'
        '<main><div id="about" aria-live="polite"></div><div id="tools" class="bar"></div><div id="answer"></div></main></div>\n'
        "<noscript><p>This page asks its server by a script; allow scripts to use it.</p></noscript>\n"
        f'<script type="application/json" id="content">{as_block(first)}</script>\n'
        f'<script src="{SCRIPT}"></script>'
    )
    return page(f"explore {first['config']}", f'<link rel="stylesheet" href="{STYLE}">', body)


MOST_LISTED = 60
"""Choices of a list to pick from."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Control:
    """A key: its path, how its value is given, and the value that it has in the config."""

    path: str
    kind: str
    """boolean, choice (one of `choices`), text (any, with `choices` proposed), integer, number, or yaml for lists and mappings."""
    value: Any
    meaning: str
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None


OF_RUN = ("batch", "plan", "cluster", "execution")


def controls(
    model: str, values: Mapping[str, Mapping[str, Any]], sections: Sequence[str] = OF_RUN
) -> tuple[Control, ...]:
    """The controls of a config whose model and whose values by section are given."""
    return tuple(_controls(model, values, sections))


def section_controls(values: Any, path: str) -> Iterator[Control]:
    """The controls of a section's dataclass at a path, those of the sections inside it behind its own."""
    kind: type = type(values)
    docs, inner = field_docs(kind), []
    for key in keys_of(kind):
        value = getattr(values, key.name)
        if key.of:
            inner.append((value, f"{path}.{key.name}"))
        else:
            yield _of_key(key, f"{path}.{key.name}", value, docs[key.name])
    for value, inside in inner:
        yield from section_controls(value, inside)


def _controls(model: str, values: Mapping[str, Mapping[str, Any]], sections: Sequence[str]) -> Iterator[Control]:
    of_run = field_docs(TrainingRun)
    yield Control(path="model", kind="text", value=model, meaning=of_run["model"], choices=tuple(shipped_models()))
    yield _of_key(PRECISION, "precision", values["precision"].get("precision"), of_run["precision"])
    for section in sections:
        docs = field_docs(DECLARED_BY[section])
        for key in SECTIONS[section]:
            value = values[section].get(key.name, key.default)
            yield _of_key(key, f"{section}.{key.name}", value, docs[key.name])


def _of_key(key: Key, path: str, value: Any, meaning: str) -> Control:
    choices = tuple(key.choices()) if key.choices else ()
    kind = "yaml"
    if key.kind == "boolean":
        kind = "boolean" if value is not None else "yaml"  # a box has no third state for what is open
    elif key.kind in ("integer", "number"):
        kind = key.kind
    elif key.kind == "string":
        kind = "choice" if choices and not key.pattern and len(choices) <= MOST_LISTED else "text"
    bounded = kind in ("integer", "number")
    return Control(
        path=path,
        kind=kind,
        value=list(value) if isinstance(value, tuple) else value,
        meaning=meaning,
        choices=choices,
        least=key.lowest if bounded else None,
        most=key.maximum if bounded and key.maximum < LARGEST else None,
    )
