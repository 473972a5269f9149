"""Command lines of inference servers: `vllm serve` and SGLang's launch_server (vllm, engine/arg_utils.py; sglang, srt/server_args.py)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from predict.convert.arguments import Arguments
from predict.convert.tool import (
    AUTO,
    NO_VALUES,
    Cost,
    Read,
    Reading,
    Sections,
    Tool,
    choice,
    count,
    in_sections,
    model_named,
    read_table,
    switch,
)
from predict.serving.formats import MXFP4
from sampling.operators.gemm import FP8_BLOCK

DTYPES: Mapping[str, Any] = {
    AUTO: "bf16",
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float": "fp32",
    "float32": "fp32",
}
CACHES: Mapping[str, Any] = {AUTO: "bf16", "bfloat16": "bf16", "fp8": "fp8", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8"}
QUANTIZED: Mapping[str, Any] = {"fp8": "fp8"}
EXCHANGES: Mapping[str, Any] = {
    "none": "allgather",
    "naive": "allgather",
    "allgather_reducescatter": "allgather",
    "deepep": "deepep",
    "deepep_high_throughput": "deepep",
    "deepep_low_latency": "deepep",
}
"""How vLLM and SGLang name the exchange of tokens with experts on other GPUs."""


IN_BLOCKS: Mapping[str, str] = {"precision": FP8_BLOCK}
PUBLISHED_IN: Mapping[str, Mapping[str, str]] = {
    "deepseek-v3": IN_BLOCKS,
    "deepseek-v3.2": IN_BLOCKS,
    "kimi-k2": IN_BLOCKS,
    "minimax-m2": IN_BLOCKS,
    "gpt-oss-20b": {"precision": MXFP4, "quantised": "experts"},
    "gpt-oss-120b": {"precision": MXFP4, "quantised": "experts"},
}
"""Shipped model → what the `quantization_config` of its published config.json says, which engines follow where no option says otherwise."""
GRAPHS_OFF = re.compile(
    r"""cudagraph_mode['"]?\s*[:=]\s*['"]?NONE|\b(level|mode)['"]?\s*[:=]\s*['"]?(0|NONE)\b""", re.IGNORECASE
)
"""Words of vLLM's compilation config by which it runs without compilation or without CUDA graphs (vllm, config/compilation.py)."""


def _share(name: str) -> Read:
    return Read(
        path="engine.memory_utilization", value=lambda given: given.number(name, 0.9) if name in given.values else None
    )


def _negated(path: str, name: str) -> tuple[Read, Read]:
    """A switch that has a counterpart with `no_` in front."""
    return (switch(path, name), switch(path, f"no_{name}", on=False, off=True))


VLLM = (
    count("placement.tp", "tensor_parallel_size", "tp"),
    count("placement.dp", "data_parallel_size", "dp"),
    switch("placement.expert_parallel", "enable_expert_parallel"),
    choice("engine.dispatch", "all2all_backend", EXCHANGES),
    switch("engine.two_batch_overlap", "enable_dbo"),
    choice("placement.precision", "dtype", DTYPES),
    choice("placement.precision", "quantization", QUANTIZED),
    choice("placement.kv_precision", "kv_cache_dtype", CACHES),
    count("engine.max_num_seqs", "max_num_seqs"),
    count("engine.max_num_batched_tokens", "max_num_batched_tokens"),
    count("engine.max_model_len", "max_model_len"),
    count("engine.block_size", "block_size"),
    _share("gpu_memory_utilization"),
    switch("engine.enforce_eager", "enforce_eager"),
    *_negated("engine.prefix_caching", "enable_prefix_caching"),
    *_negated("engine.chunked_prefill", "enable_chunked_prefill"),
)
SGLANG = (
    count("placement.tp", "tp_size", "tensor_parallel_size", "tp"),
    choice("placement.precision", "dtype", DTYPES),
    choice("placement.precision", "quantization", QUANTIZED),
    choice("placement.kv_precision", "kv_cache_dtype", CACHES),
    count("engine.max_num_seqs", "max_running_requests"),
    count("engine.max_num_batched_tokens", "chunked_prefill_size"),
    count("engine.max_model_len", "context_length"),
    count("engine.block_size", "page_size"),
    _share("mem_fraction_static"),
    switch("engine.enforce_eager", "disable_cuda_graph"),
    switch("engine.prefix_caching", "disable_radix_cache", on=False, off=True),
    switch("engine.asynchronous", "disable_overlap_schedule", on=False, off=True),
    choice("engine.dispatch", "moe_a2a_backend", EXCHANGES),
    switch("engine.two_batch_overlap", "enable_two_batch_overlap"),
    count("placement.redundant_experts", "ep_num_redundant_experts"),
)


def _with_numbers(given: Arguments, *names: str) -> None:
    """Numbers with k and M, as `--max-model-len 32k` has them, in place."""
    for name in names:
        value = given.values.get(name)
        factor = {"k": 1000, "K": 1024, "m": 10**6, "M": 2**20}.get(str(value)[-1:], 0)
        if factor and str(value)[:-1].isdecimal() and isinstance(given.values, dict):
            given.values[name] = int(str(value)[:-1]) * factor


def _read_vllm(reading: Reading) -> Sections:
    given = reading.given
    _with_numbers(given, "max_model_len", "max_num_batched_tokens")
    values = read_table(VLLM, given)
    values.setdefault("engine", {})["name"] = "vllm-v1"
    if GRAPHS_OFF.search(str(given.values.get("compilation_config", ""))):
        problem = (
            "compilation or CUDA graphs switched off are not read; give --set engine.enforce_eager=true and accept it"
        )
        given.fault("compilation_config", problem)
    return _server(reading, values, ("model", "model_tag"))


def _read_sglang(reading: Reading) -> Sections:
    given = reading.given
    values = read_table(SGLANG, given)
    values.setdefault("engine", {})["name"] = "sglang"
    placement = values.setdefault("placement", {})
    gpus, (replicas, replicas_by) = placement.get("tp", 1), _first_count(given, "dp_size", "data_parallel_size", "dp")
    if given.switch("enable_dp_attention"):
        # SGLang's dp replicas share its tp GPUs
        placement |= {"tp": max(1, gpus // replicas), "dp": replicas}
    elif replicas > 1:
        given.fault(
            replicas_by, "replicas beside each other are not read from SGLang's arguments; give --set fleet.replicas=N"
        )
    if (
        _first_count(given, "ep_size", "expert_parallel_size", "ep")[0] > 1
        or values["engine"].get("dispatch") == "deepep"
    ):
        placement["expert_parallel"] = True
    if given.values.get("chunked_prefill_size") in (-1, "-1"):
        values["engine"] |= {"chunked_prefill": False}
        values["engine"].pop("max_num_batched_tokens", None)
    return _server(reading, values, ("model_path", "model"))


def _first_count(given: Arguments, *names: str) -> tuple[int, str]:
    """A degree by the first of its names that is given, with that name; 1 where none is."""
    counts = [(found, name) for name in names if (found := given.count(name)) is not None]
    return counts[0] if counts else (1, names[0])


def _server(reading: Reading, values: dict[str, Any], names: tuple[str, ...]) -> Sections:
    quantized = reading.given.values.get("quantization")
    named = next(
        (str(reading.given.values[name]) for name in names if reading.given.values.get(name) not in NO_VALUES), ""
    )
    if quantized in NO_VALUES and any(
        word in named.lower() for word in ("awq", "gptq", "int4", "w4a16", "gguf", "nvfp4")
    ):
        reading.given.fault("model", f"{named}: weights in fewer bits than 8 are not modelled")
    elif "fp8" in named.lower():
        values.setdefault("placement", {})["precision"] = "fp8"
    model = model_named(reading, *names)
    placement = values.setdefault("placement", {})
    if quantized in NO_VALUES and placement.get("precision", "bf16") == "bf16":
        placement |= PUBLISHED_IN.get(str(reading.chosen_model or model.get("model", "")), {})
    return {**in_sections(values), **model, "load": {}}


HARMLESS = """
    host port kv_events_config served_model_name trust_remote_code api_key* *log* *parser* enable_auto_tool* chat_template* download_dir tokenizer* seed revision
    load_format allowed_* disable_uvicorn* uvicorn* root_path ssl_* *reasoning* tool_* generation_config* override_generation* swap_space
    distributed_executor_backend worker_* nnodes node_rank dist_init_addr *metrics* otlp* watchdog* random_seed disable_frontend* response_role
    max_seq_len_to_capture compilation_config* O cuda_graph_max_bs cuda_graph_bs attention_backend sampling_backend constrained* grammar* hf_*
    guided* structured* enable_request* skip_tokenizer* schedule_policy schedule_conservativeness show_time* stream_interval bench* no_enable_log*
    media* limit_mm* mm_* enable_sleep* max_log* aggregate* collect* rope_scaling rope_theta device is_embedding random* task runner
    enable_server_load* dp_* data_parallel_address data_parallel_rpc* data_parallel_backend enable_p2p* nccl* preferred* disable_custom* warmups
    served* deepep_mode language_only max_prefill_tokens attn* async_scheduling ep_dispatch* uvicorn_log* reasoning*
"""
COSTS: Mapping[str, Cost | str] = {
    "*speculative*": "speculation is not read from a command line; give the section speculation where it is offered",
    "pipeline_parallel_size": Cost(why="servers in a pipeline are not modelled", neutral=(1, "1")),
    "pp": Cost(why="servers in a pipeline are not modelled", neutral=(1, "1")),
    "pp_size": Cost(why="servers in a pipeline are not modelled", neutral=(1, "1")),
    "cpu_offload_gb": "weights in the host's memory are not modelled",
    "*offload*": "what lies in the host's memory is not modelled",
    "*lora*": "adapters are not modelled",
    "kv_transfer_config*": "prefill and decode apart are not modelled",
    "disaggregation*": "prefill and decode apart are not modelled",
    "num_scheduler_steps": Cost(why="several steps a schedule are of an older engine", neutral=(1, "1")),
    "enable_eplb": "experts that move are not modelled",
    "data_parallel_size_local": "replicas over several machines are not read",
    "max_total_tokens": "a cache that is held smaller than the memory has room for is not modelled; give --set engine.memory_utilization=SHARE",
    "enable_torch_compile": "compiled engines of SGLang are not modelled",
    "enable_hierarchical_cache": "caches in the host's memory are not modelled",
    "hicache*": "caches in the host's memory are not modelled",
    "enable_mixed_chunk": "decodes beside prefills are not read from SGLang's arguments",
    "max_num_partial_prefills": Cost(why="several prompts in parts are not modelled", neutral=(1, "1")),
    "decode_context_parallel_size": Cost(why="context parallelism of a server is not modelled", neutral=(1, "1")),
}
TOOLS = (
    Tool(
        name="vLLM",
        programs=r"^vllm serve$|vllm\.entrypoints\.(openai\.)?api_server",
        read=_read_vllm,
        harmless=HARMLESS,
        costs=COSTS,
        switches=frozenset(
            [
                "trust_remote_code",
                "enforce_eager",
                "enable_prefix_caching",
                "no_enable_prefix_caching",
                "enable_chunked_prefill",
                "enable_expert_parallel",
                "enable_dbo",
                "no_enable_chunked_prefill",
                "enable_auto_tool_choice",
                "disable_log_requests",
                "disable_log_stats",
                "enable_reasoning",
            ]
        ),
    ),
    Tool(
        name="SGLang",
        programs=r"sglang\.launch_server|^sglang serve$",
        read=_read_sglang,
        harmless=HARMLESS,
        costs=COSTS,
        switches=frozenset(
            [
                "trust_remote_code",
                "disable_cuda_graph",
                "disable_radix_cache",
                "disable_overlap_schedule",
                "enable_metrics",
                "enable_torch_compile",
                "enable_dp_attention",
                "enable_two_batch_overlap",
                "enable_mixed_chunk",
            ]
        ),
    ),
)
