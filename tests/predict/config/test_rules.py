"""Rules of parallel plans: each is broken once, with its key blamed, and its legal neighbour passes."""

from dataclasses import fields
from typing import Any

import pytest

from predict import one_batch
from predict.config.rules import RULES
from predict.config.rules.rule import SHORTEST, TEACHER_MODEL
from predict.model.spec import ModelSpec
from predict.run.adapters import Adapters
from predict.run.execution import Execution
from predict.run.offload import Offload
from predict.run.plan import Plan
from predict.run.tuning import Tuning
from predict.run.vision import Vision
from sampling.errors import ConfigError
from sampling.files.places import CONFIGS
from tests.predict.config.rule_rows import DENSE, LITTLE, MLA, MOE, ROWS, Row
from tests.predict.workload.parallel_runs import estimated, made

IN_OTHER_TESTS = {
    "cores_are_of_a_cpu",
    "cp_divides_the_sequence",
    "degrees_make_the_world",
    "every_rank_has_a_core",
    "every_rank_has_a_layer",
    "every_stage_has_a_layer",
    "hardware_has_the_precision",
    "padding_needs_lengths",
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
"""Rules that test_config.py, test_hardware.py and test_lengths.py break."""


@pytest.mark.parametrize("broken", ROWS, ids=lambda row: row.rule)
def test_a_broken_rule_blames_its_key_alone(broken: Row) -> None:
    with pytest.raises(ConfigError) as raised:
        made(broken.model, **broken.settings)
    (line,) = str(raised.value).splitlines()
    assert line.startswith(f"test: {broken.path}: ")


@pytest.mark.parametrize("broken", ROWS, ids=lambda row: row.rule)
def test_its_legal_neighbour_passes(broken: Row) -> None:
    run = made(broken.model, **{**broken.settings, **broken.mended})
    assert estimated(run).step_time.median_us > 0


def test_every_rule_has_a_row() -> None:
    assert {each.rule for each in ROWS} == {each.check.__name__ for each in RULES} - IN_OTHER_TESTS


def test_a_rule_looks_at_keys_that_exist() -> None:
    """A rule that needs a value nobody gives is passed over, and would never be broken."""
    sections = {
        "global",
        "micro",
        "seq_len",
        "lengths",
        "padding",
        "encoder_seq_len",
        "precision",
        "model",
        "hardware",
        "nodes",
        "gpus_per_node",
        "cores",
        "profile",
        SHORTEST,
        TEACHER_MODEL,
    }
    known = {
        field.name
        for section in (Plan, Execution, Adapters, Offload, Tuning, Vision, ModelSpec)
        for field in fields(section)
    } | sections
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
        ("nemotron-h-8b", {"batch__seq_len": 16384}),  # twice the length of its training, and no table of positions
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


def test_degrees_that_are_advised_suit_all_that_is_divided() -> None:
    """Heads, key and value heads and the MLP's width, which each alone allow more."""
    with pytest.raises(ConfigError) as refused:
        made(DENSE, plan__tp=3)
    advice = [line.partition("set one of ")[2] for line in str(refused.value).splitlines() if "plan.tp: 3" in line]
    assert len(advice) > 1
    assert len(set(advice)) == 1


def test_a_vocabulary_that_torch_cannot_divide_is_not_padded_as_megatron_pads() -> None:
    with pytest.raises(ConfigError) as raised:
        one_batch(CONFIGS / "runs" / "demo.yml", ["plan.tp=3", "cluster.gpus_per_node=3", "plan.pp=1"])
    (said,) = [line for line in str(raised.value).splitlines() if "vocab_size" in line]
    assert (
        "torch pads no vocabulary; set plan.tp to one of 1, 2, or vocab_size to 8193" in said and "Megatron" not in said
    )


def test_faults_of_what_a_setting_gives_come_first_and_its_own_fix_first() -> None:
    """A sequence that a degree does not divide is mended by the degree before the sequence."""
    with pytest.raises(ConfigError) as by_tp:
        one_batch(CONFIGS / "runs" / "llama3-70b-64xh100.yml", ["plan.tp=3"])
    reported = [line.partition("plan.tp=3: ")[2] or line for line in str(by_tp.value).splitlines()]
    assert reported[0].startswith("--set: plan.tp: 3 does not divide the 64 attention heads; set one of 1, 2, 4, 8")
    with pytest.raises(
        ConfigError, match=r"plan\.cp = 3; set plan\.cp to one of 1, 2, 4, .*, or batch\.seq_len to 8190"
    ):
        one_batch(CONFIGS / "runs" / "llama3-70b-64xh100.yml", ["plan.cp=3"])
