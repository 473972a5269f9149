"""Published RL steps as RL configs, from the columns of their tables and those of weight transfers; a blank cell was not published."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import exp, gcd, log, sqrt
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, Any

from predict.config.document import Document
from predict.model.shipped import shipped_model
from predict.rl.config import RlRun, load_rl
from predict.rl.section import ASYNC, CHUNKS, COLOCATED, ONE_STEP_OFF
from predict.truth_table import columns_of, header_of
from predict.validation.published_row import NotExpressibleError, PublishedRow, read_rows
from predict.validation.published_runs import hardware_of, nodes_of
from sampling.errors import ConfigError
from sampling.files.schema import Key
from sampling.hardware.cluster import hardware_facts

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
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    sp_ulysses: int = 1
    fsdp_size: Count = None
    precision_train: str = ""
    precision_gen: str = ""
    recompute: str = ""
    offload: str = ""
    padding: str = ""
    gen_tp: int = 1
    prompts: Count = None
    n: int = 1
    """Responses to a prompt."""
    prompt_mean: Number = None
    prompt_max: Count = None
    response_mean: Number = None
    response_max: Number = None
    max_seq_len: Number = None
    clip_ratio: Cut = None
    """Share of the responses that are cut."""
    mini_batch_prompts: Count = None
    micro_batch_per_gpu: int = 1
    logprob_micro_batch: Annotated[int, Key(minimum=0)] = 0
    max_tokens_per_gpu_train: Count = None
    max_tokens_per_gpu_logprob: Annotated[int, Key(minimum=0)] = 0
    ppo_epochs: int = 1
    staleness: Number = None
    gen_s: Number = None
    old_log_prob_s: Number = None
    ref_s: Number = None
    update_actor_s: Number = None
    update_weights_s: Number = None
    step_s: Number = None
    rollout_engine: str = ""
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
        "settings that are not read": "zero_stage gen_pp",
    },
)
TRANSFERS = columns_of(TransferRow, STEPS.what, needed=("seconds",), not_read={"remarks": "notes"})


# Distributions of response lengths that published figures of them leave: a mean, a longest, and perhaps the share that was cut.

USUAL_SIGMA = 0.6
"""Width of the logarithm of response lengths of reasoning models where it is not published, between 0.4 and 0.9 in logs of single runs."""
BISECTIONS = 60
NORMAL = NormalDist()


def lognormal_of(mean: float, longest: float, clipped: float | None = None) -> str:
    """`lognormal:MEDIAN,SIGMA` whose lengths, cut to `longest`, have this mean, and where `clipped` is known this share that was cut.

    A mean that no such distribution has, since it is the longest length itself, gives a constant.
    """
    if mean >= 0.999 * longest:
        return f"constant:{round(longest)}"
    if not clipped:
        return _text(_median(mean, longest, USUAL_SIGMA), USUAL_SIGMA)
    quantile = NORMAL.inv_cdf(1 - clipped)

    def mean_at(sigma: float) -> float:
        return cut_mean(longest * exp(-sigma * quantile), sigma, longest)

    sigma = _bisected(lambda sigma: mean_at(sigma) - mean, 0.01, 5.0)
    return _text(longest * exp(-sigma * quantile), sigma)


def cut_mean(median: float, sigma: float, longest: float) -> float:
    """Mean of a lognormal that is cut: e^(μ+σ²/2)·Φ((ln L − μ − σ²)/σ) + L·(1 − Φ((ln L − μ)/σ))."""
    place = log(longest / median) / sigma
    return median * exp(sigma**2 / 2) * NORMAL.cdf(place - sigma) + longest * (1 - NORMAL.cdf(place))


def _median(mean: float, longest: float, sigma: float) -> float:
    return _bisected(lambda median: mean - cut_mean(median, sigma, longest), 1.0, 100 * longest)


def _bisected(falling: Callable[[float], float], low: float, high: float) -> float:
    """The place where a falling function is 0, by bisection of the logarithm."""
    for _ in range(BISECTIONS):
        middle = sqrt(low * high)
        low, high = (middle, high) if falling(middle) > 0 else (low, middle)
    return sqrt(low * high)


def _text(median: float, sigma: float) -> str:
    return f"lognormal:{median:.1f},{sigma:.4f}"


# Rows as configs. A row that leaves open what has no usual value is refused, with the reason.

PROMPT = 120
"""Tokens of a prompt of the usual mathematical data sets, where none are published."""
USUAL_RECOMPUTE = "full"
"""Recomputation where none is published: trainers that leave room for an engine recompute every layer (all but one of the rows that
state it; `activation_checkpointing: true` in NeMo-RL's performance recipes, `enable_gradient_checkpointing` by default in verl)."""
LIKELY_MEANS = (1000.0, 1800.0, 3200.0, 5700.0)
"""Tokens of a mean response where none is published, each as likely: published means of reasoning models lie between the first and the
last."""
USUAL_FETCHES = 4
"""Parts in which verl's asynchronous trainer takes a step where the row does not say (`trigger_parameter_sync_step` of its
fully_async_ppo_trainer.yaml)."""
REQUIRED_BATCHES = re.compile(r"require_batches (\d+)")
"""Mini batches that it takes at once, which the table keeps among its notes."""
TRAINER_SAMPLES = re.compile(r"T-GBS (\d+)")
"""NeMo-RL's samples of an optimizer step, which the table keeps among its notes."""
SPECULATES = re.compile(
    r"(?<!no )(?<!without )\b(MTP|EAGLE-?\d?|specul\w*|n-?gram|num_speculative_tokens)\b(?! off| disabled)",
    re.IGNORECASE,
)
DRAFT_KINDS = {"eagle": re.compile(r"EAGLE", re.IGNORECASE), "ngram": re.compile(r"n-?gram", re.IGNORECASE)}
DRAFT_TOKENS = re.compile(r"(?:num_speculative_tokens\D{0,3}|MTP[ =-]{0,3}|draft tokens?\D{0,3})(\d+)\b", re.IGNORECASE)
DRAFT_ACCEPTANCE = re.compile(r"accept\w* (?:rate )?\D{0,3}(0\.\d+)", re.IGNORECASE)
"""Words by which the notes of a row state drafts, how many they are and how many are accepted."""
VARIANTS = re.compile(r"-(Base|Instruct|Math)\b")
"""Words of a model's name that do not change its shape."""
ALGORITHMS = {"GRPO": "grpo", "PPO": "ppo", "DAPO": "dapo", "REINFORCE++": "reinforce++"}
NEMO, VERL = "NeMo RL", "verl"
SHARDED = {"FSDP2": "fsdp", "FSDP": "fsdp1"}


TRANSFER_COLUMNS = {"source", "model", "placement", "method", "seconds"}
"""Columns that a table of weight transfers has and one of steps does not."""


def is_of_transfers(columns: Iterable[str]) -> bool:
    """Whether a table with these columns is one of weight transfers."""
    return set(columns) >= TRANSFER_COLUMNS


def read_rl_rows(path: Path) -> list[PublishedRow]:
    """The rows of a table of steps, or of weight transfers; ConfigError where there is none, where it cannot be read, or for its
    columns."""
    return read_rows(path, columns=TRANSFERS if is_of_transfers(header_of(path)) else STEPS)


def rl_runs_of(row: PublishedRow) -> tuple[RlRun, ...]:
    """The RL run of a row, or where no mean length of responses is published one for each that is likely.

    NotExpressibleError for a row that cannot be expressed.
    """
    if row.fault:
        raise NotExpressibleError(row.fault)
    hardware = hardware_of(row)
    try:
        outside = {
            "model": _model(row),
            "cluster": _machines(row, hardware),
            "plan": _plan(row),
            "precision": row.text("precision_train") or "bf16",
            "execution": {"framework": _framework(row)},
        }
        sections = [_section(row, mean) for mean in _means(row)]
        return tuple(load_rl(Document(name=row.row_id, content={**outside, "rl": section})) for section in sections)
    except ConfigError as error:
        raise NotExpressibleError("; ".join(str(error).splitlines())) from None


def _means(row: PublishedRow) -> tuple[float, ...]:
    """Mean lengths of responses that a row may have."""
    if mean := row.number("response_mean"):
        return (mean,)
    likely = tuple(mean for mean in LIKELY_MEANS if mean < _longest_response(row))
    if not likely:
        raise NotExpressibleError("response_mean: not published, so that the work of a step is unknown")
    return likely


def _longest_response(row: PublishedRow) -> float:
    """Tokens to which responses are cut; 0 where they are not published."""
    return row.number("response_max") or max(0.0, (row.number("max_seq_len") or 0.0) - _prompt(row))


def _prompt(row: PublishedRow) -> int:
    return round(row.number("prompt_mean") or PROMPT)


def _model(row: PublishedRow) -> str:
    name = VARIANTS.sub("", row.text("model"))
    if shipped_model(name) is None:
        raise NotExpressibleError(f"model: {row.text('model')} is not in configs/models")
    return name


def _machines(row: PublishedRow, hardware: str) -> dict[str, Any]:
    """The trainer's machines."""
    return {"hardware": hardware, **nodes_of(row.integer("train_gpus"), hardware_facts(hardware).gpus_per_node)}


def _framework(row: PublishedRow) -> str:
    engine = row.text("train_engine")
    if engine in SHARDED:
        return SHARDED[engine]
    if engine == "Megatron-Core":
        return "megatron-core"
    raise NotExpressibleError(f"train_engine: {engine or 'not published'} is not modelled")


def _plan(row: PublishedRow) -> dict[str, Any]:
    """The trainer's plan. Optimizer state is sharded as the engine does by default."""
    ulysses = row.integer("sp_ulysses")
    tp, pp, cp = (row.integer(name) for name in ("tp", "pp", "cp"))
    gpus = row.integer("train_gpus")
    if gpus % (tp * pp * cp * ulysses):
        raise NotExpressibleError(f"train_gpus: {gpus} do not divide into tp {tp} · pp {pp} · cp {cp * ulysses}")
    sharded = row.text("train_engine").startswith("FSDP")
    plan: dict[str, Any] = {
        "tp": tp,
        "sp": tp > 1,
        "pp": pp,
        "cp": cp * ulysses,
        "ep": row.integer("ep"),
        "dp": gpus // (tp * pp * cp * ulysses),
        "zero": 3 if sharded else 1,
        "recompute": row.text("recompute") or USUAL_RECOMPUTE,
    }
    if ulysses > 1:
        plan["cp_method"] = "all_to_all"
    if sharded and row.text("fsdp_size"):
        plan["shard"] = row.integer("fsdp_size")
    return plan


def _section(row: PublishedRow, mean: float) -> dict[str, Any]:
    """The section `rl` for responses of this mean length."""
    prompts, n = row.integer("prompts"), row.integer("n")
    prompt, longest = _prompt(row), _longest_response(row)
    if not longest:
        raise NotExpressibleError("response_max and max_seq_len: not published, so that the work of a step is unknown")
    section: dict[str, Any] = {
        "prompts": prompts,
        "n": n,
        "prompt": f"constant:{prompt}",
        "prompt_max": row.integer("prompt_max", prompt),
        "response": lognormal_of(mean, longest, row.number("clip_ratio")),
        "response_max": round(longest),
        "algorithm": ALGORITHMS.get(row.text("algorithm"), row.text("algorithm")),
        "mini_batch": _mini_batch(row, prompts, n),
        "epochs": row.integer("ppo_epochs"),
        "micro": row.integer("micro_batch_per_gpu"),
        "offload": [
            name for name, word in (("parameters", "param"), ("optimizer", "optim")) if word in row.text("offload")
        ],
        "weight_sync": {"method": "tensors" if row.text("framework") == VERL else "buckets"},
        "old_log_prob": row.text("framework") != VERL or row.text("mode") == COLOCATED,
    }
    return section | _microbatches(row) | _placement(row)


def _mini_batch(row: PublishedRow, prompts: int, n: int) -> int:
    samples = TRAINER_SAMPLES.search(row.text("notes"))
    of_note = int(samples[1]) // n if samples else 0
    return row.integer("mini_batch_prompts", min(of_note, prompts), least=0)


def _microbatches(row: PublishedRow) -> dict[str, Any]:
    """The filling of microbatches. NeMo-RL packs sequences into rows of the longest."""
    if row.text("max_tokens_per_gpu_train"):
        passes = row.integer("max_tokens_per_gpu_logprob", least=0)
        return {"max_tokens": row.integer("max_tokens_per_gpu_train"), "passes": {"max_tokens": passes}}
    if row.text("padding") == "sequence packing":
        return {"max_tokens": -(-row.integer("max_seq_len") * row.integer("micro_batch_per_gpu") // row.integer("cp"))}
    return {"passes": {"micro": row.integer("logprob_micro_batch", least=0)}}


def _placement(row: PublishedRow) -> dict[str, Any]:
    colocated = row.text("mode") == COLOCATED
    rollout: dict[str, Any] = {
        "tp": row.integer("gen_tp"),
        "max_num_seqs": 1024,
        "memory_share": 0.6 if colocated else 0.9,
    }
    if "enforce_eager" in row.text("notes"):
        rollout["enforce_eager"] = True
    if drafted := _speculation(row):
        rollout["speculation"] = drafted
    if colocated:
        if row.text("framework") == NEMO:
            rollout["dispatch"] = CHUNKS
        return {"placement": COLOCATED, "rollout": rollout}
    rollout["gpus"] = row.integer("gen_gpus")
    stated = row.number("staleness")
    staleness = stated or 0.0
    rollout["partial"] = staleness > 0 and row.text("framework") == VERL
    if stated is None:
        return {"placement": ONE_STEP_OFF, "rollout": rollout}
    return {"placement": ASYNC, "staleness": staleness, "fetches": _fetches(row), "rollout": rollout}


def _speculation(row: PublishedRow) -> dict[str, Any]:
    """The drafts of the engines, where a row says in words that they have some; with no kind named, those of the model's own layer."""
    text = " ".join(map(row.text, ("rollout_engine", "framework_version", "notes")))
    if not SPECULATES.search(text):
        return {}
    kind = next((kind for kind, words in DRAFT_KINDS.items() if words.search(text)), "mtp")
    stated, accepted = DRAFT_TOKENS.search(text), DRAFT_ACCEPTANCE.search(text)
    found: dict[str, Any] = {"kind": kind, "tokens": int(stated[1]) if stated else 1}
    return found | ({"acceptance": float(accepted[1])} if accepted else {})


def _fetches(row: PublishedRow) -> int:
    """Parts in which the trainer takes a step's samples: verl as its responses end, others all at once."""
    prompts = row.integer("prompts")
    mini_batches = prompts // (row.integer("mini_batch_prompts", 0, least=0) or prompts)
    if row.text("framework") != VERL:
        return 1
    at_once = REQUIRED_BATCHES.search(row.text("notes"))
    return gcd(max(1, mini_batches // int(at_once[1])) if at_once else USUAL_FETCHES, mini_batches)
