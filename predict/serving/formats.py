"""Formats of a server's weights: the products that each device has for them, and what checkpoints state in `quantization_config`."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from predict.layers.served import Products
from sampling.files.faults import Fault, shown
from sampling.files.places import shipped_json
from sampling.hardware.cluster import DTYPE_BYTES, ELEMENT_BYTES, INT8_AT_TWICE_BF16, Gpu
from sampling.hardware.hardware_file import Hardware
from sampling.operators.gemm import FP8_BLOCK, INT8, WIDENED_BYTES

W4A16: Final = "w4a16"
W8A16: Final = "w8a16"
NVFP4: Final = "nvfp4"
MXFP4: Final = "mxfp4"
PLAIN = ("bf16", "fp16", "fp8", "fp32")
WEIGHTS = (*PLAIN, FP8_BLOCK, W4A16, W8A16, INT8, NVFP4, MXFP4)
"""Formats of weights: plain dtypes; fp8 with scales by block; integers of four or eight bits with 16-bit activations (AWQ, GPTQ);
integers of eight bits with activations of eight; four bits with a scale for each 16 (NVFP4) or 32 (MXFP4)."""
CACHES = (*PLAIN, "int8", "fp4")
BLOCK = 128


def _multiplies(hardware: Hardware | Gpu, dtype: str) -> bool:
    return dtype in hardware.peak_tflops


def products_of(precision: str, gpu: Gpu) -> Products:
    """The products with weights of a format on a device: where it does not multiply them, they are widened to 16 bits as they are read,
    as vLLM's Marlin kernels do."""
    four_bits = _multiplies(gpu, "fp4")
    if precision in (W4A16, W8A16):
        return Products(dtype="bf16", kernel=precision, weight_bytes=WIDENED_BYTES[precision])
    if precision == INT8:
        return Products(dtype="bf16", kernel=INT8, weight_bytes=1.0)
    if precision in (NVFP4, MXFP4):
        kernel = "" if four_bits else f"{precision}_a16"
        return Products(dtype=precision if four_bits else "bf16", kernel=kernel, weight_bytes=ELEMENT_BYTES[precision])
    if precision in ("fp8", FP8_BLOCK):
        scales = 4 / BLOCK**2 if precision == FP8_BLOCK else 0.0
        if not _multiplies(gpu, "fp8"):
            return Products(dtype="bf16", kernel="fp8_a16", weight_bytes=1.0 + scales)
        return Products(dtype="fp8", kernel=FP8_BLOCK if scales else "", weight_bytes=1.0 + scales)
    return Products(dtype=precision, kernel="", weight_bytes=float(DTYPE_BYTES[precision]))


UNFITTED_WIDTH = 0.15
"""Log half-width at 90 % that formats add to a step for which no served model was measured: their kernels' rates are from tables of
single kernels, or assumed."""


def format_width(*products: Products) -> float:
    """The width that the formats of a server's weights add to its steps."""
    unfitted = any(each.kernel or each.dtype in (NVFP4, MXFP4) for each in products)
    return UNFITTED_WIDTH if unfitted else 0.0


def format_faults(precision: str, kv_precision: str, gpu: Hardware) -> Iterator[Fault]:
    """Formats that no engine has on a device."""
    if precision not in PLAIN and gpu.kind == "cpu":
        yield _refused("precision", precision, gpu, "computes in plain dtypes alone; take bf16 or fp32")
    elif precision == INT8 and gpu.architecture not in INT8_AT_TWICE_BF16:
        yield _refused("precision", precision, gpu, "has no int8 kernels in serving engines; take fp8 or w8a16")
    elif precision == NVFP4 and gpu.kind != "cuda":
        yield _refused("precision", precision, gpu, "multiplies MXFP4, not NVFP4; take mxfp4")
    if kv_precision == "fp4" and not _multiplies(gpu, "fp4"):
        yield _refused(
            "kv_precision",
            kv_precision,
            gpu,
            "has no four-bit products, and no engine keeps such a cache there; take fp8",
        )
    elif kv_precision in ("int8", "fp4") and gpu.kind == "cpu":
        yield _refused("kv_precision", kv_precision, gpu, "keeps plain dtypes alone; take bf16 or fp32")


def _refused(key: str, value: str, gpu: Hardware, why: str) -> Fault:
    return Fault(path=f"placement.{key}", problem=f"{value}: {gpu.name} {why}")


def widened_note(precision: str, gpu: Gpu) -> str:
    """A remark on weights that a device does not multiply as they are; empty where it does."""
    products = products_of(precision, gpu)
    if precision in (W4A16, W8A16) or products.kernel not in WIDENED_BYTES:
        return ""
    return f"{gpu.name} does not multiply {precision}: weights are widened to 16 bits as they are read, which saves bytes but no FLOPs"


def published_note(name: str, precision: str, published: Mapping[str, str]) -> str:
    """A remark on weights in another format than the one in which their model is published; empty without one."""
    if not published:
        return ""
    keys = ", ".join(f"{key}: {value}" for key, value in published.items())
    own = published["precision"]
    return f"the weights of {name} are published in {own}; {precision} is taken, as placement states no precision: give {{{keys}}} for {own}"


# What checkpoints say of themselves.

QUANTIZATION = "quantization_config"


def stated_formats(given: Any) -> tuple[dict[str, str], list[Fault]]:
    """The keys of a placement that the `quantization_config` of a checkpoint stands for."""
    if not isinstance(given, Mapping):
        return {}, [
            Fault(path=QUANTIZATION, problem=f"{shown(given)} is not a mapping; give the checkpoint's, or remove it")
        ]
    method = str(given.get("quant_method", given.get("quant_algo", ""))).lower()
    precision = _precision(method, given)
    if precision is None:
        bits = f"bits {shown(given['bits'])}" if "bits" in given else "these keys"
        problem = f"{method or 'no quant_method'} with {bits} is not known; remove it, and set placement.precision"
        return {}, [Fault(path=QUANTIZATION, problem=problem)]
    found = {"precision": precision}
    left = " ".join(
        map(
            str,
            (*_listed(given, "modules_to_not_convert"), *_listed(given, "ignore"), *_listed(given, "exclude_modules")),
        )
    )
    if "attn" in left and "mlp" not in left.replace("mlp.gate", "").replace("mlp.router", ""):
        found["quantised"] = "experts"
    if cache := _cache(given):
        found["kv_precision"] = cache
    return found, []


def _listed(given: Mapping[Any, Any], key: str) -> list[Any]:
    value = given.get(key)
    return list(value) if isinstance(value, list | tuple) else []


def _precision(method: str, given: Mapping[Any, Any]) -> str | None:
    """The format of the weights; None for one that is not known."""
    by_bits: Mapping[object, str] = {4: W4A16, 8: W8A16}
    if method in ("awq", "gptq", "auto_gptq", "gptq_marlin", "awq_marlin", "auto-round", "intel/auto-round"):
        return by_bits.get(_plain(given.get("bits", given.get("w_bit", 4))))
    if method in ("fp8", "fbgemm_fp8"):
        return FP8_BLOCK if given.get("weight_block_size") else "fp8"
    if method == "mxfp4":
        return MXFP4
    if method == "modelopt" or method.startswith(("fp8", "nvfp4")):
        algorithm = str(given.get("quant_algo", method)).lower()
        return {"fp8": "fp8", "nvfp4": NVFP4, "w4a16_awq": W4A16, "int4_awq": W4A16}.get(algorithm)
    if method == "compressed-tensors":
        return _compressed(given, by_bits)
    return None


def _plain(value: object) -> object:
    """A number or text as it is, None for what no table of formats has: files may hold lists and mappings anywhere."""
    return value if isinstance(value, int | float | str) and not isinstance(value, bool) else None


def _compressed(given: Mapping[Any, Any], by_bits: Mapping[object, str]) -> str | None:
    """The format of a checkpoint of `compressed-tensors`: of the first of its groups of layers."""
    groups = given.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, Mapping) else None
    weights = first.get("weights") if isinstance(first, Mapping) else None
    if not isinstance(first, Mapping) or not isinstance(weights, Mapping):
        return None
    bits, kind, inputs = _plain(weights.get("num_bits")), weights.get("type"), first.get("input_activations")
    if kind == "float":
        wide = FP8_BLOCK if weights.get("strategy") == "block" else "fp8"
        floats: Mapping[object, str] = {8: wide, 4: MXFP4 if weights.get("group_size") == 32 else NVFP4}
        return floats.get(bits)
    return INT8 if inputs and bits == 8 else by_bits.get(bits)


def _cache(given: Mapping[Any, Any]) -> str:
    scheme = given.get("kv_cache_scheme")
    if isinstance(scheme, Mapping) and scheme.get("num_bits") == 8:
        return "fp8" if scheme.get("type", "float") == "float" else "int8"
    return {"FP8": "fp8", "NVFP4": "fp4"}.get(str(given.get("kv_cache_quant_algo", "")).upper(), "")


# What checkpoints were published in, for those who name one and do not have its config.json.

PUBLISHED_IN: Mapping[str, Mapping[str, str]] = shipped_json("published-formats.json")
"""Name of a checkpoint → the keys of a placement that the `quantization_config` of its config.json stands for, which engines follow where
no option says otherwise; the first that is found counts. The first are NVIDIA's checkpoints, whose
hf_quant_config.json excludes self_attn*."""
KINDS: Mapping[str, tuple[str, ...]] = {
    FP8_BLOCK: ("fp8",),
    W4A16: (W4A16, "int4"),
    MXFP4: (MXFP4, "fp4"),
    NVFP4: (NVFP4, "fp4"),
}
"""Format → how names and options of its kind say it."""


BY_BLOCK: Final = ("vllm-v1",)
"""Engines whose kernels for fp8 by block are priced. Those of the others take about as long as with one scale (docs/log.md)."""


def as_run_by(engine: str, formats: Mapping[str, str]) -> Mapping[str, str]:
    """The keys of a placement for a checkpoint's own as an engine runs them: plain fp8 in place of blocks whose kernels are not priced."""
    unpriced = formats.get("precision") == FP8_BLOCK and engine not in BY_BLOCK
    return {**formats, "precision": "fp8"} if unpriced else formats


def published_in(checkpoint: str, engine: str, said: str = "") -> Mapping[str, str]:
    """The keys of a placement for a checkpoint as it was published, on an engine; none for one that is not known, or not of the kind that
    was `said`."""
    whole = checkpoint.rstrip("/").lower().replace("_", "-")
    if "bf16" in whole.rpartition("/")[2]:
        return {}
    found = next((keys for name, keys in PUBLISHED_IN.items() if re.search(f"({name})[^/]*$", whole)), None)
    if not found or (said and said not in KINDS[found["precision"]]):
        return {}
    return as_run_by(engine, found)
