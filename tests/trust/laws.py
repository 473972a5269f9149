"""Laws that every plan must keep, tried on plans drawn at random: `python -m tests.trust.laws`."""

import argparse
import copy
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

import predict
from predict.ledger.books import ledger_of
from predict.memory import activations, state
from predict.memory.buffers import slack_of
from predict.memory.estimate import MemoryEstimate, MemoryModel, memory_of
from predict.memory.state import transposed_bytes
from predict.rank.exchanges import FSDP
from predict.rank.groups import groups_of
from predict.run.training_run import TrainingRun
from predict.step.breakdown import BUBBLE, CP, DP, EP, P2P, STRAGGLERS, TP
from predict.step.prediction import Prediction
from sampling.errors import UserError
from tests.fuzz.configs import Config, plausible
from tests.predict.step.ledger_sums import impossible_lines
from tests.trust.spaces import SPACES, differs_from_brute_force
from tests.trust.table import command, show

ROUNDING = 1e-9
COMMUNICATION = (TP, CP, EP, P2P, DP, FSDP, BUBBLE, STRAGGLERS)
"""Headings of what more GPUs for the same batch add; work and what is done once may only fall."""
ZERO_BUBBLE = ("zb-h1", "zb-h2", "zb-auto")


def drawn(case: int) -> Config:
    """The first plan of a seed that can be predicted."""
    draw = random.Random(f"law {case}")
    while True:
        config = plausible(draw)
        with suppress(UserError):
            predict.load(config)
            return config


def changed(config: Config, settings: dict[str, Any]) -> Config:
    """The config with values at key paths."""
    made = copy.deepcopy(config)
    for path, value in settings.items():
        section, _, key = path.partition(".")
        made[section][key] = value
    return made


def predicted(config: Config, **settings: Any) -> Prediction:
    """The step of a config with settings such as `plan__zero=1`, whether or not it fits."""
    run = predict.load(changed(config, {path.replace("__", "."): value for path, value in settings.items()}))
    return predict.estimate(run, require_fit=False)


def slower(what: str, now: Prediction, before: Prediction, *, by_us: float = 0.0) -> Iterator[str]:
    if now.median_us > (before.median_us + by_us) * (1 + ROUNDING):
        yield f"{what}: {before.median_us:.1f} µs become {now.median_us:.1f}"


def larger(what: str, now: Prediction, before: Prediction) -> Iterator[str]:
    if now.memory.point_bytes > before.memory.point_bytes * (1 + ROUNDING):
        yield f"{what}: {before.memory.point_bytes / 1e9:.4f} GB become {now.memory.point_bytes / 1e9:.4f}"


# Better hardware, of plans that nobody sampled: what was sampled is carried over to other figures by models that were learnt, which keep no
# such law (0.5 % against it were seen).


def on(run: TrainingRun, **figures: Any) -> Prediction:
    """The run on a cluster with other figures."""
    if run.cluster.gpu.kind == "cpu":
        raise UserError("sampled")
    return predict.estimate(replace(run, cluster=replace(run.cluster, **figures)), require_fit=False)


def better_links(config: Config) -> Iterator[str]:
    run = predict.load(config)
    before = on(run)
    for name in ("intra_node", "inter_node"):
        link = getattr(run.cluster, name)
        for figure, factor in (("gb_per_s", 1.5), ("gb_per_s", 10.0), ("latency_us", 0.5)):
            better = replace(link, **{figure: getattr(link, figure) * factor})
            yield from slower(f"{name}.{figure} × {factor:g}", on(run, **{name: better}), before)


def better_products(config: Config) -> Iterator[str]:
    run = predict.load(config)
    before, gpu = on(run), run.cluster.gpu
    for factor in (1.1, 1.5, 3.0):
        peaks = {dtype: tflops * factor for dtype, tflops in gpu.peak_tflops.items()}
        yield from slower(f"FLOP/s × {factor:g}", on(run, gpu=replace(gpu, peak_tflops=peaks)), before)


def better_memory(config: Config) -> Iterator[str]:
    run = predict.load(config)
    before, gpu = on(run), run.cluster.gpu
    for factor in (1.1, 1.5, 3.0):
        faster = replace(gpu, memory_gb_per_s=gpu.memory_gb_per_s * factor)
        yield from slower(f"memory bandwidth × {factor:g}", on(run, gpu=faster), before)


# More work.


def longer_sequences(config: Config) -> Iterator[str]:
    before, length = predicted(config), config["batch"]["seq_len"]
    for factor in (1.25, 2, 4):
        yield from slower(f"sequence ÷ {factor:g}", before, predicted(config, batch__seq_len=int(length * factor)))


def larger_batches(config: Config) -> Iterator[str]:
    before, batch = predicted(config), config["batch"]["global"]
    for factor in (2, 3, 8):
        yield from slower(f"batch ÷ {factor}", before, predicted(config, batch__global=batch * factor))


def full_recomputation(config: Config) -> Iterator[str]:
    kept, full = predicted(config, plan__recompute="none"), predicted(config, plan__recompute="full")
    yield from slower("without recomputation", kept, full)
    yield from larger("full recomputation", full, kept)


IN_FLIGHT = ("gathered_bytes", "unreduced_bytes", "sent_bytes", "transposed_bytes")
"""What a unit holds whole, while it runs, of weights and gradients that are kept in shards."""
MOST_UNITS = 4
"""Units that hold it at once: the one that runs and the next one, of a forward and of the backward that may run beside it."""


def without_transfers(run: TrainingRun) -> MemoryEstimate:
    """The memory of a run that would compute with shards as they are: nothing is gathered, and nothing waits to be reduced."""
    with ExitStack() as patches:
        for name in IN_FLIGHT:
            patches.enter_context(patch.object(activations, name, lambda *_: 0.0))
        # what Megatron-Core gathers once and keeps
        patches.enter_context(patch.object(state, "_stays_gathered", lambda *_: False))
        return memory_of(run)


def most_in_flight(run: TrainingRun) -> list[float]:
    """The most bytes of weights and gradients that each pipeline rank may hold whole while its units run, without those that stay."""
    model, found = MemoryModel(run), []
    for chunks in model.units:
        units = [unit for chunk in chunks for unit in chunk.units]
        whole = [
            each.gathered + each.unreduced + transposed_bytes(run, unit, groups_of(run))
            for unit, each in zip(units, map(model.counter.unit, units), strict=True)
        ]
        found.append(max(MOST_UNITS * max(whole), sum(whole) if model.profile.elements_in_transfer else 0.0))
    return found


def zero_stages(config: Config) -> Iterator[str]:
    """Without what is in flight no rank needs more at a higher stage; with it, none needs more than that on top."""
    before: MemoryEstimate | None = None
    tried = 0
    for stage in range(4):
        try:
            run = predict.load(changed(config, {"plan.zero": stage}))
            alone, whole = without_transfers(run), memory_of(run)
        except UserError:
            continue
        tried += 1
        slack, _ = slack_of(run, whole.memory_profile)
        for rank, (one, other, most) in enumerate(zip(alone.ranks, whole.ranks, most_in_flight(run), strict=True)):
            said = f"ZeRO {stage}, rank {rank}"
            if before and one.peak > before.ranks[rank].peak * (1 + ROUNDING):
                was = before.ranks[rank].peak
                yield f"{said} without transfers: {was / 1e9:.4f} GB a stage before become {one.peak / 1e9:.4f}"
            stays = other.parameters - one.parameters
            more = (other.peak - one.peak) / (1 + slack)
            if more > (stays + most) * (1 + ROUNDING) + ROUNDING * one.peak:
                yield f"{said}: {more / 1e9:.4f} GB in flight, where units hold {(stays + most) / 1e9:.4f}"
        before = alone
    if tried < 2:
        raise UserError("one stage alone")


def twice_the_gpus(config: Config) -> Iterator[str]:
    cluster, plan = config["cluster"], config["plan"]
    twice = predicted(config, cluster__nodes=2 * cluster["nodes"], plan__dp=2 * plan["dp"])
    once = predicted(config)
    overhead_us = sum(
        max(0.0, twice.breakdown_us.get(name, 0.0) - once.breakdown_us.get(name, 0.0)) for name in COMMUNICATION
    )
    yield from slower("twice the GPUs", twice, once, by_us=overhead_us)


def zero_bubble(config: Config) -> Iterator[str]:
    """A backward in two passes launches more kernels, and reads what the second needs again: that is all that it may cost. Gradients are
    reduced after the pipeline here: the second pass of the last microbatch leaves less to hide them behind."""
    if config["plan"]["pp"] == 1:
        raise UserError("no pipeline")
    alone = {
        "execution.overlap_gradients": False,
        "execution.stragglers": False,
        "plan.vpp": 1,
    }
    config, tried = changed(config, alone), 0
    once = predicted(config, plan__schedule="1f1b")
    for name in ZERO_BUBBLE:
        try:
            split = predicted(config, plan__schedule=name)
        except UserError:
            continue
        tried += 1
        passes_us = max(
            sum(
                max(0.0, two.backward_input.median_us + two.backward_weight.median_us - one.backward.median_us)
                for two, one in zip(ours.chunks, theirs.chunks, strict=True)
            )
            for ours, theirs in zip(split.ranks, once.ranks, strict=True)
        )
        yield from slower(name, split, once, by_us=passes_us * split.run.batch.microbatches(split.run.plan.dp))
    if not tried:
        raise UserError("no such schedule here")


# One number, and its ledger.


def one_number(config: Config) -> Iterator[str]:
    """A plan's step by every command that predicts it."""
    expected = predict.one_batch(config).median_us
    (compared,) = predict.compare(config, config)
    (swept,) = predict.sweep(config, [f"batch.micro={config['batch']['micro']}"]).predictions
    found = {"compare": compared.first.median_us, "compare's other": compared.other.median_us, "sweep": swept.median_us}
    if swept.memory.point_bytes <= 0.999 * swept.memory.capacity_bytes:
        whole = changed(config, {"plan.ep": config["plan"].get("ep", 1), "plan.etp": config["plan"].get("etp", 1)})
        (plan,) = predict.search(whole, jobs=1).plans
        found["search"] = plan.prediction.median_us
    yield from (f"{name}: {us!r} µs, one-batch {expected!r}" for name, us in found.items() if us != expected)


def possible_lines(config: Config) -> Iterator[str]:
    """On what nobody sampled: small tensors that a CPU has in its caches were measured faster than its memory allows."""
    yield from impossible_lines(ledger_of(on(predict.load(config))))


Law = Callable[[Config], Iterator[str]]
LAWS: dict[str, Law] = {
    "a link with more bandwidth or less latency never slows a step": better_links,
    "more FLOP/s never slow a step": better_products,
    "more memory bandwidth never slows a step": better_memory,
    "longer sequences never quicken a step": longer_sequences,
    "more sequences never quicken a step": larger_batches,
    "full recomputation saves no time and costs no memory": full_recomputation,
    "a higher ZeRO stage costs no memory but that of the layers in flight": zero_stages,
    "twice the GPUs for one batch slow it by no more than communication and waiting": twice_the_gpus,
    "zero-bubble is not slower than 1F1B by more than its second pass": zero_bubble,
    "one-batch, compare, sweep and search state one number": one_number,
    "no line of the ledger is negative, or below what compute, bandwidth and links allow": possible_lines,
}


@dataclass(kw_only=True, slots=True)
class Tried:
    """The plans that a law was tried on, and where it did not hold."""

    plans: int = 0
    broken: list[str] = field(default_factory=list)

    def one(self, case: int, law: Law, config: Config) -> None:
        """Try a plan; one to which the law does not apply is not counted."""
        try:
            wrong = list(law(config))
        except UserError:
            return
        self.plans += 1
        if wrong:
            self.broken.append(f"plan {case}: {wrong[0]}")


def try_laws(cases: Sequence[int], *, until: float = float("inf")) -> dict[str, Tried]:
    """Every law on plans by their seeds, none begun after a moment of the monotonic clock."""
    tried = {name: Tried() for name in LAWS}
    for case in cases:
        if time.monotonic() > until:
            break
        config = drawn(case)
        for name, law in LAWS.items():
            tried[name].one(case, law, config)
    return tried


def try_searches(seeds: Sequence[int], *, until: float = float("inf")) -> dict[str, Tried]:
    """A search of each kind beside the answer of every combination, in spaces by their seeds."""
    tried = {f"search equals brute force: {name}": Tried() for name in SPACES}
    for seed in seeds:
        name = list(SPACES)[seed % len(SPACES)]
        if time.monotonic() < until:
            tried[f"search equals brute force: {name}"].one(
                seed, lambda _, seed=seed: differs_from_brute_force(seed), {}
            )  # type: ignore[misc]
    return tried


def parser() -> argparse.ArgumentParser:
    made = command(__doc__, cases=500)
    made.add_argument("--spaces", type=int, default=30, help="searches beside brute force (default: 30)")
    return made


def main() -> None:
    options = parser().parse_args()
    begun = time.process_time()
    until = time.monotonic() + 60 * options.minutes
    seeds = range(options.seed, options.seed + options.cases)
    tried = try_laws(seeds, until=until) | try_searches(range(options.spaces), until=until)
    rows = [
        [name, each.plans, each.plans - len(each.broken), "; ".join(each.broken[:3]) or "–"]
        for name, each in tried.items()
    ]
    note = f"Seeds {seeds.start} to {seeds.stop - 1}, {(time.process_time() - begun) / 60:.0f} minutes of one core."
    show("laws", ("law", "plans it applies to", "held", "where it did not"), rows, note, keep=options.keep)
    for name, each in tried.items():
        print(*(f"{name}: {line}" for line in each.broken), sep="\n", end="\n" if each.broken else "")
    sys.exit(any(each.broken for each in tried.values()))


if __name__ == "__main__":
    main()
