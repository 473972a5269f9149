"""A report in a real browser: nothing is asked for, its marks add up to its JSON, and keys alone suffice."""

from collections.abc import Callable

import pytest

from tests.browser.conftest import HOSTILE, Visit
from tests.browser.pages import content, faults_of_access, sums

Opened = Callable[..., Visit]


def test_marks_add_up_to_the_content_and_nothing_is_asked_for(visit: Opened, report: str) -> None:
    opened = visit(report)
    page, runs = opened.page, content(opened.page)["runs"]
    assert opened.faults == []
    assert [each for each in opened.requests if not each.startswith(("file:", "data:"))] == []
    assert sums(page, "waterfall", "us") == pytest.approx([run["prediction"]["step_time_us"]["median"] for run in runs])
    peaks = [sum(rank["peak"] for rank in run["memory"]["ranks"]) for run in runs]
    assert sums(page, "memory", "bytes") == pytest.approx(peaks)
    actions = [sum(len(rank["codes"]) + 2 for rank in run["timeline"]["ranks"]) for run in runs]
    assert sums(page, "timeline", "count") == actions
    cells = [len(run["heat_map"]["cells"]) for run in runs]
    assert [svg.locator(".mark").count() for svg in page.locator("svg.chart-heat-map").all()] == cells
    assert page.locator("svg.chart-pareto .mark").count() == len(runs)
    for chart in ("course", "tornado-unknowns", "tornado-figures"):
        assert page.locator(f"svg.chart-{chart} .mark").count() > 0


def test_a_hostile_name_is_text_and_differences_are_marked(visit: Opened, report: str) -> None:
    page = visit(report).page
    assert page.locator("img").count() == 0
    assert HOSTILE in page.inner_text("main")
    row = page.locator("tr", has_text="batch.micro").first
    assert row.locator("td.changed").inner_text() == "1"


def test_keys_alone_pick_actions_zoom_sort_and_open_tables(visit: Opened, report: str) -> None:
    page = visit(report).page
    page.locator(".timeline").first.focus()
    before = page.locator(".panel h3").first.inner_text()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    after = page.locator(".panel h3").first.inner_text()
    assert before.startswith("rank 0") and after.startswith("rank 1")
    assert page.locator(".panel tbody tr").count() > 1
    wide = sums(page, "timeline", "count")[0]
    for _ in range(4):
        page.keyboard.press("+")
    assert sums(page, "timeline", "count")[0] < wide
    page.keyboard.press("0")
    assert sums(page, "timeline", "count")[0] == wide
    page.locator("summary", has_text="Table").first.focus()
    page.keyboard.press("Enter")
    table = page.locator("details[open] table").first
    table.locator("th button", has_text="time").focus()
    page.keyboard.press("Enter")
    assert table.locator("th", has_text="time").get_attribute("aria-sort") == "descending"
    first = page.locator("td", has_text="compute").first
    assert first.is_visible()


def test_a_click_on_an_action_shows_its_operators_and_their_sources(visit: Opened, report: str) -> None:
    page = visit(report).page
    box = page.locator("svg.chart-timeline").first.bounding_box()
    page.mouse.click(box["x"] + 0.5 * box["width"], box["y"] + 10)
    panel = page.locator(".panel").first
    assert "rank 0: " in panel.inner_text()
    assert any(source in panel.inner_text() for source in ("measured", "transferred", "analytic"))


@pytest.mark.parametrize("width", [390, 1280])
def test_a_page_is_no_wider_than_its_screen(visit: Opened, report: str, width: int) -> None:
    page = visit(report, width=width).page
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_axe_finds_no_fault_in_the_dark(visit: Opened, report: str) -> None:
    page = visit(report, dark=True).page
    page.evaluate("document.querySelectorAll('section:nth-of-type(-n+4) details').forEach(each => each.open = true)")
    assert faults_of_access(page) == []
