"""Lines of logs as the sources write them that the modules of `predict.measured_runs.logs` name; seconds are those of the step."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


def megatron(step: int, s: float) -> str:
    return (
        f" [2026-03-12 10:{step:02d}:00] iteration {step:8d}/     500 | consumed samples: {128 * step:12d} | elapsed time per iteration (ms): "
        f"{1e3 * s:.1f} | throughput per GPU (TFLOP/s/GPU): {7500 / s:.1f} | learning rate: 1.500000E-06 | global batch size:   128 | "
        f"lm loss: 1.05E+01 | loss scale: 1.0 | grad norm: 5.2 | number of skipped iterations:   {int(step == 17)} | number of nan iterations:   0 |"
    )


def bridge(step: int, s: float) -> str:
    return (
        f"Step Time : {s:.2f}s GPU utilization: {7500 / s:.1f}MODEL_TFLOP/s/GPU\n iteration {step:8d}/      50 | consumed samples: 128 | elapsed "
        f"time per iteration (ms): {1e3 * s:.1f} | learning rate: 3.0E-05 | global batch size:   128 | lm loss: 8.1E+00 |"
    )


def bigscience(step: int, s: float) -> str:
    return (
        f" iteration {step:8d}/  500 | consumed samples: 128 | elapsed time per iteration (s): {s:.2f} | global batch size: 128 | lm loss: 2.0E+00 "
        f"| number of skipped iterations:   0 | samples per second: {128 / s:.3f} | TFLOPs: {7500 / s:.2f} |"
    )


def neox(step: int, s: float) -> str:
    return (
        f"[2026-03-12 10:{step:02d}:00,269] [INFO] [timer.py:215:stop] epoch=0/micro_step={step}/global_step={step}, RunningAvgSamplesPerSec=7.86, "
        f"CurrSamplesPerSec={120 / s}, MemAllocated=59.65GB, MaxMemAllocated=60.0GB\n samples/sec: {128 / s:.3f} | iteration {step:8d}/   10000 | "
        f"elapsed time per iteration (ms): {1e3 * s:.1f} | learning rate: 2.111E-06 | approx flops per GPU: {7500 / s:.1f}TFLOPS | lm_loss: 1.1E+01"
        " | number of skipped iterations:   0 | number of nan iterations:   0 |"
    )


def nemo(step: int, s: float) -> str:
    return (
        f"Training epoch 0, iteration {step - 1}/499 | lr: 1.961e-06 | global_batch_size: 128 | global_step: {step - 1} | peak_memory_usage: "
        f"64424509440 | reduced_train_loss: 1.315 | train_step_timing in s: {s:.3f}"
        + f" | consumed_samples: {128 * step}"
        * (step > 1)
    )


def nemo_bar(step: int, s: float) -> str:
    return (
        f"Epoch 0: : {step}%|█| {step}/100 [10:48<00:00, reduced_train_loss=0.0172, global_step={step - 1}.00, consumed_samples=256.0, "
        f"train_step_timing in s={s:.3f}]"
    )


def torchtitan(step: int, s: float) -> str:
    return (
        f"[rank0]:[titan] 2026-03-12 10:{step:02d}:00,123 - root - INFO - \x1b[31mstep: {step:2d}  \x1b[32mloss: 10.9  \x1b[38;2;180;60;0mmemory: "
        f"60.00GiB(75.89%)  \x1b[34mtps: {16384 / s:,.0f}  \x1b[36mtflops: {7500 / s:.2f}  \x1b[35mmfu: 50.00%\x1b[39m"
    )


def deepspeed(step: int, s: float) -> str:
    return (
        f"[2026-03-12 10:{step:02d}:00,710] [INFO] [logging.py:96:log_dist] [Rank 0] step={step}, skipped={int(step >= 17)}, lr=[5e-05]\n"
        f"[2026-03-12 10:{step:02d}:00,714] [INFO] [timer.py:260:stop] epoch=0/micro_step={4 * step}/global_step={step}, RunningAvgSamplesPerSec="
        f"1.5, CurrSamplesPerSec={128 / s}, MemAllocated=4.32GB, MaxMemAllocated=60.0GB"
    )


def pipeline(step: int, s: float) -> str:
    return (
        f"steps: {step} loss: 5.5508 lm loss: 5.5103 moe loss: 0.0405 iter time (s): {s:.3f} samples/sec: {128 / s:.3f}"
    )


def verl(step: int, s: float) -> str:
    return (
        f"(TaskRunner pid=7) step:{step} - actor/entropy:0.4 - perf/time_per_step:np.float64({s}) - perf/throughput:{16384 / s} - "
        "perf/max_memory_allocated_gb:60.0"
    )


def prime_rl(step: int, s: float) -> str:
    return (
        f"12:00:01 SUCCESS Step {step - 1} | Time: {s:.2f}s | Loss: 0.0012 | Throughput: 61234 tokens/s | MFU: 31.2% | "
        "Peak Mem.: 60.0/79.2 GiB (90%)"
    )


def llm_c(step: int, s: float) -> str:
    return f"step {step:4d}/19560 | loss 7.5104 (+1.20z)| norm 1.20 (+0.1z)| lr 1.2e-05 | {1e3 * s:.2f} ms | 57.9% bf16 MFU | 1870331 tok/s"


@dataclass(frozen=True, slots=True)
class LogFormat:
    """A format's lines, whose log it is, and what is read of 20 steps: those that count, and the peak of memory."""

    line: Callable[[int, float], str]
    framework: str
    lines: int = 10
    peak_bytes: float | None = None


FORMATS = {
    "Megatron-LM": LogFormat(megatron, "Megatron", lines=9),
    "Megatron-Bridge": LogFormat(bridge, "Megatron"),
    "BigScience": LogFormat(bigscience, "Megatron"),
    "GPT-NeoX": LogFormat(neox, "Megatron", peak_bytes=60 * 2**30),
    "NeMo": LogFormat(nemo, "NeMo", peak_bytes=60 * 2**30),
    "NeMo's bar": LogFormat(nemo_bar, "NeMo"),
    "torchtitan": LogFormat(torchtitan, "torchtitan", peak_bytes=60 * 2**30),
    "DeepSpeed": LogFormat(deepspeed, "DeepSpeed", lines=9, peak_bytes=60 * 2**30),
    "DeepSpeed's pipeline": LogFormat(pipeline, "DeepSpeed"),
    "verl": LogFormat(verl, "verl", peak_bytes=60 * 2**30),
    "prime-rl": LogFormat(prime_rl, "prime-rl", peak_bytes=60 * 2**30),
    "llm.c": LogFormat(llm_c, "llm.c"),
}


def seconds(step: int) -> float:
    """A slow start, a spike for a checkpoint, an odd skipped step, and noise about 15 s."""
    return {1: 90.0, 2: 30.0, 14: 40.0, 17: 9.0}.get(step, 15.0 + 0.1 * (step % 3 - 1))


def written(path: Path, line: Callable[[int, float], str], steps: Sequence[int] = range(1, 21)) -> Path:
    path.write_text("\n".join(["NCCL version 2.27", *(line(step, seconds(step)) for step in steps), "done"]) + "\n")
    return path
