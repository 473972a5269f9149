"""Command lines of inference servers: `vllm serve` and SGLang's launch_server (vllm, engine/arg_utils.py; sglang, srt/server_args.py)."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from predict.convert.arguments import Arguments
from predict.convert.sources import IMAGE_VERSION
from predict.convert.tool import (
    NO_VALUES,
    Read,
    Reading,
    Sections,
    Tool,
    aliases_of,
    choice,
    count,
    in_sections,
    key_lists,
    model_named,
    read_table,
    switch,
    tool_file,
)
from predict.model.shipped import shipped_model
from predict.serving.formats import MXFP4, NVFP4, W4A16, W8A16, published_in
from predict.serving.speculation import DRAFT, EAGLE, MTP
from sampling.files.faults import shown
from sampling.operators.gemm import INT8

DTYPES: Mapping[str, Any] = tool_file("servers")["dtypes"]
CACHES: Mapping[str, Any] = tool_file("servers")["caches"]
QUANTIZED: Mapping[str, Any] = tool_file("servers")["quantized"]
"""Method of quantisation → format of the weights; None where the checkpoint says it."""
FORMATS: Mapping[str, re.Pattern[str]] = {
    "fp8": re.compile("fp8"),
    INT8: re.compile("w8a8"),
    W8A16: re.compile("w8a16|int8|8bit"),
    NVFP4: re.compile("(?<!mx)fp4"),
    MXFP4: re.compile("mxfp4"),
    W4A16: re.compile("awq|gptq|int4|w4a16"),
}
"""Format of the weights → what the names of checkpoints in it hold; the first that is found counts."""
DRAFTS: Mapping[str, str] = tool_file("servers")["drafts"]
"""Method of speculation, by vLLM and SGLang → kind of drafts. A model's own layer is `mtp` in vLLM, and `nextn`, or `eagle` without a
draft, in SGLang."""
EXCHANGES: Mapping[str, Any] = tool_file("servers")["exchanges"]
"""How vLLM and SGLang name the exchange of tokens with experts on other GPUs."""


VLLM_MODEL, SGLANG_MODEL = ("model_tag", "model"), ("model_path", "model")
SGLANG_DEGREES = (("dp_size", "data_parallel_size", "dp"), ("ep_size", "expert_parallel_size", "ep"))
SHORT: Mapping[str, str] = {"q": "quantization", "sc": "speculative_config"}
"""Short names of vLLM's options."""
OF_DRAFTS = (
    "method",
    "model",
    "num_speculative_tokens",
    "prompt_lookup_max",
    "prompt_lookup_min",
    "draft_tensor_parallel_size",
)
"""Keys of vLLM's speculative config that change nothing more here."""
FOLDERS = ("/", ".", "~")
"""How the names of checkpoints begin that are folders of a machine."""
COMPILING = ("compilation_config", "cc", "O", "optimization_level")
"""Beginnings of the names of vLLM's options of compilation, short ones among them."""
GRAPHS_OFF = re.compile(
    r"""^(O=?|compilation_config=|optimization_level=)0|cudagraph_mode['"]?\s*[:=]\s*['"]?NONE|\b(level|mode)['"]?\s*[:=]\s*['"]?(0|NONE)\b""",
    re.IGNORECASE,
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
    count("placement.pp", "pipeline_parallel_size", "pp"),
    count("placement.redundant_experts", "num_redundant_experts"),
    switch("placement.expert_parallel", "enable_expert_parallel"),
    choice("engine.dispatch", "all2all_backend", EXCHANGES),
    switch("engine.two_batch_overlap", "enable_dbo"),
    Read(path="engine.version", value=lambda given: given.text(IMAGE_VERSION, "") or None),
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
CHUNK = "chunked_prefill_size"
SGLANG = (
    count("placement.tp", "tp_size", "tensor_parallel_size", "tp"),
    count("placement.pp", "pp_size", "pipeline_parallel_size", "pp"),
    choice("placement.precision", "dtype", DTYPES),
    choice("placement.precision", "quantization", QUANTIZED),
    choice("placement.kv_precision", "kv_cache_dtype", CACHES),
    count("engine.max_num_seqs", "max_running_requests"),
    count("engine.max_num_batched_tokens", CHUNK),
    count("engine.max_model_len", "context_length"),
    count("engine.block_size", "page_size"),
    _share("mem_fraction_static"),
    switch("engine.enforce_eager", "disable_cuda_graph"),
    switch("engine.prefix_caching", "disable_radix_cache", on=False, off=True),
    switch("engine.asynchronous", "disable_overlap_schedule", on=False, off=True),
    count("engine.recv_interval", "scheduler_recv_interval"),
    switch("engine.prompts_alone", "enable_mixed_chunk", on=False, off=True),
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
    short = {full: given.values[name] for name, full in SHORT.items() if name in given.values}
    given.passed_over(*SHORT)
    given = replace(
        given, values={**short, **given.values, **_object(given, "eplb_config", ("num_redundant_experts",))}
    )
    values = read_table(VLLM, given)
    values.setdefault("engine", {})["name"] = "vllm-v1"
    if given.count("data_parallel_size_local") != values.get("placement", {}).get("dp"):
        given.used.discard("data_parallel_size_local")
    values |= _drafts_of_vllm(given)
    for name, value in given.values.items():
        if name.startswith(COMPILING) and GRAPHS_OFF.search(f"{name}={value}"):
            problem = "compilation or CUDA graphs switched off are not read; give --set engine.enforce_eager=true and accept it"
            given.fault(name, problem)
    return _server(replace(reading, given=given), values, VLLM_MODEL)


def _read_sglang(reading: Reading) -> Sections:
    whole = reading.given.values.get(CHUNK) in (-1, "-1")
    others = {name: value for name, value in reading.given.values.items() if name != CHUNK}
    given = replace(reading.given, values=others) if whole else reading.given
    values = read_table(SGLANG, given)
    engine = values.setdefault("engine", {})
    engine["name"] = "sglang"
    placement = values.setdefault("placement", {})
    gpus, (replicas, replicas_by) = placement.get("tp", 1), _first_count(given, *SGLANG_DEGREES[0])
    if given.switch("enable_dp_attention"):
        # SGLang's dp replicas share its tp GPUs
        placement |= {"tp": max(1, gpus // replicas), "dp": replicas}
        for limit in ("max_num_seqs", "max_num_batched_tokens"):  # which are of all replicas together
            if limit in engine:
                engine[limit] = max(1, engine[limit] // replicas)
    elif replicas > 1:
        given.fault(
            replicas_by, "replicas beside each other are not read from SGLang's arguments; give --set fleet.replicas=N"
        )
    if _first_count(given, *SGLANG_DEGREES[1])[0] > 1 or engine.get("dispatch") == "deepep":
        placement["expert_parallel"] = True
    if whole:
        engine["chunked_prefill"] = False
        given.passed_over(CHUNK)
    values |= _drafts_of_sglang(given)
    return _server(reading, values, SGLANG_MODEL)


def _first_count(given: Arguments, *names: str) -> tuple[int, str]:
    """A degree by the first of its names that is given, with that name; 1 where none is."""
    counts = [(found, name) for name in names if (found := given.count(name)) is not None]
    degree, name = counts[0] if counts else (1, names[0])
    if degree < 1:
        given.fault(name, f"{shown(given.values[name])} is not a degree; give 1 or more")
    return max(1, degree), name


def _server(reading: Reading, values: dict[str, Any], names: tuple[str, ...]) -> Sections:
    given = reading.given
    named = next((str(given.values[name]) for name in names if given.values.get(name) not in NO_VALUES), "")
    placement = values.setdefault("placement", {})
    if in_checkpoint := _format_of(given, named):
        placement["precision"] = in_checkpoint
    model = model_named(reading, *names, reads_format=True)
    said = placement.get("precision", "bf16")
    if said != "bf16" or given.values.get("quantization") in NO_VALUES:
        checkpoint, engine = named or str(reading.chosen_model or ""), values["engine"]["name"]
        published = published_in(checkpoint, engine, "" if said == "bf16" else said)
        placement |= published
        if placement.get("precision") == "fp8":
            given.notes.extend(_notes_on_fp8(checkpoint, engine, published))
    return {**in_sections(values), **model, "load": {}}


def _notes_on_fp8(checkpoint: str, engine: str, published: Mapping[str, str]) -> list[str]:
    """The assumption on weights in plain fp8: of blocks that an engine's kernels have no price for, and of folders by their names."""
    if published:
        return [
            f"placement.precision: {checkpoint} has fp8 by block, which is taken as fp8 with one scale, since {engine}'s kernels for it are "
            "not priced; --set placement.precision=fp8_block takes those of vLLM"
        ]
    if checkpoint.startswith(FOLDERS):
        return [
            f"placement.precision: {checkpoint} is taken as fp8 by its name alone; the quantization_config of its config.json says more: "
            "--set model=FILE"
        ]
    return []


def _format_of(given: Arguments, named: str) -> str | None:
    """The format of the weights by the name of a checkpoint, where no option states it."""
    method = given.values.get("quantization")
    if "gguf" in named.lower():
        given.fault("model", f"{named}: weights in GGUF are not modelled")
    elif re.search(r"bnb|\b4bit", named.lower()) or method == "bitsandbytes":
        given.fault("model", f"{named}: bitsandbytes' weights in 4 bits are not modelled in servers")
        return None
    if method not in NO_VALUES and QUANTIZED.get(str(method), method) is not None:
        return None
    found = next((name for name, words in FORMATS.items() if words.search(named.lower())), None)
    if found is None and method not in (*NO_VALUES, "none"):
        given.fault("quantization", f"{method}: the checkpoint says its bits; give --set placement.precision=FORMAT")
    return found


def _object(given: Arguments, name: str, wanted: tuple[str, ...]) -> dict[str, Any]:
    """The wanted values of an option that is a JSON object, and a fault for others."""
    written = given.text(name, "")
    if not written:
        return {}
    try:
        found = json.loads(written)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        given.fault(name, f"{shown(written)} is no JSON object; correct it")
        return {}
    if not set(found) <= set(wanted):
        given.used.discard(name)
    return {key: value for key, value in found.items() if key in wanted}


def _drafts_of_vllm(given: Arguments) -> dict[str, Any]:
    """The section `speculation` by vLLM's `--speculative-config` (vllm, config/speculative.py)."""
    written = _object(given, "speculative_config", OF_DRAFTS)
    if not written:
        return {}
    draft = str(written.get("model") or "")
    usual = EAGLE if "eagle" in draft.lower() else "draft_model"
    return _drafts(
        given, "speculative_config", str(written.get("method") or usual), written.get("num_speculative_tokens"), draft
    )


def _drafts_of_sglang(given: Arguments) -> dict[str, Any]:
    """The section `speculation` by SGLang's options (sglang, srt/server_args.py), for drafts in a chain."""
    word = given.text("speculative_algorithm", "").lower()
    if not word:
        return {}
    if given.whole("speculative_eagle_topk", 1) != 1:
        given.fault("speculative_eagle_topk", "a tree of drafts is not modelled; a chain (1) is")
    given.passed_over("speculative_num_draft_tokens", "speculative_draft_model_path")
    draft = given.values.get("speculative_draft_model_path")
    own = word == "eagle" and draft in NO_VALUES
    return _drafts(
        given, "speculative_algorithm", MTP if own else word, given.count("speculative_num_steps"), str(draft or "")
    )


def _drafts(given: Arguments, name: str, method: str, tokens: Any, draft: str) -> dict[str, Any]:
    kind = DRAFTS.get(method.lower())
    if kind is None:
        given.fault(name, f"{shown(method)}: speculation of this kind is not modelled; {', '.join(DRAFTS)} are")
        return {}
    if not str(tokens or "").isdecimal():
        given.fault(name, "the draft tokens of a step are not stated; state them, or write the section speculation")
        return {}
    found: dict[str, Any] = {"kind": kind, "tokens": int(tokens)}
    if kind == DRAFT:
        path = shipped_model(draft)
        if path is None:
            given.fault(
                name, f"{shown(draft)} is not a shipped model; write the section speculation, with its config.json"
            )
        else:
            found["draft"] = path.stem
    return {"speculation": found}


TOOLS = (
    Tool(
        name="vLLM",
        programs=r"^vllm serve$|vllm\.entrypoints\.(openai\.)?api_server",
        arguments_file="config",
        aliases=(*aliases_of(VLLM), *SHORT.items(), VLLM_MODEL),
        read=_read_vllm,
        keys=key_lists("servers") | key_lists("vllm"),
    ),
    Tool(
        name="SGLang",
        programs=r"sglang\.launch_server|^sglang serve$",
        arguments_file="config",
        aliases=(*aliases_of(SGLANG), *SGLANG_DEGREES, SGLANG_MODEL),
        read=_read_sglang,
        keys=key_lists("servers") | key_lists("sglang"),
    ),
)
