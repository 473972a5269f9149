"""Runs of shipped models under any plan, each on as many GPUs as the plan has ranks, at prices that nobody sampled."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

from predict import estimate
from predict.config.load import build
from predict.huggingface.config_json import load_model
from predict.memory.advice import Advice, changed
from predict.model.spec import ModelSpec
from predict.rank.blocks import Block, Blocks, single
from predict.rank.share import RankShare
from predict.run.plan import Plan
from predict.run.training_run import TrainingRun
from predict.step.prediction import Prediction
from predict.workload.decompose import RankCalls, decompose
from predict.workload.layer import LayerBlocks, layer_blocks
from sampling.arithmetic.operator import Operator
from sampling.call import Counted
from sampling.collectives.kinds import Collective
from sampling.files.places import CONFIGS

PER_NODE = 8
BATCH = {"global": 16, "micro": 1, "seq_len": 4096}


@cache
def spec(name: str, layers: int = 0) -> ModelSpec:
    """A shipped model, or its first layers alone."""
    whole = load_model(CONFIGS / "models" / f"{name}.json")
    return replace(whole, layers=layers, layer_kinds=whole.layer_kinds[:layers]) if layers else whole


def made(model: str | ModelSpec = "llama3-70b", layers: int = 0, **settings: Any) -> TrainingRun:
    """A run on H100s; `settings` are `plan__tp=2`-like. Nodes are as many as the plan fills."""
    sections: dict[str, Any] = {
        "cluster": {"hardware": "h100-sxm", "profile": "nowhere"},
        "plan": {},
        "batch": dict(BATCH),
        "execution": {},
        "adapters": {},
        "offload": {},
        "tuning": {},
        "vision": {},
        "precision": "bf16",
    }
    for key, value in settings.items():
        section, _, name = key.partition("__")
        if name:
            sections[section][name] = value
        else:
            sections[section] = value
    degrees = {name: getattr(Plan(), name) for name in ("tp", "pp", "cp", "dp")} | sections["plan"]
    world = degrees["tp"] * degrees["pp"] * degrees["cp"] * degrees["dp"]
    per_node = min(world, PER_NODE)
    sections["cluster"] = {"nodes": -(-world // per_node), "gpus_per_node": per_node} | sections["cluster"]
    return build("test", spec(model, layers) if isinstance(model, str) else model, sections)


def beside(model: ModelSpec) -> dict[str, int]:
    """What a model needs beside its own tokens, as settings of a run: what its encoder reads, or room for the text in its sequence."""
    if model.patches and model.patches.text_tokens:
        return {"batch__seq_len": 4096}
    if not model.encoder:
        return {}
    if not model.encoder.of_sequences:
        return {"vision__images": 1}
    return {"batch__encoder_seq_len": model.encoder.tokens or 512}


def estimated(run: TrainingRun) -> Prediction:
    return estimate(run)


def step_us(run: TrainingRun) -> float:
    return estimated(run).step_time.median_us


def ranks(run: TrainingRun) -> tuple[RankCalls, ...]:
    return decompose(run)


def counted(blocks: Blocks) -> Iterator[tuple[Counted, float]]:
    """The calls of blocks with how often each block runs; what hides communication is not counted again."""
    for repeated in blocks:
        for call in repeated.block.calls:
            yield call, repeated.count
        for overlapped in repeated.block.overlapped:
            for call in overlapped.communication:
                yield call, repeated.count


def flops(blocks: Blocks) -> float:
    """FLOPs of matrix products as torch counts them: attention not halved for causality."""
    return sum(
        many * call.count * call.call.flops(call.phase)
        for call, many in counted(blocks)
        if isinstance(call.call, Operator)
    )


def collectives(blocks: Blocks, heading: str) -> list[tuple[str, int, float]]:
    """(name, bytes, how often) of what a block's communication under a heading does."""
    found = []
    for repeated in blocks:
        for overlapped in repeated.block.overlapped:
            if overlapped.heading == heading:
                found += [_described(call, repeated.count) for call in overlapped.communication]
    return found


def communication(calls: Iterable[Counted]) -> list[tuple[str, int, float]]:
    return [_described(call, 1.0) for call in calls]


def how_often(blocks: Blocks, heading: str) -> dict[str, float]:
    """Collective → how often blocks do it under a heading."""
    times: dict[str, float] = {}
    for name, _, count in collectives(blocks, heading):
        times[name] = times.get(name, 0.0) + count
    return times


def block(of: Blocks) -> Block:
    """The block of the only kind of layer."""
    (one,) = of
    return one.block


def _described(call: Counted, times: float) -> tuple[str, int, float]:
    assert isinstance(call.call, Collective)
    return call.call.NAME, call.call.size_bytes, call.count * times


def layer_of(run: TrainingRun, layer: int = 0) -> LayerBlocks:
    return layer_blocks(RankShare(run=run), run.model.kinds()[layer])


def often(block: Block, heading: str = "tp") -> dict[str, float]:
    return how_often(single(block), heading)


def with_advice(run: TrainingRun, advice: Advice) -> TrainingRun:
    settings: dict[str, Any] = {}
    for setting in advice.settings:
        key, _, value = setting.partition("=")
        settings[key] = {"true": True, "false": False}.get(value, int(value) if value.isdigit() else value)
    return changed(run, settings)
