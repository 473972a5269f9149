"""The section `offload` by the keys of other tools' files."""

from fnmatch import fnmatchcase
from typing import Any

from predict.convert.arguments import Arguments
from predict.convert.tool import OFF
from predict.run.offload import DISK, HOST
from sampling.files.faults import shown

WHOLE = (
    "fsdp_config.fsdp_offload_params",
    "fsdp_config.offload_params",
    "fsdp_offload_params",
    "fsdp_cpu_offload",
    "*model.fsdp_cpu_offload",
    "training.enable_cpu_offload",
)
"""Switches of FSDP's offloading: of shards, their gradients and the optimizer's state together (torch, CPUOffloadPolicy)."""
OF_FSDP: dict[str, Any] = {"optimizer_share": 1.0, "gradients_on_host": True, "shards_on": HOST}
ACTIVATIONS = ("enable_activation_offloading", "activation_offloading", "activation_checkpointing.cpu_checkpointing")
OPTIMIZER = ("optimizer_cpu_offload", "*model.optim_cpu_offload")
FRACTION, OVERLAP = "optimizer_offload_fraction", "overlap_cpu_optimizer_d2h_h2d"
DEVICES = {"cpu": HOST, "nvme": DISK}
OF_OPTIMIZER = ("zero_optimization.offload_optimizer", "deepspeed_config.offload_optimizer", "offload_optimizer")
OF_SHARDS = ("zero_optimization.offload_param", "deepspeed_config.offload_param", "offload_param")
"""DeepSpeed's sections, or accelerate's names with `_device` behind them."""
STAGES = ("zero_optimization.stage", "deepspeed_config.zero_stage", "zero_stage")
WHOLE_GRADIENTS = (0, 1, "0", "1")
"""Stages of ZeRO that shard no gradients, which therefore stay on the GPU."""


def offload_of(given: Arguments, *, whole: bool = False) -> dict[str, Any]:
    """The section `offload` under its name; empty where all stays on the GPU. `whole`: the file asks for FSDP's offloading in words."""
    found: dict[str, Any] = {}
    if _is_on(given, WHOLE) or whole:
        found |= OF_FSDP
    if _is_on(given, OPTIMIZER):
        found |= {
            "optimizer_share": given.number(FRACTION, 1.0),
            "overlap_optimizer": given.values.get(OVERLAP) not in OFF and given.switch(OVERLAP),
        }
    found |= _of_deepspeed(given)
    if _is_on(given, ACTIVATIONS):
        found["activation_share"] = 1.0
    return {"offload": found} if found else {}


def _is_on(given: Arguments, patterns: tuple[str, ...]) -> bool:
    names = [name for name in given.values if any(fnmatchcase(name, pattern) for pattern in patterns)]
    given.passed_over(*names)
    return any(given.values[name] not in OFF and given.switch(name) for name in names)


def _of_deepspeed(given: Arguments) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in OF_OPTIMIZER:
        if where := _device(given, name):
            # Twin-Flow (ZeRO-Offload++) leaves the rest to the GPU
            share = given.number(f"{name}.ratio", 1.0)
            found |= {"optimizer_share": share, "optimizer_on": where}
            if not any(given.values.get(stage) in WHOLE_GRADIENTS for stage in STAGES):
                found["gradients_on_host"] = True
    for name in OF_SHARDS:
        if where := _device(given, name):
            found["shards_on"] = where
    return found


def _device(given: Arguments, section: str) -> str:
    """The device on which a section of DeepSpeed puts something; empty for the GPU."""
    own = (section, f"{section}_device", f"{section}_nvme_path")
    names = [name for name in given.values if name in own or name.startswith(f"{section}.")]
    given.passed_over(*names)
    key = next((name for name in (f"{section}.device", f"{section}_device") if name in given.values), "")
    word = str(given.values.get(key) or "none").lower()
    if word not in (*DEVICES, "none", "null"):
        given.fault(key, f"{shown(given.values[key])} is not modelled; {', '.join(DEVICES)} and none are")
    return DEVICES.get(word, "")
