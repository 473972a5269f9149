"""Rules of what goes together in a serving config: keys of a load, positions, tokens of a step, placements, pools and drafts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from predict.layers.part import mixer_of
from predict.model.spec import ModelSpec
from predict.serving.batch import StepBatch
from predict.serving.fleet import FleetSettings
from predict.serving.server import EngineSettings, Server, ServerPlacement, longest_request
from predict.serving.speculation import Draft, Speculation, draft_of, from_log
from predict.serving.traffic import Load, Traffic, longest_of
from sampling.errors import ConfigError, UserError
from sampling.files.faults import Fault
from sampling.number_text import count

# Keys of a load that do not go together.

OF_PROMPTS = ("distinct_prompts", "shared_tokens")
"""Keys that may stand next to a file: it may not say which prompts are the same."""
OF_FILE = ("file", *OF_PROMPTS)
ONE_OF_TWO = (
    *(
        pair
        for of in ("prompt", "output")
        for pair in ((of, f"{of}_lengths"), (f"{of}_lengths", of), (of, f"{of}_max"))
    ),
    *(("rate", "concurrency"), ("rate", "requests"), ("rate", "start"), ("concurrency", "rate")),
)
"""Pairs of keys: the first, as an option that is not 0 or empty, replaces the second of the config."""


def without_replaced(load: Mapping[str, Any], options: frozenset[str]) -> dict[str, Any]:
    """The keys of a load, but for those of the config in whose place a file is given as an option; `options` are the keys that are."""
    if "file" not in options or not load["file"]:
        replaced = {other for one, other in ONE_OF_TWO if one in options and load[one] and other not in options}
        return {key: value for key, value in load.items() if key not in replaced}
    return {key: value for key, value in load.items() if key in OF_FILE or key in options or not _is_known(key)}


def load_key_faults(load: Mapping[str, Any]) -> Iterator[Fault]:
    """Keys that would change nothing next to others, and a rate at which no request arrives."""
    is_rate_0 = type(load.get("rate")) in (int, float) and load["rate"] == 0
    if is_rate_0 and not load.get("concurrency") and not load.get("file"):
        yield Fault(path="load.rate", problem="0 is out of range; give a number above 0, or load.concurrency")
    if load.get("file"):
        for key in load:
            if key not in OF_FILE and _is_known(key):
                yield _apart(key, "load.file, whose requests are served as they are")
    elif load.get("requests") and not load.get("concurrency"):
        yield _apart("requests", "an open loop, whose rate and duration_s give them", "give concurrency, or remove it")
    if load.get("rate") and load.get("concurrency"):
        yield _apart("concurrency", "load.rate: a loop is closed or open", "keep one of the two")
    if load.get("start") and not load.get("concurrency"):
        yield _apart("start", "an open loop, whose requests have times of their own", "give concurrency, or remove it")
    for of in ("prompt", "output"):
        distribution = f"{of}_lengths"
        if load.get(distribution) and of in load:
            yield _apart(of, f"load.{distribution}, which gives the lengths")
        elif load.get(f"{of}_max") and not load.get(distribution):
            yield _apart(f"{of}_max", f"load.{of}, a number", f"give load.{distribution} in its place, or remove it")
    if load.get("spread") and load.get("prompt_lengths") and load.get("output_lengths"):
        yield _apart("spread", "load.prompt_lengths and load.output_lengths, which have their own")
    yield from prefix_faults(load)
    if all(load.get(key) for key in OF_PROMPTS):
        yield _apart("shared_tokens", "distinct_prompts, which are whole prompts")


def prefix_faults(load: Mapping[str, Any]) -> Iterator[Fault]:
    """Keys of conversations that change nothing, or that say the same as others."""
    prefix = load.get("prefix")
    if not isinstance(prefix, Mapping):
        return
    for one, other in (("shared", "groups"), ("groups", "shared")):
        if prefix.get(one) and not prefix.get(other):
            problem = f"changes nothing without load.prefix.{other}; give it, or remove this"
            yield Fault(path=f"load.prefix.{one}", problem=problem)
    if prefix.get("pause_s") and prefix.get("turns") in (None, 1):
        problem = "changes nothing without load.prefix.turns above 1; give it, or remove this"
        yield Fault(path="load.prefix.pause_s", problem=problem)
    for key in OF_PROMPTS:
        if load.get(key) and any(prefix.get(each) not in (None, 0, 1) for each in ("groups", "turns")):
            yield _apart(key, "load.prefix, which says what prompts have in common")


def prompt_key_faults(load: Load, traffic: Traffic) -> Iterator[Fault]:
    """Keys on which prompts are the same, next to a file that says it."""
    if (traffic.group >= 0).any():
        for key in OF_PROMPTS:
            if getattr(load, key):
                yield _apart(key, "load.file, whose prompt_id says which prompts are the same")


def _is_known(key: str) -> bool:
    return key in {each.name for each in fields(Load)}


def _apart(key: str, other: str, fix: str = "remove it") -> Fault:
    return Fault(path=f"load.{key}", problem=f"cannot be combined with {other}; {fix}")


# Lengths of requests compared with the positions of a server's model.

SHORTER = "give shorter ones"


def limit_faults(model: ModelSpec, engine: EngineSettings) -> Iterator[Fault]:
    """An engine's own limit beyond the model's positions."""
    if 0 < model.max_positions < engine.max_model_len:
        problem = (
            f"{engine.max_model_len:,} is more than the {model.max_positions:,} positions of {model.name}; give fewer"
        )
        yield Fault(path="engine.max_model_len", problem=problem)


def load_faults(server: Server, load: Load, traffic: Traffic | None) -> list[Fault]:
    """The longest request of a file, or that a load may draw at any rate, that is longer than the server takes."""
    if not server.max_model_len:
        return []
    if traffic is None:
        prompt, output = (longest_of(load, of) for of in ("prompt", "output"))
        prompt = load.prefix.turns * prompt + (load.prefix.turns - 1) * output + load.prefix.shared
        path, which, fix = "load.prompt", "a request may have" if load.spread else "a request has", SHORTER
        if load.prompt_lengths or load.output_lengths:
            path, which, fix = "load", "a request may have", "cut them with load.prompt_max or load.output_max"
    else:
        longest = int((traffic.prompt + traffic.output).argmax())
        assert traffic.place is not None
        prompt, output = int(traffic.prompt[longest]), int(traffic.output[longest])
        path, which, fix = "load.file", f"request {traffic.place[longest]} has", SHORTER
    if prompt + output <= server.max_model_len:
        return []
    problem = f"{which} {prompt:,} tokens of prompt and {output:,} of answer, {_beyond(server)}; {fix}"
    return [Fault(path=path, problem=problem)]


def require_positions(server: Server, batches: Sequence[StepBatch]) -> None:
    """ConfigError for a batch with a request that is longer than the server takes."""
    limit = server.max_model_len
    if not limit:
        return
    for batch in batches:
        longest = batch.longest_tokens
        if longest > limit:
            raise ConfigError(f"step batch: a request has {longest:,} tokens, {_beyond(server)}; {SHORTER}")


def _beyond(server: Server) -> str:
    if server.engine.max_model_len:
        return f"more than engine.max_model_len, {server.max_model_len:,}"
    return f"more than the {server.max_model_len:,} positions of {server.model.name}"


# Tokens of a step compared with the requests that it serves.

PATH = "engine.max_num_batched_tokens"
MOST_S = 1e7
"""Seconds of a load."""
MOST_STEP_TOKENS = 2**22
"""Tokens of one step up to which its times are tabulated: a hundred times those of an engine set to large steps."""


def step_token_faults(model: ModelSpec, engine: EngineSettings) -> Iterator[Fault]:
    """A step with fewer tokens than requests, or, where prompts are not divided, than the longest request has: vLLM starts with neither
    (`SchedulerConfig` in vllm/config/scheduler.py).

    An engine that never preempts computes no answer anew, so that each request's prompt alone has to fit; simulating holds it against that.
    """
    tokens = engine.max_num_batched_tokens
    if tokens < engine.max_num_seqs:
        problem = (
            f"{tokens:,} is less than engine.max_num_seqs, {engine.max_num_seqs:,}, and each of those sequences takes a token of every step; raise it, or "
            f"lower engine.max_num_seqs to {tokens:,}"
        )
        yield Fault(path=PATH, problem=problem)
    if tokens > MOST_STEP_TOKENS:
        problem = f"{tokens:,} is more than {MOST_STEP_TOKENS:,}; give the tokens of one step"
        yield Fault(path=PATH, problem=problem)
    longest = longest_request(model, engine)
    if not engine.chunked_prefill and not engine.never_preempts and tokens < longest:
        limit = "engine.max_model_len" if engine.max_model_len else f"the positions of {model.name}"
        problem = (
            f"{tokens:,} is less than {limit}, {longest:,}, and without engine.chunked_prefill a prompt is computed in one step; raise it, "
            f"set engine.max_model_len to {tokens:,} or less, or set engine.chunked_prefill: true"
        )
        yield Fault(path=PATH, problem=problem)


# Placements that a model allows, pools, and drafts.


def placement_faults(model: ModelSpec, placement: ServerPlacement) -> Iterator[Fault]:
    """Layers that are not modelled, and placements that the model does not allow."""
    mixers = {mixer for kind in model.kinds() if (mixer := mixer_of(model, kind))}
    for name in sorted(mixer.NAME for mixer in mixers if not mixer.is_served()):
        problem = f"{model.name} has {name} layers, which serving does not model yet; take another model"
        yield Fault(path="model", problem=problem)
    if model.bidirectional:
        problem = f"{model.name} sees all tokens at once, as an encoder does, and generates none; take a decoder"
        yield Fault(path="model", problem=problem)
    if model.layers % placement.pp:
        problem = f"{placement.pp} does not divide the {model.layers} layers of {model.name}; give one that does: uneven stages are not modelled"
        yield Fault(path="placement.pp", problem=problem)
    if model.heads % placement.tp:
        problem = f"{placement.tp} does not divide the {model.heads} heads of {model.name}; give one that does"
        yield Fault(path="placement.tp", problem=problem)
    yield from _expert_faults(model, placement)


def _expert_faults(model: ModelSpec, placement: ServerPlacement) -> Iterator[Fault]:
    experts, ranks, whole = model.experts, placement.tp * placement.dp, placement.expert_parallel
    if experts and placement.dp > 1 and not whole and experts.ffn % ranks:
        problem = (
            f"the width {experts.ffn:,} of the experts of {model.name} does not divide into slices for tp · dp = {ranks} GPUs; "
            "change tp or dp, or set expert_parallel: true"
        )
        yield Fault(path="placement.dp", problem=problem)
    if whole and not experts:
        problem = f"true, but {model.name} has no experts; remove it, or take a mixture of experts"
        yield Fault(path="placement.expert_parallel", problem=problem)
    elif whole and experts and (experts.count + placement.redundant_experts) % ranks:
        redundant = f" and {placement.redundant_experts} redundant ones" if placement.redundant_experts else ""
        problem = f"the {experts.count} experts{redundant} of {model.name} do not divide among tp · dp = {ranks} GPUs; change tp or dp"
        yield Fault(path="placement.expert_parallel", problem=problem)
    if placement.quantised == "experts" and not experts:
        problem = f"experts, but {model.name} has none; remove it, or take a mixture of experts"
        yield Fault(path="placement.quantised", problem=problem)
    for key in ("redundant_experts", "expert_load"):
        if getattr(placement, key) != getattr(ServerPlacement(), key) and not whole:
            problem = "changes nothing without placement.expert_parallel; set it to true, or remove this"
            yield Fault(path=f"placement.{key}", problem=problem)


def exchange_faults(model: ModelSpec, placement: ServerPlacement, engine: EngineSettings) -> Iterator[Fault]:
    """Settings of the exchange of tokens between replicas, where there is none."""
    if engine.dispatch == "deepep" and not (placement.dp > 1 and placement.expert_parallel):
        problem = "deepep sends tokens to whole experts of other replicas; set placement.dp above 1 and placement.expert_parallel: true"
        yield Fault(path="engine.dispatch", problem=problem)
    if engine.two_batch_overlap and (placement.dp == 1 or model.experts is None):
        problem = "true, but no tokens travel between replicas that it could hide; set placement.dp above 1 for a mixture of experts"
        yield Fault(path="engine.two_batch_overlap", problem=problem)


def fleet_faults(model: ModelSpec, placement: ServerPlacement, fleet: FleetSettings) -> Iterator[Fault]:
    """Pools and autoscalers that do not go together, or that the model does not allow."""

    def fault(key: str, problem: str) -> Fault:
        return Fault(path=f"fleet.{key}", problem=problem)

    if fleet.prefill_tp and not (fleet.prefill_replicas or fleet.gpus):
        yield fault("prefill_tp", "changes nothing without prefill_replicas or gpus; give one of them, or remove this")
    elif fleet.prefill_tp:
        of_prompts = placement_faults(model, replace(placement, tp=fleet.prefill_tp))
        yield from (replace(one, path="fleet.prefill_tp") for one in of_prompts if one.path == "placement.tp")
    if fleet.gpus:
        least = placement.streams * (placement.tp + fleet.prefill_tp)
        if fleet.replicas > 1 or fleet.prefill_replicas or fleet.most_replicas:
            given = "replicas, prefill_replicas or most_replicas"
            yield fault("gpus", f"cannot be combined with {given}, which it gives; remove these")
        elif fleet.gpus < least:
            yield fault("gpus", f"{fleet.gpus} is less than the {least} GPUs of one replica of each kind; raise it")
    if fleet.prefill_replicas and fleet.most_replicas:
        problem = (
            "cannot be combined with prefill_replicas: pools that are apart are not scaled yet; remove one of them"
        )
        yield fault("most_replicas", problem)
    if 0 < fleet.most_replicas < fleet.replicas:
        problem = f"{fleet.most_replicas} is less than replicas, {fleet.replicas}, the fewest that serve; raise it"
        yield fault("most_replicas", problem)
    if bool(fleet.most_replicas) != bool(fleet.target_requests):
        names = ("most_replicas", "target_requests")
        given, missing = names if fleet.most_replicas else names[::-1]
        yield fault(missing, f"missing beside fleet.{given}; give both, or none")
    if any(not 0 <= at < MOST_S for at in fleet.failures_s):
        yield fault("failures_s", f"a time is not from 0 to {count(MOST_S)}; give seconds of the load")


def drafts_of(
    speculation: Speculation,
    model: ModelSpec,
    placement: ServerPlacement,
    folder: Path,
    section: str,
    faults: list[Fault],
) -> tuple[Speculation, Draft | None]:
    """The speculation with the acceptance of its log, and the model that writes its drafts; what stands against it joins the faults."""
    try:
        speculation = from_log(speculation, folder)
    except UserError as error:
        faults.append(Fault(path=f"{section}.log", problem=str(error)))
    draft, wrong = draft_of(speculation, model, folder)
    if speculation.drafts and placement.pp > 1:
        problem = f"{speculation.kind} with placement.pp {placement.pp}, whose stages do not write drafts; set placement.pp to 1, or remove it"
        wrong.append(Fault(path="kind", problem=problem))
    if draft is not None:
        placed = placement if draft.model.experts else placement.without_experts
        key = "draft" if speculation.draft else "kind"
        if placement.pp == 1:  # with stages, the fault above says it all
            wrong += [
                Fault(path=key, problem=f"{draft.model.name} cannot write drafts here: {fault.problem}")
                for fault in placement_faults(draft.model, placed)
            ]
        if speculation.draft and draft.model.vocab < model.vocab:
            problem = f"{draft.model.name} knows {draft.model.vocab:,} tokens of the {model.vocab:,} of {model.name}; take a draft model of its family"
            wrong.append(Fault(path=key, problem=problem))
    faults += [fault.under(section) for fault in wrong]
    return speculation, draft
