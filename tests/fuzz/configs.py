"""Run configs drawn at random: most of them plausible, many with a value or two that nobody should give."""

import datetime
import json
import random
from pathlib import Path
from typing import Any

import yaml

from sampling.files.places import CONFIGS

Config = dict[str, Any]
Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
MODELS = (
    "demo-llama",
    "llama3-8b",
    "llama3-70b",
    "mixtral-8x7b",
    "deepseek-v2-lite",
    "deepseek-v3",
    "qwen3.5-35b-a3b",
    "gemma2-27b",
    "gpt-oss-20b",
    "gpt2",
    "tiny-llama",
    "long-llama",
)
GPUS = ("a100-80gb", "h100-sxm", "b200", "mi300x", "rtx-4090")
FRAMEWORKS = ("megatron-core", "nemo", "fsdp", "torchtitan", "megatron-deepspeed")
SCHEDULES = ("1f1b", "interleaved-1f1b", "gpipe", "zb-h1", "zbv", "dualpipe", "afab")
DEGREES = (1, 1, 1, 2, 2, 4, 8)
ODD: tuple[Any, ...] = (
    0,
    -1,
    1,
    3,
    2**31 - 1,
    2**31,
    10**18,
    10**400,
    0.3,
    1.5,
    1e-300,
    1e300,
    float("inf"),
    float("nan"),
    "",
    "x",
    "1.2.3e5",
    "1e9",
    "[red]",
    "a\0b",
    "x" * 400,
    "../../etc/passwd",
    True,
    None,
    [],
    [1, 2],
    {},
    {"x": {"y": 1}},
    datetime.date(2024, 1, 1),
)
VALUES: dict[str, dict[str, list[Any]]] = yaml.load(
    Path(__file__)
    .with_name("values.yml")
    .read_text()
    .replace("NINES_5000", "9" * 5000)
    .replace("NINES_400", "9" * 400),
    Loader=yaml.CSafeLoader,
)
"""Part of a config → key path → values that it is given there."""


def plausible(draw: random.Random) -> Config:
    """A config whose degrees, batch and cluster agree."""
    on_cpu = draw.random() < 0.3
    tp, pp, cp, dp = (draw.choice(DEGREES) for _ in range(4))
    if on_cpu:
        tp, pp, cp, dp = draw.choice(((1, 1, 1, 1), (1, 2, 1, 1), (2, 1, 1, 1), (1, 1, 1, 2)))
    world = tp * pp * cp * dp
    per_node = min(world, 2 if on_cpu else 8)
    schedule = draw.choice(SCHEDULES[:3]) if pp > 1 else "1f1b"
    micro = draw.choice((1, 1, 2, 4))
    cluster: Config = {
        "hardware": "cpu" if on_cpu else draw.choice(GPUS),
        "nodes": world // per_node,
        "gpus_per_node": per_node,
        "profile": "epyc-2-cores" if on_cpu and draw.random() < 0.8 else "unsampled",
    }
    if on_cpu:
        cluster["cores"] = 2
    return {
        "model": str(
            CONFIGS / "models" / f"{draw.choice(MODELS[:1] if on_cpu and draw.random() < 0.5 else MODELS)}.json"
        ),
        "cluster": cluster,
        "plan": {
            "tp": tp,
            "sp": tp > 1 and draw.random() < 0.8,
            "pp": pp,
            "vpp": 2 if schedule == "interleaved-1f1b" else 1,
            "dp": dp,
            "cp": cp,
            "zero": draw.choice((0, 1, 2, 3)) if dp > 1 else 0,
            "schedule": schedule,
            "recompute": draw.choice(("none", "selective", "ops", "full")),
        },
        "batch": {
            "global": micro * dp * pp * draw.choice((1, 2, 4)),
            "micro": micro,
            "seq_len": draw.choice((128, 512, 4096, 8192)),
        },
        "precision": "fp32" if on_cpu else draw.choice(("bf16", "bf16", "fp16", "fp32")),
        "execution": {"framework": draw.choice(FRAMEWORKS)} if not on_cpu else {},
    }


def settings(draw: random.Random) -> dict[str, Any]:
    """Key paths, and values that replace what a config says there."""
    found: dict[str, Any] = {}
    for _ in range(draw.choice((0, 0, 1, 1, 1, 2, 3))):
        values = VALUES[draw.choice(("sizes", "sizes", "texts"))]
        path = draw.choice(list(values))
        found[path] = draw.choice(ODD) if draw.random() < 0.25 else draw.choice(values[path])
    return found


def drawn(case: int) -> tuple[Config, dict[str, Any]]:
    """A config and the odd values that were put into it."""
    draw = random.Random(case)
    config, odd = plausible(draw), settings(draw)
    for path, value in odd.items():
        section, _, key = path.partition(".")
        if section == "model" and isinstance(config["model"], str):
            config["model"] = json.loads(Path(config["model"]).read_text())
        if not key:
            config[section] = value
        elif isinstance(config[section], dict):
            config[section][key] = value
    return config, odd
