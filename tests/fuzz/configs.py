"""Run configs drawn at random: most of them plausible, many with a value or two that nobody should give."""

from __future__ import annotations

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
SIZES: dict[str, tuple[Any, ...]] = {
    "plan.pp": (10_000_000, 100_000, 1000, 64),
    "plan.vpp": (20_000, 1000, 16, 5),
    "plan.tp": (64, 10_000_000, 3),
    "plan.dp": (1_000_000, 3),
    "plan.cp": (64, 3),
    "plan.ep": (64, 256, 7),
    "plan.layout": ("1,2", "Et*4|(t*4|)*14tmL", "t*99999999", "(((((", "9" * 5000, "Et*1|t*1L"),
    "plan.memory_limit": (1, 3, 100),
    "plan.first_stage_layers": (1, 5, 1000),
    "plan.count_loss": (1, 3, 1000),
    "batch.global": (1, 7, 512, 200_000, 2**31 - 1),
    "batch.micro": (1, 2, 64, 100_000),
    "batch.seq_len": (1, 2, 17, 131_072, 10_000_000, 2**31 - 1),
    "cluster.nodes": (1, 2, 1000, 1_250_000),
    "cluster.gpus_per_node": (1, 3, 8, 72, 100_000),
    "cluster.node_size": (1, 3, 8, 72, 100_000),
    "cluster.intra_node_gb_per_s": (1e-300, 1e-6, 0.1, 1e4, 1e9),
    "cluster.inter_node_gb_per_s": (1e-300, 1e-6, 0.1, 1e4, 1e9),
    "cluster.intra_node_latency_us": (1e-300, 0.1, 1e6, 1e9),
    "cluster.inter_node_latency_us": (1e-300, 0.1, 1e6, 1e9),
    "cluster.cores": (1, 2, 1000, 2**31 - 1),
    "execution.product_time": (0.3, 0.7, 1.6, 1e-300, 1e9),
    "execution.memory_time": (0.3, 0.5, 2.0, 1e-300, 1e9),
    "execution.gemm_efficiency": (1.0, 1e-300, 0.01),
    "execution.launch_floor_us": (1e-300, 100.0, 1e9, "1.2.3e5"),
    "execution.step_overhead_us": (1, 10**6, 2**31 - 1),
    "execution.expert_load": ("power_law_1.2", "power_law_" + "9" * 400, "1,2,3", "0,0", "9" * 400 + ",1"),
    "model.num_hidden_layers": (1, 2, 1000, 100_000_000, 2**31 - 1),
    "model.hidden_size": (1, 2, 16, 65_536, 2**31 - 1),
    "model.num_attention_heads": (1, 2, 3, 1024, 2**31 - 1),
    "model.num_key_value_heads": (1, 2, 3, 2**31 - 1),
    "model.intermediate_size": (1, 2, 1000, 2**31 - 1),
    "model.vocab_size": (1, 2, 1000, 2**31 - 1),
    "model.layer_types": (["full_attention"], ["sliding_attention"] * 3, [1]),
    "model.sliding_window": (1, 128, 2**31 - 1),
    "model.n_routed_experts": (1, 2, 1000, 2**31 - 1),
    "model.num_experts_per_tok": (1, 2, 1000, 2**31 - 1),
}
TEXTS: dict[str, tuple[str, ...]] = {
    "plan.schedule": SCHEDULES,
    "plan.recompute": ("none", "selective", "ops", "full"),
    "plan.recompute_modules": ("core_attn", "mlp", "moe,core_attn", "layernorm"),
    "plan.cp_method": ("ring", "all_to_all", "all_gather"),
    "plan.zero": (0, 1, 2, 3),  # type: ignore[dict-item]
    "plan.sp": (True, False),  # type: ignore[dict-item]
    "execution.framework": (*FRAMEWORKS, "torch"),
    "execution.attention": ("best", "fa2", "unfused", "triton"),
    "execution.overlap_tp": ("none", "backward", "pipelined"),
    "execution.overlap_ep": ("none", "shared_expert", "microbatch"),
    "execution.dispatch": ("alltoall", "allgather", "deepep", "hybridep"),
    "execution.elementwise": ("fused", "eager"),
    "execution.optimizer": ("adamw", "muon"),
    "execution.stragglers": (True, False),  # type: ignore[dict-item]
    "execution.overlap_p2p": (True, False),  # type: ignore[dict-item]
    "precision": ("fp32", "bf16", "fp16", "fp8", "tf32"),
}


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
        values = draw.choice((SIZES, SIZES, TEXTS))
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
