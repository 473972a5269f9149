"""The published runs that stand beside a run: of its device, the nearest in kind first."""

import pytest

import predict
from predict.validation.nearest import kind_in_words, nearest_published
from predict.validation.published import SHIPPED_RUNS
from predict.validation.published_row import read_rows
from sampling.hardware.cluster import hardware_named
from tests.bench.diagnosis import LARGE, ONE_NODE, with_values


def test_the_nearest_are_of_the_same_device_and_like_size() -> None:
    found = nearest_published(predict.load(ONE_NODE))
    assert [each.distance for each in found] == sorted(each.distance for each in found)
    rows = {row.row_id: row for row in read_rows(SHIPPED_RUNS)}
    published = [rows[each.row_id] for each in found]
    assert {hardware_named(row.text("gpu"), row.number("gpu_mem_gb")) for row in published} == {"h100-sxm"}
    assert found[0].gpus == 8
    assert found[0].precision == "bf16"
    assert nearest_published(predict.load(LARGE))[0].model.endswith("70b")


def test_a_utilisation_is_that_of_the_published_rate() -> None:
    board = predict.load(ONE_NODE, ["cluster.hardware=h100-96gb"])
    (eager,) = [each for each in nearest_published(board, most=20) if each.row_id == "torchtitan-2024-8b-8-eager"]
    flops = 6 * 8.03e9 - 6 * 128_256 * 4096 + 12 * 32 * 4096 * 8192  # no work for the table of embeddings
    assert eager.mfu == pytest.approx(eager.tokens_per_second_per_gpu * flops / 989.4e12, rel=0.02)


def test_like_stands_beside_like() -> None:
    """A mixture beside mixtures, and adapters beside none while the table has none."""
    sparse = predict.load(with_values(ONE_NODE, {"model": "qwen3-30b-a3b", "plan": {"tp": 2, "ep": 8, "sp": True}}))
    assert [each.model for each in nearest_published(sparse, most=20)] == ["qwen3-30b-a3b"]
    dense = nearest_published(predict.load(ONE_NODE), most=99)
    assert dense and not any(each.model == "qwen3-30b-a3b" for each in dense)
    adapted = predict.load(ONE_NODE, ["adapters.kind=lora"])
    assert nearest_published(adapted) == ()
    assert kind_in_words(adapted) == "adapters of a dense model"


def test_a_device_of_which_nothing_is_published_has_none() -> None:
    cluster = {"hardware": "rtx-4090", "nodes": 1, "gpus_per_node": 8}
    assert nearest_published(predict.load(with_values(ONE_NODE, {"cluster": cluster}))) == ()
