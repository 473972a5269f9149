"""A serving config: the model, the devices, the engine and the load, with every fault of them in one error.

model: llama3-8b                      # a shipped model, the path of a config.json, or its keys
hardware: H100                        # a device of configs/hardware
placement: {tp: 1, precision: bf16}   # the keys of ServerPlacement
engine: {name: vllm-v1, max_num_seqs: 128}   # an engine of configs/engines, and settings over its own
speculation: {kind: eagle, tokens: 3}        # drafts that each decode verifies: the keys of Speculation
load: {rate: 8, prompt: 600, output: 250}    # the keys of Load
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from predict.config.document import Config, Incoming, read_config
from predict.config.draft import as_read, shipped_file, shipped_instead
from predict.config.json_schema import document_schema, model_schema, section_schema
from predict.config.overrides import parse_overrides
from predict.huggingface.config_json import override, read_model
from predict.kinds import KINDS, RL, SERVING, TRAINING, LoadedRun, as_loaded, require_kind
from predict.layers.part import parts_of
from predict.model.spec import ModelSpec
from predict.prices.sample_provenance import require_known
from predict.serving.batch import StepBatch
from predict.serving.fleet import FleetSettings, TierSettings
from predict.serving.formats import QUANTIZATION, format_faults, stated_formats
from predict.serving.requests import read_requests
from predict.serving.server import (
    USUAL,
    EngineSettings,
    Server,
    ServerPlacement,
    cluster_of,
    engine_fault,
    engine_names,
    engine_settings,
    longest_request,
    with_given,
)
from predict.serving.speculation import NAME as SPECULATION
from predict.serving.speculation import Draft, Speculation, draft_of, from_log
from predict.serving.traffic import Load, Traffic, load_of, longest_of, with_known_prompts, with_mean_length
from sampling.errors import ConfigError, UserError
from sampling.files.disk import is_missing
from sampling.files.documents import read_json
from sampling.files.faults import Fault, config_error, shown
from sampling.files.schema import build, check, keys_of, unknown_keys
from sampling.hardware.cluster import Cluster, hardware_beside, hardware_facts, known_hardware, load_cluster
from sampling.store.profiles import (
    default_profile,
    home_of,
    known_profiles,
    profile_in_use,
    read_manifest,
    samples_directory,
)

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
        yield _apart("requests", "an open loop, whose rate and duration_s give them; give concurrency with it")
    if load.get("rate") and load.get("concurrency"):
        yield _apart("concurrency", "load.rate: a loop is closed or open; keep one of the two")
    if load.get("start") and not load.get("concurrency"):
        yield _apart("start", "an open loop, in which each request has a time of its own; give concurrency with it")
    for of in ("prompt", "output"):
        distribution = f"{of}_lengths"
        if load.get(distribution) and of in load:
            yield _apart(of, f"load.{distribution}, which gives the lengths")
        elif load.get(f"{of}_max") and not load.get(distribution):
            yield _apart(f"{of}_max", f"load.{of}, a number; give load.{distribution} with it")
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


def _apart(key: str, other: str) -> Fault:
    return Fault(path=f"load.{key}", problem=f"cannot be combined with {other}; remove it")


# Lengths of requests compared with the positions of a server's model.

SHORTER = "give shorter ones"


def limit_faults(model: ModelSpec, engine: EngineSettings) -> list[Fault]:
    """An engine's own limit beyond the model's positions."""
    if not 0 < model.max_positions < engine.max_model_len:
        return []
    problem = f"{engine.max_model_len:,} is more than the {model.max_positions:,} positions of {model.name}; give fewer"
    return [Fault(path="engine.max_model_len", problem=problem)]


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


def step_token_faults(model: ModelSpec, engine: EngineSettings) -> list[Fault]:
    """A step with fewer tokens than requests, or, where prompts are not divided, than the longest request has: vLLM starts with neither
    (`SchedulerConfig` in vllm/config/scheduler.py).

    An engine that never preempts computes no answer anew, so that each request's prompt alone has to fit; simulating holds it against that.
    """
    tokens, faults = engine.max_num_batched_tokens, []
    if tokens < engine.max_num_seqs:
        problem = (
            f"{tokens:,} is less than engine.max_num_seqs, {engine.max_num_seqs:,}, and each of those sequences takes a token of every step; raise it, or "
            f"lower engine.max_num_seqs to {tokens:,}"
        )
        faults.append(Fault(path=PATH, problem=problem))
    if tokens > MOST_STEP_TOKENS:
        faults.append(
            Fault(path=PATH, problem=f"{tokens:,} is more than {MOST_STEP_TOKENS:,}; give the tokens of one step")
        )
    longest = longest_request(model, engine)
    if not engine.chunked_prefill and not engine.never_preempts and tokens < longest:
        limit = "engine.max_model_len" if engine.max_model_len else f"the positions of {model.name}"
        problem = (
            f"{tokens:,} is less than {limit}, {longest:,}, and without engine.chunked_prefill a prompt is computed in one step; raise it, "
            f"set engine.max_model_len to {tokens:,} or less, or set engine.chunked_prefill: true"
        )
        faults.append(Fault(path=PATH, problem=problem))
    return faults


SECTIONS = ("model", "hardware", "profile", "placement", "engine", "speculation", "load", "fleet", "tiers")
USUAL_HARDWARE = "H100"
REQUIRED = {"model": "llama3-8b", "hardware": USUAL_HARDWARE}
Values = dict[str, Any]
Section = TypeVar("Section")


@dataclass(frozen=True, kw_only=True, slots=True)
class ServingRun(LoadedRun):
    """A server and its load. `name` is the config file's stem."""

    kind = SERVING
    name: str
    server: Server
    gpus_per_node: int
    """GPUs that a node of the device usually has; the server may take a part of them."""
    load: Load
    """The load as stated, or the means of the requests of its file."""
    traffic: Traffic | None = None
    """The requests of the load's file."""
    fleet: FleetSettings = field(default_factory=FleetSettings)
    """Replicas, and where prompts are computed."""
    tiers: TierSettings = field(default_factory=TierSettings)
    """Memory behind the cache."""

    @property
    def prefill(self) -> Server | None:
        """The server that computes prompts where it is apart."""
        if not self.fleet.prefill_replicas:
            return None
        placement = replace(self.server.placement, tp=self.fleet.prefill_tp or self.server.tp)
        ranks = placement.gpus
        cluster = self.server.cluster
        if ranks != self.server.placement.gpus:
            per_node = cluster.whole_node
            nodes = -(-ranks // per_node)
            cluster = cluster.on_fewer(nodes=nodes, gpus_per_node=-(-ranks // nodes))
        return replace(self.server, placement=placement, cluster=cluster)

    @property
    def gpus(self) -> int:
        """GPUs of all replicas."""
        decode = self.server.placement.gpus * max(self.fleet.replicas, self.fleet.most_replicas)
        prefill = self.prefill
        return decode + (prefill.placement.gpus * self.fleet.prefill_replicas if prefill else 0)

    @property
    def engine_name(self) -> str:
        return self.server.engine_name


def read_serving(config: Config, overrides: Sequence[str]) -> tuple[Incoming, list[str]]:
    """The content of a serving config under settings, whose values may be choices; and the settings of a model that it names by a file."""
    given = read_config(config)
    if KINDS[SERVING].section not in given.content:
        require_kind(given.content, (RL, TRAINING), given.sources)
    return given, given.put_settings(overrides, ("model",))


def load_serving(config: Config, overrides: Sequence[str] = ()) -> ServingRun:
    """Read a serving config; `overrides` are settings such as `load.rate=12`. ConfigError has a line for each fault."""
    if loaded := as_loaded(config, ServingRun, overrides):
        return loaded
    given, of_model = read_serving(config, overrides)
    path, document, sources, faults = given.path, given.content, given.sources, given.faults
    faults += unknown_keys(document, SECTIONS)
    if isinstance(load_keys := document.get("load"), dict):
        options = frozenset(key for key in load_keys if f"load.{key}" in sources)
        document["load"] = without_replaced(load_keys, options)
        faults += load_key_faults(document["load"])
    faults += [
        Fault(path=name, problem=f"missing; give it, for example {name}: {example}")
        for name, example in REQUIRED.items()
        if name not in document
    ]
    model, stated = _model(document.get("model"), of_model, path, faults) if "model" in document else (None, {})
    hardware = _hardware(document.get("hardware"), path, faults) if "hardware" in document else None
    if model is not None and stated:
        document["placement"] = {**stated, **_mapping(document, "placement", faults)}
    placement = _section(document, "placement", ServerPlacement, faults)
    if hardware is not None and placement is not None:
        faults += format_faults(placement.precision, placement.kv_precision, hardware_facts(hardware))
    engine_name, engine = _engine(document, hardware, faults)
    load = _load(document, path.parent, faults)
    fleet = _section(document, "fleet", FleetSettings, faults)
    tiers = _section(document, "tiers", TierSettings, faults)
    if model is not None and placement is not None and fleet is not None:
        faults += fleet_faults(model, placement, fleet)
    speculation = _section(document, SPECULATION, Speculation, faults)
    draft = None
    if model is not None and placement is not None:
        faults += placement_faults(model, placement)
        if speculation is not None:
            speculation, draft = drafts_of(speculation, model, placement, path.parent, SPECULATION, faults)
    if model is not None and engine is not None:
        faults += [*limit_faults(model, engine), *step_token_faults(model, engine)]
    if faults or model is None or hardware is None or placement is None or engine is None or load is None:
        raise config_error(faults, sources)
    assert speculation is not None  # it is none only with faults
    profile = _profile(document.get("profile"), hardware)
    cluster = _cluster(hardware, placement.gpus, profile)
    server = Server(
        model=model,
        cluster=cluster,
        placement=placement,
        engine_name=engine_name,
        engine=engine,
        speculation=speculation,
        draft=draft,
    )
    run = ServingRun(
        name=path.stem,
        server=server,
        gpus_per_node=hardware_facts(hardware).gpus_per_node,
        load=load,
        fleet=fleet or FleetSettings(),
        tiers=tiers or TierSettings(),
    )
    if load.file:
        file = path.parent / load.file
        if is_missing(file):
            problem = (
                f"{shown(load.file)} (that is {file}): there is no such file; give its path from the config's folder"
            )
            raise config_error([Fault(path="load.file", problem=problem)], sources)
        traffic = read_requests(file)
        faults += prompt_key_faults(load, traffic)
        run = _with_requests(run, with_known_prompts(traffic, load))
    if faults := [*faults, *load_faults(server, run.load, run.traffic)]:
        raise config_error(faults, sources)
    return run


def _load(document: Values, folder: Path, faults: list[Fault]) -> Load | None:
    """The load, with the means of its distributions for its lengths; a distribution's file is relative to the config's folder."""
    load = _section(document, "load", Load, faults)
    for of in ("prompt", "output"):
        try:
            load = load and with_mean_length(load, of, folder)
        except ConfigError as error:
            faults.append(Fault(path=f"load.{of}_lengths", problem=str(error)))
    return load


def _profile(given: Any, hardware: str) -> str:
    """The profile that a config names, or the one of its hardware. SamplesError for a named one without samples."""
    if given is None:
        return default_profile(hardware)
    require_known(str(given))
    return str(given)


def _cluster(hardware: str, ranks: int, profile: str) -> Cluster:
    """The machines of a server. On a CPU a rank has one core, of a machine whose cores are all busy, as sessions time them: the one on
    which the profile's samples were taken."""
    if hardware_facts(hardware).kind != "cpu":
        return cluster_of(hardware, ranks, profile)
    used = profile_in_use(profile)
    sampled = read_manifest(samples_directory(used, home_of(used))).device if used in known_profiles() else {}
    cores = max(ranks, int(sampled.get("cores", ranks)))
    return load_cluster(hardware=hardware, nodes=1, gpus_per_node=cores, cores=cores, profile=profile)


def _with_requests(run: ServingRun, traffic: Traffic) -> ServingRun:
    """The run with requests of a file, and their means for its load."""
    return replace(run, load=load_of(traffic, run.load), traffic=traffic)


def placement_faults(model: ModelSpec, placement: ServerPlacement) -> list[Fault]:
    """Layers that are not modelled, and placements that the model does not allow."""
    mixers = {parts_of(model, kind)[0] for kind in model.kinds()}
    faults = [
        Fault(
            path="model",
            problem=f"{model.name} has {mixer} layers, which serving does not model yet; take another model",
        )
        for mixer in sorted(mixer.NAME for mixer in mixers if not mixer.is_served())
    ]
    tp, ranks = placement.tp, placement.tp * placement.dp
    if model.layers % placement.pp:
        problem = f"{placement.pp} does not divide the {model.layers} layers of {model.name}; give one that does: uneven stages are not modelled"
        faults.append(Fault(path="placement.pp", problem=problem))
    if model.heads % tp:
        faults.append(
            Fault(
                path="placement.tp",
                problem=f"{tp} does not divide the {model.heads} heads of {model.name}; give one that does",
            )
        )
    if placement.dp > 1 and model.experts is not None and not placement.expert_parallel and model.experts.ffn % ranks:
        problem = (
            f"the width {model.experts.ffn:,} of the experts of {model.name} does not divide into slices for tp · dp = {ranks} GPUs; "
            "change tp or dp, or set expert_parallel: true"
        )
        faults.append(Fault(path="placement.dp", problem=problem))
    if placement.expert_parallel and model.experts is None:
        problem = f"true, but {model.name} has no experts; remove it, or take a mixture of experts"
        faults.append(Fault(path="placement.expert_parallel", problem=problem))
    elif placement.expert_parallel and model.experts is not None and model.experts.count % ranks:
        problem = f"the {model.experts.count} experts of {model.name} do not divide among tp · dp = {ranks} GPUs; change tp or dp"
        faults.append(Fault(path="placement.expert_parallel", problem=problem))
    return faults


def fleet_faults(model: ModelSpec, placement: ServerPlacement, fleet: FleetSettings) -> list[Fault]:
    """Pools and autoscalers that do not go together, or that the model does not allow."""
    found = []

    def fault(key: str, problem: str) -> None:
        found.append(Fault(path=f"fleet.{key}", problem=problem))

    if fleet.prefill_tp and not (fleet.prefill_replicas or fleet.gpus):
        fault("prefill_tp", "changes nothing without prefill_replicas or gpus; give one of them, or remove this")
    elif fleet.prefill_tp:
        of_prompts = placement_faults(model, replace(placement, tp=fleet.prefill_tp))
        found += [replace(one, path="fleet.prefill_tp") for one in of_prompts if one.path == "placement.tp"]
    if fleet.gpus:
        least = placement.streams * (placement.tp + fleet.prefill_tp)
        if fleet.replicas > 1 or fleet.prefill_replicas or fleet.most_replicas:
            fault(
                "gpus",
                "cannot be combined with replicas, prefill_replicas or most_replicas, which it gives; remove these",
            )
        elif fleet.gpus < least:
            fault("gpus", f"{fleet.gpus} is less than the {least} GPUs of one replica of each kind; raise it")
    if fleet.prefill_replicas and fleet.most_replicas:
        fault(
            "most_replicas",
            "cannot be combined with prefill_replicas: pools that are apart are not scaled yet; remove one of them",
        )
    if fleet.most_replicas and not fleet.replicas <= fleet.most_replicas:
        fault(
            "most_replicas",
            f"{fleet.most_replicas} is less than replicas, {fleet.replicas}, the fewest that serve; raise it",
        )
    if bool(fleet.most_replicas) != bool(fleet.target_requests):
        names = ("most_replicas", "target_requests")
        given, missing = names if fleet.most_replicas else names[::-1]
        fault(missing, f"missing beside fleet.{given}; give both, or none")
    if any(not 0 <= at < MOST_S for at in fleet.failures_s):
        fault("failures_s", f"a time is not from 0 to {MOST_S:,.0f}; give seconds of the load")
    return found


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
        dense = draft.model.experts is None
        placed = replace(placement, expert_parallel=placement.expert_parallel and not dense)
        key = "draft" if speculation.draft else "kind"
        wrong += [
            Fault(path=key, problem=f"{draft.model.name} cannot write drafts here: {fault.problem}")
            for fault in placement_faults(draft.model, placed)
        ]
        if speculation.draft and draft.model.vocab < model.vocab:
            problem = f"{draft.model.name} knows {draft.model.vocab:,} tokens of the {model.vocab:,} of {model.name}; take a draft model of its family"
            wrong.append(Fault(path=key, problem=problem))
    faults += [fault.under(section) for fault in wrong]
    return speculation, draft


def _model(
    given: Any, settings: Sequence[str], path: Path, faults: list[Fault]
) -> tuple[ModelSpec | None, dict[str, str]]:
    """The model from its file or keys, and the formats of weights and cache that these state; `settings` are those over its file."""
    name = "model"
    if isinstance(given, str):
        file = shipped_file("model", given) or path.parent / given
        keys, wrong = read_json(file)
        if keys is None:
            said, instead = as_read("model", given, file), shipped_instead("model", given, file)
            faults += [Fault(path="model", problem=f"{said}: {fault.problem}{instead}") for fault in wrong]
            return None, {}
        given, name = keys, file.stem
        for setting in parse_overrides(settings)[0]:
            given = override(given, setting.key, setting.value)
    if not isinstance(given, Mapping):
        faults.append(
            Fault(path="model", problem=f"{shown(given)} is neither a name, a path nor a mapping of keys; give one")
        )
        return None, {}
    formats, wrong = stated_formats(given[QUANTIZATION]) if given.get(QUANTIZATION) is not None else ({}, [])
    reading = read_model({key: value for key, value in given.items() if key != QUANTIZATION}, name=name)
    faults += [fault.under("model") for fault in (*wrong, *reading.faults)]
    return reading.spec, formats


def _hardware(given: Any, path: Path, faults: list[Fault]) -> str | None:
    try:
        name = hardware_beside(str(given), path)
        hardware_facts(name)
    except ConfigError as error:
        faults += [Fault(path="hardware", problem=line) for line in str(error).splitlines()]
        return None
    return name


def _section(document: Values, name: str, cls: type[Section], faults: list[Fault]) -> Section | None:
    """The dataclass of a section, or None with faults."""
    made, wrong = build(cls, _mapping(document, name, faults), section=name)
    faults += wrong
    return made


def _engine(document: Values, hardware: str | None, faults: list[Fault]) -> tuple[str, EngineSettings | None]:
    """The engine's name and settings; no settings where its keys have faults, or where the device is not known."""
    values = _mapping(document, "engine", faults)
    name = values.pop("name", USUAL)
    if unknown := engine_fault(name, "engine.name"):
        faults.append(unknown)
        return str(name), None
    defaults = engine_settings(name, hardware_facts(hardware or USUAL_HARDWARE))
    good, wrong = check({**asdict(defaults), **values}, keys_of(EngineSettings), section="engine")
    faults += wrong
    return name, None if wrong or hardware is None else with_given(defaults, {key: good[key] for key in values})


def _mapping(document: Values, name: str, faults: list[Fault]) -> Values:
    value = document.get(name, {})
    if isinstance(value, dict):
        return dict(value)
    faults.append(Fault(path=name, problem=f"{shown(value)} is not a mapping of keys; write {name}: {{key: value}}"))
    return {}


DECLARED_SECTIONS: Mapping[str, tuple[type, str]] = {
    "placement": (ServerPlacement, "How the model is spread over its GPUs."),
    "engine": (EngineSettings, "An engine of configs/engines by its `name`, and settings in place of its own."),
    SPECULATION: (Speculation, "Drafts of further tokens, which one step verifies."),
    "load": (Load, "The requests."),
    "fleet": (
        FleetSettings,
        "Replicas of the server, what chooses among them, and the pool that computes prompts where it is apart.",
    ),
    "tiers": (TierSettings, "Memory behind the cache of keys and values."),
}
"""Section → the dataclass whose fields are its keys, and its meaning."""
ENGINE_NAME = "An engine of configs/engines."


def serving_schema() -> dict[str, Any]:
    """JSON Schema (2020-12). Rules between keys are beyond it; loading a config checks them."""
    sections = {name: section_schema(*declared) for name, declared in DECLARED_SECTIONS.items()}
    engine = sections["engine"]
    name = {"description": ENGINE_NAME, "enum": list(engine_names()), "default": USUAL}
    sections["engine"] = {**engine, "properties": {"name": name, **engine["properties"]}, "required": []}
    hardware = {"description": "a device of configs/hardware, or the path of a file like those", "type": "string"}
    properties = {
        "model": model_schema(),
        "hardware": {**hardware, "examples": known_hardware()},
        "profile": {"description": "name under data/samples of the device's measurements", "type": "string"},
        **sections,
    }
    return document_schema("steptime serving config", properties, ("model", "hardware"))
