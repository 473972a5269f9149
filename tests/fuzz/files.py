"""Sound files of every kind that is read, and damage done to them."""

import gzip
import json
import random
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from predict.config.load import load
from predict.huggingface.config_json import load_model
from predict.layers.run_json import dump_run
from predict.measured_runs.logs import read_log
from predict.measured_runs.records import Record, RecordedPrediction, RecordedStep
from predict.plan_search.pricing import Outcome
from predict.plan_search.saved_estimates import save, saved
from predict.reduced_benchmark.benchmark_file import as_json, load_benchmark, load_memory_benchmark
from predict.run.calibration_file import read_calibration
from predict.schedules import registry
from predict.schedules.order_files import read_order, write_order
from predict.schedules.stage_times import read_stage_times
from predict.validation.published_row import read_rows
from regressors.bank.bank import Bank
from sampling.choosing.calls_file import read_calls_file
from sampling.choosing.ranges import read_ranges
from sampling.errors import SamplesError
from sampling.files.places import CONFIGS, SHIPPED_DATA
from sampling.files.schema import read
from sampling.hardware.cluster import read_cluster_file
from sampling.hardware.hardware_file import read_hardware
from sampling.importers import importers
from sampling.importers.gate import judge
from sampling.importers.storing import cluster_of
from sampling.importers.table import ImportRequest
from sampling.store.profiles import read_manifest
from sampling.store.tables import iterate_samples, read_samples
from tests.predict.measured_runs import log_lines
from tests.predict.reduced_benchmark import memory_runs
from tests.predict.reduced_benchmark.priced_machines import benchmarked, run
from tests.sampling.importers.nccl_logs import REDUCED, SMALL, log
from tests.sampling.importers.trace_events import op

SAMPLES = SHIPPED_DATA / "samples" / "epyc-2-cores"
BANK = SHIPPED_DATA / "regressors" / "epyc-2-cores"
TOKENS = (
    "null",
    "true",
    "-1",
    "0",
    "1e400",
    "NaN",
    '"x"',
    '""',
    "[]",
    "{}",
    "9" * 30,
    "1.2.3e5",
    "!!bool x",
    '!!int ""',
    "2024-01-01",
    "&a [*a]",
    "[" * 200,
    "[red]",
    "\x1b[31m",
    "\x00",
    "é",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """A kind of file: its name, sound content, how it is read, and how often it is damaged."""

    name: str
    sound: bytes
    read: Callable[[Path], object]
    cases: int = 25
    says_its_name: bool = True
    """Whether what is wrong is said of this file; a run's may be said of the files that it names."""


def kinds(folder: Path) -> Iterator[Kind]:
    """Every kind of file; `folder` is for those that only a writer can make."""
    demo = CONFIGS / "runs" / "demo.yml"
    absolute = demo.read_text().replace("../", f"{CONFIGS}/")
    yield Kind(name="run.yml", sound=absolute.encode(), read=load, cases=60, says_its_name=False)
    yield Kind(name="cluster.yml", sound=_config("clusters/this-machine.yml"), read=read_cluster_file)
    yield Kind(name="hardware.yml", sound=_config("hardware/h100-sxm.yml"), read=read_hardware)
    yield Kind(name="ranges.yml", sound=_config("sampling/gpu.yml"), read=lambda path: read_ranges(path, "h100-sxm"))
    for model in ("llama3-8b", "deepseek-v3", "gemma3-27b"):
        yield Kind(name=f"{model}.json", sound=_config(f"models/{model}.json"), read=load_model, cases=20)
    benchmark = json.dumps(as_json(benchmarked(run(), 1)), indent=1).encode()
    yield Kind(name="bench.json", sound=benchmark, read=load_benchmark)
    memory = json.dumps({"memory": as_json(memory_runs.benchmark_of(memory_runs.run()))}, indent=1).encode()
    yield Kind(name="memory.json", sound=memory, read=load_memory_benchmark)
    calibration = {
        "version": 2,
        "terms": {"products": 1.1, "in_node": 0.9},
        "covariance": [[0.01] * 7] * 7,
        "date": "2026-11-22",
    }
    yield Kind(name="calibration.json", sound=json.dumps(calibration, indent=1).encode(), read=read_calibration)
    stages = {"forward": [[1], [2]], "backward_input": [[1], [1]], "backward_weight": [[1], [1]], "p2p": 0.1}
    yield Kind(name="stages.json", sound=json.dumps(stages, indent=1).encode(), read=read_stage_times)
    for suffix in ("csv", "json"):
        order = folder / f"order.{suffix}"
        write_order(registry.order("1f1b", ranks=3, chunks=1, microbatches=4), order)
        yield Kind(name=order.name, sound=order.read_bytes(), read=read_order)
    call = {
        "ranks_per_node": 1,
        "call": "gelu",
        "fields": {"dtype": "fp32", "tokens": 8, "width": 8},
        "phases": ["forward"],
    }
    calls = {"version": 2, "hardware": "CPU", "calls": [call]}
    yield Kind(
        name="calls.json", sound=json.dumps(calls, indent=1).encode(), read=lambda path: read_calls_file(path, "CPU")
    )
    header = b"row_id,gpu,n_gpus,seq_len,precision,layers,hidden,step_ms\n"
    truth = header + b"a,H100,8,4096,bf16,32,4096,1000\nb,A100,8,2048,fp16,24,2048,500\n"
    yield Kind(name="truth.csv", sound=truth, read=_truth)
    yield Kind(
        name="manifest.json", sound=(SAMPLES / "manifest.json").read_bytes(), read=lambda p: read_manifest(p.parent)
    )
    yield Kind(name="gelu.parquet", sound=(SAMPLES / "gelu.parquet").read_bytes(), read=_samples)
    log = "\n".join(log_lines.megatron(step, 1.2) for step in range(1, 9)).encode()
    yield Kind(name="train.log", sound=log, read=read_log)
    yield Kind(name="record.json", sound=_record(), read=_recorded)
    save(
        folder / "kept.json",
        (),
        {(0, number): Outcome(number=number, step_us=1e6, memory_bytes=1e9) for number in range(3)},
    )
    yield Kind(name="kept.json", sound=(folder / "kept.json").read_bytes(), read=lambda path: saved(path, ()))
    yield from _imported(folder)


def _record() -> bytes:
    step = RecordedStep(step_us=1e6, p10_us=9e5, p90_us=1.1e6, source="train.log")
    predicted = RecordedPrediction(median_us=1e6, low_us=9e5, high_us=1.1e6)
    made = Record(
        cluster="pod", run="demo", date="2026-11-22", measured=step, predicted=predicted, described=dump_run(run())
    )
    return (json.dumps({**Record.HEADER, **asdict(made)}, indent=1) + "\n").encode()


def _recorded(path: Path) -> object:
    return read(Record, path, error=SamplesError, fix="record it anew").loaded(path)


def _config(path: str) -> bytes:
    return (CONFIGS / path).read_bytes()


def _truth(path: Path) -> object:
    return [(row.fault, row.measured_us, row.number("hidden")) for row in read_rows(path)]


def _samples(path: Path) -> object:
    return list(iterate_samples(read_samples(path.parent)))


def use_bank(path: Path) -> object:
    """Open the bank and rebuild every model of it."""
    bank = Bank.load(path.parent)
    return [bank._artifact.operator(key) for key in bank.keys]


def _imported(folder: Path) -> Iterator[Kind]:
    lines = [op("aten::mm", 0, 10, 1, **{"Input Dims": [[8, 8], [8, 8]], "Input type": ["float", "float"]})]
    trace = json.dumps({"traceEvents": lines}, indent=1).encode()
    yield Kind(name="trace.json", sound=trace, read=partial(_import, "torch-trace", ""))
    yield Kind(name="trace.json.gz", sound=gzip.compress(trace, mtime=0), read=partial(_import, "torch-trace", ""))
    nccl = log("all_reduce_perf", 1, 8, SMALL, REDUCED).encode()
    yield Kind(name="nccl.log", sound=nccl, read=partial(_import, "nccl-tests", ""), cases=40)
    table = b"mp,b,l,dim,F_dur(us),B_dur(us)\n2.0,2.0,1024.0,5632.0,547.6,1005.6\n1,2,512,1024,30.1,70.9\n"
    name = "operator/NVIDIAA100-SXM4-80GB_linear2_fp16.csv"
    yield Kind(name=name, sound=table, read=partial(_import, "estimate-train-time", ""))
    sends = b"shape,nodes,GPUsPerNode,dur(us)\n1000,8,1,90.5\n2000,8,1,99.5\n"
    yield Kind(
        name="nccl/NVIDIAA100-SXM4-80GB_allgather_large_fp16_8_1.csv",
        sound=sends,
        read=partial(_import, "estimate-train-time", ""),
    )
    yield Kind(name="aic.whl", sound=_wheel(folder), read=partial(_import, "aiconfigurator", "h100_sxm"))


def _wheel(folder: Path) -> bytes:
    import pandas as pd

    table, wheel = folder / "gemm_perf.parquet", folder / "sound.whl"
    row = {"gemm_dtype": "bfloat16", "m": 128, "n": 256, "k": 512, "kernel_source": "torch", "latency": 0.01}
    pd.DataFrame([row, row | {"m": 256}]).to_parquet(table, index=False)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(table, "aiconfigurator_core/systems/data/h100_sxm/gemm/vllm/0.11.0/gemm_perf.parquet")
    return wheel.read_bytes()


def _import(source: str, system: str, path: Path) -> object:
    tables = importers()[source].tables(ImportRequest(path=path, system=system))
    return [judge(table, cluster_of(table)) for table in tables]


def damaged(sound: bytes, draw: random.Random) -> bytes:
    """The content with one to three damages: bytes flipped, cut or put in, lines lost or doubled, values replaced."""
    content = sound
    for _ in range(draw.choice((1, 1, 2, 3))):
        content = draw.choice(DAMAGES)(content, draw) or b"\xff"
    return content


def _flipped(content: bytes, draw: random.Random) -> bytes:
    made = bytearray(content)
    made[draw.randrange(len(made))] ^= 1 << draw.randrange(8)
    return bytes(made)


def _cut(content: bytes, draw: random.Random) -> bytes:
    return content[: draw.randrange(len(content))]


def _filled(content: bytes, draw: random.Random) -> bytes:
    place = draw.randrange(len(content))
    return content[:place] + draw.randbytes(draw.choice((1, 4, 64))) + content[place:]


def _lines(content: bytes, draw: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    place = draw.randrange(len(lines))
    return b"".join([*lines[:place], *lines[place : place + 1] * draw.choice((0, 2)), *lines[place + 1 :]])


def _replaced(content: bytes, draw: random.Random) -> bytes:
    """A word or number of the text replaced by a token."""
    words = [word for word in content.replace(b",", b" ").replace(b":", b" ").split() if len(word) < 40]
    if not words:
        return content
    word = draw.choice(words).strip(b"[]{}") or b","
    return content.replace(word, draw.choice(TOKENS).encode(), draw.choice((1, 1, 10)))


DAMAGES = (_flipped, _cut, _filled, _lines, _replaced, _replaced, _replaced)
