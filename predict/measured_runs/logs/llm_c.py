"""Logs of llm.c: the lines of its terminal, which state times, and its file main.log, which states losses alone.

Source: train_gpt2.cu of github.com/karpathy/llm.c (`step 20/19560 | loss 7.5104 (+1.20z)| norm 1.20 (+0.1z)| lr 1.2e-05 | 280.32 ms | 57.9%
bf16 MFU | 1870331 tok/s`), `logger_log_train` of llmc/logger.h (`s:20 trl:7.5104 lr:0.000012 norm:1.20`)."""

import re
from collections.abc import Iterable, Iterator

from predict.measured_runs.steady_state import LoggedStep

FRAMEWORK = "llm.c"
STEP = re.compile(r"^step\s+(\d+)/\d+ \| loss .*\| ([\d.]+) ms \|")
LOSS = re.compile(r"^s:(\d+) (?:trl|tel):")


def read(lines: Iterable[str]) -> Iterator[LoggedStep]:
    for line in lines:
        if found := STEP.match(line):
            yield LoggedStep(step=int(found[1]), time_us=float(found[2]) * 1e3 or None)
        elif found := LOSS.match(line):
            yield LoggedStep(step=int(found[1]))
