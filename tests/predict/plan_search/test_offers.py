"""Offers of machines: the cheapest that is done in time, and what a spot market costs."""

from functools import cache
from pathlib import Path

import pytest

from predict.ledger.job_settings import job_settings
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
    (path := tmp_path / "offers.yml").write_text(
        "offers: [{name: dear, price: 5/gpu-h}, {name: here, price: 3/gpu-h}, {name: dearer, price: 4/gpu-h}]"
    )
    asked = ("job", str(RUN), "--tokens", "500B", "--offers", str(path))
    assert "here is the cheapest" in command.text(*asked)
    late = command.run(*asked, "--deadline", "1", code=4)
    assert "no offer that fits in memory is done within 1 day in" in late.out
    assert "error: --offers: none of them will do" in late.err
    assert [one["offer"]["name"] for one in command.json(*asked)["offers"]] == ["here", "dearer", "dear"]


def test_an_offer_whose_memory_does_not_fit_is_never_the_cheapest(tmp_path: Path, command: Command) -> None:
    small = "{name: small, price: 1/gpu-h, settings: {batch.micro: 64}}"
    asked = ("job", str(RUN), "--tokens", "500B", "--offers", str(path := tmp_path / "offers.yml"))
    path.write_text(f"offers: [{small}, {{name: here, price: 3/gpu-h}}]")
    assert "here is the cheapest" in (said := command.text(*asked))
    assert " OOM\n" in said and " FITS\n" in said
    assert "is done within 2 days" in command.run(*asked, "--deadline", "2", code=4).out
    path.write_text(f"offers: [{small}]")
    assert "no offer is expected to fit in memory: take more machines" in command.run(*asked, code=4).out


def test_a_reserved_offer_is_stated_under_a_spot_market_of_all(tmp_path: Path) -> None:
    (path := tmp_path / "offers.yml").write_text(
        "offers: [{name: as given, price: 3/gpu-h}, {name: reserved, price: 3/gpu-h, spot_hours_a_loss: 0}]"
    )
    spot = job_settings({"gpu_hours_a_failure": 0, "spot_hours_a_loss": 400})
    found = {one.offer.name: one.job for one in offered_jobs(RUN, read_offers(path), "500B", settings=spot)}
    assert found["as given"].failures.median > found["reserved"].failures.high == 0


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("offers: [{name: a, price: 3}]", "price"),
        ("offers: [{name: a, price: '3'}]", "a: price: .* is not a price above 0"),
        ("offers: [{name: a}]", "price: missing"),
        ("offers: []", "give one or more"),
        ("offers: [{name: a, price: $3/gpu-h}, {name: b, price: 3 EUR/gpu-h}]", r"currencies \(\$, EUR\) cannot"),
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


@pytest.mark.parametrize("price", ["", ", price: 2.5"])
def test_a_price_without_its_unit_is_shown_one(price: str, tmp_path: Path) -> None:
    (path := tmp_path / "offers.yml").write_text(f"offers: [{{name: here{price}}}]")
    with pytest.raises(ConfigError, match=r"price: .*write for example 2\.5/gpu-h"):
        read_offers(path)
