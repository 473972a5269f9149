"""Composition: conservation and closed forms, under a cost model without noise."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from predict import estimate, load
from predict.prices.open import SpeedOfLight
from predict.prices.price_list import PriceList
from predict.workload.decompose import decompose, requests_of_runs
from regressors.bank.times import Times
from sampling.call import Call, Counted, Phase
from sampling.files.places import CONFIGS
from sampling.hardware.cluster import Cluster, load_cluster
from tests.predict.step.small_runs import MODEL, predicted, run, step_us
from tests.tiny_runs import calls_of


def test_a_call_that_takes_longer_moves_its_heading_and_the_step_by_as_much() -> None:
    class SlowEmbedding(SpeedOfLight):
        def times(self, calls: Sequence[tuple[Call, Phase]], cluster: Cluster) -> list[Times]:
            more_us = [1000.0 * (call.NAME == "embedding" and phase == "forward") for call, phase in calls]
            known = super().times(calls, cluster)
            return [replace(time, median_us=time.median_us + us) for time, us in zip(known, more_us, strict=True)]

    subject = run()
    plain, slow = predicted(subject), predicted(subject, SlowEmbedding())
    longer_us = subject.microbatches * 1000.0
    assert slow.median_us - plain.median_us == pytest.approx(longer_us)
    changed = {name: slow.breakdown_us[name] - time_us for name, time_us in plain.breakdown_us.items()}
    assert changed.pop("embedding") == pytest.approx(longer_us)
    assert changed == pytest.approx(dict.fromkeys(changed, 0.0), abs=1e-6)


def test_one_process_takes_the_sum_of_its_calls() -> None:
    subject = run()
    prices = PriceList([SpeedOfLight()], subject.cluster, profile_error=0.0)
    (rank,) = decompose(subject)
    (chunk,) = rank.chunks
    microbatch = sum(unit.total_us for unit in prices.priced([*calls_of(chunk.forward), *calls_of(chunk.backward)]))
    once = sum(
        unit.total_us
        for unit in prices.priced(
            [*rank.end.blocking_reduction, *rank.end.shared_weights_reduction, *rank.end.optimizer]
        )
    )
    assert step_us(subject) == pytest.approx(subject.microbatches * microbatch + once)


@dataclass
class Flat:
    """Every layer phase takes 100 µs (backward 200), everything else nothing."""

    def times(self, calls: Sequence[tuple[Call, Phase]], cluster: Cluster) -> list[Times]:
        return [self._time(call, phase) for call, phase in calls]

    def _time(self, call: Call, phase: Phase) -> Times:
        time_us = {"forward": 100.0}.get(phase, 200.0) if call.NAME == "dense_layer" else 0.0
        return Times(median_us=time_us, low_us=time_us, high_us=time_us, source="measured")


@pytest.mark.parametrize("schedule", ["afab", "1f1b"])
@pytest.mark.parametrize("pp", [1, 2, 4])
def test_even_stages_take_the_closed_form(schedule: str, pp: int) -> None:
    subject = run(pp=pp, schedule=schedule)
    prices = PriceList([Flat(), SpeedOfLight()], subject.cluster, profile_error=0.0)
    expected = (subject.microbatches + pp - 1) * (MODEL.layers // pp) * 300.0
    result = estimate(subject, prices=prices)
    assert result.step_time.median_us == pytest.approx(expected)
    assert result.bubble_fraction == pytest.approx((pp - 1) / (subject.microbatches + pp - 1))


def test_ends_hold_embedding_and_head() -> None:
    names = [{counted.call.NAME for counted in calls_of(rank.chunks[0].forward)} for rank in decompose(run(pp=4))]
    assert ["embedding" in of_stage for of_stage in names] == [True, False, False, False]
    assert ["output_head" in of_stage for of_stage in names] == [False, False, False, True]


@pytest.mark.parametrize("pp", [1, 2, 4])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tied": True},
        {"norm": "layer", "rope": False, "gated": False, "max_positions": 512},
        {"attention_bias": True},
        {"mlp_bias": True},
        {"attention_bias": True, "qkv_bias_only": True, "mlp_bias": True},
    ],
)
def test_the_optimizer_updates_every_parameter_once(pp: int, changes: dict[str, Any]) -> None:
    subject = run(pp=pp, model=changes)
    updated = sum(
        counted.call.parameters  # type: ignore[attr-defined]
        for stage in decompose(subject)
        for counted in stage.end.optimizer
        if counted.call.NAME == "adamw"
    )
    # a pipeline keeps a copy of a tied weight at either end
    copies = MODEL.vocab * MODEL.hidden if subject.model.tied and pp > 1 else 0
    assert updated == subject.model.parameters + copies


def test_a_pipeline_adds_up_the_gradient_of_a_tied_weight_at_its_ends() -> None:
    reductions = [stage.end.shared_weights_reduction for stage in decompose(run(pp=4, model={"tied": True}))]
    assert [len(of_stage) for of_stage in reductions] == [1, 0, 0, 1]
    assert reductions[0][0].call.size_bytes == 4 * MODEL.vocab * MODEL.hidden  # type: ignore[attr-defined]
    assert not any(stage.end.shared_weights_reduction for stage in decompose(run(model={"tied": True})))


def test_a_wider_composition_error_widens_the_interval_alone() -> None:
    subject = run()
    narrow, wide = (
        estimate(
            subject,
            prices=PriceList([Flat(), SpeedOfLight()], subject.cluster, profile_error=error),
        )
        for error in (0.0, 0.2)
    )
    assert wide.step_time.median_us == narrow.step_time.median_us
    assert narrow.step_time.low_us == pytest.approx(narrow.step_time.median_us)
    assert wide.step_time.high_us == pytest.approx(math.exp(0.2) * wide.step_time.median_us)


def test_what_a_sampler_must_time_covers_all_of_a_run() -> None:
    subject = run(pp=2)
    requested = {
        (request.call, phase)
        for requests in requests_of_runs([subject]).values()
        for request in requests
        for phase in request.phases
    }
    needed = {(counted.call, counted.phase) for stage in decompose(subject) for counted in stage.all_calls()}
    assert requested == needed


@pytest.mark.parametrize(("config", "compiled"), [("launches", False), ("dense-compiled", True)])
def test_a_sampler_is_asked_for_the_whole_layers_whose_glue_steps_are_priced_with(config: str, compiled: bool) -> None:
    subject = load(CONFIGS / "runs" / "this-gpu" / f"{config}.yml")
    asked: set[tuple[Call, Phase]] = set()

    class CallPhase(PriceList):
        def glue_us(self, whole: Counted) -> float | None:
            asked.add((whole.call, whole.phase))
            return super().glue_us(whole)

    estimate(subject, prices=CallPhase([SpeedOfLight()], subject.cluster, profile_error=None))
    assert {phase for _, phase in asked} == {"forward", "backward"}
    assert {call.fields()["compiled"] for call, _ in asked} == {compiled}
    requests = [request for of_ranks in requests_of_runs([subject]).values() for request in of_ranks]
    assert asked <= {(request.call, phase) for request in requests for phase in request.phases}


class HalfKnown(Flat):
    """Knows layers alone; the rest is left to the parts and the speed of light."""

    def times(self, calls: Sequence[tuple[Call, Phase]], cluster: Cluster) -> list[Times | None]:  # type: ignore[override]
        return [self._time(call, phase) if call.NAME == "dense_layer" else None for call, phase in calls]


class NoLayers(HalfKnown):
    """Layers take no time."""

    def _time(self, call: Call, phase: Phase) -> Times:
        return Times(median_us=0.0, low_us=0.0, high_us=0.0, source="measured")


def test_measured_layers_and_analytic_ends_are_distinguished() -> None:
    subject = run()
    prices = PriceList([HalfKnown(), SpeedOfLight()], subject.cluster, profile_error=0.0)
    result = estimate(subject, prices=prices)
    layers_us = subject.microbatches * MODEL.layers * 300.0
    without_layers = PriceList([NoLayers(), SpeedOfLight()], subject.cluster, profile_error=0.0)
    ends_us = estimate(subject, prices=without_layers).median_us
    assert result.sources == pytest.approx(
        {
            "measured": layers_us / (layers_us + ends_us),
            "analytic": ends_us / (layers_us + ends_us),
            "extrapolated": 0.0,
            "transferred": 0.0,
        }
    )


def test_what_a_measured_layer_takes_beyond_its_measured_parts_is_that_of_its_unmeasured_ones() -> None:
    class Sampled(Flat):
        """Layers of 100 and 200 µs, their products of 3 and 6; `rope` likewise, where `knows` says so."""

        def __init__(self, knows: tuple[str, ...]) -> None:
            self.knows = knows

        def times(self, calls: Sequence[tuple[Call, Phase]], cluster: Cluster) -> list[Times | None]:  # type: ignore[override]
            return [self._time(call, phase) if call.NAME in self.knows else None for call, phase in calls]

        def _time(self, call: Call, phase: Phase) -> Times:
            whole = super()._time(replace(call), phase)
            return whole if call.NAME == "dense_layer" else replace(whole, median_us=3.0 if phase == "forward" else 6.0)

    def ledger(*knows: str) -> dict[str, float]:
        subject = run(pp=2)
        prices = PriceList([Sampled(knows), SpeedOfLight()], subject.cluster, profile_error=0.0)
        return estimate(subject, prices=prices).breakdown_us

    parts = ("gemm", "attention", "rms_norm", "residual_add", "swiglu", "rope")
    known, unknown = ledger("dense_layer", *parts), ledger("dense_layer", *parts[:-1])
    assert known["other"] > 0
    assert unknown["other"] == pytest.approx(0.0, abs=1e-6)
    assert unknown["rope"] == pytest.approx(known["rope"] + known["other"])
    assert unknown["gemm"] == pytest.approx(known["gemm"])


def test_equal_calls_are_asked_for_once() -> None:
    class Counting(SpeedOfLight):
        def __init__(self) -> None:
            self.asked: list[tuple[Call, Phase]] = []

        def times(self, calls: Sequence[tuple[Call, Phase]], cluster: Cluster) -> list[Times]:
            self.asked.extend(calls)
            return super().times(calls, cluster)

    model = Counting()
    predicted(run(pp=4), model)
    assert len(model.asked) == len(set(model.asked))


def test_a_hand_over_is_charged_once_and_by_where_its_ranks_are() -> None:
    """Unsampled, only the edges cost: those between nodes what the network does."""

    def p2p_us(nodes: int) -> float:
        machines = load_cluster(hardware="h100-sxm", nodes=nodes, gpus_per_node=8 // nodes, profile="none")
        subject = replace(run(pp=8), cluster=machines, precision="bf16")
        result = predicted(subject)
        sends = [chunk.send for rank in decompose(subject) for chunk in rank.chunks]
        assert [len(of_chunk) for of_chunk in sends] == [1] * 7 + [0]
        per_node = [of_chunk[0].call.ranks_per_node for of_chunk in sends[:-1]]  # type: ignore[attr-defined]
        assert per_node == [1 if (edge + 1) % (8 // nodes) == 0 else 2 for edge in range(7)]
        return result.breakdown_us["p2p"]

    assert 0 < p2p_us(1) < p2p_us(2) < p2p_us(8)


def test_noise_in_a_reduction_takes_nothing_from_the_other_gradients() -> None:
    """A reduction measured as a gain counts as nothing; the all-reduce of a tied weight beside it still counts."""

    class Gain(Flat):
        def _time(self, call: Call, phase: Phase) -> Times:
            time_us = {"gradient_cell": 10.0, "all_reduce": 7.0}.get(call.NAME)
            return replace(super()._time(call, phase), median_us=time_us) if time_us else super()._time(call, phase)

    subject = run(pp=2, dp=2, model={"tied": True})
    prices = PriceList([Gain(), SpeedOfLight()], subject.cluster, profile_error=0.0)
    assert estimate(subject, prices=prices).breakdown_us["dp_exposed"] == pytest.approx(7.0)


# More work takes longer, more ranks take less, and links and nodes count, each by itself, under a cost model without noise.

LONGER = {
    "layers": run(model={"layers": 16}),
    "hidden": run(model={"hidden": 512}),
    "heads": run(model={"heads": 16}),
    "kv_heads": run(model={"kv_heads": 8}),
    "ffn": run(model={"ffn": 1536}),
    "vocab": run(model={"vocab": 8192}),
    "positions": run(model={"rope": False, "max_positions": 4096}),
    "global batch": run(batch={"global_": 32}),
    "sequence": run(batch={"seq_len": 256}),
    "full recompute": run(recompute="full"),
}


@pytest.mark.parametrize("knob", LONGER)
def test_more_work_takes_longer(knob: str) -> None:
    if knob == "positions":
        assert step_us(LONGER[knob]) > step_us(run(model={"rope": False, "max_positions": 128}))
    else:
        assert step_us(LONGER[knob]) > step_us(run())


SHORTER_MODELS = {"tied": {"tied": True}, "plain MLP": {"gated": False}}


@pytest.mark.parametrize("knob", SHORTER_MODELS)
def test_less_work_takes_less_time(knob: str) -> None:
    assert step_us(run(model=SHORTER_MODELS[knob])) < step_us(run())


@pytest.mark.parametrize("degree", ["tp", "pp", "dp"])
def test_more_ranks_of_the_same_speed_shorten_the_step(degree: str) -> None:
    # enough work between messages that they pay
    model, batch = {"hidden": 1024, "ffn": 4096}, {"seq_len": 1024}
    alone, spread = run(model=model, batch=batch), run(model=model, batch=batch, **{degree: 2})
    spread = replace(spread, cluster=replace(spread.cluster, gpu=alone.cluster.gpu))
    assert step_us(alone) / 2 < step_us(spread) < step_us(alone)


def test_layer_norm_takes_longer_than_rms_norm() -> None:
    rms, layer = run(), run(model={"norm": "layer"})
    assert step_us(layer) > step_us(rms)
