"""Rules of parallel plans: each is broken once, with the path blamed and the fix named, and its legal neighbour passes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import pytest

from predict.config.rules import RULES
from predict.model.spec import ModelSpec
from predict.run.execution import Execution
from predict.run.plan import Plan
from sampling.errors import ConfigError
from tests.predict.workload.parallel_runs import estimated, made

DENSE, MOE, MLA, LITTLE = "llama3-70b", "qwen3-30b-a3b", "deepseek-v3", "llama3-8b"
TORCH = {"execution__framework": "torch"}


@dataclass(frozen=True, kw_only=True)
class Row:
    """Settings that break `rule` and nothing else, what its one line says, and what mends them."""

    rule: str
    settings: Mapping[str, Any]
    path: str
    says: tuple[str, ...]
    mended: Mapping[str, Any]
    model: str = LITTLE
    layers: int = 8


def row(
    rule: str, settings: Mapping[str, Any], path: str, *says: str, mended: Mapping[str, Any], model: str = LITTLE
) -> Row:
    return Row(rule=rule, settings=settings, path=path, says=says, mended=mended, model=model)


IN_TEST_FAULTS = {
    "cores_are_of_a_cpu",
    "cp_divides_the_sequence",
    "degrees_make_the_world",
    "every_rank_has_a_core",
    "every_rank_has_a_layer",
    "every_stage_has_a_layer",
    "hardware_has_the_precision",
    "positions_suffice",
    "profile_is_a_name",
    "replicas_divide_the_batch",
    "schedule_recomputes",
    "schedule_runs",
    "sp_needs_tp",
    "tp_divides_ffn",
    "tp_divides_heads",
    "tp_divides_kv_heads",
    "tp_divides_the_sequence",
    "tp_divides_vocabulary",
    "vpp_needs_pp",
    "zero_needs_replicas",
}
"""Rules that test_faults.py and test_hardware.py break."""
ROWS = [
    row(
        "no_setting_is_changed",
        {**TORCH, "execution__attention": "fa2", "execution__dropout": True},
        "execution.framework",
        "attention, dropout would change nothing",
        mended={"execution__framework": "megatron-core"},
    ),
    row(
        "all_layers_are_recomputed",
        {**TORCH, "plan__recompute": "full", "plan__recompute_method": "block"},
        "plan.recompute_method",
        "block recomputation: not modelled with execution.framework torch",
        mended={"execution__framework": "megatron-core"},
    ),
    row(
        "block_is_full_recomputation",
        {"plan__recompute_method": "block"},
        "plan.recompute_method",
        "plan.recompute is none",
        mended={"plan__recompute": "full"},
    ),
    row(
        "layers_are_of_blocks",
        {"plan__recompute": "full", "plan__recompute_layers": 3},
        "plan.recompute_layers",
        "set that to block",
        mended={"plan__recompute_method": "block"},
    ),
    row(
        "load_is_of_the_experts",
        {"execution__expert_load": "power_law_1.2"},
        "execution.expert_load",
        "has no experts",
        mended={"execution__expert_load": "balanced"},
    ),
    row(
        "shared_experts_hide_the_exchange",
        {"execution__overlap_ep": "microbatch"},
        "execution.overlap_ep",
        "has no experts",
        mended={"execution__overlap_ep": "none"},
    ),
    row(
        "no_context_parallelism",
        {**TORCH, "plan__cp": 2},
        "plan.cp",
        "2: context parallelism",
        "choose execution.framework",
        mended={"execution__framework": "megatron-core"},
    ),
    row(
        "only_the_optimizer_is_sharded",
        {**TORCH, "plan__dp": 8, "plan__zero": 2},
        "plan.zero",
        "2: sharded gradients",
        "choose execution.framework",
        mended={"plan__zero": 1},
    ),
    row(
        "layers_are_recomputed_whole",
        {**TORCH, "plan__recompute": "selective"},
        "plan.recompute",
        "selective recomputation: not modelled",
        "choose execution.framework",
        mended={"plan__recompute": "full"},
    ),
    row(
        "layers_have_one_dtype",
        {**TORCH, "precision": "fp8"},
        "precision",
        "fp8 products",
        "choose execution.framework",
        mended={"precision": "bf16"},
    ),
    row(
        "layers_are_plain",
        TORCH,
        "model.model_type",
        "layers other than plain dense ones",
        "choose execution.framework",
        mended={"execution__framework": "megatron-core"},
        model=MOE,
    ),
    row(
        "ep_needs_experts",
        {"plan__dp": 4, "plan__ep": 2},
        "plan.ep",
        "2 (plan.etp 1)",
        "llama3-8b has none",
        "set both to 1",
        mended={"plan__ep": 1},
    ),
    row(
        "ep_divides_experts",
        {"plan__dp": 3, "plan__ep": 3, "batch__global": 12},
        "plan.ep",
        "3 does not divide the 128 experts",
        "set one of 1, 2, 4",
        mended={"plan__ep": 1},
        model=MOE,
    ),
    row(
        "etp_divides_expert_width",
        {"plan__dp": 5, "plan__etp": 5, "batch__global": 15},
        "plan.etp",
        "5 does not divide the experts' width 768",
        "set one of 1, 2, 3, 4",
        mended={"plan__etp": 1},
        model=MOE,
    ),
    row(
        "experts_fold_into_a_stage",
        {"plan__dp": 4, "plan__ep": 4, "plan__etp": 2},
        "plan.ep",
        "ep · etp = 8 does not divide the tp · cp · dp = 4",
        "set one of 1, 2, 4",
        mended={"plan__etp": 1},
        model=MOE,
    ),
    row(
        "mixtures_need_sp",
        {"plan__tp": 4},
        "plan.sp",
        "false",
        "set plan.sp to true",
        mended={"plan__sp": True},
        model=MOE,
    ),
    row(
        "shards_divide_replicas",
        {"plan__dp": 8, "plan__zero": 1, "plan__shard": 3},
        "plan.shard",
        "3 does not divide the dp · cp = 8 replicas",
        "set one of 1, 2, 4, 8",
        mended={"plan__shard": 4},
    ),
    row(
        "shards_divide_replicas",
        {"plan__dp": 8, "plan__shard": 4},
        "plan.shard",
        "4 ranks share a state that plan.zero 0 does not shard",
        "set plan.zero to 1 or more",
        mended={"plan__zero": 1},
    ),
    row(
        "cp_divides_heads",
        {"plan__tp": 4, "plan__cp": 16, "plan__cp_method": "all_to_all"},
        "plan.cp_method",
        "32 query heads and 8 key and value heads over tp · cp = 64",
        "use ring",
        mended={"plan__cp_method": "ring"},
    ),
    row(
        "cp_needs_fused_attention",
        {"plan__cp": 2, "execution__attention": "unfused"},
        "plan.cp",
        "2 needs a fused attention kernel",
        "set execution.attention to best",
        mended={"execution__attention": "best"},
    ),
    row(
        "tp_and_cp_divide_the_sequence",
        {"plan__tp": 8, "plan__sp": True, "plan__cp": 8, "batch__seq_len": 1032},
        "batch.seq_len",
        "1032 is not a multiple of plan.tp · plan.cp = 8 · 8 = 64",
        "set 1024 or 1088",
        mended={"batch__seq_len": 1088},
    ),
    row(
        "layers_are_split_in_one_way",
        {"plan__pp": 2, "plan__layout": "16,16", "plan__count_loss": 1},
        "plan.layout",
        "each split the layers in their own way",
        "keep one of them",
        mended={"plan__count_loss": 0},
    ),
    row(
        "layers_are_split_in_one_way",
        {"plan__pp": 2, "plan__first_stage_layers": 15, "plan__count_embedding": 1},
        "plan.layout",
        "keep one of them",
        mended={"plan__count_embedding": 0},
    ),
    row(
        "layers_fit_the_stages",
        {"plan__pp": 2, "plan__layout": "16,15"},
        "plan.layout",
        "holds 31 layers, the model has 32",
        "correct the counts",
        mended={"plan__layout": "17,15"},
    ),
    row(
        "layers_fit_the_stages",
        {"plan__pp": 4, "plan__first_stage_layers": 3},
        "plan.layout",
        "3 first and 0 last leave 29 layers for 3 pipeline ranks",
        "change them",
        mended={"plan__first_stage_layers": 5},
    ),
    row(
        "shared_experts_hide_the_exchange",
        {"plan__dp": 8, "plan__ep": 8, "execution__overlap_ep": "shared_expert"},
        "execution.overlap_ep",
        "qwen3-30b-a3b has no shared expert",
        "set it to none or microbatch",
        mended={"execution__overlap_ep": "microbatch"},
        model=MOE,
    ),
    row(
        "recipe_needs_fp8",
        {"execution__fp8_recipe": "rowwise"},
        "execution.fp8_recipe",
        "rowwise is a way to scale fp8 products, but precision is bf16",
        "remove it",
        mended={"precision": "fp8"},
    ),
    row(
        "load_is_of_the_experts",
        {"plan__dp": 8, "plan__ep": 8, "execution__expert_load": "3,1"},
        "execution.expert_load",
        "2 counts for 128 experts",
        "give one for each",
        mended={"execution__expert_load": ",".join(["3", "1"] * 64)},
        model=MOE,
    ),
]


@pytest.mark.parametrize("broken", ROWS, ids=lambda row: row.rule)
def test_a_broken_rule_blames_the_key_and_names_the_fix(broken: Row) -> None:
    with pytest.raises(ConfigError) as raised:
        made(broken.model, **broken.settings)
    (line,) = str(raised.value).splitlines()
    assert line.startswith(f"test: {broken.path}: ")
    assert [said for said in broken.says if said not in line] == [], line


@pytest.mark.parametrize("broken", ROWS, ids=lambda row: row.rule)
def test_its_legal_neighbour_passes(broken: Row) -> None:
    run = made(broken.model, **{**broken.settings, **broken.mended})
    assert estimated(run).step_time.median_us > 0


def test_every_rule_has_a_row() -> None:
    assert {each.rule for each in ROWS} == {each.check.__name__ for each in RULES} - IN_TEST_FAULTS


def test_a_rule_looks_at_keys_that_exist() -> None:
    """A rule that needs a value nobody gives is passed over, and would never be broken."""
    sections = {
        "global",
        "micro",
        "seq_len",
        "precision",
        "model",
        "hardware",
        "nodes",
        "gpus_per_node",
        "cores",
        "profile",
    }
    known = {field.name for section in (Plan, Execution, ModelSpec) for field in fields(section)} | sections
    assert [(each.check.__name__, need) for each in RULES for need in each.needs if need not in known] == []


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        (DENSE, {"plan__tp": 16, "plan__dp": 1}),  # more ranks than key and value heads: each keeps a copy
        (DENSE, {"plan__tp": 2, "plan__cp": 4, "plan__cp_method": "all_to_all"}),
        (DENSE, {"plan__dp": 4, "plan__cp": 2, "plan__zero": 3, "plan__shard": 4}),
        (DENSE, {"plan__cp": 2, "plan__zero": 1}),
        (
            DENSE,
            {"plan__pp": 4, "plan__vpp": 2, "plan__schedule": "interleaved-1f1b", "plan__layout": "10," * 7 + "10"},
        ),
        (MOE, {"plan__dp": 2, "plan__cp": 4, "plan__ep": 8}),
        (MOE, {"plan__tp": 2, "plan__sp": True, "plan__cp": 2, "plan__dp": 2, "plan__ep": 4, "plan__etp": 2}),
        (MOE, {"plan__tp": 4, "plan__sp": True, "plan__dp": 2, "plan__ep": 8}),
        (MLA, {"plan__dp": 8, "plan__ep": 8, "execution__overlap_ep": "shared_expert"}),
        (MLA, {"plan__pp": 16, "plan__dp": 4, "plan__ep": 4, "plan__layout": "Et*4|(t*4|)*14tmL", "batch__global": 64}),
    ],
    ids=str,
)
def test_what_frameworks_do_run_is_not_refused(model: str, settings: dict[str, Any]) -> None:
    assert estimated(made(model, **settings)).step_time.median_us > 0


def test_every_fault_of_a_plan_is_reported_at_once() -> None:
    with pytest.raises(ConfigError) as raised:
        made(LITTLE, plan__dp=8, plan__ep=2, plan__shard=3, execution__fp8_recipe="rowwise", plan__layout="16,16")
    reported = [line.split(": ")[1] for line in str(raised.value).splitlines()]
    assert sorted(reported) == ["execution.fp8_recipe", "plan.ep", "plan.layout", "plan.shard"]
