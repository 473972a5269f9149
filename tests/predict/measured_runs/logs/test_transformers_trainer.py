"""The step time that TRL's GRPO logs itself."""

from pathlib import Path

from tests.predict.measured_runs.logs.log_text import log, steps_us


def test_grpo_of_trl_logs_its_own_step_time(tmp_path: Path) -> None:
    lines = [
        f"{{'loss': 0.1, 'grad_norm': 0.2, 'num_tokens': {n}, 'step_time': {s}, 'epoch': 0.1}}"
        for n, s in ((1, 14.5), (2, 12.5))
    ]
    assert steps_us(log(tmp_path, "\n".join(lines))) == [(1, 14_500_000), (2, 12_500_000)]
