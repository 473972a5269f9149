"""What tests do with an open page and read off it."""

import json
from typing import Any

import pytest


def step(page: Any) -> str:
    text: str = page.locator(".card dd").first.inner_text()
    return text.splitlines()[0]


def wait(page: Any, text: str) -> None:
    """Wait until the page's status says so; its policy lets no test evaluate a predicate there."""
    page.locator("#tools [role=status]", has_text=text).wait_for()


SUMS = """() => [...document.querySelectorAll('NAME')].map(svg =>
    [...svg.querySelectorAll('.mark')].reduce((sum, mark) => sum + Number(mark.dataset.KEY), 0))"""


def sums(page: Any, chart: str, key: str) -> list[float]:
    found: list[float] = page.evaluate(SUMS.replace("NAME", f"svg.chart-{chart}").replace("KEY", key))
    return found


def content(page: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(page.text_content("#content"))
    return found


def faults_of_access(page: Any) -> list[str]:
    """What axe-core finds of any weight, as `rule: element`."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe-playwright-python here")
    found = axe.Axe().run(page).response["violations"]
    return [f"{rule['id']}: {node['html'][:120]}" for rule in found for node in rule["nodes"]]
