"""Small spaces of plans, servers and RL steps at random, whose best is found by predicting every combination by itself."""

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import predict
from predict.config.overrides import as_settings
from sampling.errors import InfeasibleError, UserError

NEAR = 1e-9
Content = dict[str, Any]
Values = Mapping[str, Sequence[Any]]
"""Key path → its values."""
TRAINING: Values = {
    "plan.tp": (1, 2, 4, 8),
    "plan.pp": (1, 2, 4),
    "plan.cp": (1, 2),
    "plan.zero": (0, 1, 2, 3),
    "plan.sp": (False, True),
    "plan.vpp": (1, 2),
    "plan.recompute": ("none", "selective", "full"),
    "batch.micro": (1, 2, 4),
    "plan.schedule": ("1f1b", "interleaved-1f1b", "zb-h1"),
    "plan.ep": (1, 2, 8),
    "execution.overlap_gradients": (False, True),
}
SERVING: Values = {
    "placement.tp": (1, 2, 4, 8),
    "placement.precision": ("bf16", "fp8"),
    "engine.max_num_seqs": (4, 16, 64, 256),
    "engine.max_num_batched_tokens": (512, 2048, 8192),
    "hardware": ("H100", "A100-80GB", "H200"),
}
RL: Values = {
    "rl.rollout.tp": (1, 2, 4, 8),
    "plan.tp": (1, 2, 4),
    "plan.zero": (1, 2, 3),
    "rl.mini_batch": (4, 8, 16),
    "rl.rollout.memory_share": (0.5, 0.7, 0.9),
    "plan.recompute": ("none", "full"),
}
SPACES: Mapping[str, Values] = {"training": TRAINING, "serving": SERVING, "rl": RL}


def opened(seed: int) -> tuple[str, Content, dict[str, list[Any]]]:
    """The kind of a space, its config, and the keys of it that are open."""
    draw = random.Random(f"space {seed}")
    name = list(SPACES)[seed % len(SPACES)]
    values = SPACES[name]
    paths = draw.sample(list(values), 3)
    varied = {path: sorted(draw.sample(list(values[path]), 2), key=str) for path in paths}
    return name, CONTENTS[name](draw), varied


def _training(draw: random.Random) -> Content:
    model = draw.choice(("llama3-8b", "gpt2", "qwen3-30b-a3b", "deepseek-v2-lite"))
    fixed = {
        "tp": 2,
        "sp": True,
        "pp": 1,
        "vpp": 1,
        "cp": 1,
        "ep": 1,
        "etp": 1,
        "zero": 1,
        "schedule": "1f1b",
        "recompute": "full",
    }
    return {
        "model": model,
        "cluster": {"hardware": draw.choice(("h100-sxm", "b200")), "nodes": 2, "gpus_per_node": 8, "profile": "none"},
        "plan": {**fixed, "dp": "auto"},
        "batch": {"global": draw.choice((32, 64)), "micro": 1, "seq_len": draw.choice((1024, 4096))},
        "precision": "bf16",
        "execution": {},
    }


def _serving(draw: random.Random) -> Content:
    load = {"rate": draw.choice((1, 4)), "prompt": draw.choice((100, 600)), "output": 30, "duration_s": 10}
    engine = {"name": "vllm-v1", "max_num_seqs": 32}
    placement = {"tp": 1, "precision": "bf16"}
    return {"model": "llama3-8b", "hardware": "H100", "placement": placement, "engine": engine, "load": load}


def _rl(draw: random.Random) -> Content:
    lengths = {"prompt": "constant:64", "prompt_max": 64, "response": "constant:128", "response_max": 128}
    return {
        "model": "llama3-8b",
        "cluster": {"hardware": "h100-sxm", "nodes": 2, "gpus_per_node": 8},
        "plan": {"zero": 1},
        "precision": "bf16",
        "rl": {"prompts": 16, "n": draw.choice((2, 4)), **lengths, "mini_batch": 8, "offload": ["parameters"]},
    }


CONTENTS = {"training": _training, "serving": _serving, "rl": _rl}


def combinations(varied: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*varied.values()):
        yield dict(zip(varied, values, strict=True))


def differs_from_brute_force(seed: int) -> Iterator[str]:
    """Where the best of a search is not the best of all combinations."""
    name, content, varied = opened(seed)
    least = min(BRUTE[name](content, varied), default=None)
    settings = as_settings({path: list(values) for path, values in varied.items()})
    try:
        found: float | None = SEARCHED[name](content, settings)
    except InfeasibleError:
        found = None
    if (least is None) != (found is None) or (
        least is not None and found is not None and abs(found - least) > NEAR * abs(least)
    ):
        yield f"{name} space {seed}: the search finds {found}, brute force {least}; {varied}"


def _training_by_hand(content: Content, varied: Mapping[str, Sequence[Any]]) -> Iterator[float]:
    for settings in combinations(varied):
        degrees = [
            settings.get(path, content["plan"][path.partition(".")[2]]) for path in ("plan.tp", "plan.pp", "plan.cp")
        ]
        dp, rest = divmod(16, degrees[0] * degrees[1] * degrees[2])
        try:
            found = predict.one_batch(content, as_settings({**settings, "plan.dp": dp})) if dp and not rest else None
        except UserError:
            continue
        if found and found.memory.feasible:
            yield found.median_us


def _training_searched(content: Content, settings: Sequence[str]) -> float:
    plans = predict.search(content, settings, jobs=1).plans  # one that fits surely may stand before the fastest
    return min(plan.prediction.median_us for plan in plans)


def _serving_by_hand(content: Content, varied: Mapping[str, Sequence[Any]]) -> Iterator[float]:
    for settings in combinations(varied):
        try:
            found = predict.serving_answer(content, as_settings(settings), model="formula", find_capacity=True)
        except UserError:
            continue
        rate = found.capacity
        assert rate is not None
        yield found.server.run.server.placement.gpus / rate.median


def _serving_searched(content: Content, settings: Sequence[str]) -> float:
    found = predict.search(content, settings, objective="gpu-time", model="formula").best[0].prediction
    return float(found.server.run.server.placement.gpus / found.capacity.median)


def _rl_by_hand(content: Content, varied: Mapping[str, Sequence[Any]]) -> Iterator[float]:
    for settings in combinations(varied):
        tp = settings.get("plan.tp", 1)
        try:
            found = predict.rl_step(content, as_settings({**settings, "plan.dp": 16 // tp}))
        except UserError:
            continue
        if found.memory.fits:
            yield -found.tokens_per_second_per_gpu


def _rl_searched(content: Content, settings: Sequence[str]) -> float:
    found = predict.search({**content, "plan": {**content["plan"], "dp": 16}}, settings).best[0].prediction
    assert found is not None
    return -found.tokens_per_second_per_gpu


BRUTE = {"training": _training_by_hand, "serving": _serving_by_hand, "rl": _rl_by_hand}
SEARCHED = {"training": _training_searched, "serving": _serving_searched, "rl": _rl_searched}
