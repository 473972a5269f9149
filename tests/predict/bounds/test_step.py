"""The bounds of a step's operators: below what is predicted, worst first, in all that a rank runs."""

import pytest

from predict import one_batch, step_speed_of_light
from predict.reports.bounds import step_json
from predict.step.breakdown import NOT_COMPUTE

RUNS = ("configs/runs/demo.yml", "configs/runs/llama3-70b-64xh100.yml", "configs/runs/deepseek-v3-1024xh100.yml")


@pytest.mark.parametrize("config", RUNS)
def test_no_operator_is_predicted_below_its_bound(config: str) -> None:
    bounds = step_speed_of_light(config)
    assert bounds.predicted_us <= bounds.prediction.median_us
    for each in bounds.operators:
        assert each.predicted_us >= each.bound_us, each
    ratios = [each.ratio for each in bounds.operators if each.ratio]
    assert ratios == sorted(ratios, reverse=True)
    assert {each.name for each in bounds.operators} >= {"gemm", "attention"}
    for rule in (bounds.models.documented, bounds.models.intended):
        assert rule.unfused_us >= rule.fused_us >= rule.fused_prefetched_us > 0
    assert bounds.models.intended.fused_prefetched_us <= bounds.predicted_us


def test_operators_add_up_to_the_ledger() -> None:
    """One pipeline rank, no overlap: every operator of the step's ledger is there with its time."""
    overrides = ["plan.pp=1", "plan.dp=2"]
    prediction = one_batch("configs/runs/demo.yml", overrides)
    found: dict[str, float] = {}
    for each in step_speed_of_light("configs/runs/demo.yml", overrides).operators:
        found[each.name] = found.get(each.name, 0.0) + each.predicted_us
    for name, time_us in prediction.breakdown_us.items():
        if name not in NOT_COMPUTE:
            assert found[name] == pytest.approx(time_us), name


def test_faster_memory_lowers_the_bounds_of_what_it_limits() -> None:
    slow, fast = (
        step_json(step_speed_of_light(RUNS[1], [f"cluster.hardware={name}"])) for name in ("h100-sxm", "h200")
    )
    bounds = [
        {(each["name"], each["phase"]): each["bound_us"] for each in of["operators"] if each["bottleneck"] == "memory"}
        for of in (slow, fast)
    ]
    assert bounds[0].keys() == bounds[1].keys() != set()
    assert all(bounds[1][key] < bounds[0][key] for key in bounds[0])


def test_products_of_few_tokens_are_limited_by_reading_their_weights() -> None:
    """256 tokens are 85 % of what balances an H100's peaks: memory limits, though products take most of that time too."""
    short = step_speed_of_light(RUNS[1], ["batch.seq_len=512", "plan.cp=2"])
    limits = {(each.name, each.phase): each.bottleneck for each in short.operators}
    assert limits["gemm", "forward"] == "memory"
    assert limits["attention", "backward"] == "compute"
