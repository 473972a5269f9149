"""Every setting of a run, turned: the estimate moves the way that its documentation says, or it is written why not."""

from collections.abc import Mapping
from typing import Any

import pytest

from predict.config.draft import SECTIONS
from predict.run.execution import ATTENTION_KERNELS, RECIPES
from predict.step.prediction import Prediction
from sampling.errors import InfeasibleError
from sampling.hardware.cluster import DTYPE_BYTES
from tests.laws.settings import (
    ADAPTER_KNOBS,
    BATCH_KNOBS,
    BESIDE_KNOBS,
    CLUSTER_KNOBS,
    DENSE,
    EXECUTION_KNOBS,
    MLA,
    MOE,
    PLAN_KNOBS,
    PRECISION_KNOBS,
    VISION,
    Knob,
    step,
)
from tests.predict.workload.parallel_runs import estimated, made

LAYERS = {DENSE: 8, MOE: 8, MLA: 8, VISION: 8}
UNTURNED: Mapping[str, str] = {
    "cluster__nodes": "follows from the plan: the degrees of parallelism multiply to its ranks (test_rules)",
    "cluster__gpus_per_node": "as nodes; that groups cross nodes is in test_a_group_that_crosses_nodes_is_slower",
    "cluster__profile": "names where samples are kept; a cluster without any has the prices of its hardware",
    "cluster__cores": "of a CPU alone (test_config_hardware)",
    "cluster__power_limit_w": "turned in tests/predict/step/test_power.py",
    "cluster__calibration": "a file, whose terms are turned in tests/predict/measured_runs",
    "batch__encoder_seq_len": "of encoder–decoders alone: turned in tests/predict/huggingface/families/test_encoder_decoder.py",
    "adapters__alpha": "the scale of an update, which changes no time",
    "tuning__teacher": "of one task, which needs it: turned with it in tests/predict/run/test_tuning.py",
    "plan__memory_limit": "turned in test_a_memory_limit_refuses_what_holds_more",
}
KNOBS = [*PLAN_KNOBS, *EXECUTION_KNOBS, *ADAPTER_KNOBS, *BESIDE_KNOBS, *BATCH_KNOBS, *CLUSTER_KNOBS, *PRECISION_KNOBS]


def _turned(knob: Knob, value: Any) -> Prediction:
    return estimated(made(knob.model, LAYERS[knob.model], **{**knob.base, knob.key: value}))


@pytest.mark.parametrize(
    "knob", KNOBS, ids=lambda knob: f"{knob.key}={knob.before}-{knob.after}-{'grows' if knob.grows else 'falls'}"
)
def test_a_setting_moves_the_estimate(knob: Knob) -> None:
    before, after = (knob.metric(_turned(knob, value)) for value in (knob.before, knob.after))
    assert (after > before) == knob.grows
    assert abs(after - before) > knob.least * max(before, after)


def test_every_setting_is_turned_or_it_the_reason_is_stated() -> None:
    named = {f"{section}__{key.name}" for section, keys in SECTIONS.items() for key in keys} | {"precision"}
    assert {knob.key for knob in KNOBS} | set(UNTURNED) == named


def test_a_memory_limit_refuses_what_holds_more() -> None:
    settings: dict[str, Any] = {"plan__pp": 4, "plan__schedule": "1f1b"}
    assert step(estimated(made(DENSE, 8, **settings, plan__memory_limit=4))) == step(
        estimated(made(DENSE, 8, **settings))
    )
    with pytest.raises(InfeasibleError, match=r"plan\.memory_limit"):
        estimated(made(DENSE, 8, **settings, plan__memory_limit=3))


def test_the_best_schedule_keeps_the_memory_limit_and_is_none_of_the_slower() -> None:
    best = estimated(made(DENSE, 8, plan__pp=4, plan__schedule="best"))
    tight = estimated(made(DENSE, 8, plan__pp=4, plan__schedule="best", plan__memory_limit=4))
    plain = estimated(made(DENSE, 8, plan__pp=4))
    assert step(best) <= step(tight) <= step(plain)


def test_a_group_that_crosses_nodes_is_slower() -> None:
    near, far = (
        estimated(made(DENSE, 8, plan__tp=8, cluster__gpus_per_node=per_node, cluster__nodes=8 // per_node))
        for per_node in (8, 4)
    )
    assert far.breakdown_us["tp"] > 2 * near.breakdown_us["tp"]


def _choices(section: str, key: str, values: tuple[str, ...], **base: Any) -> list[Any]:
    return [pytest.param({**base, f"{section}__{key}": value}, id=f"{key}={value}") for value in values]


@pytest.mark.parametrize(
    "settings",
    [
        *_choices("execution", "attention", ATTENTION_KERNELS),
        *_choices("execution", "fp8_recipe", RECIPES, precision="fp8"),
        *_choices("execution", "gradient_dtype", ("fp32", "bf16")),
        *_choices("execution", "gradient_dtype", ("fp16",), precision="fp16"),
        *_choices("plan", "recompute_modules", ("core_attn", "layernorm", "mlp"), plan__recompute="selective"),
        *[
            pytest.param({"precision": dtype}, id=dtype)
            for dtype in DTYPE_BYTES
            if dtype in ("bf16", "fp16", "fp8", "tf32", "fp32")
        ],
    ],
)
def test_every_choice_has_a_price(settings: dict[str, Any]) -> None:
    predicted = estimated(made(DENSE, 2, **settings))
    assert 0 < predicted.step_time.low_us < step(predicted) < predicted.step_time.high_us
    assert 0 < predicted.mfu < 1
