"""A server: the model, the devices and the engine whose steps are predicted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Annotated, Any, Literal

from predict.layers.part import Mixer, mixer_of
from predict.layers.served import Products, ServerShare
from predict.model.spec import ModelSpec
from predict.prices.kernels.attention import PACKING
from predict.serving.batch import Seen
from predict.serving.formats import CACHES, PLAIN, WEIGHTS, products_of
from predict.serving.speculation import Draft, Speculation
from sampling.errors import ConfigError
from sampling.files.faults import Fault, did_you_mean, shown
from sampling.files.places import CONFIGS
from sampling.files.schema import Key, check, keys_of, one_of, read
from sampling.hardware.cluster import Cluster, Gpu, hardware_facts, load_cluster
from sampling.hardware.hardware_file import Hardware
from sampling.number_text import plain
from sampling.operators.gemm import FP8_BLOCK

WINDOW_OF = {"sliding": "window", "chunked": "chunk"}
"""Mixer whose queries see a part of the sequence → what a server's share calls the model's window. Engines keep every token of chunked
layers: vLLM gives them no blocks of their own, for its kernels are slower then (vllm/config/vllm.py: attention_chunk_size without
VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE)."""
PRECISIONS = PLAIN


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineSettings:
    """Settings by which an engine schedules and runs its steps. The defaults are those of the engine's file in configs/engines."""

    max_num_seqs: int
    """Most requests that run at once."""
    max_num_batched_tokens: int
    """Most tokens of one step."""
    block_size: int
    """Tokens of one block of the key-value cache."""
    prefix_caching: bool
    """Blocks of a prompt that was seen before are not computed again."""
    chunked_prefill: bool
    """A prompt larger than what is left of a step's tokens is computed in several steps."""
    asynchronous: bool
    """The next step is scheduled while one runs, so that a request waits for one more."""
    memory_utilization: Annotated[float, Key(minimum=0.01, maximum=1)]
    """Share of a GPU's memory that the engine takes: of what `memory_share_of` says."""
    reserved_gib: Annotated[float, Key(minimum=0, maximum=1e4)]
    """GiB for activations, graphs and the communication library."""
    graph_sizes: tuple[int, ...]
    """Numbers of decodes for which a CUDA graph is captured; fewer are padded to the next one. () for none."""
    memory_share_of: Literal["all", "free"] = "all"
    """all: the share is of the whole memory, and holds weights, cache and what is reserved. free: it is the cache's, of the memory that
    weights and what is reserved leave."""
    never_preempts: bool = False
    """A request joins only once blocks for its whole answer are free, so that none is preempted for lack of them."""
    max_model_len: Annotated[int, Key(minimum=0)] = 0
    """Most tokens of one request, prompt and answer together; 0 for as many as the model has positions."""
    enforce_eager: bool = False
    """The host launches every step kernel by kernel, without graphs."""
    prefill_graph_tokens: Annotated[int, Key(minimum=0)] = 1_000_000
    """Most tokens of a step with a prompt for which there are graphs; the host launches larger ones kernel by kernel. 0 for none."""
    first_token_us: Annotated[float, Key(minimum=0, maximum=1e7)] = 0.0
    """µs that the engine's processes add to a first token, next to those that a client sees of vLLM's."""
    recv_interval: Annotated[int, Key(minimum=1, maximum=10_000)] = 1
    """Steps of decodes alone between two looks for new requests; a step with a prompt is followed by a look (SGLang's
    scheduler_recv_interval)."""
    prompts_alone: bool = False
    """A step computes prompts or makes tokens of answers, prompts first, rather than both at once (SGLang without enable_mixed_chunk)."""
    batch_wait_steps: Annotated[int, Key(minimum=0, maximum=10_000)] = 0
    """Steps for which prompts wait beside decodes for more of them (TensorRT-LLM's batch_wait_timeout_iters); 0 for none. It needs
    `batch_wait_share`."""
    batch_wait_share: Annotated[float, Key(minimum=0, maximum=1)] = 0.0
    """Prompts wait until they and the decodes fill this share of a step's tokens (TensorRT-LLM's batch_wait_max_tokens_ratio), for
    `batch_wait_steps` at most; 0 for no wait."""
    dispatch: Literal["allgather", "deepep"] = "allgather"
    """How tokens reach experts on other replicas' GPUs. allgather: every token to every GPU. deepep: copies to the GPUs of its experts
    alone, by DeepEP's low-latency kernels in small steps and by its normal ones in large ones."""
    expert_alignment: Annotated[int, Key(minimum=1, maximum=1024)] = 1
    """Rows to which the tokens of each expert in fp8 by block are padded by a kernel that runs over all experts, whichever they choose: 128
    for DeepGEMM's contiguous layout; 1 for kernels that run over the experts with tokens alone."""
    two_batch_overlap: bool = False
    """A step is computed as two halves, each exchanging tokens behind the other's computing (SGLang's two-batch overlap, vLLM's DBO)."""
    sampling: Literal["greedy", "random", "sorted"] = "greedy"
    """Choice of the next token. greedy: the largest logit. random: drawn at a temperature; kernels that fuse top-k and top-p into it, as
    FlashInfer's, take about as long. sorted: drawn of the top k or the top p of all logits in order, as vLLM up to 0.15 does wherever a
    request, or the generation_config.json of its model, asks for them."""

    def contradictions(self) -> Iterator[Fault]:
        steps, share = self.batch_wait_steps, self.batch_wait_share
        alone = "without engine.{}, so that nothing waits; give {}, or remove it"
        if steps and not share:
            yield Fault(path="batch_wait_steps", problem=f"{steps} {alone.format('batch_wait_share', 0.9)}")
        if share and not steps:
            yield Fault(path="batch_wait_share", problem=f"{plain(share)} {alone.format('batch_wait_steps', 20)}")

    @property
    def replayed_sizes(self) -> tuple[int, ...]:
        """Numbers of decodes for which there is a graph: none in an eager engine."""
        return () if self.enforce_eager else self.graph_sizes


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerPlacement:
    """The spread of a server's model over its GPUs."""

    tp: int = 1
    """Tensor-parallel GPUs."""
    dp: int = 1
    """Replicas of attention, among which requests are divided; experts are spread over the tp · dp GPUs of all of them."""
    pp: int = 1
    """Pipeline stages, each with its share of the layers. As many batches are under way, one in each stage, and requests are divided
    among them."""
    expert_parallel: bool = False
    """Each of these GPUs holds whole experts rather than a slice of each."""
    precision: Annotated[str, one_of(*WEIGHTS)] = "bf16"
    """Format of the weights of the layers; embedding and head stay in bf16 with those of fewer bits. w4a16 and w8a16: AWQ's and GPTQ's
    integers, with activations in 16 bits; w8a8: int8 of both; fp8_block, nvfp4, mxfp4: scales by block."""
    redundant_experts: Annotated[int, Key(minimum=0)] = 0
    """Copies of busy experts in addition to one of each, with `expert_parallel`: those of a balancer (EPLB)."""
    expert_load: Annotated[float, Key(minimum=1)] = 1.0
    """Tokens of the busiest GPU's experts over the mean, with `expert_parallel`: all GPUs wait for that one. 1: evenly, as balancers aim
    at."""
    quantised: Literal["layers", "experts"] = "layers"
    """The weights that have this format: those of whole layers, or of routed experts alone, others being in bf16."""
    kv_precision: Annotated[str, one_of(*CACHES)] = "bf16"
    """Dtype of the cached keys and values."""

    @property
    def gpus(self) -> int:
        return self.tp * self.dp * self.pp

    @property
    def without_experts(self) -> ServerPlacement:
        """The placement of a model without experts beside one that has some."""
        return replace(self, expert_parallel=False, redundant_experts=0, expert_load=1.0)

    @property
    def streams(self) -> int:
        """Batches that may be served side by side, each with its share of the requests: of replicas of attention, and of pipeline
        stages."""
        return self.dp * self.pp


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    """One engine: everything that the time of its steps depends on, apart from their batches."""

    model: ModelSpec
    cluster: Cluster
    placement: ServerPlacement
    engine_name: str
    """The file of configs/engines whose settings those of the engine start from."""
    engine: EngineSettings
    speculation: Speculation = field(default_factory=Speculation)
    draft: Draft | None = None
    """The model that writes the drafts; None where none does."""
    joined: int = 0
    """Hidden states that a first product joins into one, where the model writes drafts from those of another."""
    model_given_as: str = field(default="", repr=False, compare=False)
    """The name or path of the model as the config gives it; empty for its keys."""
    published_formats: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    """The keys of a placement for the formats in which a model of that name is published, where the config states no precision; none
    for a model that is published in 16 bits."""

    @property
    def batches(self) -> int:
        """Batches under way in one engine, which share its places and blocks: one in each pipeline stage, and none without a request.
        vLLM's scheduler counts the requests of all of them as running."""
        return min(self.placement.pp, self.engine.max_num_seqs)

    @property
    def title(self) -> str:
        """`llama3-8b on H100, tp 2, bf16`."""
        placed = self.placement
        spread = [
            f"tp {placed.tp}",
            *([f"pp {placed.pp}"] if placed.pp > 1 else []),
            *([f"dp {placed.dp}"] if placed.dp > 1 else []),
            *(["experts whole"] * (self.ep > 1)),
        ]
        drafts = f", {self.speculation.kind} of {self.speculation.drafts}" * bool(self.speculation.drafts)
        return f"{self.model.name} on {self.cluster.gpu.name}, {' · '.join(spread)}, {placed.precision}{drafts}"

    @property
    def drafting(self) -> Server | None:
        """The model that writes the drafts, as a server on the same GPUs; None where none does. Heads of EAGLE and models of their own
        stay in 16 bits whatever the large model's weights; a layer of multi-token prediction has its precision."""
        if self.draft is None:
            return None
        placed = self.placement
        own = placed.precision if self.draft.shares_ends else self.activations
        placement = replace(placed if self.draft.model.experts else placed.without_experts, precision=own)
        # drafts are the largest logits, however the tokens are chosen that they are compared with
        engine = replace(self.engine, sampling="greedy")
        written = replace(self.without_speculation, model=self.draft.model, engine=engine)
        return replace(written, placement=placement, joined=self.draft.joined)

    @property
    def without_speculation(self) -> Server:
        return replace(self, speculation=Speculation(), draft=None)

    @property
    def tp(self) -> int:
        return self.placement.tp

    @property
    def expert_ranks(self) -> int:
        """GPUs over which the experts are spread, in slices or whole: those of all replicas (vLLM, "Data Parallel
        Deployment": expert layers form a tensor-parallel group of size DP × TP unless expert parallelism is
        enabled)."""
        return self.placement.tp * self.placement.dp

    @property
    def ep(self) -> int:
        """GPUs that share the experts, each with whole ones; 1 where every expert is sliced."""
        return self.expert_ranks if self.placement.expert_parallel else 1

    @property
    def max_model_len(self) -> int:
        """Most tokens of one request, prompt and answer together; 0 where neither engine nor model limits them."""
        return longest_request(self.model, self.engine)

    @property
    def expert_alignment(self) -> int:
        """Rows to which the tokens of each expert in fp8 by block are padded; 1 where kernels run over the experts with tokens alone."""
        return self.engine.expert_alignment if self.expert_products.kernel == FP8_BLOCK else 1

    @property
    def seen(self) -> Seen:
        """The keys that a query sees of sliding and chunked layers, or of those whose indexer picks them."""
        mixers = served_mixers(self)
        most = max((each.mixer.keys_seen(each.share) for each in mixers), default=0)
        return Seen(most=most, in_chunks=any(each.share.chunk for each in mixers))

    @property
    def activations(self) -> str:
        """Dtype of activations, of the head, and of what GPUs exchange."""
        return "fp32" if self.placement.precision == "fp32" else "bf16"

    @property
    def products(self) -> Products:
        """Products with the weights of layers, but for the experts'."""
        of_experts = self.placement.quantised == "experts"
        return products_of(self.activations if of_experts else self.placement.precision, self.cluster.gpu)

    @property
    def expert_products(self) -> Products:
        return products_of(self.placement.precision, self.cluster.gpu)

    def share(self, window: int = 0, chunk: int = 0) -> ServerShare:
        """One GPU's share, as the parts of a layer ask it; `window` is the one of the layer's queries, `chunk` the tokens of the chunk that
        they see, 0 for none."""
        gpu, placed = self.cluster.gpu, self.placement
        return ServerShare(
            model=self.model,
            tp=placed.tp,
            dp=placed.dp,
            ep=self.ep,
            redundant_experts=placed.redundant_experts,
            expert_load=placed.expert_load,
            expert_alignment=self.expert_alignment,
            dispatch=self.engine.dispatch,
            gpus_per_node=self.cluster.gpus_per_node,
            products=self.products,
            expert_products=self.expert_products,
            activations=self.activations,
            kv_precision=placed.kv_precision,
            # torch's kernel on a CPU gathers the blocks of a cache
            cache_block=self.engine.block_size if gpu.kind == "cpu" else 0,
            shares_keys=gpu.architecture in PACKING,
            window=window,
            chunk=chunk,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedMixer:
    """A mixer of so many layers of a server."""

    mixer: Mixer
    share: ServerShare
    layers: int


def served_mixers(server: Server) -> tuple[ServedMixer, ...]:
    """The mixers of a server's layers, layers of equal ones together."""
    model, counts = server.model, Counter[str]()
    kinds = {kind.mixer: kind for kind in model.kind_counts()}
    for kind, layers in model.kind_counts().items():
        counts[kind.mixer] += layers
    return tuple(
        ServedMixer(
            mixer=mixer,
            share=server.share(**{WINDOW_OF[name]: model.window} if name in WINDOW_OF else {}),
            layers=count,
        )
        for name, count in counts.items()
        if (mixer := mixer_of(model, kinds[name]))
    )


def longest_request(model: ModelSpec, engine: EngineSettings) -> int:
    """Most tokens of one request, prompt and answer together; 0 where neither engine nor model limits them."""
    return engine.max_model_len or model.max_positions


def cluster_of(hardware: str, ranks: int, profile: str) -> Cluster:
    """The nodes of a server's GPUs: no more of them in each than the device's nodes have. ConfigError for unknown hardware."""
    usual = hardware_facts(hardware).gpus_per_node
    nodes = -(-ranks // usual)
    return load_cluster(
        hardware=hardware, nodes=nodes, gpus_per_node=-(-ranks // nodes), node_size=usual, profile=profile
    )


FOLDER = CONFIGS / "engines"
USUAL = "vllm-v1"
VERSION = re.compile(r"v?(\d+(?:\.\d+)*)")
"""The numbers of an engine's version."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OnDevices:
    """Defaults in place of an engine's own on some devices, or of its earlier versions."""

    from_gib: Annotated[float, Key(minimum=0)] = 0.0
    """GiB of memory of a device from which on they hold."""
    besides: tuple[str, ...] = ()
    """Parts of the names of devices that keep the others."""
    architectures: tuple[str, ...] = ()
    """Architectures of devices for which they hold; () for all."""
    before: str = ""
    """Version from which on they no longer hold, such as `0.14`; empty for those of all versions."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    offline: Mapping[str, Any] = field(default_factory=dict)
    """Those where a program generates a batch by itself, over these."""

    def contradictions(self) -> Iterator[Fault]:
        for section in ("settings", "offline"):
            optional = [replace(key, required=False, default=None) for key in keys_of(EngineSettings)]
            yield from check(getattr(self, section), optional, section=section)[1]

    def holds_for(self, gpu: Gpu | Hardware, version: str) -> bool:
        """Whether they hold for a device and a version, the newest where it is empty."""
        named = any(part.lower() in gpu.name.lower() for part in self.besides)
        of_architecture = not self.architectures or gpu.architecture in self.architectures
        of_version = not self.before or () < version_numbers(version) < version_numbers(self.before)
        return gpu.memory_gib >= self.from_gib and not named and of_architecture and of_version

    def over(self, usual: EngineSettings, *, offline: bool) -> EngineSettings:
        """The settings with these in place of others."""
        changed = {**self.settings, **(self.offline if offline else {})}
        sizes = changed.get("graph_sizes", usual.graph_sizes)
        return replace(usual, **{**changed, "graph_sizes": tuple(sizes)})


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineFile:
    """The content of an engine's file."""

    settings: EngineSettings
    """The engine's defaults."""
    on_devices: tuple[OnDevices, ...] = ()
    """Those that depend on the device, by rising memory, or on the version; later ones count over earlier ones."""
    divided: tuple[str, ...] = ()
    """Those that replicas of attention (`placement.dp`) divide among them, each to `max_num_seqs` at least."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """The source of each setting."""


def engine_names() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yml")))


def engine_fault(name: object, path: str) -> Fault | None:
    """The fault of an engine's name at a key path; None for a known one."""
    known = engine_names()
    if name in known:
        return None
    near = did_you_mean(name, known) or f"; known: {', '.join(known)}"
    return Fault(path=path, problem=f"{shown(name)} is not known{near}")


@cache
def _engine_file(name: str) -> EngineFile:
    if unknown := engine_fault(name, "engine"):
        raise ConfigError(f"{unknown.path}: {unknown.problem}")
    return read(EngineFile, FOLDER / f"{name}.yml")


def with_given(usual: EngineSettings, given: Mapping[str, Any]) -> EngineSettings:
    """An engine's defaults with the settings that are given. Where the tokens of a step are and the requests at once are not, these are no
    more than the tokens, as vLLM has it (`_set_default_max_num_seqs_and_batched_tokens_args` in vllm/engine/arg_utils.py)."""
    settings = replace(usual, **given)
    if "max_num_seqs" in given:
        return settings
    return replace(settings, max_num_seqs=min(settings.max_num_seqs, settings.max_num_batched_tokens))


def version_numbers(version: str) -> tuple[int, ...]:
    """(0, 12, 0) of `0.12.0` and `v0.12.0rc1`; () for a text that does not begin with numbers, such as a nightly build's."""
    found = VERSION.match(version)
    return tuple(map(int, found[1].split("."))) if found else ()


def engine_settings(
    name: str, gpu: Gpu | Hardware, *, dp: int = 1, offline: bool = False, version: str = ""
) -> EngineSettings:
    """The defaults of an engine on a device, of each of `dp` replicas of attention, `offline` where a program generates a batch by itself
    and no server answers requests; those of its newest version where none is given. ConfigError for an unknown name, and for a file with
    faults."""
    found = _engine_file(name)
    settings = found.settings
    for one in found.on_devices:
        if one.holds_for(gpu, version):
            settings = one.over(settings, offline=offline)
    # one limit is for the tokens of prompts and of answers, each of which has one
    return replace(
        settings, **{each: max(settings.max_num_seqs, getattr(settings, each) // dp) for each in found.divided}
    )
