"""All tables of measured runs are read alike, whatever program wrote them."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from predict.validation.closed_loops import read_closed_loops
from predict.validation.published_row import read_rows
from predict.validation.rl_rows import read_rl_rows
from predict.validation.serving_rows import read_stages
from predict.validation.truth_columns import RUNS
from predict.validation.truth_table import as_ours
from sampling.errors import SamplesError
from sampling.files.csv_table import csv_table
from tests.predict.validation.published_rows import DENSE

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
    with pytest.raises(SamplesError, match=r"unknown column 'mdoel'; did you mean 'model'\?") as error:
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
