"""A table of measured runs: its columns are declared once, unknown ones are refused, and what is left open is stated."""

import csv
import io
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from predict.run.execution import DISPATCHERS
from predict.serving.stages import read_stages
from predict.truth_table import as_ours, csv_table, faults_of_cells
from predict.validation.closed_loops import read_closed_loops
from predict.validation.compared import Refused
from predict.validation.memory import compare_memory
from predict.validation.published import compare
from predict.validation.published_models import model_of
from predict.validation.published_row import PublishedRow, read_rows
from predict.validation.published_runs import candidates
from predict.validation.rl_rows import read_rl_rows
from predict.validation.truth_columns import RUNS
from sampling.errors import ConfigError
from sampling.files.places import PACKAGE
from tests.predict.command import Command
from tests.predict.validation.published_rows import DENSE, MIXTURE, row, written

VALIDATE = PACKAGE.parent / "predict" / "validation"


def said_of(path: Path) -> str:
    with pytest.raises(ConfigError) as failure:
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
        ({"layers": "1e8"}, "layers: 100000000 is out of range; give a whole number from 1 to 100,000"),
        ({"mbs": "0.3"}, "mbs: 0.3 is not a whole number"),
        ({"gated_mlp": "maybe"}, "gated_mlp: 'maybe' is not true or false"),
        (
            {"recompute": "ful"},
            "recompute: 'ful' is not known; give one of none, selective, full; did you mean 'full'?",
        ),
        ({"pp_schedule": "zb-h1"}, "pp_schedule: 'zb-h1' is not allowed; give text: none, 1F1B"),
        ({"step_time_s": "-3"}, "step_time_s: -3.0 is out of range; give a number above 0"),
        ({"cuda_graph": "banana"}, "cuda_graph: 'banana' is not allowed; give text: none, full_iteration, or scopes"),
        ({"date": "2025-13"}, "date: '2025-13' is not allowed; give text: 2025-06-10"),
        ({"gpu": ""}, "gpu: not stated; give text: a device of configs/hardware"),
    ],
)
def test_a_cell_that_is_not_what_its_column_holds_refuses_its_row(
    tmp_path: Path, changes: dict[str, str], fault: str
) -> None:
    (faulty,) = read_rows(written(tmp_path / "runs.csv", DENSE | changes))
    assert faulty.fault.startswith(fault)
    (stated,) = compare([faulty])
    assert stated.why == faulty.fault
    assert isinstance(stated, Refused)


def test_numbers_may_be_followed_by_a_note_and_end_in_k() -> None:
    assert list(faults_of_cells(DENSE | {"vocab": "250k (padded to 250880)", "tp": "8.0", "gbs": "1,024"}, RUNS)) == []
    assert row(vocab="250k (padded to 250880)").number("vocab") == 250_000


@pytest.mark.parametrize(
    ("left_out", "stated"),
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
def test_what_a_row_leaves_open_is_reported_with_it(left_out: dict[str, str], stated: str) -> None:
    assert stated in "; ".join(candidates(row(**left_out)).assumed)


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


def test_a_table_without_peaks_is_reported(tmp_path: Path, command: Command) -> None:
    assert compare_memory([row()]) == []
    assert "no row states its memory" in command.text(
        "validate", "memory", "--truth", str(written(tmp_path / "runs.csv", DENSE))
    )


def test_a_llama_whose_mlp_is_not_stated_is_never_taken_for_an_ungated_one() -> None:
    llama = {"model": "llama-13b", "framework": "NeMo", "attn": "GQA", "precision": "bf16", "gated_mlp": ""}
    (refused,) = compare([PublishedRow(cells=DENSE | llama)])
    assert isinstance(refused, Refused)
    assert refused.why.startswith("gated_mlp: not published")


def test_columns_that_are_said_not_to_be_read_are_not() -> None:
    reads = re.compile(r"\b(?:text|number|integer)\(\s*\"(\w+)\"")
    training = (path for path in VALIDATE.rglob("*.py") if not path.stem.startswith(("rl", "serving", "jobs")))
    read = {name for path in training for name in reads.findall(path.read_text())}
    assert {"cuda_graph", "moe_dispatch", "date"} <= read <= set(RUNS.keys)
    assert not read & RUNS.unread_names


def test_the_exchanges_of_a_table_are_those_of_a_config() -> None:
    choices = RUNS.keys["moe_dispatch"].choices
    assert choices is not None
    assert tuple(choices()) == DISPATCHERS


# All tables of measured runs are read alike, whatever program wrote them.

STAGE = (
    "experiment,model,layers,hidden,heads,kv_heads,head_dim,ffn,vocab,dtype,gpu,tp,max_num_seqs,max_num_batched_tokens,"
    "prompt_mean,output_len,rate_rps,duration_s\n"
    "one,Llama,32,4096,32,8,128,14336,32000,bf16,H100,1,128,2048,64.5,120,2.5,30\n"
)
LOOP = "model,gpu,backend,precision,isl,osl,concurrency,tpot_ms\nLlama,h100_sxm,vllm,bf16,64,32,4,8.25\n"
STEP = "row_id,model,gpu,train_gpus,prompts,response_mean,step_s\nA,Qwen3-30B-A3B,H100,8,64,1000.5,12.5\n"
TRANSFER = "source,model,placement,method,seconds\npage,Qwen3-30B-A3B,16 + 16 H20,default,20.5\n"


def text_of(row: Mapping[str, str]) -> str:
    text = io.StringIO()
    table = csv.DictWriter(text, row, lineterminator="\n")
    table.writeheader()
    table.writerow(row)
    return text.getvalue()


TABLES: Mapping[str, tuple[str, str, Callable[[Path], object]]] = {
    "runs": ("runs.csv", text_of(DENSE | {"step_time_s": "3.5"}), read_rows),
    "RL steps": ("steps.csv", STEP, read_rl_rows),
    "weight transfers": ("transfers.csv", TRANSFER, read_rl_rows),
    "stages of servers": ("serving_experiments.csv", STAGE, lambda path: read_stages(path.parent)),
    "closed loops": ("serving_concurrency.csv", LOOP, lambda path: read_closed_loops(path.parent)),
}
"""Kind of table → its file, a sound one, and its reader."""


def with_semicolons(text: str) -> str:
    """As spreadsheets write it where the comma is the decimal one."""
    rows = [
        [cell.replace(".", ",") if cell.replace(".", "").isdigit() else cell for cell in row]
        for row in csv.reader(io.StringIO(text))
    ]
    return "".join(";".join(row) + "\r\n" for row in rows)


WRITTEN: Mapping[str, Callable[[str], str]] = {
    "byte-order mark": lambda text: "\ufeff" + text,
    "CRLF": lambda text: text.replace("\n", "\r\n"),
    "CR": lambda text: text.replace("\n", "\r"),
    "semicolons and decimal commas": with_semicolons,
    "tabs": lambda text: "".join("\t".join(row) + "\n" for row in csv.reader(io.StringIO(text))),
    "columns and lines without text": lambda text: "\n" + "".join(f"{line},,\n" for line in text.splitlines()) + ",,\n",
    "spaces around names": lambda text: text.replace(",", " , "),
}


@pytest.mark.parametrize("form", WRITTEN)
@pytest.mark.parametrize("kind", TABLES)
def test_a_table_is_read_whatever_wrote_it(kind: str, form: str, tmp_path: Path) -> None:
    name, text, read = TABLES[kind]
    plain, other = tmp_path / "plain" / name, tmp_path / "other" / name
    for path, content in ((plain, text), (other, WRITTEN[form](text))):
        path.parent.mkdir()
        path.write_bytes(content.encode())
    assert read(other) == read(plain)


@pytest.mark.parametrize("kind", TABLES)
def test_an_unknown_column_is_refused_with_the_one_that_may_be_meant(kind: str, tmp_path: Path) -> None:
    name, text, read = TABLES[kind]
    header, *lines = text.splitlines()
    path = tmp_path / name
    path.write_text("\n".join([f"{header},mdoel,_mine", *(f"{line},x,y" for line in lines)]))
    with pytest.raises(ConfigError, match=r"unknown column 'mdoel'; did you mean 'model'\?") as error:
        read(path)
    assert "_mine" not in str(error.value)


@pytest.mark.parametrize(
    ("column", "written", "meant"),
    [
        ("pp_schedule", "Interleaved1F1B", "1F1B interleaved"),
        ("pp_schedule", "GPipe", "afab"),
        ("pp_schedule", "1F1B interleaved layout=E|t", "1F1B interleaved layout=E|t"),
        ("moe_dispatch", "A2A", "alltoall"),
        ("moe_dispatch", "AllToAll", "alltoall"),
        ("moe_dispatch", "hybrid-ep", "hybridep"),
        ("date", "25.04.rc2", "25.04"),
        ("date", "nemo:25.09-py3", "25.09"),
        ("date", "2025-06-10", "2025-06-10"),
        ("moe_layer_note", "dense_layers=1", "first 1 layers dense"),
        ("recompute", "Full", "full"),
        ("recompute", "False", "none"),
        ("gated_mlp", "True", "1"),
        ("fp8_recipe", "MXFP8", "mxfp8"),
        ("status", "OOM", "oom"),
        ("vpp", "-", ""),
        ("vpp", "None", ""),
        ("cuda_graph", "none", "none"),
    ],
)
def test_what_publishers_write_is_read(column: str, written: str, meant: str) -> None:
    read = as_ours(RUNS.keys[column], written)
    assert read == meant
    assert not read or RUNS.keys[column].kind != "string" or RUNS.keys[column].malformed(read) is None


def test_commas_in_a_number_part_its_thousands_or_refuse_its_row(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(text_of(DENSE | {"hidden": "6,144"}))
    assert read_rows(path)[0].number("hidden") == 6144
    path.write_text(text_of(DENSE | {"step_time_s": "3,5"}))
    assert "step_time_s: '3,5' is not a number" in read_rows(path)[0].fault


def test_the_separator_is_the_one_that_parts_the_header() -> None:
    table = csv_table('a;b;"c, d; e"\n1;"2; 3";4,5\n')
    assert (table.names, table.rows, table.separator) == (("a", "b", "c, d; e"), (("1", "2; 3", "4,5"),), ";")


@pytest.mark.parametrize("word", ["published", "jobs", "memory", "ranking", "recipes", "servers", "rl"])
@pytest.mark.parametrize("text", ["a,b\n1,2\n", "", 'a,"b\n1\n'])
def test_a_file_that_is_not_the_table_is_wrong_input(word: str, text: str, tmp_path: Path, command: Command) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text)
    assert f"--truth: {path}" in command.refused("validate", word, "--truth", str(path), code=2)
