"""Measured serving runs: the rows of serving_experiments.csv, one for each stage of an experiment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal

from predict.layers.attention import Attention
from predict.layers.dense import Dense
from predict.layers.mixture import Mixture
from predict.model.shipped import shipped_model
from predict.model.spec import LayerKind, ModelSpec
from predict.serving.server import USUAL, Server, ServerPlacement, cluster_of, engine_settings
from predict.serving.traffic import Load
from predict.truth_table import columns_of, read_declared
from sampling.files.faults import Fault
from sampling.files.places import shipped_json
from sampling.files.schema import Key, one_of
from sampling.hardware.cluster import hardware_named

FILE = "serving_experiments.csv"
ABOVE_NOMINAL = 1.045
"""Tokens of a prompt over the nominal ones of the load generator, where the tokenizer's count is not published."""
PUBLISHED_TOP_P = frozenset(chain(*shipped_json("published-top-p.json").values()))
"""Shipped models whose repository states a top p or a top k (`configs/published-top-p.json` says where), which vLLM takes where a request
has none. Those of Mistral, Mixtral, Code Llama and Yi state none, so that tokens are drawn at temperature 1."""
ANALYTIC = "analytic"
"""A profile without samples."""
OptionalCount = Annotated[int | None, Key(minimum=0)]
Milliseconds = Annotated[float | None, Key(maximum=1e9)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """One stage of a measured experiment. A blank cell was not published."""

    experiment: str
    stage: Annotated[int, Key(minimum=0)] = 0
    model: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    """Inner width of the MLP, or of one expert."""
    experts: Annotated[int, Key(minimum=0)] = 0
    top_k: Annotated[int, Key(minimum=0)] = 0
    shared_ffn: Annotated[int, Key(minimum=0)] = 0
    vocab: int
    dtype: Annotated[str, one_of("bf16", "fp16", "fp8")]
    gpu: str
    tp: int
    dp: int = 1
    ep: int = 1
    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int = 16
    prefix_caching: Annotated[str, one_of("on", "off")] = "on"
    chunked_prefill: Annotated[str, one_of("on", "off")] = "on"
    sampling: Annotated[Literal["", "greedy", "random", "sorted"], Key()] = ""
    """As `EngineSettings.sampling`. Blank: what vLLM 0.15 does with requests that say nothing of it, as those of these load generators
    (inference-perf's apis/completion.py): sorted for a shipped model, by whichever of its names, whose publisher states a top p or a top k;
    the engine's setting for any other."""
    gpu_mem_util: Annotated[float, Key(minimum=0.01, maximum=1)] = 0.9
    kv_blocks: int | None = None
    n_prefixes: OptionalCount = None
    users_per_prefix: OptionalCount = None
    prefix_len: OptionalCount = None
    question_len: OptionalCount = None
    prompt_mean: float | None = None
    output_len: int
    rate_rps: float
    duration_s: float
    regime: Annotated[str, one_of("sub", "near", "over")] = "sub"
    profile: str = ""
    source: str = ""
    """Where the stage was published."""
    e2e_mean_ms: Milliseconds = None
    e2e_p90_ms: Milliseconds = None
    ttft_mean_ms: Milliseconds = None
    tpot_mean_ms: Milliseconds = None

    def contradictions(self) -> Sequence[Fault]:
        faults = []
        if not self.prompt_mean and (self.prefix_len is None or self.question_len is None):
            faults.append(Fault(path="prompt_mean", problem="missing; give it, or prefix_len and question_len"))
        if self.max_num_batched_tokens < self.max_num_seqs:
            problem = (
                f"{self.max_num_batched_tokens:,} is less than max_num_seqs, {self.max_num_seqs:,}; no engine starts so"
            )
            faults.append(Fault(path="max_num_batched_tokens", problem=problem))
        return faults

    @property
    def measured_ms(self) -> Mapping[str, float | None]:
        """The latencies that are compared, by their short names."""
        return {
            "e2e": self.e2e_mean_ms,
            "ttft": self.ttft_mean_ms,
            "tpot": self.tpot_mean_ms,
            "e2e_p90": self.e2e_p90_ms,
        }

    @property
    def prompt(self) -> int:
        """Tokens of a prompt."""
        nominal = (self.prefix_len or 0) + (self.question_len or 0)
        return round(self.prompt_mean or ABOVE_NOMINAL * nominal)

    @property
    def load(self) -> Load:
        return Load(
            rate=self.rate_rps,
            duration_s=self.duration_s,
            prompt=self.prompt,
            output=self.output_len,
            distinct_prompts=(self.n_prefixes or 0) * (self.users_per_prefix or 1),
        )

    def server(self) -> Server:
        """The server of the stage. ConfigError for a GPU that no file describes."""
        cluster = cluster_of(hardware_named(self.gpu) or self.gpu, self.tp * self.dp, ANALYTIC)
        usual = engine_settings(USUAL, cluster.gpu)
        engine = replace(
            usual,
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            block_size=self.block_size,
            prefix_caching=self.prefix_caching == "on",
            chunked_prefill=self.chunked_prefill == "on",
            memory_utilization=self.gpu_mem_util,
            sampling=self.sampling or ("sorted" if self._has_published_top_p else usual.sampling),
        )
        placement = ServerPlacement(
            tp=self.tp,
            dp=self.dp,
            expert_parallel=self.ep > 1,
            precision=self.dtype,
            kv_precision="bf16" if self.dtype == "fp8" else self.dtype,
        )
        return Server(model=self._spec(), cluster=cluster, placement=placement, engine_name=USUAL, engine=engine)

    @property
    def _has_published_top_p(self) -> bool:
        path = shipped_model(self.model)
        return path is not None and path.stem in PUBLISHED_TOP_P

    def _spec(self) -> ModelSpec:
        experts = None
        if self.experts:
            experts = Mixture(count=self.experts, topk=self.top_k, ffn=self.ffn, shared_ffn=self.shared_ffn)
        return ModelSpec(
            name=self.model,
            layers=self.layers,
            hidden=self.hidden,
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            ffn=0 if experts else self.ffn,
            vocab=self.vocab,
            gated=True,
            norm="rms",
            rope=True,
            attention_bias=False,
            mlp_bias=False,
            tied=False,
            max_positions=0,
            layer_kinds=(LayerKind(mixer="full", sparse=True),) * self.layers if experts else (),
            mixers=(Attention(),),
            mlp=Dense(),
            experts=experts,
        )


def read_stages(folder: Path, option: str = "--truth") -> list[Stage]:
    """The stages of the table in the folder that an option names; ConfigError lists every fault of its columns and rows,
    or says that there is none."""
    return read_declared(folder / FILE, Stage, STAGES, option)


STAGES = columns_of(
    Stage,
    f"the folder of {FILE}",
    not_read={
        "where a row comes from": "row_id peer_id source_path notes rate_from kv_blocks_from fail_rate_from server",
        "settings that are not read": "max_model_len cpu_kv_offload arrivals",
        "figures that are not compared": "prompt_std prompt_min prompt_max out_recorded_mean out_recorded_std"
        " achieved_rate_rps n_requests n_failed fail_rate sub_saturation_by_failures e2e_p50_ms e2e_p99_ms ttft_p50_ms"
        " ttft_p90_ms ttft_p99_ms tpot_p50_ms tpot_p90_ms tpot_p99_ms itl_published_ms itl_published_is output_tokens_per_s",
    },
)
