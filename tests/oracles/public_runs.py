"""Public logs and traces whose model, plan and device are known, beside what is predicted of them.

    python -m tests.oracles.public_runs

Each run's file is in `../shared/data/traces`; what it does not state itself is from the launch script or the system description beside its
source, which the entry names. The measured step is the one that the reader of the log or trace finds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from predict import estimate, infer_config, load, serving_step
from predict.config.document import Document
from predict.measured_runs.steady_state import RunLog
from predict.reports.inferred import steady_us
from sampling.number_text import duration, signed_percent
from tests.oracles.shared import SHARED

TRACES = SHARED / "data" / "traces"
NEMO = ("execution.framework=nemo", "plan.zero=1", "execution.cuda_graphs=full")


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownRun:
    """A run, and what its file does not say."""

    name: str
    file: str
    settings: Sequence[str]
    source: str
    prefill: Sequence[str] = ()
    decodes: Sequence[str] = ()
    """The batch of a server's step, as the trace's annotation has it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """A measured step beside its prediction, in µs."""

    name: str
    measured_us: float
    predicted_us: float
    low_us: float
    high_us: float

    @property
    def within(self) -> bool:
        return self.low_us <= self.measured_us <= self.high_us


RUNS = (
    KnownRun(
        name="Llama 3.1 405B, 512 GB200, NVFP4",
        file="mlperf_v5.1/llama31_405b_512xGB200_nvfp4_tp4pp8cp2.txt.gz",
        settings=(
            *NEMO,
            *("cluster.hardware=gb200", "cluster.nodes=8", "cluster.gpus_per_node=64", "precision=nvfp4"),
            *(
                "plan.tp=4",
                "plan.sp=true",
                "plan.pp=8",
                "plan.vpp=8",
                "plan.cp=2",
                "plan.dp=8",
                "plan.schedule=interleaved-1f1b",
            ),
            "batch.micro=1",
        ),
        source="config_GB200_128x4x144xtp4pp8cp2_cg_fp4.sh; NVLink joins the 64 GPUs of a replica (SEGMENT)",
    ),
    KnownRun(
        name="Llama 3.1 8B, 32 B200, FP8",
        file="mlperf_v5.1/llama31_8b_32xB200_fp8_cp2.txt.gz",
        settings=(
            *NEMO,
            *("cluster.hardware=b200", "cluster.gpus_per_node=8", "precision=fp8"),
            *("plan.tp=1", "plan.pp=1", "plan.cp=2", "plan.dp=16", "batch.micro=1"),
        ),
        source="config_DGXB200_4x8x1xtp1pp1cp2_8b.sh",
    ),
    KnownRun(
        name="Llama 3.1 8B, 64 H200, FP8",
        file="mlperf_v5.1/llama31_8b_64xH200_fp8_cp2.txt.gz",
        settings=("cluster.hardware=h200", "execution.cuda_graphs=full"),
        source="config_XD670_8x8x1xtp1pp1cp2_8b.sh",
    ),
    KnownRun(
        name="Llama 3.1 8B, 8 MI355X, FP8",
        file="mlperf_v5.1/llama31_8b_8xMI355X.txt.gz",
        settings=(
            *("cluster.hardware=mi355x", "cluster.nodes=1", "cluster.gpus_per_node=8", "precision=fp8"),
            *("plan.tp=1", "plan.pp=1", "plan.cp=1", "plan.dp=8", "plan.zero=1", "batch.micro=2"),
            "execution.framework=megatron-core",
        ),
        source="the system's description beside the log",
    ),
    KnownRun(
        name="Llama 2 70B with LoRA, 72 GB200, FP8",
        file="mlperf_v5.1/llama2_70b_lora_72xGB200_cp8.txt.gz",
        settings=(
            *NEMO,
            *("cluster.hardware=gb200", "cluster.nodes=1", "cluster.gpus_per_node=72", "precision=fp8"),
            *("plan.tp=1", "plan.pp=1", "plan.cp=8", "plan.cp_method=all_to_all", "plan.dp=9", "batch.micro=1"),
        ),
        source="config_GB200_18x4x1xtp1pp1cp8.sh; one rack of NVL72; cp_comm_type a2a (MLPerf Training, megatron_gpt_peft_tuning_config.yaml)",
    ),
    KnownRun(
        name="modded-nanogpt, 1.5B, 8 H100",
        file="modded-nanogpt/track_1_short_2024-10-20_ScaleUp1B.log.gz",
        settings=(),
        source="its own code",
    ),
    KnownRun(
        name="modded-nanogpt, 124M, 8 H100",
        file="modded-nanogpt/track_3_optimization_results.log.gz",
        settings=(
            *(
                "cluster.hardware=h100-sxm",
                "cluster.nodes=1",
                "cluster.gpus_per_node=8",
                "execution.framework=nanochat",
            ),
            *("plan.tp=1", "plan.pp=1", "plan.cp=1", "plan.dp=8"),
        ),
        source="its own code",
    ),
    KnownRun(
        name="Qwen3 8B, prompts of 15,360 tokens, SGLang on MI300X",
        file="tracelens/inference/sglang_prefilldecode/sglang_Qwen3-8B_prefilldecode.json.gz",
        settings=("load.rate=1", "load.prompt=1024", "load.output=128"),
        prefill=("15x1024",),
        source="its annotation",
    ),
    KnownRun(
        name="Qwen3 8B, 32 decodes, SGLang on MI300X",
        file="tracelens/inference/sglang_decode/sglang_Qwen3-8B_decode.json.gz",
        settings=("load.rate=1", "load.prompt=1024", "load.output=128"),
        decodes=("32x1024",),
        source="its annotation, 32,785 tokens in the cache",
    ),
)


def held(runs: Sequence[KnownRun] = RUNS, folder: Path = TRACES) -> Iterator[Held]:
    """The runs whose files are there, each beside its prediction."""
    for run in runs:
        if not (folder / run.file).is_file():
            continue
        found = infer_config(folder / run.file).with_settings(run.settings)
        document = Document(name=run.name, content=found.document)
        if isinstance(found.measured, RunLog):
            predicted = estimate(load(document), require_fit=False).step_time
            times_us = (predicted.median_us, predicted.low_us, predicted.high_us)
            measured_us = steady_us(found.measured) or 0.0
        else:
            assert isinstance(found.measured, tuple)
            step = serving_step(document, decodes=run.decodes, prefill=run.prefill)
            time = step.steppers[0].step_times([step.batch])[0]
            times_us = (time.median, time.low, time.high)
            measured_us = found.measured[0].busy_us
        predicted_us, low_us, high_us = times_us
        yield Held(name=run.name, measured_us=measured_us, predicted_us=predicted_us, low_us=low_us, high_us=high_us)


def table(rows: Sequence[Held]) -> str:
    lines = [
        f"{row.name:56} {duration(row.measured_us):>9} {duration(row.predicted_us):>9} {signed_percent(row.predicted_us / row.measured_us - 1):>8}  "
        f"{duration(row.low_us)} to {duration(row.high_us)}{'' if row.within else '  outside'}"
        for row in rows
    ]
    inside = sum(row.within for row in rows)
    return "\n".join(
        [
            f"{'run':56} {'measured':>9} {'predicted':>9} {'error':>8}  90 %",
            *lines,
            f"{inside} of {len(rows)} within the interval",
        ]
    )


if __name__ == "__main__":
    print(table([*held()]))
