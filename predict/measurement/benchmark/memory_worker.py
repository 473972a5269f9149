"""One rank of a memory benchmark, started by torchrun: train the reduced run for a few steps and count its bytes."""

from __future__ import annotations

import argparse
import gc
import json
import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

from predict.layers.run_json import load_run
from predict.measurement.benchmark.reduced_training import ReducedTraining
from predict.measurement.benchmark.tensor_bytes import LiveTensors, SavedForBackward, storage_bytes
from predict.run.training_run import TrainingRun
from sampling.ranks.launch import die_with_launcher, leave

TENSORS, ALLOCATOR = "live tensors", "caching allocator"
ALLOCATOR_SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")


def count_bytes(reduced: TrainingRun, device: torch.device) -> dict[str, Any]:
    """The `bytes` and `saved_by_unit` of this rank, and the `counter` that the peaks come from."""
    return _on_gpu(reduced, device) if device.type == "cuda" else _on_cpu(reduced, device)


def _on_cpu(reduced: TrainingRun, device: torch.device) -> dict[str, Any]:
    """The peak of live tensors: no caching allocator stands between them and the count."""
    with LiveTensors() as live:
        training = ReducedTraining(reduced, device)
        for parameter in training.parameters():
            live.follow(parameter)
        sizes, by_unit = _warm_up(training)
        gc.collect()
        live.reset_peak()
        training.forward_backward()
        sizes["forward_backward_peak"] = live.peak_bytes
        live.reset_peak()
        training.step()
        sizes["step_peak"] = live.peak_bytes
    sizes["allocated"] = max(sizes["forward_backward_peak"], sizes["step_peak"])
    sizes["reserved"] = sizes["allocated"]
    return {"bytes": sizes, "saved_by_unit": by_unit, "counter": TENSORS, "expandable_segments": False}


def _on_gpu(reduced: TrainingRun, device: torch.device) -> dict[str, Any]:
    """The caching allocator's peaks over one steady step, and the device's bytes in use beside its segments."""
    training = ReducedTraining(reduced, device)
    gc.collect()
    torch.cuda.empty_cache()
    sizes, by_unit = _warm_up(training)
    training.forward_backward()
    training.step()
    torch.cuda.synchronize(device)
    for phase, work in (("forward_backward_peak", training.forward_backward), ("step_peak", training.step)):
        torch.cuda.reset_peak_memory_stats(device)
        work()
        torch.cuda.synchronize(device)
        sizes[phase] = torch.cuda.max_memory_allocated(device)
        sizes["reserved"] = max(sizes.get("reserved", 0), torch.cuda.max_memory_reserved(device))
    sizes["allocated"] = max(sizes["forward_backward_peak"], sizes["step_peak"])
    free, total = torch.cuda.mem_get_info(device)
    return {
        "bytes": sizes,
        "saved_by_unit": by_unit,
        "counter": ALLOCATOR,
        "expandable_segments": expandable_segments(os.environ),
        "outside_allocator_bytes": max(0, total - free - torch.cuda.memory_reserved(device)),
    }


def _warm_up(training: ReducedTraining) -> tuple[dict[str, int], dict[str, int]]:
    """Run a first step, after which the optimizer has its state; the bytes it keeps, and those a forward saves by unit."""
    saved = SavedForBackward(training.parameters())
    with saved.hooks():
        loss = training.forward(0, saved.unit)
    del loss
    saved.forget()
    training.forward_backward()
    sizes = {"gradients": storage_bytes(training.gradients())}
    training.step()
    return {
        **sizes,
        "parameters": storage_bytes(training.parameters()),
        "optimizer": storage_bytes(training.optimizer_state()),
        "saved": saved.total_bytes,
    }, saved.by_unit


def expandable_segments(environment: Mapping[str, str]) -> bool:
    """Whether the allocator grows its segments, which leaves less between reserved and allocated."""
    return any(
        setting.replace(" ", "").lower() == "expandable_segments:true"
        for name in ALLOCATOR_SETTINGS
        for setting in environment.get(name, "").split(",")
    )


def fullest_rank(ranks: list[dict[str, Any]]) -> dict[str, Any]:
    """The counts of the rank that allocated most, with the most that any rank reserved or used outside the allocator."""
    found = max(ranks, key=lambda rank: int(rank["bytes"]["allocated"]))
    found["bytes"]["reserved"] = max(rank["bytes"]["reserved"] for rank in ranks)
    if "outside_allocator_bytes" in found:
        found["outside_allocator_bytes"] = max(rank["outside_allocator_bytes"] for rank in ranks)
    return found


@record
def main() -> None:
    die_with_launcher()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="the reduced run as predict.layers.run_json writes it")
    parser.add_argument("result", type=Path, help="JSON file to write")
    parser.add_argument("timeout_s", type=float, help="longest wait for another rank")
    arguments = parser.parse_args()
    reduced = load_run(arguments.run.read_text())
    on_cpu = reduced.cluster.gpu.kind == "cpu"
    device = torch.device("cpu") if on_cpu else torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    if not on_cpu:
        torch.cuda.set_device(device)
    dist.init_process_group("gloo" if on_cpu else "nccl", timeout=timedelta(seconds=arguments.timeout_s))
    ranks: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(ranks, count_bytes(reduced, device))
    if dist.get_rank() == 0:
        arguments.result.write_text(json.dumps(fullest_rank(ranks)))
    dist.barrier()
    dist.destroy_process_group()
    leave()


if __name__ == "__main__":
    main()
