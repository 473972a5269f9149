"""Intervals know what is new about a call: a width, a head count, a model that no sample had."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from regressors.dataset.training_data import TrainingData, training_data
from regressors.features.digests import row_digests
from regressors.features.pricing import codes, price
from regressors.fitting.fit import fit_operator
from regressors.uncertainty.intervals import (
    FEWEST_ROWS,
    UNKNOWN_HALF_WIDTH,
    Intervals,
    calibrate,
    half_width,
    is_new,
    octaves_between,
)
from sampling.call import Phase
from sampling.hardware.cluster import Cluster
from tests.regressors.synthetic_operators import CLUSTER, Product, sample, without_smooth_correction


@pytest.mark.parametrize("count", [3, 20])
def test_covers_nine_of_ten_fresh_errors(count: int) -> None:
    generator = np.random.default_rng(0)
    covered = [abs(generator.normal()) <= half_width(generator.normal(size=count)) for _ in range(3000)]
    assert 0.88 <= np.mean(covered) <= 0.97


def test_the_quantile_is_that_of_the_finite_sample() -> None:
    errors = np.arange(1, 20) / 100
    assert half_width(errors) == pytest.approx(0.18)  # ⌈0.9 · 20⌉ = 18th of 19
    assert half_width(-errors) == half_width(errors)


def test_without_errors_a_factor_of_two() -> None:
    nothing = np.zeros(0)
    assert half_width(nothing) == UNKNOWN_HALF_WIDTH == math.log(2)
    assert calibrate(nothing, nothing, nothing) == Intervals(inside=math.log(2), outside=math.log(2), octaves=1.0)


def test_outside_is_never_narrower_and_grows_with_the_distance() -> None:
    intervals = calibrate(np.full(20, 0.1), np.full(20, 0.05), np.array([2.0]))
    assert intervals.outside == intervals.inside == pytest.approx(0.1)
    half = intervals.half_width(np.array([True, False, False]), np.array([0.0, 1.0, 18.0]))
    assert half == pytest.approx([0.1, 0.1, 0.3])


WIDTHS = (256, 512, 768, 1024, 1536, 2048, 3072, 4096)


@dataclass(frozen=True, kw_only=True, slots=True)
class Kernel(Product):
    """A product by one of several kernels."""

    NAME: ClassVar[str] = "kernel_product"

    kernel: str = ""

    def features(self, phase: Phase, cluster: Cluster) -> dict[str, float]:
        features = Product.features(self, phase, cluster)
        return features | {f"kernel={self.kernel}": 1.0} if self.kernel else features


def moody(call: Kernel) -> float:
    """Each width has an efficiency of its own, as far as nobody can see from the others."""
    mood = math.sin(call.n * 12.9898) * 0.3
    slow = 1.5 if call.kernel == "slow" else 1.0
    return slow * math.exp(mood) * (2 * call.terms("forward", CLUSTER)["compute"] + 5.0)


def calls(kernels: tuple[str, ...] = ("",)) -> list[Kernel]:
    return [
        Kernel(m=m, n=n, k=k, kernel=kernel)
        for m in (128, 256, 384, 512, 768, 1024, 1280)
        for n in WIDTHS
        for k in (512, 1024, 2048, 4096)
        for kernel in kernels
    ]


def data_of(of: list[Kernel]) -> TrainingData:
    return training_data([(sample(call, moody(call)), CLUSTER) for call in of])[0]


def half_width_of(times: object) -> float:
    return math.log(times.high_us / times.median_us)  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def fitted() -> object:
    with without_smooth_correction():
        return fit_operator(data_of(calls()))[0]


def predict(fitted: object, *asked: Kernel) -> list[object]:
    return fitted.predict([price(call, "forward", CLUSTER) for call in asked])  # type: ignore[attr-defined, no-any-return]


def test_an_unseen_width_is_trusted_less_than_an_unseen_size(fitted: object) -> None:
    known, between, beyond = predict(
        fitted,
        Kernel(m=448, n=1024, k=1024),
        Kernel(m=448, n=1280, k=1024),
        Kernel(m=448, n=16384, k=1024),
    )
    assert half_width_of(known) < 0.15 < half_width_of(between) <= half_width_of(beyond)
    assert [times.source for times in (known, between, beyond)] == ["measured", "measured", "extrapolated"]  # type: ignore[attr-defined]


def test_the_further_beyond_the_wider(fitted: object) -> None:
    near, far = predict(fitted, Kernel(m=448, n=6144, k=1024), Kernel(m=448, n=262_144, k=1024))
    assert half_width_of(near) < half_width_of(far)


def test_a_kernel_never_sampled_is_out_of_the_domain_and_none_named_is_the_usual_one() -> None:
    with without_smooth_correction():
        fitted = fit_operator(data_of([*calls(("fast",)), *calls(("slow",))[:100]]))[0]
    call = {"m": 448, "n": 1024, "k": 1024}
    fast, slow, none, other = predict(
        fitted,
        *(Kernel(**call, kernel=kernel) for kernel in ("fast", "slow", "", "other")),
    )
    assert none.median_us == pytest.approx(fast.median_us)  # type: ignore[attr-defined]
    assert slow.median_us == pytest.approx(1.5 * fast.median_us, rel=0.15)  # type: ignore[attr-defined]
    assert other.source == "extrapolated"  # type: ignore[attr-defined]
    assert half_width_of(other) == pytest.approx(UNKNOWN_HALF_WIDTH)


def test_few_rows_say_nothing_of_what_is_new() -> None:
    few = calls()[: FEWEST_ROWS - 1]
    rows = np.array([codes(call) for call in few])
    assert not is_new(("m", "n", "k", "kernel"), rows, rows + 1).any()


def test_new_is_what_no_row_had() -> None:
    rows = np.array([codes(call) for call in calls()])
    asked = np.array([codes(Kernel(m=m, n=n, k=1024)) for m, n in ((448, 1024), (448, 1280))])
    assert is_new(("m", "n", "k", "kernel"), rows, asked).tolist() == [False, True]


def test_digests_multiply_by_the_odd_numbers_that_numpy_draws() -> None:
    rows = np.random.default_rng(1).random((3, 40))
    bits = rows.view(np.uint64)
    odd = np.random.default_rng(0).integers(2**63, size=40, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    mixed = (bits ^ (bits >> np.uint64(33))) * odd
    assert row_digests(rows).tolist() == (mixed ^ (mixed >> np.uint64(29))).sum(axis=1, dtype=np.uint64).tolist()


def test_digests_tell_rows_apart() -> None:
    rows = np.array([[x, y] for x in range(200) for y in range(200)], dtype=float)
    assert len(np.unique(row_digests(rows))) == len(rows)
    assert octaves_between(3.0, np.array([3.0, 7.0, 1.0])).tolist() == [0.0, 1.0, 0.0]
