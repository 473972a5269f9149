"""What a page shows adds up to the prediction, and is text whatever a config calls itself."""

import json
import re
from pathlib import Path

import pytest
import yaml

from predict import days, estimate, job, load, one_batch
from predict.config.document import Document
from predict.ledger.waterfall import waterfall
from predict.reports.page.content import report_content
from predict.reports.page.report import report_page
from predict.reports.page.run_view import run_view
from predict.reports.page.timeline_view import MOST_ACTIONS

DEMO = Path("configs/runs/demo.yml")
RUNS = ("demo.yml", "llama3-70b-64xh100.yml", "deepseek-v3-1024xh100.yml")
LARGEST = 300_000
HOSTILE = "<!--<script>alert(1) & \u2028\"'"


@pytest.mark.parametrize("name", RUNS)
def test_the_waterfall_is_the_step_and_its_bars_lie_within_their_bounds(name: str) -> None:
    prediction = one_batch(DEMO.parent / name)
    bars = waterfall(prediction)
    assert sum(bar.time_us for bar in bars) == pytest.approx(prediction.median_us, rel=1e-9)
    headings = {heading: time_us for bar in bars for heading, time_us in bar.headings.items()}
    assert headings == {
        heading: time_us
        for heading, time_us in prediction.breakdown_us.items()
        if abs(time_us) > 1e-9 * prediction.median_us
    }
    assert all(bar.low_us <= bar.time_us <= bar.high_us for bar in bars)
    widest = max(bars, key=lambda bar: bar.time_us)
    assert widest.high_us > widest.low_us


@pytest.mark.parametrize("name", RUNS)
def test_a_view_has_every_action_and_the_bytes_of_every_rank(name: str) -> None:
    prediction = one_batch(DEMO.parent / name)
    view = run_view(prediction)
    ranks = view["timeline"]["ranks"]
    assert [len(rank["codes"]) for rank in ranks] == [len(rows) for rows in prediction.timeline.order.rows]
    assert sum(len(rank["codes"]) for rank in ranks) <= MOST_ACTIONS
    for rank, end in zip(ranks, prediction.timeline.end, strict=True):
        lengths = [
            rank["unusual"].get(str(place), rank["actions"][str(code)]["us"])
            for place, code in enumerate(rank["codes"])
        ]
        assert sum(rank["steps"]) + lengths[-1] == pytest.approx(float(end[-1]), abs=2)
        for action in rank["actions"].values():
            operators = view["timeline"]["operators"][action["operators"]]
            assert sum(row[3] for row in operators) == pytest.approx(action["us"], rel=1e-3, abs=1)
    memory = view["memory"]
    for rank in memory["ranks"]:
        assert sum(rank[term] for term in memory["terms"]) == pytest.approx(rank["peak"])
    highest = max(map(sum, zip(*memory["course"][0]["terms_mib"].values(), strict=True)))
    assert highest * 2**20 == pytest.approx(memory["ranks"][memory["course"][0]["rank"]]["peak"], rel=1e-3)


def test_a_long_step_leaves_repeats_out_and_says_how_long_they_take() -> None:
    prediction = one_batch(DEMO.parent / "llama3-70b-64xh100.yml", ["batch.global=8192"])
    timeline = run_view(prediction)["timeline"]
    assert sum(len(rank["codes"]) for rank in timeline["ranks"]) <= MOST_ACTIONS
    assert timeline["left_out_us"] > 0.5 * prediction.timeline.makespan


def test_a_view_has_the_whole_job_where_tokens_are_given() -> None:
    prediction = estimate(load("configs/runs/llama3-70b-64xh100.yml"))
    view = run_view(prediction, cost=days(prediction, "1T"), whole=job(prediction, "1T"))
    assert view["job"]["parts_hours"]["steps"] > 0
    assert view["job"]["days"]["median"] > view["job"]["plain"]["days"]["median"]
    assert run_view(prediction)["job"] is None


def test_the_page_is_one_small_file_in_which_a_hostile_name_is_text() -> None:
    sections = yaml.safe_load(DEMO.read_text(encoding="utf-8"))
    own_paths = {"model": "demo-llama", "cluster": "this-machine"}
    hostile = Document(name=HOSTILE, content=sections | own_paths, sources={"": "a made config"})
    prediction = estimate(load(hostile), require_fit=False)
    page = report_page(report_content([hostile], [], [prediction], [None], [None]), title=prediction.run.name)
    assert len(page) < LARGEST
    assert page.count("</script>") == 2
    assert page.count("<script") == 2
    block = re.search(r'<script type="application/json" id="content">(.*?)</script>', page, re.S)
    assert block
    assert json.loads(block[1])["runs"][0]["name"] == HOSTILE
    assert not re.search(r'(?:src|href)="(?!data:)', page)
