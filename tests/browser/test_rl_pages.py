"""The pages of RL configs in a real browser: a report whose marks add up to its steps, and an explorer whose controls change them."""

from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

import predict
from predict.cli import main
from predict.explorer.answers import RlExplorer
from predict.explorer.server import ExplorerServer
from sampling.number_text import duration
from tests.browser.conftest import Visit
from tests.browser.pages import content, faults_of_access, step, sums, wait

Opened = Callable[..., Visit]
CONFIG = Path("configs/rl/qwen3.5-35b-a3b-grpo.yml")


def test_marks_of_a_report_add_up_to_its_steps(visit: Opened, tmp_path: Path) -> None:
    page_file, apart = tmp_path / "rl.html", tmp_path / "apart.yml"
    text = CONFIG.read_text(encoding="utf-8")
    placed = text.replace("placement: colocated", "placement: one_step_off").replace("{tp: 8,", "{tp: 8, gpus: 8,")
    apart.write_text(placed, encoding="utf-8")
    assert main(["report", str(CONFIG), str(apart), "-o", str(page_file)]) == 0
    opened = visit(page_file.as_uri())
    page, runs = opened.page, content(opened.page)["runs"]
    assert opened.faults == []
    steps = [run["prediction"]["step_time_us"]["median"] for run in runs]
    phases = [sum(bar["us"] for bar in run["waterfall"]) for run in runs]
    assert sums(page, "waterfall", "us") == pytest.approx(phases)
    assert phases[0] == pytest.approx(steps[0])
    assert sums(page, "placement", "us") == pytest.approx([steps[0], 2 * steps[1]])
    peaks = [sum(moment["peak"] for moment in run["memory"]["moments"]) for run in runs]
    assert sums(page, "moments", "bytes") == pytest.approx(peaks)
    assert page.locator("td.changed", has_text="one_step_off").count() == 1
    assert faults_of_access(page) == []


def test_controls_of_an_explorer_change_the_step(visit: Opened) -> None:
    with ExplorerServer(RlExplorer(CONFIG)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        opened = visit(server.address)
        page = opened.page
        assert step(page) == duration(predict.rl_step(CONFIG).time.median_us)
        page.get_by_label("n", exact=True).fill("8")
        page.keyboard.press("Enter")
        wait(page, "answered in")
        assert step(page) == duration(predict.rl_step(CONFIG, ["rl.n=8"]).time.median_us)
        page.get_by_label("mini_batch", exact=True).fill("5")
        page.keyboard.press("Enter")
        wait(page, "not possible")
        assert "5 does not divide" in page.locator("#key-rl-mini_batch-problem").inner_text()
        assert opened.faults == []
        server.shutdown()
