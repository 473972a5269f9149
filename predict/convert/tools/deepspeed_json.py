"""DeepSpeed's JSON, beside the arguments of Megatron-DeepSpeed or the file of a trainer.

Names: DeepSpeed, runtime/config.py and runtime/zero/config.py.
"""

from typing import Any

from predict.convert import deepspeed
from predict.convert.offload import offload_of
from predict.convert.tool import AUTO, NO_VALUES, Reading, Sections, Tool, key_lists, without, written

FRAMEWORK = "deepspeed"
WRITTEN = (
    written("plan.zero", lambda stage: {"zero_optimization.stage": stage}),
    written("batch.micro", lambda size: {deepspeed.MICRO: size}),
    written("batch.accumulation", lambda steps: {deepspeed.STEPS: steps}),
    written("precision", lambda name: {f"{name}.enabled": True} if name in deepspeed.HALVES else None),
    written("execution.overlap_gradients", lambda overlaps: {"zero_optimization.overlap_comm": overlaps}),
)
DTYPES = tuple(f"{name}.enabled" for name in deepspeed.HALVES)


def _read(reading: Reading) -> Sections:
    """The sections that the file settles; values that are "auto" are left to the trainer's file, and asked for where none says them."""
    given = without(reading.given, values=(AUTO, "Auto"))
    reading.given.passed_over(*(name for name, value in reading.given.values.items() if value in (AUTO, "Auto")))
    found: dict[str, Any] = dict(deepspeed.read_sections(given))
    if any(reading.given.values.get(name) == AUTO for name in DTYPES) and not any(map(given.switch, DTYPES)):
        del found["precision"]
        for key in ("gradient_dtype", "loss_scaling"):
            found["execution"].pop(key, None)
    elif deepspeed.ACCUMULATED not in given.values and found["precision"] == "bf16":
        # engine.py, get_data_types: fp32 without ZeRO, else the model's dtype
        found["execution"]["gradient_dtype"] = "bf16" if found["plan"].get("zero") else "fp32"
    # zero/config.py, overlap_comm_valid: stage 3 overlaps unless its file says otherwise, the others do not
    found["execution"].setdefault("overlap_gradients", found["plan"].get("zero") == 3)
    steps = given.values.get(deepspeed.STEPS)
    if steps not in NO_VALUES:
        found["batch"]["accumulation"] = given.count(deepspeed.STEPS)
    # the arguments of Megatron-DeepSpeed, or a trainer's file, name another framework where they stand beside this file
    return {**found, **offload_of(given), "usual": {"execution": {"framework": FRAMEWORK}}}


TOOLS = (
    Tool(
        name="DeepSpeed",
        marks=(
            "zero_optimization",
            "train_micro_batch_size_per_gpu",
            "train_batch_size gradient_accumulation_steps",
            "train_batch_size bf16.enabled",
            "train_batch_size fp16.enabled",
        ),
        read=_read,
        table=WRITTEN,
        keys=key_lists("deepspeed"),
    ),
)
