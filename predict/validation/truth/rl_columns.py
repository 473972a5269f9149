"""The columns of tables of published RL steps and of weight transfers; a blank cell was not published."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from predict.validation.truth.table import columns_of
from sampling.files.keys import Key

Number = Annotated[float | None, Key(minimum=0)]
Count = Annotated[int | None, Key(minimum=0)]
Cut = Annotated[float | None, Key(minimum=0, maximum=0.999)]


@dataclass(frozen=True, kw_only=True, slots=True)
class StepRow:
    """One published step; times in seconds."""

    row_id: str
    source_id: str = "table"
    framework: str = ""
    framework_version: str = ""
    algorithm: str = ""
    mode: str = ""
    """colocated, or async where trainer and engines have GPUs of their own."""
    model: str = ""
    gpu: str = ""
    n_gpus: Count = None
    train_gpus: Count = None
    gen_gpus: Count = None
    train_engine: str = ""
    tp: Count = None
    pp: Count = None
    cp: Count = None
    ep: Count = None
    sp_ulysses: Count = None
    fsdp_size: Count = None
    precision_train: str = ""
    precision_gen: str = ""
    recompute: str = ""
    offload: str = ""
    padding: str = ""
    gen_tp: Count = None
    prompts: Count = None
    n: Count = None
    """Responses to a prompt."""
    prompt_mean: Number = None
    prompt_max: Count = None
    response_mean: Number = None
    response_max: Number = None
    max_seq_len: Number = None
    clip_ratio: Cut = None
    """Share of the responses that are cut."""
    mini_batch_prompts: Count = None
    micro_batch_per_gpu: Count = None
    logprob_micro_batch: Count = None
    max_tokens_per_gpu_train: Count = None
    max_tokens_per_gpu_logprob: Count = None
    ppo_epochs: Count = None
    staleness: Number = None
    gen_s: Number = None
    old_log_prob_s: Number = None
    ref_s: Number = None
    update_actor_s: Number = None
    update_weights_s: Number = None
    step_s: Number = None
    notes: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class TransferRow:
    """One published transfer of weights to the engines."""

    row_id: str = ""
    source: str
    model: str
    placement: str
    method: str
    seconds: Number = None


STEPS = columns_of(
    StepRow,
    "a table of published RL steps, or of weight transfers with source, model, placement, method and seconds",
    needed=("step_s",),
    not_read={
        "where a row comes from": "source missing step_is",
        "figures that are not compared": "reward_s values_s adv_s update_critic_s wait_gen_s testing_s tokens_per_step"
        " tokens_per_s_per_gpu mfu_actor peak_mem_gb samples",
        "settings that are not read": "zero_stage rollout_engine gen_pp",
    },
)
TRANSFERS = columns_of(TransferRow, STEPS.what, needed=("seconds",), not_read={"remarks": "notes"})
