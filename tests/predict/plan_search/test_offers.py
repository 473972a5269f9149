"""Offers of machines: the cheapest that is done in time, and what a spot market costs."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from predict.plan_search.offers import OfferedJob, offered_jobs, read_offers
from sampling.errors import ConfigError, UserError
from sampling.files.places import CONFIGS
from tests.predict.command import Command

RUN = CONFIGS / "runs" / "llama3-70b-64xh100.yml"
EXAMPLE = CONFIGS.parent / "docs" / "examples" / "offers.yml"


@cache
def jobs(deadline: float | None = None) -> dict[str, OfferedJob]:
    return {one.offer.name: one for one in offered_jobs(RUN, read_offers(EXAMPLE), "500B", deadline_days=deadline)}


def test_spot_nodes_are_lost_and_cheaper() -> None:
    found = jobs()
    reserved, spot = found["sixteen nodes, reserved"], found["sixteen nodes, spot"]
    assert spot.job.days.median > reserved.job.days.median
    assert next(iter(found)) == "sixteen nodes, spot"


def test_a_deadline_puts_those_first_that_keep_it() -> None:
    reserved = jobs()["sixteen nodes, reserved"].job.days.high
    found = jobs(reserved + 0.001)
    assert [one.in_time for one in found.values()] == sorted((one.in_time for one in found.values()), reverse=True)
    assert next(iter(found)) == "sixteen nodes, reserved"
    assert not any(one.in_time for one in jobs(1.0).values())


def test_the_command_names_the_cheapest(tmp_path: Path, command: Command) -> None:
    (path := tmp_path / "offers.yml").write_text("offers: [{name: here, price: 3/gpu-h}]")
    asked = ("job", str(RUN), "--tokens", "500B", "--offers", str(path))
    assert "here is the cheapest" in command.text(*asked)
    assert "none that is done within 1 days" in command.text(*asked, "--deadline", "1")
    assert len(command.json(*asked)["offers"]) == 1


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("offers: [{name: a, price: 3}]", "price"),
        ("offers: [{name: a, price: '3'}]", "a: price: .* is not a price above 0"),
        ("offers: [{name: a}]", "price: missing"),
        ("offers: []", "give one or more"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, content: str, fault: str) -> None:
    (tmp_path / "offers.yml").write_text(content)
    with pytest.raises(ConfigError, match=fault):
        read_offers(tmp_path / "offers.yml")


def test_an_offer_that_the_plan_does_not_fill_is_named(tmp_path: Path) -> None:
    (tmp_path / "offers.yml").write_text(
        "offers: [{name: big, price: 3/gpu-h, cluster: {hardware: h100-sxm, nodes: 3, gpus_per_node: 8}}]"
    )
    with pytest.raises(UserError, match=r"^big: "):
        offered_jobs(RUN, read_offers(tmp_path / "offers.yml"), "1T")


def test_options_that_do_not_go_together_are_refused(command: Command) -> None:
    asked = ("job", str(RUN), "--tokens", "1T")
    assert "--deadline: needs --offers" in command.refused(*asked, "--deadline", "3")
    assert "--price: cannot be combined with --offers" in command.refused(
        *asked, "--offers", str(EXAMPLE), "--price", "2/gpu-h"
    )
    assert "-1 is not a number of days" in command.refused(*asked, "--offers", str(EXAMPLE), "--deadline", "-1")
