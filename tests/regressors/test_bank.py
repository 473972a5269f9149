import json
import math
import subprocess
import sys
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regressors.bank import artifact
from regressors.bank import bank as bank_module
from regressors.bank.bank import KEPT_CLUSTERS, Bank, open_bank
from regressors.bank.fitted_operator import FittedOperator
from regressors.dataset.training_data import TrainingData, training_data
from regressors.features.digests import hardware_digest, shape_digest
from regressors.features.pricing import ModelKey, price_all
from regressors.fitting.fit import fit_operator
from regressors.uncertainty.intervals import OTHER_DEVICE_HALF_WIDTH, SAME_ARCHITECTURE_HALF_WIDTH
from sampling.call import Phase
from sampling.errors import SamplesError
from sampling.files.places import SHIPPED_DATA
from sampling.hardware.cluster import Cluster
from sampling.store.profiles import SHIPPED
from sampling.store.tables import iterate_samples, read_samples
from tests.regressors.synthetic_operators import (
    CLUSTER,
    Product,
    SpreadProduct,
    random_products,
    roofline_time,
    sample,
    sampled,
)

SAMPLED = random_products(40, seed=0)
FRESH = random_products(50, seed=1)
FACTS = {"profile": "synthetic", "architecture": "synthetic", "hardware": {"0": hardware_digest(CLUSTER)}}


@pytest.fixture(scope="module")
def fitted() -> FittedOperator:
    return fit_operator(sampled(SAMPLED, noise=0.05))[0]


@pytest.fixture
def bank(fitted: FittedOperator, tmp_path: Path) -> Bank:
    artifact.save(tmp_path, [fitted], FACTS)
    return Bank.load(tmp_path)


def rewrite_header(directory: Path, change: Any) -> None:
    path = directory / artifact.FILE
    with np.load(path) as archive:
        members = dict(archive)
    header = json.loads(members["header"].tobytes())
    change(header)
    members["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    np.savez(path, **members)


def test_round_trip_is_bit_equal(fitted: FittedOperator, tmp_path: Path) -> None:
    data = sampled(FRESH)
    for candidate_data in (data, sampled(random_products(4, seed=5))):
        operator = fit_operator(candidate_data)[0]
        artifact.save(tmp_path, [fitted, replace(operator, key=ModelKey("other", "forward", 0))], FACTS)
        opened = artifact.load(tmp_path)
        for original, key in ((fitted, fitted.key), (operator, ModelKey("other", "forward", 0))):
            reloaded = opened.operator(key)
            rows = original.model.time_us(data.terms, data.features)
            assert reloaded.model.time_us(data.terms, data.features).tobytes() == rows.tobytes()
            assert reloaded.intervals == original.intervals
            assert reloaded.schema == original.schema
    assert [path.name for path in tmp_path.iterdir()] == [artifact.FILE]


def test_trees_survive_the_round_trip(tmp_path: Path) -> None:
    def staircase(call: Any) -> float:
        return roofline_time(call) * (1.5 if call.k % 64 > 32 else 1.0) * (2.0 if call.m > 600 else 1.0)

    data = sampled(random_products(80, seed=0), truth=staircase)
    operator = fit_operator(data)[0]
    assert operator.model.candidate == "blend"
    artifact.save(tmp_path, [operator], FACTS)
    reloaded = artifact.load(tmp_path).operator(operator.key)
    expected = operator.model.time_us(data.terms, data.features)
    assert reloaded.model.time_us(data.terms, data.features).tobytes() == expected.tobytes()


def test_batched_equals_one_at_a_time(fitted: FittedOperator, bank: Bank, tmp_path: Path) -> None:
    together = bank.times([(call, "forward") for call in FRESH], CLUSTER)
    other = Bank.load(tmp_path)
    for call, times in zip(FRESH, together, strict=True):
        assert times is not None
        assert other.times([(call, "forward")], CLUSTER)[0] == times


def test_a_question_that_is_being_answered_is_answered_to_others_too(
    bank: Bank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread asks the same at the worst moment: before the answer is there."""
    asked: list[tuple[Product, Phase]] = [(FRESH[0], "forward")]
    others: list[Any] = []

    def interrupted(*arguments: Any) -> Any:
        monkeypatch.setattr(bank_module, "price_all", price_all)
        others.append(bank.times(asked, CLUSTER))
        return price_all(*arguments)

    monkeypatch.setattr(bank_module, "price_all", interrupted)
    assert bank.times(asked, CLUSTER) == others[0] == Bank.load(tmp_path).times(asked, CLUSTER)
    assert others[0] != [None]


def test_an_error_while_answering_leaves_nothing_behind(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> Any:
        raise MemoryError

    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(bank_module, "price_all", failing)
        bank.times([(FRESH[0], "forward")], CLUSTER)
    assert bank.times([(FRESH[0], "forward")], CLUSTER) != [None]


def test_a_bank_is_opened_once_until_its_file_changes(fitted: FittedOperator, tmp_path: Path) -> None:
    artifact.save(tmp_path, [fitted], FACTS)
    first = open_bank(tmp_path)
    assert open_bank(tmp_path) is first
    artifact.save(tmp_path, [fitted], {**FACTS, "profile": "renewed"})
    assert open_bank(tmp_path).facts["profile"] == "renewed"


def test_a_bank_keeps_answers_for_the_latest_clusters_alone(bank: Bank) -> None:
    clusters = [replace(CLUSTER, nodes=nodes) for nodes in range(1, 100)]
    answers = [bank.times([(FRESH[0], "forward")], cluster) for cluster in clusters]
    assert answers == [answers[0]] * len(clusters)
    assert len(bank._answers) == KEPT_CLUSTERS


def test_a_sampled_call_answers_with_its_sample(bank: Bank) -> None:
    data = sampled(SAMPLED, noise=0.05)
    for times, own in zip(bank.times([(call, "forward") for call in SAMPLED], CLUSTER), data.time_us, strict=True):
        assert times.median_us == pytest.approx(own, rel=0.02)
        assert times.source == "measured"
        # the spread of these repeats is 1 %, far below what the model errs by
        assert math.log(times.high_us / times.low_us) < 0.06


def test_none_where_there_is_no_model(bank: Bank) -> None:
    threaded = replace(CLUSTER, gpu=replace(CLUSTER.gpu, threads=4))
    asked: list[tuple[Product, Phase]] = [(FRESH[0], "backward"), (FRESH[0], "forward")]
    backward, forward = bank.times(asked, CLUSTER)
    assert backward is None
    assert forward is not None
    assert bank.times(asked, threaded) == [None, None]
    assert bank.keys == {ModelKey("product", "forward", 0)}


def test_other_peaks_scale_the_time_and_are_marked_transferred(bank: Bank) -> None:
    gpu = CLUSTER.gpu
    twice = replace(
        CLUSTER,
        gpu=replace(gpu, peak_tflops={"bf16": 2 * gpu.peak_tflops["bf16"]}, memory_gb_per_s=2 * gpu.memory_gb_per_s),
    )
    large = Product(m=4000, n=4000, k=4000)
    here, there = (bank.times([(large, "forward"), (SAMPLED[0], "forward")], cluster) for cluster in (CLUSTER, twice))
    assert there[0].median_us < 0.7 * here[0].median_us
    assert (there[0].source, there[1].source) == ("transferred", "transferred")


@pytest.mark.parametrize(
    ("architecture", "least_more"), [("synthetic", SAME_ARCHITECTURE_HALF_WIDTH), ("another", OTHER_DEVICE_HALF_WIDTH)]
)
def test_another_device_is_trusted_less_than_the_far_end_of_this_one(
    bank: Bank, architecture: str, least_more: float
) -> None:
    faster = replace(CLUSTER.gpu, memory_gb_per_s=2 * CLUSTER.gpu.memory_gb_per_s, architecture=architecture)
    other = replace(CLUSTER, gpu=faster)
    asked: list[tuple[Product, Phase]] = [
        (call, "forward") for call in (SAMPLED[0], FRESH[0], Product(m=9000, n=9000, k=9000))
    ]
    for here, there in zip(bank.times(asked, CLUSTER), bank.times(asked, other), strict=True):
        for times, least in ((here, 0.0), (there, least_more)):
            assert math.log(times.high_us / times.median_us) > least
            assert math.log(times.median_us / times.low_us) > least
        assert there.high_us / there.low_us > here.high_us / here.low_us


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangedProduct(Product):
    """The same operator after somebody gave it another feature."""

    def features(self, phase: Phase, cluster: Cluster) -> dict[str, float]:
        return Product.features(self, phase, cluster) | {"parity": float(self.m % 2)}


def test_changed_features_name_the_file_and_the_command(bank: Bank, tmp_path: Path) -> None:
    changed = ChangedProduct(m=512, n=512, k=512)
    for _ in range(2):  # an error is not remembered as an answer
        with pytest.raises(
            SamplesError, match=rf"(?s){tmp_path}.*parity.*make train-regressors PROFILE={tmp_path.name}"
        ):
            bank.times([(changed, "forward")], CLUSTER)


def test_the_shipped_samples_are_found_again_by_the_shipped_regressors() -> None:
    """A field that joins a call must not part the rows from what was learnt of them."""
    opened = artifact.load(SHIPPED_DATA / "regressors" / SHIPPED)

    @cache
    def shapes_of(key: ModelKey) -> frozenset[int]:
        return frozenset(opened.operator(key).sampled_times.shape.tolist())

    tables = read_samples(SHIPPED_DATA / "samples" / SHIPPED)
    for row in iterate_samples({name: tables[name] for name in ("dense_layer", "gradient_cell", "gemm")}):
        key = ModelKey(row.call.NAME, row.phase, row.threads)
        if not row.quarantine:
            assert shape_digest(row.call, key.phase, key.threads) in shapes_of(key)


def spread(ranks: list[int]) -> TrainingData:
    calls = [
        SpreadProduct(m=call.m, n=call.n, k=call.k, ranks=ranks[index % len(ranks)])
        for index, call in enumerate(SAMPLED)
    ]
    return training_data(
        [
            (sample(call, roofline_time(call) + 2 * call.terms("forward", CLUSTER).get("wire", 0.0)), CLUSTER)
            for call in calls
        ]
    )[0]


def test_layers_with_and_without_collectives_share_a_model(tmp_path: Path) -> None:
    artifact.save(tmp_path, [fit_operator(spread([1, 2]))[0]], FACTS)
    for ranks in (1, 2):
        call = SpreadProduct(m=700, n=800, k=900, ranks=ranks)
        times = Bank.load(tmp_path).times([(call, "forward")], CLUSTER)[0]
        truth = roofline_time(call) + 2 * call.terms("forward", CLUSTER).get("wire", 0.0)
        assert times.median_us == pytest.approx(truth, rel=0.03)


def test_a_layer_across_ranks_is_not_answered_from_single_ranks(tmp_path: Path) -> None:
    artifact.save(tmp_path, [fit_operator(spread([1]))[0]], FACTS)
    alone, across = (SpreadProduct(m=700, n=800, k=900, ranks=ranks) for ranks in (1, 2))
    times = Bank.load(tmp_path).times([(across, "forward"), (alone, "forward")], CLUSTER)
    assert times[0] is None
    assert times[1] is not None


def test_a_missing_file_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(SamplesError, match=r"bank.npz.*make train-regressors PROFILE=a100") as caught:
        Bank.load(tmp_path / "a100")
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("kept", [0.0, 0.5, 0.99])
def test_a_truncated_file_is_refused(bank: Bank, tmp_path: Path, kept: float) -> None:
    path = tmp_path / artifact.FILE
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(SamplesError, match=r"bank.npz.*make train-regressors"):
        Bank.load(tmp_path)


def test_tampered_feature_names_are_refused(bank: Bank, tmp_path: Path) -> None:
    rewrite_header(tmp_path, lambda header: header["operators"][0]["schema"]["features"].reverse())
    with pytest.raises(SamplesError, match=r"product forward.*digest.*make train-regressors"):
        Bank.load(tmp_path)


def test_a_newer_format_is_refused(bank: Bank, tmp_path: Path) -> None:
    rewrite_header(tmp_path, lambda header: header.update(format=artifact.FORMAT + 1))
    with pytest.raises(SamplesError, match=rf"format {artifact.FORMAT + 1}.*reads {artifact.FORMAT}"):
        Bank.load(tmp_path)


def test_a_file_with_pickled_objects_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / artifact.FILE, header=np.array([{"format": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(SamplesError, match=r"bank.npz"):
        Bank.load(tmp_path)


def test_looking_up_needs_numpy_alone() -> None:
    heavy = ["sklearn", "xgboost", "pandas", "scipy", "joblib", "torch", "pyarrow", "rich", "yaml"]
    code = f"import sys, regressors.bank; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_model_whose_pool_is_missing_is_reported_with_the_file() -> None:
    known = artifact.load(SHIPPED_DATA / "regressors" / "epyc-2-cores")
    key = next(iter(known.records))
    with pytest.raises(SamplesError, match=r"bank\.npz: the model of .* is damaged"):
        known._replace(pools={}).operator(key)
