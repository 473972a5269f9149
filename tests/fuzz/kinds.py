"""Serving configs, RL configs and module files drawn at random: most of them plausible, many with a value or two that nobody should give."""

import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import predict
from predict.bounds.analysis import Analysis
from predict.interval import Interval
from predict.rl.step import RlStep
from predict.serving.questions import ServerAnswer
from tests.fuzz.configs import GPUS, ODD, VALUES, Config

NEAR = 1e-9
MODELS = (
    "llama3-8b",
    "llama3-70b",
    "mixtral-8x7b",
    "qwen3-30b-a3b",
    "deepseek-v2-lite",
    "gemma2-27b",
    "gpt-oss-20b",
    "demo-llama",
)


def _odd(draw: random.Random, config: Config, values: Mapping[str, list[Any]]) -> dict[str, Any]:
    """Values put into a config at key paths."""
    found = {}
    for _ in range(draw.choice((0, 0, 1, 1, 2, 3))):
        path = draw.choice(list(values))
        value = draw.choice(ODD) if draw.random() < 0.2 else draw.choice(values[path])
        *sections, key = path.split(".")
        place: Any = config
        for section in sections:
            place = place.setdefault(section, {}) if isinstance(place, dict) else None
        if isinstance(place, dict):
            place[key] = found[path] = value
    return found


def server(case: int) -> tuple[Config, dict[str, Any]]:
    """A serving config and the odd values that were put into it."""
    draw = random.Random(f"server {case}")
    config: Config = {
        "model": draw.choice(MODELS),
        "hardware": draw.choice(GPUS),
        "placement": {"tp": draw.choice((1, 2, 4, 8)), "precision": "bf16"},
        "engine": {"name": "vllm-v1", "max_num_seqs": draw.choice((8, 64, 256))},
        "load": {"prompt": draw.choice((50, 600)), "output": draw.choice((20, 100))},
    }
    own = config["load"]
    own |= (
        {"concurrency": draw.choice((1, 16)), "requests": 40}
        if draw.random() < 0.3
        else {"rate": draw.choice((0.5, 4)), "duration_s": 10}
    )
    return config, _odd(draw, config, VALUES["serving"])


def rl_run(case: int) -> tuple[Config, dict[str, Any]]:
    """An RL config and the odd values that were put into it."""
    draw = random.Random(f"rl {case}")
    nodes, tp = draw.choice((1, 2)), draw.choice((1, 2, 4))
    config: Config = {
        "model": draw.choice(MODELS),
        "cluster": {"hardware": draw.choice(GPUS[:4]), "nodes": nodes, "gpus_per_node": 8},
        "plan": {"tp": tp, "dp": 8 * nodes // tp, "zero": draw.choice((1, 3))},
        "precision": "bf16",
        "rl": {
            "prompts": draw.choice((16, 64)),
            "n": draw.choice((2, 8)),
            "prompt": draw.choice(("constant:64",)),
            "prompt_max": 64,
            "response": draw.choice(("constant:128", "lognormal:100,0.5")),
            "response_max": 256,
            "mini_batch": 16,
            "rollout": {"tp": draw.choice((1, 2, 8))},
        },
    }
    return config, _odd(draw, config, VALUES["rl"])


def module(case: int) -> tuple[str, str]:
    """The source of a module file, and what is odd in it."""
    draw = random.Random(f"module {case}")
    width, rows = draw.choice((1, 8, 96, 4096)), draw.choice((1, 3, 128, 8192))
    steps = "\n".join(f"        x = {draw.choice(STEPS)}" for _ in range(draw.randrange(1, 6)))
    source = f"""import torch
from torch import nn
import torch.nn.functional as F
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.p = nn.Linear({width}, {width})
        self.n = nn.LayerNorm({width})
    def forward(self, x):
{steps}
        return x
def get_inputs():
    return [torch.randn({rows}, {width})]
"""
    odd = draw.choice(ODD_SOURCES) if draw.random() < 0.5 else ("", "")
    return source.replace(*odd) if all(odd) else source + odd[1], str(odd)


STEPS = (
    "self.p(x)", "self.n(x)", "F.gelu(x)", "x + x", "x @ x.T @ x", "F.softmax(x, -1)", "x.T.contiguous().T", "x.view(-1).view_as(x)",
    "torch.cat([x, x])[: x.shape[0]]", "x.sum(-1, keepdim=True) * x", "x.to(torch.float32)", "F.dropout(x, 0.1)", "x[:, :1].expand_as(x)",
    "torch.where(x > 0, x, -x)", "x.cumsum(0)", "x.sort(0).values", "F.scaled_dot_product_attention(x[None], x[None], x[None])[0]",
    "torch.fft.fft(x).real", "x.half()", "torch.einsum('ij,kj->ik', x, x) @ x", "nn.functional.interpolate(x[None, None], scale_factor=2)[0, 0]",
    "x if x.sum() > 0 else -x", "x[x > 0]", "torch.linalg.qr(x).Q", "torch.nonzero(x).float()", "x.item()", "undefined(x)", "x / 0", "None", "x.to('cuda')",
)  # fmt: skip
ODD_SOURCES = (
    ("return [torch.randn", "return [torch.ones"), ("return x", "return [x, {'y': x}]"), ("return x", "return None"), ("return x", "pass"),
    ("return x", "raise SystemExit(0)"), ("return x", "raise KeyboardInterruptError"), ("def get_inputs", "def get_input"), ("Model", "Modell"),
    ("(nn.Module)", ""), ("import torch\n", "import torch, nothing_of_this_name\n"), ("return [torch", "return [torch.randn(2**40, 2**20), torch"),
    ("return [", "return 1, ["), ("super().__init__()", "pass"), ("nn.Linear(", "nn.Linear(2**33, "), ("self.p =", "self.q ="), ("", "\x00"),
    ("", "\n" + "(" * 300), ("", "\nimport sys; sys.exit(3)"), ("", "\nprint('x' * 10**6)"), ("", "\ndef get_init_inputs(): return 3"),
    ("", "\ndef get_init_inputs(): return {'no': 1}"), ("", "\nraise RuntimeError('[red]\\x1b[31m')"), ("", "\nModel = 3"), ("", "\né = 'é' * 3"),
)  # fmt: skip
"""What is replaced in a module file by what; what is put at its end where it is nothing."""


def _times(name: str, found: Interval | None) -> Iterator[str]:
    if found is not None and not 0 <= found.low <= found.median * (1 + NEAR) <= found.high * (1 + NEAR) <= math.inf:
        yield f"{name}: {found}"


def nonsense_of_server(found: ServerAnswer) -> Iterator[str]:
    """What no server can do."""
    for outcome in found.outcomes:
        latency, own = outcome.latency, outcome.latency
        for name in ("e2e", "ttft", "tpot"):
            spread = getattr(latency, name)
            values = [spread.mean_us, *spread.percentiles_us.values()]
            if not all(math.isfinite(value) and value >= 0 for value in values):
                yield f"{name} {spread}"
            if list(spread.percentiles_us.values()) != sorted(spread.percentiles_us.values()):
                yield f"percentiles of {name} {spread}"
        if not own.ttft.mean_us <= own.e2e.mean_us * (1 + NEAR):
            yield f"the first token after {own.ttft.mean_us}, the last after {own.e2e.mean_us} µs"
        if not 0 < own.requests_per_s < math.inf or not 0 < own.output_tokens_per_s < math.inf:
            yield f"{own.requests_per_s} requests, {own.output_tokens_per_s} tokens per second"
        yield from _times("answered", outcome.answered)
    yield from _times("capacity", found.capacity)


def nonsense_of_rl(found: RlStep) -> Iterator[str]:
    """What no RL step can be."""
    yield from _times("step", found.time)
    for phase in found.phases:
        yield from _times(phase.name, phase.time)
        yield from (
            f"MFU of {phase.name}: {one.mfu}" for one in phase.mfu.values() if one.mfu and not 0 <= one.mfu <= 1
        )
    if not 0 < found.time.median_us < math.inf or not 0 < found.tokens_per_second_per_gpu < math.inf:
        yield f"{found.time.median_us} µs, {found.tokens_per_second_per_gpu} tokens per second"
    longest = max(phase.time.median_us for phase in found.phases)
    if found.rl.section.placement == "colocated" and found.time.median_us < longest * (1 - NEAR):
        yield f"a step of {found.time.median_us} µs has a phase of {longest}"
    if not found.memory.worst.peak > 0:
        yield f"memory of {found.memory.worst.peak} bytes"


def nonsense_of_module(found: Analysis) -> Iterator[str]:
    """What no device can do: a bound that has less to move and takes longer."""
    for rule, models in found.models.items():
        bounds = [models.unfused.time_us, models.fused.time_us, models.fused_prefetched.time_us]
        if not all(0 <= each < math.inf for each in bounds) or bounds != sorted(bounds, reverse=True):
            yield f"{rule}: {bounds}"


@dataclass(frozen=True, kw_only=True, slots=True)
class FuzzedKind:
    """A kind of input that is drawn: how it is made, and what is nonsense in the answer to it."""

    name: str
    draw: Callable[[int, Path], tuple[Any, str]]
    """Seed and folder → the input, and what is odd in it."""
    answer: Callable[[Any], Iterator[str]]


def _module_file(case: int, folder: Path) -> tuple[Path, str]:
    source, odd = module(case)
    path = folder / f"module_{case % 7}.py"
    path.write_text(source)
    return path, odd


KINDS = (
    FuzzedKind(
        name="servers and loads",
        draw=lambda case, folder: (server(case)[0], str(server(case)[1])),
        answer=lambda config: nonsense_of_server(
            predict.serving_answer(config, model="formula" if len(str(config)) % 2 else "")
        ),
    ),
    FuzzedKind(
        name="RL steps",
        draw=lambda case, folder: (rl_run(case)[0], str(rl_run(case)[1])),
        answer=lambda config: nonsense_of_rl(predict.rl_step(config)),
    ),
    FuzzedKind(
        name="module files", draw=_module_file, answer=lambda path: nonsense_of_module(predict.speed_of_light(path))
    ),
)
