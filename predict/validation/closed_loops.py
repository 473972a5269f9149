"""Measured closed loops next to their predictions: the rows of serving_concurrency.csv, each a server with so many requests in flight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isqrt
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from predict.config.draft import UNKNOWN
from predict.huggingface.config_json import load_model
from predict.interval import Interval
from predict.model.shipped import shipped_model
from predict.model.spec import ModelSpec
from predict.serialise import picked
from predict.serving.batch import Chunk, StepBatch
from predict.serving.coefficients import Coefficients
from predict.serving.formats import NVFP4, W4A16, published_in
from predict.serving.latency import latency_of
from predict.serving.server import PRECISIONS, Server, ServerPlacement, cluster_of, engine_settings
from predict.serving.simulate import serve
from predict.serving.stages import ANALYTIC, Milliseconds
from predict.serving.stepper import Stepper
from predict.serving.traffic import Load, traffic_of
from predict.truth_table import columns_of, read_declared
from predict.validation.compared import Compared, Refused, grouped, scores
from predict.validation.serving import latency_interval
from sampling.errors import ConfigError, UserError
from sampling.files.disk import is_missing
from sampling.files.faults import shown
from sampling.files.schema import Key, one_of
from sampling.hardware.cluster import Gpu, hardware_named
from sampling.progress import Progress

FILE = "serving_concurrency.csv"
FORMATS = {**{name: name for name in PRECISIONS}, "fp4": NVFP4, "int4": W4A16}
"""Formats of weights of the table, by their names here."""
ENGINES = {"vllm": "vllm-v1", "trtllm": "tensorrt-llm", "sglang": "sglang"}
"""Engines of the table, by their names here."""
TOKENS_OF_A_STEP = 8192
"""max_num_batched_tokens at least, since the prompts of these loops are computed in full and their engines were set up for that."""
BESIDE_PROMPT = 1500
"""Tokens of a step beyond one prompt and the requests in flight, as both sources of these loops set TensorRT-LLM's max_num_tokens for
the load, so that prompts are computed nearly one by one (AIConfigurator, generator/rule_plugin/trtllm.rule; the scripts
dsr1_fp8_h200_trt_slurm and 70b_fp8_b200_trt_slurm of InferenceMAX leave 64 or as many as an answer has)."""
DENSE_TOKENS = 16_384
"""The same of a dense model in InferenceMAX's loops (its scripts 70b_fp8_b200_trt and 70b_fp4_b200_trt)."""
MIXED: Mapping[str, Any] = {"prompts_alone": False}
"""How AIConfigurator starts SGLang in its own loops (`enable_mixed_chunk` of its generator/rule_plugin/sglang.rule)."""
USUAL_GRAPHS = 512
"""Tokens of the largest graph of a step with a prompt on vLLM (`max_cudagraph_capture_size`)."""
LARGE_GRAPHS = 2048
"""Tokens of the largest graph of mixtures on Blackwell in InferenceMAX's loops on vLLM, whose steps have twice the tokens of a prompt and
whose keys and values are in fp8 (`--max-cudagraph-capture-size`, `--max-num-batched-tokens`, `--kv-cache-dtype` of its scripts
minimaxm2.5_fp8_b300 and kimik2.5_fp4_b200 of April 2026). With dense models decodes alone have graphs (`FULL_DECODE_ONLY` of
70b_fp8_b200)."""
GATHERING: Mapping[str, Any] = {"batch_wait_steps": 20, "batch_wait_share": 0.9}
"""How those scripts let prompts wait for more of them where prompts and answers are as long, on fewer than EIGHT GPUs."""
EIGHT = 8
ROUNDS = 10
"""Requests that are simulated for each in flight, those that the loop starts with included: as many as InferenceMAX sends
(`--num-prompts` of its benchmark scripts, ten times the concurrency)."""
RANGED = ((1024, 1024), (1024, 8192), (8192, 1024))
"""Prompt and answer of InferenceMAX's loops, whose lengths are drawn from a range up to these (github.com/InferenceMAX/InferenceMAX,
`random-range-ratio`). In loops of equal lengths all requests stay in step, and each round starts with a burst of prompts."""
RANGE = 0.8
"""The least of those lengths as a share of the largest."""
FEW, MANY = 10, 30
"""Steps between two looks of SGLang for new requests where InferenceMAX starts it on Blackwell: with fewer than SEVERAL in flight, and with
so many (`--scheduler-recv-interval` of its scripts dsr1_fp8_b200 and qwen3.5_fp8_b200; those for Hopper have none)."""
SEVERAL = 16


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
    """Requests in flight on each replica of attention that the row states."""
    tp: int = 1
    attention_dp: int | None = None
    """Replicas of attention; as many as the experts' GPUs leave where it is blank."""
    moe_tp: int = 1
    moe_ep: int = 1
    cuda_graphs: Annotated[str, one_of("on", "off", UNKNOWN)] = UNKNOWN
    """Whether the engine replays its steps as CUDA graphs, as it does by default."""
    ttft_ms: Milliseconds = None
    tpot_ms: Annotated[float, Key(maximum=1e9)]

    @property
    def group(self) -> str:
        """The runs that were measured in one way."""
        version = f" {self.backend_version}" if self.backend_version else ""
        return f"{self.model} {self.precision} on {self.gpu}, {self.backend}{version}"

    @property
    def replicas(self) -> int:
        """Those of attention that the row states."""
        return self.attention_dp or max(1, self.moe_tp * self.moe_ep // self.tp)

    @property
    def is_squared(self) -> bool:
        """Whether the row states the square of its GPUs, as AIConfigurator's table does for InferenceMAX's loops with replicas of
        attention: MiniMax-M2.5 on H100 and Kimi-K2.5 on B200 take as long with 1 to 16 in flight on 4 × 4 as with 4 to 64 on 4."""
        stated = self.tp * self.replicas
        return self.is_ranged and self.replicas > 1 and isqrt(stated) ** 2 == stated

    @property
    def gpus(self) -> int:
        """GPUs of the server."""
        stated = self.tp * self.replicas
        return isqrt(stated) if self.is_squared else stated

    @property
    def dp(self) -> int:
        """Replicas of attention. InferenceMAX's scripts for vLLM do not read that there are to be several (DP_ATTENTION)."""
        if not self.is_squared:
            return self.replicas
        return 1 if self.backend == "vllm" else self.gpus

    @property
    def formats(self) -> Mapping[str, str]:
        """Keys of the placement that no row states. Weights in fp8 or four bits that are not as the model was published are ModelOpt's,
        whose checkpoints have keys and values in fp8 as well (`kv_cache_quant_algo` of their hf_quant_config.json)."""
        if published := published_in(f"{self.model}-{self.precision}", ENGINES[self.backend], self.precision):
            return {"kv_precision": "bf16", **published}
        few = self.precision in ("fp8", "fp4")
        return {"precision": FORMATS[self.precision], "kv_precision": "fp8" if few else "bf16"}

    @property
    def in_flight(self) -> int:
        """Requests of one replica of the server."""
        return max(1, round(self.concurrency * self.replicas / self.dp))

    @property
    def is_ranged(self) -> bool:
        """Whether it is one of InferenceMAX's."""
        return (self.isl, self.osl) in RANGED

    def recv_interval(self, gpu: Gpu) -> int:
        """Steps of the engine between two looks for new requests."""
        if self.backend != "sglang" or not self.is_ranged or gpu.architecture != "blackwell":
            return 1
        return FEW if self.concurrency < SEVERAL else MANY

    def script(self, model: ModelSpec, gpu: Gpu) -> Mapping[str, Any]:
        """Settings with which InferenceMAX starts vLLM and TensorRT-LLM."""
        dense = model.experts is None
        if self.backend == "trtllm" and dense:
            gathers = self.isl == self.osl and self.gpus < EIGHT
            return {"max_num_batched_tokens": DENSE_TOKENS, **(GATHERING if gathers else {})}
        if self.backend != "vllm":
            return {}
        if dense:
            return {"prefill_graph_tokens": 0}
        if self.has_large_graphs(gpu):
            return {"prefill_graph_tokens": LARGE_GRAPHS, "max_num_batched_tokens": 2 * self.isl}
        return {}

    def has_large_graphs(self, gpu: Gpu) -> bool:
        """Whether InferenceMAX starts the mixture on vLLM as LARGE_GRAPHS says."""
        return (
            self.is_ranged and self.backend == "vllm" and gpu.architecture == "blackwell" and self.precision != "int4"
        )

    @property
    def load(self) -> Load:
        ranged = self.is_ranged
        mean = (1 + RANGE) / 2 if ranged else 1.0
        return Load(
            concurrency=self.in_flight,
            prompt=round(mean * self.isl),
            output=round(mean * self.osl),
            spread=(1 - RANGE) / (1 + RANGE) if ranged else 0.0,
            requests=max(8, ROUNDS * self.in_flight),
        )

    def server(self) -> Server:
        """The server of the row, with samples of no profile. ConfigError for a model, a precision or an engine that is not known here."""
        file = shipped_model(self.model)
        if file is None:
            raise ConfigError(f"model: {shown(self.model)} is not among configs/models; add its config.json there")
        if self.precision not in FORMATS:
            raise ConfigError(f"precision: {shown(self.precision)} is not one of {', '.join(FORMATS)}")
        if self.backend not in ENGINES:
            raise ConfigError(f"backend: {shown(self.backend)} is not one of {', '.join(ENGINES)}")
        name = ENGINES[self.backend]
        cluster = cluster_of(hardware_named(self.gpu) or self.gpu, self.gpus, ANALYTIC)
        usual = engine_settings(name, cluster.gpu, dp=self.dp, version=self.backend_version)
        model = load_model(file)
        one_prompt = self.isl + self.in_flight + BESIDE_PROMPT
        several = max(usual.max_num_batched_tokens, TOKENS_OF_A_STEP, self.in_flight)
        engine = replace(
            usual,
            max_num_seqs=max(usual.max_num_seqs, self.in_flight),
            max_num_batched_tokens=several if usual.chunked_prefill else one_prompt,
            prefix_caching=False,
            recv_interval=self.recv_interval(cluster.gpu),
            enforce_eager=self.cuda_graphs == "off",
        )
        if self.backend == "vllm":
            engine = replace(engine, prefill_graph_tokens=USUAL_GRAPHS)
        engine = replace(engine, **(self.script(model, cluster.gpu) if self.is_ranged else MIXED))
        formats = {**self.formats, **({"kv_precision": "fp8"} if self.has_large_graphs(cluster.gpu) else {})}
        placement = ServerPlacement(
            tp=self.gpus // self.dp,
            dp=self.dp,
            expert_parallel=model.experts is not None and self.moe_ep > 1,
            **formats,  # type: ignore[arg-type]
        )
        return Server(model=model, cluster=cluster, placement=placement, engine_name=name, engine=engine)


def read_closed_loops(folder: Path) -> list[ClosedLoop]:
    """The rows of the folder's table; none where it has no such table. ConfigError lists every fault of them."""
    return [] if is_missing(folder / FILE) else read_declared(folder / FILE, ClosedLoop, CLOSED_LOOPS)


CLOSED_LOOPS = columns_of(
    ClosedLoop,
    "a table of measured closed loops",
    not_read={"how it was measured": "repeats tpot_min_ms tpot_max_ms measured"},
)


# Rows next to their predictions, by coefficients that no closed loop was fitted to.

FEWEST_BYTES = "fp8"
"""Dtype of a cache that is not stated, for the speed of light."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedLoop:
    """A row and its prediction, in µs, with the interval that users get."""

    row: ClosedLoop
    tpot: Compared
    ttft: Compared | None
    """The time to the first token; None where it was not measured."""
    bound_us: float
    """The speed of light of its mean step, if every prompt is computed in full."""
    first_token_us: float = 0.0
    """The part of the predicted time to the first token that is fitted to rows of this table: the engine's own."""
    left_out: str = ""
    """Why it is not judged."""

    @property
    def is_too_fast(self) -> bool:
        """Whether the measured step is faster than light for its work: then not all of that was done."""
        return self.tpot.measured < self.bound_us

    def with_first_token(self, own_us: float) -> ComparedLoop:
        """The same with another figure in place of the fitted one."""
        if self.ttft is None:
            return self
        found, added_us = self.ttft.predicted, own_us - self.first_token_us
        moved = Interval(median=found.median + added_us, low=found.low + added_us, high=found.high + added_us)
        return replace(self, ttft=Compared(predicted=moved, measured=self.ttft.measured), first_token_us=own_us)


def compared_loops(
    rows: Sequence[ClosedLoop], coefficients: Coefficients, progress: Progress
) -> tuple[list[ComparedLoop], list[Refused[ClosedLoop]]]:
    """Every row, simulated; a group with a row that is faster than light is not judged."""
    steppers: dict[str, Stepper] = {}
    compared, refused = [], []
    for done, row in enumerate(rows, 1):
        try:
            server = row.server()
            # the tables of steps are made once for all rows of a server
            compared.append(_compared(row, steppers.setdefault(repr(server), Stepper(server, coefficients))))
        except UserError as error:
            refused.append(Refused(row=row, why=str(error)))
        progress(done, len(rows), row.group)
    cached = {one.row.group for one in compared if one.is_too_fast}
    why = "rows of its group are faster than light if each prompt is computed: some were found in a cache"
    return [replace(one, left_out=why) if one.row.group in cached else one for one in compared], refused


def _compared(row: ClosedLoop, stepper: Stepper) -> ComparedLoop:
    traffic = traffic_of(row.load)
    factors = stepper.first_token_factors(traffic)
    low, middle, high = (
        latency_of(serve(stepper.server.engine, stepper.room.pool, table, traffic), stepper.client, factor)
        for table, factor in zip(stepper.tables, (factors.low, 1.0, factors.high), strict=True)
    )

    def beside(figure: str, measured_ms: float) -> Compared:
        return Compared(predicted=latency_interval(figure, middle, low, high), measured=1e3 * measured_ms)

    return ComparedLoop(
        row=row,
        tpot=beside("tpot", row.tpot_ms),
        ttft=beside("ttft", row.ttft_ms) if row.ttft_ms else None,
        bound_us=_bound_us(row, stepper),
        first_token_us=stepper.client.first_token_us - stepper.coefficients.client.first_token_us,
    )


def _bound_us(row: ClosedLoop, stepper: Stepper) -> float:
    """The speed of light of a step with as many decodes and prompt tokens as the measured times imply."""
    placed = replace(stepper.server.placement, kv_precision=FEWEST_BYTES)
    lean = replace(stepper, server=replace(stepper.server, placement=placed))
    answering_ms = (row.osl - 1) * row.tpot_ms
    decodes = row.in_flight * answering_ms / (answering_ms + (row.ttft_ms or 0.0))
    tokens = int(decodes * row.isl / (row.osl - 1))
    chunks = (Chunk(tokens=tokens),) if tokens else ()
    keys = row.isl + row.osl // 2
    return lean.bound_us(StepBatch(chunks=chunks, decodes=(keys,) * max(1, int(decodes))), experts_read=False)


# Errors of predicted closed loops, summed up: means over judged rows, every row one vote.


def closed_loop_json(compared: Sequence[ComparedLoop], refused: Sequence[Refused[ClosedLoop]]) -> dict[str, Any]:
    """The part `closed_loop` of `predict validate serving --json`; errors are fractions."""
    judged = [one for one in compared if not one.left_out]
    groups = grouped(compared, lambda one: one.row.group)
    reasons = Counter((other.row.group, other.why) for other in refused)
    return {
        "summary": _errors(judged),
        "by_group": {name: {**_errors(group), "left_out": group[0].left_out} for name, group in sorted(groups.items())},
        "by_version": _by_version(judged),
        "rows": [_row(one) for one in compared],
        "refused": [{"group": group, "rows": count, "why": why} for (group, why), count in reasons.items()],
    }


def without_own_version(rows: Sequence[ComparedLoop]) -> list[ComparedLoop]:
    """The rows with the figure that is fitted to them, an engine's own time of a first token, fitted anew to those of its other versions
    alone. As they are where the figure is 0, or where there are no others."""
    found = []
    for row in rows:
        others = [
            one
            for one in rows
            if one.row.backend == row.row.backend and one.row.backend_version != row.row.backend_version and one.ttft
        ]
        found.append(row.with_first_token(fitted_first_token_us(others)) if row.first_token_us and others else row)
    return found


def fitted_first_token_us(rows: Sequence[ComparedLoop]) -> float:
    """The time of a first token beside steps, launches and queues with which the mean size of the errors of these rows is least: the median
    of what is left of each, weighed by the inverse of its measured time."""
    left_us, weights = np.transpose(
        sorted(
            (one.ttft.measured - one.ttft.predicted.median + one.first_token_us, 1 / one.ttft.measured)
            for one in rows
            if one.ttft
        )
    )
    return float(left_us[np.searchsorted(weights.cumsum(), weights.sum() / 2)])


def _by_version(judged: Sequence[ComparedLoop]) -> dict[str, Any]:
    """The errors of each version of an engine, by figures to which none of its rows was fitted, and of all of them."""
    rows = without_own_version(judged)
    groups = grouped(rows, lambda one: f"{one.row.backend} {one.row.backend_version or 'not stated'}")
    return {name: _errors(group) for name, group in (*sorted(groups.items()), ("all", rows)) if group}


def _errors(rows: Sequence[ComparedLoop]) -> dict[str, Any]:
    tpot, ttft = scores(one.tpot for one in rows), scores(one.ttft for one in rows if one.ttft)
    return {
        **picked(tpot, "rows tpot=mean tpot_bias=bias coverage"),
        **picked(ttft, "ttft=mean ttft_bias=bias ttft_coverage=coverage"),
    }


def _row(one: ComparedLoop) -> dict[str, Any]:
    judged = {"tpot": one.tpot} | ({"ttft": one.ttft} if one.ttft else {})
    return {
        **picked(one.row, "group tp dp isl osl concurrency"),
        "predicted_ms": {
            f"{name}{end}": getattr(each.predicted, bound) / 1e3
            for name, each in judged.items()
            for end, bound in (("", "median"), ("_low", "low"), ("_high", "high"))
        },
        "measured_ms": {"tpot": one.row.tpot_ms, "ttft": one.row.ttft_ms},
        "speed_of_light_ms": one.bound_us / 1e3,
        **picked(one, "tpot_error=tpot.error covered=tpot.covered"),
        "ttft_error": one.ttft.error if one.ttft else None,
        "ttft_covered": one.ttft.covered if one.ttft else None,
        "judged": not one.left_out,
    }
