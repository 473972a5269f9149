"""A model of another device lends its time; a few rows of the new device correct it."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from regressors.bank import artifact
from regressors.bank.bank import Bank
from regressors.bank.fitted_operator import FittedOperator
from regressors.dataset.donor import Donor
from regressors.dataset.splits import SPLITS, hold_outs
from regressors.dataset.training_data import TrainingData, training_data
from regressors.features.digests import hardware_digest
from regressors.features.pricing import price
from regressors.features.schema import LENT
from regressors.fitting.fit import fit_operator
from sampling.call import Call
from sampling.collectives.kinds import AllReduce
from sampling.hardware.cluster import load_cluster
from sampling.operators.attention import Attention
from sampling.operators.experts import ExpertMLP
from sampling.operators.gemm import Gemm
from tests.expert_calls import expert_mlp
from tests.regressors.synthetic_operators import (
    CLUSTER,
    Product,
    random_products,
    roofline_time,
    sample,
    sampled,
    without_smooth_correction,
)

NEW = replace(CLUSTER, gpu=replace(CLUSTER.gpu, name="new", memory_gb_per_s=2 * CLUSTER.gpu.memory_gb_per_s))
FACTS = {"profile": "new", "architecture": "synthetic", "hardware": {"0": hardware_digest(NEW)}}


def wavy(call: Product) -> float:
    """A time with a ripple that no roofline has, and that both devices share."""
    return roofline_time(call) * math.exp(0.4 * math.sin(2.5 * math.log2(call.n)))


def on_new(call: Product) -> float:
    return 0.8 * wavy(call)


@pytest.fixture(scope="module")
def donor() -> Donor:
    with without_smooth_correction():
        fitted = fit_operator(sampled(random_products(300, seed=0), truth=wavy))[0]
    return Donor(schema=fitted.schema, model=fitted.model)


def fit_on_new(count: int, donor: Donor | None) -> FittedOperator:
    rows = [(sample(call, on_new(call)), NEW) for call in random_products(count, seed=7)]
    return fit_operator(training_data(rows, lambda key: donor)[0])[0]


def mape(fitted: FittedOperator) -> float:
    fresh = random_products(200, seed=9)
    times = fitted.predict([price(call, "forward", NEW) for call in fresh])
    return float(np.mean([abs(t.median_us / on_new(call) - 1) for t, call in zip(times, fresh, strict=True)]))


def test_a_lent_time_spares_most_of_the_samples(donor: Donor) -> None:
    alone, helped = mape(fit_on_new(25, None)), mape(fit_on_new(25, donor))
    assert helped < 0.5 * alone


def test_what_was_lent_stays_with_the_model(donor: Donor, tmp_path: Path) -> None:
    fitted = fit_on_new(25, donor)
    assert LENT in fitted.schema.terms
    artifact.save(tmp_path, [fitted], FACTS)
    call = Product(m=700, n=900, k=1100)
    (times,) = Bank.load(tmp_path).times([(call, "forward")], NEW)
    assert times == fitted.predict([price(call, "forward", NEW)])[0]


def test_a_model_that_was_lent_to_lends_nothing_on(donor: Donor, tmp_path: Path) -> None:
    fitted, plain = fit_on_new(25, donor), fit_on_new(25, None)
    artifact.save(tmp_path, [fitted], FACTS)
    assert artifact.load(tmp_path).donor(fitted.key) is None
    artifact.save(tmp_path, [plain], FACTS)
    assert artifact.load(tmp_path).donor(plain.key) is not None


def test_a_donor_that_does_not_know_the_calls_lends_nothing(donor: Donor) -> None:
    other = replace(donor, schema=replace(donor.schema, features=(*donor.schema.features, "zeal")))
    assert fit_on_new(10, other).donor is None


PUBLISHED = load_cluster(hardware="h100-sxm", nodes=1, gpus_per_node=8, profile="published")
WIDTHS = (768, 1024, 2560, 4096, 12288, 65536)


def data_of(calls: list[Call]) -> TrainingData:
    return training_data((sample(call, 10.0, spread=0.0, repeats=1), PUBLISHED) for call in calls)[0]


def attention(seq_len: int, heads: int) -> Attention:
    return Attention(dtype="bf16", batch=1, seq_len=seq_len, heads=heads, kv_heads=heads, head_dim=128, causal=True)


def experts_of(tokens: int, hidden: int, ep: int) -> ExpertMLP:
    return expert_mlp(dtype="bf16", tokens=tokens, hidden=hidden, inter=2048, topk=8, experts=64, ep=ep)


def test_products_of_named_widths_are_unseen_and_those_of_the_widest_are_extrapolated_to() -> None:
    calls: list[Call] = [Gemm(dtype="bf16", m=64, n=n, k=k) for n in WIDTHS for k in WIDTHS]
    held = hold_outs(data_of(calls), "gemm")
    assert tuple(held) == SPLITS
    assert held["random"].sum() == round(0.2 * len(calls))
    assert {call.n for call, out in zip(calls, held["shape"], strict=True) if not out} == {1024, 4096, 65536}  # type: ignore[attr-defined]
    assert {max(call.n, call.k) for call, out in zip(calls, held["extrapolation"], strict=True) if out} == {65536}  # type: ignore[attr-defined]


def test_heads_models_and_rank_counts_are_held_out_whole() -> None:
    heads = [attention(s, h) for s in (1024, 4096, 16384) for h in (8, 12, 16, 20, 32)]
    held = hold_outs(data_of([*heads]), "attention")
    assert {call.heads for call, out in zip(heads, held["shape"], strict=True) if out} == {12, 20}
    assert {call.seq_len for call, out in zip(heads, held["extrapolation"], strict=True) if out} == {16384}

    experts = [experts_of(t, h, ep) for t in (64, 1024) for h in (1024, 2048, 3072, 4096, 5120) for ep in (1, 8)]
    models = {h: set() for h in (1024, 2048, 3072, 4096, 5120)}
    for call, out in zip(experts, hold_outs(data_of([*experts]), "moe")["shape"], strict=True):
        models[call.hidden].add(bool(out))
    assert sorted(map(sorted, models.values())) == [[False]] * 4 + [[True]]

    reduces = [AllReduce(size_bytes=2**b, ranks=r, ranks_per_node=r) for b in range(10, 30) for r in (2, 4, 8)]
    held = hold_outs(data_of([*reduces]), "nccl")
    assert {call.ranks for call, out in zip(reduces, held["shape"], strict=True) if out} == {4}
    assert min(call.size_bytes for call, out in zip(reduces, held["extrapolation"], strict=True) if out) == 2**27


@pytest.mark.parametrize("family", ["gemm", ""])
def test_without_the_named_values_shapes_and_the_most_work_are_held_out(family: str) -> None:
    data = data_of([Gemm(dtype="bf16", m=m, n=n, k=1024) for m in (32, 64, 128, 256) for n in (1024, 2048, 4096)])
    held = hold_outs(data, family)
    work = data.terms.sum(axis=1)
    assert 0 < held["shape"].sum() < len(data)
    assert work[held["extrapolation"]].min() >= np.quantile(work, 0.7)


def test_a_table_of_one_row_has_nothing_to_hold_out() -> None:
    assert hold_outs(data_of([Gemm(dtype="bf16", m=32, n=64, k=64)]), "gemm") == {}
