"""More work takes longer, more ranks take less, and links and nodes count, each by itself, under a cost model without noise."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.predict.step.small_runs import run, step_us

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
    alone, spread = run(), run(**{degree: 2})
    spread = replace(spread, cluster=replace(spread.cluster, gpu=alone.cluster.gpu))
    assert step_us(alone) / 2 < step_us(spread) < step_us(alone)


def test_layer_norm_takes_longer_than_rms_norm() -> None:
    rms, layer = run(), run(model={"norm": "layer"})
    assert step_us(layer) > step_us(rms)
