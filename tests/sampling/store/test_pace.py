"""The pace at a row, by readings of which some are disturbed."""

import json
import math
import random
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from sampling.collectives.kinds import AllReduce
from sampling.hardware.cluster import load_cluster
from sampling.operators.gemm import Gemm
from sampling.operators.memory_bound import Stream
from sampling.store.journal import append_to_journal, fold_journal
from sampling.store.pace import Resource, resource_shares
from sampling.store.pace_log import LOG, TIMED_AS, PaceLog, PaceReading, References, append_reading, read_log
from sampling.store.paced_rows import at_their_pace, write_paces
from sampling.store.profiles import Manifest
from sampling.store.tables import iterate_samples, read_samples
from tests.made_rows import row

MACHINE = Manifest(profile="", hardware="cpu", device={})
CLUSTER = load_cluster(hardware="cpu", nodes=1, gpus_per_node=2, profile="", cores=2)
PRODUCT = Gemm(dtype="fp32", m=512, n=512, k=512)
ROW = row(PRODUCT, "forward", 120.0, low_us=110.0, high_us=130.0, threads=1, busy_ranks=2, at_s=50.0)


def reading(at_s: float, time_us: float, resource: Resource = "compute", session: int = 0) -> PaceReading:
    return PaceReading(
        at_s=at_s,
        session=session,
        busy_ranks=2,
        resource=resource,
        ranks=2 if resource == "wire" else 1,
        size=512,
        time_us=time_us,
        slowest_us=time_us,
        mean_us=1.1 * time_us,
        timed_as=TIMED_AS,
    )


def slowing() -> list[PaceReading]:
    """A machine that is quiet but for the seconds from 40 to 60, when compute takes 1.5 times as long."""
    return [
        reading(float(second), time_us * slow, resource)
        for second in range(100)
        for slow in (1.5 if 40 <= second <= 60 else 1.0,)
        for resource, time_us in (("compute", 100.0), ("memory", 10.0 / slow))
    ]


def test_the_pace_of_a_row_is_that_of_its_own_mix_at_its_moment() -> None:
    rows = [ROW, replace(ROW, at_s=10.0), replace(ROW, at_s=None)]
    slow, quiet, unknown = (row.pace for row in at_their_pace(PaceLog(slowing()), [(row, CLUSTER) for row in rows]))
    share = resource_shares(ROW.call, "forward", CLUSTER)["compute"]
    assert slow == pytest.approx(1 / (1.5 * share + 1 - share))
    assert (quiet, unknown) == (1.0, 1.0)


def test_two_disturbed_readings_among_five_move_no_pace_and_a_change_of_pace_is_sharp() -> None:
    disturbed = [replace(each, time_us=400.0) if each.at_s in (9.0, 11.0) else each for each in slowing()]
    series = PaceLog(disturbed).beside(2)["compute"]
    assert series.pace_at(10.0, 0) == 1.0
    assert series.pace_at(42.0, 1) == 1.0, "nobody read the pace in that session"
    assert series.pace_at(38.0, 0) == 1.0
    assert series.pace_at(42.0, 0) == pytest.approx(1 / 1.5)


def test_steps_are_disturbed_as_the_readings_beside_those_that_count_are() -> None:
    readings = [replace(each, mean_us=2 * each.time_us) if each.at_s < 50 else each for each in slowing()]
    later = [each for each in readings if each.at_s >= 50]
    assert References.of(readings, later).disturbance["compute"] == pytest.approx(1.1)
    assert References.of(readings, later[:2]).disturbance["compute"] == References.of(readings).disturbance["compute"]
    assert References.of(readings[:80]).disturbance["compute"] == pytest.approx(2.0)
    assert References.of(readings).time_us == {"compute": 100.0, "memory": 10.0}


def test_a_collective_takes_the_readings_of_its_own_group_where_there_are_some() -> None:
    of_two = reading(1.0, 100.0, "wire")
    log = PaceLog([of_two, replace(of_two, ranks=8, time_us=800.0)])
    assert log.beside(2, 2)["wire"].reference_us == 100.0
    assert log.beside(2, 8)["wire"].reference_us == 800.0
    assert log.beside(4) == {}


@pytest.mark.parametrize(
    ("call", "resource"),
    [
        (ROW.call, "compute"),
        (Stream(dtype="fp32", size_bytes=2**24), "memory"),
        (AllReduce(size_bytes=2**20, ranks=2, ranks_per_node=2), "wire"),
    ],
)
def test_a_call_is_slowed_by_what_its_roofline_says(call: Gemm | Stream | AllReduce, resource: Resource) -> None:
    shares = resource_shares(call, "forward", CLUSTER)
    assert max(shares, key=shares.__getitem__) == resource
    assert sum(shares.values()) == pytest.approx(1.0)


def test_rows_in_the_tables_get_their_pace_again_when_readings_are_added(tmp_path: Path) -> None:
    append_to_journal(tmp_path, ROW)
    fold_journal(tmp_path)
    for each in slowing():
        append_reading(tmp_path, each)
    write_paces(tmp_path, MACHINE)
    (slow,) = iterate_samples(read_samples(tmp_path))
    for each in slowing():
        append_reading(tmp_path, replace(each, at_s=each.at_s + 1000, time_us=1.5 * each.time_us, session=1))
        append_reading(tmp_path, replace(each, at_s=each.at_s + 2000, time_us=1.5 * each.time_us, session=1))
    log = write_paces(tmp_path, MACHINE)
    (usual,) = iterate_samples(read_samples(tmp_path))
    assert slow.pace < 0.8 < usual.pace
    assert usual.time_us == ROW.time_us
    first, second = ({each["resource"]: each["pace"] for each in log.of_session(session)} for session in (0, 1))
    assert first["compute"] == pytest.approx(1.5)
    assert second["compute"] == 1.0


def test_a_log_cut_short_or_foreign_is_read_as_far_as_it_is_sound(tmp_path: Path) -> None:
    good = asdict(reading(1.0, 100.0))
    unsound = [
        {"time_us": -1},
        {"slowest_us": math.nan},
        {"mean_us": math.inf},
        {"at_s": math.nan},
        {"busy_ranks": "two"},
    ]
    lines = [json.dumps(good), *(json.dumps(good | each) for each in unsound)]
    lines += [json.dumps({"at_s": 1}), "[]", json.dumps(good)[:30]]
    (tmp_path / LOG).write_text("\n".join(lines))
    assert read_log(tmp_path) == [reading(1.0, 100.0)]


def test_readings_that_were_timed_otherwise_do_not_count(tmp_path: Path) -> None:
    append_reading(tmp_path, reading(1.0, 100.0))
    append_reading(tmp_path, replace(reading(2.0, 100.0), timed_as=TIMED_AS + 1))
    unsaid = {name: value for name, value in asdict(reading(3.0, 100.0)).items() if name != "timed_as"}
    with (tmp_path / LOG).open("a") as file:
        file.write(json.dumps(unsaid) + "\n")
    readings = read_log(tmp_path)
    assert len(readings) == 3
    assert list(PaceLog(readings).series["compute", 2, 1].at_s) == [1.0]


def test_disturbances_of_repeats_add_up_in_a_step() -> None:
    random.seed(0)
    log = PaceLog([replace(each, mean_us=each.time_us * random.choice([1.0, 1.2])) for each in slowing()])
    assert log.disturbance(ROW, CLUSTER) == pytest.approx(1.1, abs=0.03)
    assert PaceLog([]).disturbance(ROW, CLUSTER) == 1.0


def test_readings_of_another_size_than_the_last_are_left_out() -> None:
    small = [replace(reading(float(second), 10.0), size=256) for second in range(10)]
    later = [reading(float(second), 80.0) for second in range(10, 20)]
    (series,) = PaceLog([*small, *later]).series.values()
    assert series.reference_us == 80.0
    assert len(series.at_s) == 10
