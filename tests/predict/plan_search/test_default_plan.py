"""The plan that is chosen for a model on some GPUs: the rule, word by word, and what it says where nothing fits."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from predict import default_config, load, one_batch
from predict.plan_search.default_plan import parse_gpus
from predict.run.training_run import TrainingRun
from sampling.errors import ConfigError, InfeasibleError, UserError
from sampling.files.places import CONFIGS


def chosen(model: str, gpus: str, overrides: Sequence[str] = ()) -> TrainingRun:
    return load(default_config(model, gpus, overrides=overrides), overrides)


def fits(run: TrainingRun, **plan: int) -> bool:
    settings = [f"plan.{key}={value}" for key, value in plan.items()] + [f"plan.sp={str(plan['tp'] > 1).lower()}"]
    gpus = f"{run.cluster.world_size}xh100"
    return one_batch(default_config(run.model.name, gpus), settings).memory.verdict == "FITS"


@pytest.mark.parametrize(
    ("model", "gpus"),
    [("llama3-70b", "64xh100"), ("llama3-8b", "8xA100-80GB"), ("gpt2", "1xh200"), ("mixtral-8x7b", "64xmi300x")],
)
def test_the_plan_fits_on_all_the_gpus_and_keeps_the_rule(model: str, gpus: str) -> None:
    run = chosen(model, gpus)
    plan = run.plan
    assert one_batch(default_config(model, gpus)).memory.verdict == "FITS"
    assert plan.tp * plan.pp * plan.dp == run.cluster.world_size == int(gpus.split("x", maxsplit=1)[0])
    assert plan.tp <= run.cluster.gpus_per_node
    assert plan.sp == (plan.tp > 1)
    assert plan.zero == (plan.dp > 1)
    assert (plan.schedule, plan.recompute, run.batch.micro) == ("1f1b", "none", 1)
    assert run.batch.global_ * run.batch.seq_len == pytest.approx(4 * 2**20, rel=0.1)


def test_a_part_of_a_node_has_the_links_of_the_whole() -> None:
    """The shipped A100 is a board of four joined pair by pair, or a node of eight with switches."""
    link, alone = (
        chosen("llama3-8b", "4xa100-80gb", settings).cluster.link_in_node(2)
        for settings in ([], ["cluster.node_size=4"])
    )
    assert link.gb_per_s == pytest.approx(3 * alone.gb_per_s)


def test_no_smaller_tp_pp_fits() -> None:
    run = chosen("llama3-8b", "16xh100")
    smaller = [(tp, pp) for tp in (1, 2, 4, 8) for pp in (1, 2, 4) if tp * pp < run.plan.tp * run.plan.pp]
    assert smaller
    assert not any(fits(run, tp=tp, pp=pp, dp=16 // tp // pp) for tp, pp in smaller)


def test_experts_spread_inside_a_node_first() -> None:
    plan = chosen("qwen3-30b-a3b", "16xh100").plan
    assert plan.ep == 8
    assert chosen("deepseek-v3", "288xgb200").plan.ep == 32  # nodes of 72 GPUs, of which 32 divide the 256 experts


def test_recomputation_where_nothing_fits_without() -> None:
    assert chosen("llama3.1-405b", "1024xh100").plan.recompute == "full"


def test_settings_stay_and_the_plan_is_chosen_around_them() -> None:
    run = chosen("llama3-8b", "8xh100", ["plan.cp=2", "batch.seq_len=4096", "model.num_hidden_layers=4"])
    assert (run.plan.cp, run.batch.seq_len, run.model.layers) == (2, 4096, 4)
    assert run.plan.tp * run.plan.dp == 4
    assert load(default_config("llama3-8b", "8xh100", batch=24)).batch.global_ == 24
    assert chosen("llama3-8b", "8xh100", ["plan.schedule=best"]).plan.schedule == "best"


def test_the_yaml_gives_the_same_run(tmp_path: Path) -> None:
    settings = ["plan.zero=3", "batch.micro=2"]
    made = default_config(str(CONFIGS / "models" / "llama3-8b.json"), "8xh100", overrides=settings)
    file = tmp_path / f"{made.name}.yml"
    file.write_text(made.with_settings(settings).as_yaml())
    assert load(file) == load(made, settings)


@pytest.mark.parametrize(
    ("gpus", "count", "nodes", "hardware"),
    [
        ("64xh100", 64, 8, "h100"),
        ("4 x H100", 4, 1, "H100"),
        ("8×a100-80gb", 8, 1, "a100-80gb"),
        ("2xcpu", 2, 1, "cpu"),
    ],
)
def test_gpus_are_read(gpus: str, count: int, nodes: int, hardware: str) -> None:
    read = parse_gpus(gpus)
    assert (read.count, read.nodes, read.hardware) == (count, nodes, hardware)
    assert read.nodes * read.per_node == count


@pytest.mark.parametrize(
    ("gpus", "problem"),
    [
        ("h100", "write NUMBERxHARDWARE, as in 64xh100"),
        ("0xh100", "write NUMBERxHARDWARE"),
        ("8x", "write NUMBERxHARDWARE"),
        ("8xh1000", "hardware 'h1000' is not in the catalogue"),
        ("12xh100", "12 h100 do not fill nodes of 8; give 8 or 16"),
    ],
)
def test_gpus_that_cannot_be(gpus: str, problem: str) -> None:
    with pytest.raises(UserError, match="--gpus: ") as caught:
        default_config("llama3-8b", gpus)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("model", "overrides", "problem"),
    [
        ("llama3-7", [], "'llama3-7' is not the name of a shipped model; did you mean"),
        ("llama3-8b", ["plan.tpp=2"], "plan.tpp: unknown key; did you mean 'tp'"),
        ("llama3-8b", ["plan.tp=x"], "plan.tp: 'x' is not a whole number"),
        ("llama3-8b", ["plan.tp=3"], "8xh100 do not divide among plan.tp=3"),
        ("llama3-8b", ["plan.zero=4"], "plan.zero: 4 is out of range"),
    ],
)
def test_what_no_plan_keeps_is_reported(model: str, overrides: list[str], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        default_config(model, "8xh100", overrides=overrides)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("model", "gpus"), [("llama3-70b", "8xh100"), ("llama3-8b", "1xh200"), ("llama3-8b", "1xgh200")]
)
def test_where_nothing_fits_the_error_names_gpus_that_do(model: str, gpus: str) -> None:
    with pytest.raises(
        InfeasibleError,
        match=f"{model} does not fit on {gpus}: even the plan that needs least takes .* GiB of each GPU's .* GiB, and with",
    ) as caught:
        default_config(model, gpus)
    enough = str(caught.value).rpartition("give ")[2]
    assert default_config(model, enough)
    fewer = parse_gpus(enough)
    assert fewer.count > parse_gpus(gpus).count
    with pytest.raises(InfeasibleError):
        default_config(model, f"{(fewer.nodes - 1) * fewer.node or fewer.count // 2}x{fewer.hardware}")


@pytest.mark.parametrize(
    ("model", "overrides"),
    [("llama3.2-11b-vision", ["vision.images=1"]), ("flan-t5-xl", ["batch.encoder_seq_len=512"]), ("flux.1-dev", [])],
)
def test_what_a_model_reads_beside_its_tokens_is_a_setting(model: str, overrides: list[str]) -> None:
    config = default_config(model, "8xh100", overrides=overrides)
    run = load(config, overrides)
    assert run.plan.pp == 1
    assert (run.tower is None) == (model == "flux.1-dev")


def test_a_model_that_lacks_what_it_reads_is_refused_once() -> None:
    with pytest.raises(ConfigError, match=r"batch.encoder_seq_len: missing, and the encoder of flan-t5-xl"):
        default_config("flan-t5-xl", "8xh100")
