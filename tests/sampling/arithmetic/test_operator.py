from hypothesis import given
from hypothesis import strategies as st

from sampling.arithmetic.operator import FEW_WAVES, alignment_features, wave_features

SIZE = st.integers(1, 100_000)


@given(SIZE, SIZE, st.integers(1, 512), st.integers(1, 300))
def test_waves_and_tiles_are_filled_by_a_share(rows: int, columns: int, products: int, multiprocessors: int) -> None:
    for name, value in wave_features(rows, columns, products, multiprocessors).items():
        assert 0 < value <= (FEW_WAVES if name.endswith("_few") else 1.0), name


def test_a_whole_wave_is_full_and_one_tile_more_is_half_empty() -> None:
    whole = wave_features(128 * 10, 128 * 10, 1, multiprocessors=100)
    more = wave_features(128 * 10, 128 * 10 + 1, 1, multiprocessors=100)
    assert whole["waves_128x128_fill"] == 1.0
    assert more["waves_128x128_fill"] == 110 / 200
    assert whole["columns_fill_128"] == 1.0


def test_a_device_of_unknown_multiprocessors_has_no_waves() -> None:
    assert wave_features(128, 128, 1, 0) == {}


def test_alignment_is_the_power_of_two_in_a_size() -> None:
    assert alignment_features(m=4096, n=24, k=7) == {
        "log2_alignment_m": 7.0,
        "log2_alignment_n": 3.0,
        "log2_alignment_k": 0.0,
    }
