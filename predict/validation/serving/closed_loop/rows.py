"""Measured closed loops: the rows of serving_concurrency.csv, each a server with so many requests in flight."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from predict.config.draft import UNKNOWN
from predict.huggingface.config_json import load_model
from predict.model.shipped import shipped_model
from predict.serving.scheduler.traffic import Load
from predict.serving.server import PRECISIONS, Placement, Server, cluster_of, engine_settings
from predict.validation.serving.rows import ANALYTIC, Milliseconds, hardware_of
from predict.validation.truth.table import columns_of, read_declared
from sampling.errors import SamplesError
from sampling.files.faults import shown
from sampling.files.keys import Key, one_of
from sampling.files.regular import is_missing

FILE = "serving_concurrency.csv"
ENGINES = {"vllm": "vllm-v1", "trtllm": "tensorrt-llm", "sglang": "sglang"}
"""Engines of the table, by their names here."""
TOKENS_OF_A_STEP = 8192
"""max_num_batched_tokens at least, since the prompts of these loops are computed in full and their engines were set up for that; the flags
are not published."""
OWN_FP8 = ("deepseek-ai", "Qwen", "MiniMaxAI", "moonshotai", "zhipuai")
"""Publishers of weights in fp8, which say nothing of keys and values."""
ROUNDS = 4
"""Requests that are simulated for each in flight, those that the loop starts with included."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClosedLoop:
    """One row. A blank cell was not published."""

    model: str
    gpu: str
    backend: str
    backend_version: Annotated[str, Key()] = ""
    precision: str
    isl: int
    """Tokens of a prompt."""
    osl: Annotated[int, Key(minimum=2)]
    """Tokens of an answer."""
    concurrency: int
    """Requests in flight, on all replicas together."""
    tp: int = 1
    attention_dp: int | None = None
    """Replicas of attention; as many as the experts' GPUs leave where it is blank."""
    moe_tp: int = 1
    moe_ep: int = 1
    cuda_graphs: Annotated[str, one_of("on", "off", UNKNOWN)] = UNKNOWN
    """Whether the engine replays its steps as CUDA graphs, as it does unless it is told otherwise."""
    ttft_ms: Milliseconds = None
    tpot_ms: Annotated[float, Key(maximum=1e9)]

    @property
    def group(self) -> str:
        """The runs that were measured in one way."""
        version = f" {self.backend_version}" if self.backend_version else ""
        return f"{self.model} {self.precision} on {self.gpu}, {self.backend}{version}"

    @property
    def dp(self) -> int:
        return self.attention_dp or max(1, self.moe_tp * self.moe_ep // self.tp)

    @property
    def kv_precision(self) -> str:
        """Dtype of the cache, which no row states: where weights in fp8 are not the publisher's own they are ModelOpt's, whose checkpoints
        have keys and values in fp8 as well (`kv_cache_quant_algo` of their hf_quant_config.json)."""
        own = self.model.partition("/")[0] in OWN_FP8
        return "bf16" if self.precision != "fp8" or own else "fp8"

    @property
    def in_flight(self) -> int:
        """Requests of one replica."""
        return max(1, round(self.concurrency / self.dp))

    @property
    def load(self) -> Load:
        return Load(
            concurrency=self.in_flight, prompt=self.isl, output=self.osl, requests=max(8, ROUNDS * self.in_flight)
        )

    def server(self) -> Server:
        """The server of the row, with samples of no profile. SamplesError for a model, a precision or an engine that is not known here."""
        file = shipped_model(self.model)
        if file is None:
            raise SamplesError(f"model: {shown(self.model)} is not among configs/models; add its config.json there")
        if self.precision not in PRECISIONS:
            raise SamplesError(f"precision: {shown(self.precision)} is not one of {', '.join(PRECISIONS)}")
        if self.backend not in ENGINES:
            raise SamplesError(f"backend: {shown(self.backend)} is not one of {', '.join(ENGINES)}")
        name = ENGINES[self.backend]
        usual = engine_settings(name)
        engine = replace(
            usual,
            max_num_seqs=max(usual.max_num_seqs, self.in_flight),
            max_num_batched_tokens=max(usual.max_num_batched_tokens, TOKENS_OF_A_STEP, self.in_flight),
            prefix_caching=False,
            chunked_prefill=True,
            enforce_eager=self.cuda_graphs == "off",
        )
        model = load_model(file)
        placement = Placement(
            tp=self.tp,
            dp=self.dp,
            expert_parallel=model.experts is not None and self.moe_ep > 1,
            precision=self.precision,
            kv_precision=self.kv_precision,
        )
        cluster = cluster_of(hardware_of(self.gpu.replace("_", "-")), self.tp * self.dp, ANALYTIC)
        return Server(model=model, cluster=cluster, placement=placement, engine_name=name, engine=engine)


def read_closed_loops(folder: Path) -> list[ClosedLoop]:
    """The rows of the folder's table; none where it has no such table. SamplesError lists every fault of them."""
    return [] if is_missing(folder / FILE) else read_declared(folder / FILE, ClosedLoop, CLOSED_LOOPS)


CLOSED_LOOPS = columns_of(
    ClosedLoop,
    "a table of measured closed loops",
    not_read={"how it was measured": "repeats tpot_min_ms tpot_max_ms measured"},
)
