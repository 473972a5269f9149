"""The explorer in a real browser: controls change the answer, faults stand beside them, and changes can be undone."""

from collections.abc import Callable

import pytest

import predict
from sampling.number_text import duration
from tests.browser.conftest import DEMO, HOSTILE, Visit
from tests.browser.pages import faults_of_access, step, sums, wait

Opened = Callable[..., Visit]


def predicted(*settings: str) -> str:
    return duration(predict.one_batch(DEMO, settings).median_us)


def test_controls_change_the_answer_and_undo_brings_it_back(visit: Opened, explorer: str) -> None:
    opened = visit(explorer)
    page = opened.page
    assert step(page) == predicted()
    page.get_by_label("micro", exact=True).fill("1")
    page.keyboard.press("Enter")
    wait(page, "answered in")
    assert step(page) == predicted("batch.micro=1")
    assert sums(page, "waterfall", "us")[0] == pytest.approx(predict.one_batch(DEMO, ["batch.micro=1"]).median_us)
    page.get_by_label("pp", exact=True).fill("1")
    page.keyboard.press("Enter")
    page.locator(".card dd", has_text=predicted("batch.micro=1", "plan.pp=1", "plan.dp=2")).wait_for()
    assert page.get_by_label("dp", exact=True).input_value() == "2"
    page.get_by_label("compare with the last").check()
    assert page.locator("td.changed").count() > 3
    page.get_by_label("compare with the last").uncheck()
    page.get_by_label("dp", exact=True).fill("1")  # the config's own value, where 2 follows, is a setting
    page.keyboard.press("Enter")
    wait(page, "not possible")
    for _ in range(3):
        page.get_by_role("button", name="Undo").click()
    page.locator(".card dd", has_text=predicted()).wait_for()
    assert opened.faults == []
    assert all(each.startswith((explorer, "data:")) for each in opened.requests)


def test_a_fault_stands_beside_its_control_and_the_answer_stays(visit: Opened, explorer: str) -> None:
    page = visit(explorer).page
    page.get_by_label("tp", exact=True).fill("5")
    page.keyboard.press("Tab")
    wait(page, "not possible")
    assert "heads" in page.locator("#key-plan-tp-problem").inner_text()
    assert page.locator("#key-plan-tp").get_attribute("aria-invalid") == "true"
    assert step(page) == predicted()
    assert page.get_by_role("button", name="Undo").is_enabled()
    page.get_by_role("button", name="reset plan.tp").click()
    wait(page, "answered in")
    assert page.locator("#key-plan-tp-problem").inner_text() == ""


def test_a_hostile_value_is_reported_as_text(visit: Opened, explorer: str) -> None:
    page = visit(explorer).page
    page.get_by_label("model", exact=True).fill(HOSTILE)
    page.keyboard.press("Enter")
    wait(page, "not possible")
    assert "onerror" in page.locator("#key-model-problem").inner_text()
    assert page.locator("img").count() == 0


def test_settings_can_be_copied_and_access_is_sound_on_a_narrow_screen(visit: Opened, explorer: str) -> None:
    page = visit(explorer, width=390).page
    page.get_by_label("micro", exact=True).fill("1")
    page.keyboard.press("Enter")
    wait(page, "answered in")
    page.get_by_role("button", name="Copy as --set").click()
    text = page.get_by_label("settings as options")
    text.wait_for()
    assert text.input_value() == "--set batch.micro=1"
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert faults_of_access(page) == []
    page.get_by_role("button", name="Reset all").click()
    assert text.count() == 0, "a copy of other settings"
