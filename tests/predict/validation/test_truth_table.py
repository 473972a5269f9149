"""A table of measured runs: its columns are declared once, unknown ones are refused, and what is left open is told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from predict.cli import main
from predict.run.execution import DISPATCHERS
from predict.validation.compared import Refused
from predict.validation.memory import compare_memory
from predict.validation.published import compare
from predict.validation.published_models import model_of
from predict.validation.published_row import PublishedRow, read_rows
from predict.validation.published_runs import candidates
from predict.validation.truth_columns import RUNS
from predict.validation.truth_table import faults_of_cells
from sampling.errors import SamplesError
from sampling.files.places import PACKAGE
from tests.predict.validation.published_rows import DENSE, MIXTURE, row, written

VALIDATE = PACKAGE.parent / "predict" / "validation"


def said_of(path: Path) -> str:
    with pytest.raises(SamplesError) as failure:
        list(read_rows(path))
    return str(failure.value)


def test_a_column_given_twice_is_refused_also_under_two_names(tmp_path: Path) -> None:
    assert "column seq_len is given 2 times (seq_len, seq)" in said_of(
        written(tmp_path / "runs.csv", DENSE | {"seq": "1"})
    )


def test_a_row_of_another_length_is_refused_alone(tmp_path: Path) -> None:
    path = written(tmp_path / "runs.csv", DENSE)
    whole = path.read_text()
    path.write_text(whole + whole.splitlines()[1] + ",1,2\n")
    sound, faulty = read_rows(path)
    assert (sound.fault, sound.number("layers")) == ("", 48)
    assert f"{len(DENSE) + 2} cells for {len(DENSE)} columns" in faulty.fault
    assert [isinstance(one, Refused) for one in compare([sound, faulty])] == [False, True]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"layers": "1e8"}, "layers: 100000000 is out of range; give a whole number from 1 to 100000"),
        ({"mtp_layers": "1000"}, "mtp_layers: 1000 is out of range; give a whole number from 0 to 64"),
        ({"gpus_per_node": "1e6"}, "gpus_per_node: 1000000 is out of range"),
        ({"tp": "0"}, "tp: 0 is out of range; give a whole number from 1"),
        ({"mbs": "0.3"}, "mbs: 0.3 is not a whole number"),
        ({"vocab": "many"}, "vocab: 'many' is not a whole number"),
        ({"gated_mlp": "maybe"}, "gated_mlp: 'maybe' is not true or false"),
        (
            {"recompute": "ful"},
            "recompute: 'ful' is not known; give one of none, selective, full; did you mean 'full'?",
        ),
        ({"pp_schedule": "zb-h1"}, "pp_schedule: 'zb-h1' is not allowed; give text: none, 1F1B"),
        ({"step_time_s": "-3"}, "step_time_s: -3.0 is out of range; give a number above 0"),
        ({"step_time_s": "nan"}, "step_time_s: nan is out of range"),
        ({"mem_counter": "guess"}, "mem_counter: 'guess' is not known"),
        ({"cuda_graph": "banana"}, "cuda_graph: 'banana' is not allowed; give text: none, full_iteration, or scopes"),
        ({"moe_dispatch": "deepeb"}, "moe_dispatch: 'deepeb' is not known; give one of alltoall, allgather, deepep"),
        ({"date": "2025-13"}, "date: '2025-13' is not allowed; give text: 2025-06-10"),
        ({"gpu": ""}, "gpu: not stated; give text: a device of configs/hardware"),
    ],
)
def test_a_cell_that_is_not_what_its_column_holds_refuses_its_row(
    tmp_path: Path, changes: dict[str, str], fault: str
) -> None:
    (faulty,) = read_rows(written(tmp_path / "runs.csv", DENSE | changes))
    assert faulty.fault.startswith(fault)
    (told,) = compare([faulty])
    assert told.why == faulty.fault
    assert isinstance(told, Refused)


def test_numbers_may_be_followed_by_a_note_and_end_in_k() -> None:
    assert list(faults_of_cells(DENSE | {"vocab": "250k (padded to 250880)", "tp": "8.0", "gbs": "1,024"}, RUNS)) == []
    assert row(vocab="250k (padded to 250880)").number("vocab") == 250_000


@pytest.mark.parametrize(
    ("left_out", "told"),
    [
        ({"vocab": ""}, "vocab: not published, taken as GPT-2's 50257"),
        ({"kv_heads": ""}, "kv_heads: not published, taken as heads"),
        ({"gated_mlp": "", "norm": "RMSNorm"}, "gated_mlp: not published, taken as 1, as norm is RMSNorm"),
        ({"gpus_per_node": ""}, "gpus_per_node: not published, taken as 8"),
        ({"framework": "", "attn": "MHA"}, "framework: not published, taken as megatron-core"),
        ({"attn": ""}, "attn: not published, taken as full attention"),
        ({"mbs": ""}, "mbs: not published, taken as 1 or 2 or 4"),
        ({"norm": "rms"}, "position, linear_bias, tied_embedding: not published, taken as in GPT-2"),
        (MIXTURE, "shared_experts: not published, taken as none"),
        (MIXTURE, "moe_layer_note: not published, taken as all layers sparse"),
        (MIXTURE | {"seq_parallel": "", "tp": "2", "n_gpus": "16"}, "seq_parallel: not published, taken as 1"),
        (
            {"layers": "", "hidden": "", "heads": "", "vocab": "", "model": "llama3-8b"},
            "layers: not published, taken from configs/models",
        ),
    ],
)
def test_what_a_row_leaves_open_is_told_with_it(left_out: dict[str, str], told: str) -> None:
    assert told in "; ".join(candidates(row(**left_out)).assumed)


def test_a_row_that_states_all_leaves_nothing_open() -> None:
    stated = {
        "row_id": "b",
        "kv_heads": "64",
        "head_dim": "96",
        "ffn": "24576",
        "norm": "layer",
        "position": "learned_absolute",
    }
    stated |= {"linear_bias": "1", "tied_embedding": "1", "seq_parallel": "0"}
    assert candidates(row(**stated)).assumed == ()


def test_what_a_row_states_of_its_layers_is_in_the_model() -> None:
    model = model_of(row(position="rope", linear_bias="0", tied_embedding="0", norm="RMSNorm", mtp_layers="1"))
    assert (model.rope, model.attention_bias, model.mlp_bias, model.tied) == (True, False, False, False)
    assert (model.norm, model.gated, model.mtp_layers) == ("rms", False, 1)
    mixture = model_of(row(**MIXTURE, moe_layer_freq="([0]*3+[1]*5)", shared_ffn="512"))
    assert [kind.sparse for kind in mixture.kinds()] == [False] * 3 + [True] * 5
    assert mixture.experts is not None
    assert mixture.experts.shared_ffn == 512
    one_dense, three_dense = (
        model_of(row(**MIXTURE, moe_layer_note=f"first {words} dense")) for words in ("1 layer", "3 layers")
    )
    assert [sum(kind.sparse for kind in each.kinds()) for each in (one_dense, three_dense)] == [7, 5]


def test_recomputation_of_some_layers_and_attention_kernels_are_read() -> None:
    run = candidates(row(recompute="4 layers", attn_kernel="flash2")).runs[0]
    assert (run.plan.recompute, run.plan.recompute_method, run.plan.recompute_layers) == ("full", "block", 4)
    assert run.execution.attention == "fa2"
    assert candidates(row(recompute="0 layers")).runs[0].plan.recompute == "none"


def test_a_table_without_peaks_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare_memory([row()]) == []
    assert main(["validate", "memory", "--truth", str(written(tmp_path / "runs.csv", DENSE))]) == 0
    assert "no row states its memory" in capsys.readouterr().out


def test_a_llama_whose_mlp_is_not_stated_is_never_taken_for_an_ungated_one() -> None:
    llama = {"model": "llama-13b", "framework": "NeMo", "attn": "GQA", "precision": "bf16", "gated_mlp": ""}
    (refused,) = compare([PublishedRow(cells=DENSE | llama)])
    assert isinstance(refused, Refused)
    assert refused.why.startswith("gated_mlp: not published")


def test_columns_that_are_said_not_to_be_read_are_not() -> None:
    reads = re.compile(r"\b(?:text|number|integer)\(\s*\"(\w+)\"")
    training = (path for path in VALIDATE.rglob("*.py") if not path.stem.startswith(("rl", "serving")))
    read = {name for path in training for name in reads.findall(path.read_text())}
    assert {"cuda_graph", "moe_dispatch", "date"} <= read <= set(RUNS.keys)
    assert not read & RUNS.unread_names


def test_the_exchanges_of_a_table_are_those_of_a_config() -> None:
    choices = RUNS.keys["moe_dispatch"].choices
    assert choices is not None
    assert tuple(choices()) == DISPATCHERS
