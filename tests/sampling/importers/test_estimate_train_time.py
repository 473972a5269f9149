"""estimate-train-time: its CSV files, and what can be wrong with one."""

from dataclasses import replace
from pathlib import Path

import pytest

from sampling.call import Call
from sampling.collectives.kinds import AllGather
from sampling.errors import SamplesError
from sampling.hardware.cluster import load_cluster
from sampling.importers.estimate_train_time import OPERATORS, Shape, read
from sampling.importers.gate import judge
from sampling.importers.table import ImportRequest
from sampling.operators.gemm import Gemm
from sampling.operators.optimizer import AdamW
from tests.sampling.importers.judged_tables import quarantined


def write(folder: Path, name: str, text: str, kind: str = "operator") -> Path:
    path = folder / "data" / "regressors" / "Perlmutter" / kind / f"NVIDIAA100-SXM4-80GB_{name}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_clone_gives_a_table_a_file_and_direction(tmp_path: Path) -> None:
    write(tmp_path, "linear2_fp16", "mp,b,l,dim,F_dur(us),B_dur(us)\n2.0,2.0,1024.0,5632.0,547.6,1005.6\n")
    write(tmp_path, "allgather_large_fp16_8_1", "shape,nodes,GPUsPerNode,dur(us)\n1000,8,1,90.5\n", "nccl")
    gather, forward, backward = read(ImportRequest(path=tmp_path))
    assert (forward.name, forward.hardware, forward.rows[0].phase) == ("linear2 forward", "a100-80gb", "forward")
    assert forward.rows[0].call == Gemm(dtype="fp16", m=2048, n=5632, k=2816)
    assert (backward.rows[0].phase, backward.rows[0].time_us) == ("backward", 1005.6)
    assert gather.rows[0].call == AllGather(size_bytes=16_000, ranks=8, ranks_per_node=1)


def test_a_direction_that_is_no_call_of_ours_is_noted(tmp_path: Path) -> None:
    write(tmp_path, "res_add_fp16", "b,l,dim,F_dur(us),B_dur(us)\n2,1024,2048,20.0,1.0\n")
    write(tmp_path, "dropout_fp16", "b,l,dim,F_dur(us),B_dur(us)\n2,1024,2048,20.0,1.0\n")
    tables = {table.name: table for table in read(ImportRequest(path=tmp_path))}
    assert "residual_add has no backward" in tables["res_add backward"].remarks[0]
    assert "no operator of ours is its dropout" in tables["dropout forward"].remarks[0]


def test_files_of_another_kind_are_reported_and_passed_over(tmp_path: Path) -> None:
    operator = write(tmp_path, "res_add_fp16", "b,l,dim,F_dur(us)\n2,1024,2048,20.0\n").parent
    write(tmp_path, "optimizer_fp16", "name,mean,worst\nadam,2.0,3.0\n")
    (operator / "NVIDIAA100-SXM4-80GB.csv").write_text("operator,mape\ngelu,3.0\n")
    (operator / "notes.csv").write_text("")
    table, others = read(ImportRequest(path=tmp_path, system="a100-80gb"))
    assert (table.name, others.rows, others.hardware) == ("res_add forward", (), "a100-80gb")
    assert "3 files passed over" in others.remarks[0]
    said = "\n".join(others.remarks)
    assert "NVIDIAA100-SXM4-80GB.csv: its name is not DEVICE_OPERATION.csv" in said
    assert "optimizer_fp16.csv: lacks the columns dur(us) (it has name, mean, worst)" in said
    assert "notes.csv" in said


def test_a_whole_models_optimizer_counts_as_its_table_states() -> None:
    def whole_model(parameters: int, tensors: int) -> Call:
        return OPERATORS["optimizer"][0](Shape(1, 0, 0, 0, 256, 2, parameters, tensors))

    stated = AdamW(dtype="fp16", parameters=27_335_680, tensors=28, tp=1)
    assert whole_model(27_335_680, 28) == whole_model(0, 0) == stated


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "cannot be read as CSV"),
        ("mp,b,l,dim,F_dur(us),B_dur(us)\n", "holds no rows"),
        ("mp,b,l,dim,F_dur(us),B_dur(us)\n1,2,1024,2048,9.0,1.0\n1,2,10", "row 2 has no number in column dim"),
        ("name,price\ncoffee,2\n", "lacks the columns dur"),
        ("b,l,dim,F_dur(us),B_dur(us)\n2,1024,2048,9.0,1.0\n", "lacks the columns mp"),
        ("mp,b,l,dim,F_dur(us),B_dur(us)\n1,2,x,2048,9.0,1.0\n", "row 1 has no number in column l"),
    ],
)
def test_a_bad_file_is_named_with_what_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    path = write(tmp_path, "linear2_fp16", text)
    with pytest.raises(SamplesError, match=said) as failure:
        read(ImportRequest(path=tmp_path))
    assert str(path) in str(failure.value)
    assert failure.value.exit_code == 3


def test_a_time_that_is_no_number_costs_its_row_alone(tmp_path: Path) -> None:
    write(
        tmp_path,
        "res_add_fp16",
        "b,l,dim,F_dur(us)\n" + "2,1024,2048,20.0\n" * 5 + "2,1024,2048,failed\n2,1024,2048,\n",
    )
    (table,) = read(ImportRequest(path=tmp_path))
    cluster = load_cluster(hardware=table.hardware, nodes=1, gpus_per_node=1, profile="test")
    assert quarantined(table) == 1.0  # two of seven are over the limit
    assert judge(replace(table, rows=table.rows[:6]), cluster) == ("",) * 5 + ("no time: nan µs",)


def test_a_folder_without_its_tables_and_an_unknown_system_are_errors(tmp_path: Path) -> None:
    with pytest.raises(SamplesError, match="holds no table of estimate-train-time"):
        read(ImportRequest(path=tmp_path))
    write(tmp_path, "res_add_fp16", "b,l,dim,F_dur(us),B_dur(us)\n2,1024,2048,20.0,1.0\n")
    with pytest.raises(SamplesError, match="it has those of a100-80gb"):
        read(ImportRequest(path=tmp_path, system="gh200"))
