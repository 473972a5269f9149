"""torchtitan's TOML file (torchtitan/config/job_config.py)."""

from dataclasses import replace
from typing import Any

from predict.convert import torchtitan
from predict.convert.arguments import Arguments
from predict.convert.offload import offload_of
from predict.convert.tool import OFF, Reading, Sections, Tool, key_lists, tool_file
from predict.huggingface.config_json import load_model
from predict.model.shipped import shipped_model
from predict.run.execution import NATURAL
from sampling.arithmetic.expert_rows import BALANCED
from sampling.files.faults import shown

OLDER = tool_file("torchtitan")["older"]
"""Key of a release before mid-2025 → today's."""


def read_torchtitan(reading: Reading, *, model: str = "") -> Sections:
    """The sections of a file; `model` is the shipped one where a preset names it."""
    values = {OLDER.get(name, name): value for name, value in reading.given.values.items()}
    given = replace(reading.given, values=values)
    reading.given.passed_over(*(name for name in OLDER if name in reading.given.values))
    name = reading.chosen_model or model or torchtitan.read_model_name(given)
    given.passed_over("model.name", "model.flavor")
    path = shipped_model(name) if isinstance(name, str) else None
    if path is None and reading.chosen_model is None and not given.faults:  # its own file may have it
        given.fault("model.flavor", f"{shown(name)} is not a shipped model; give --set model=NAME")
    sections: dict[str, Any] = torchtitan.read_sections(replace(given, layers=load_model(path).layers if path else 0))
    if given.text("training.dtype", "float32") == "bfloat16":  # weights, gradients and moments are all of that dtype
        sections["execution"] |= {"master_weights": False, "gradient_dtype": "bf16", "moment_dtype": "bf16"}
    if path and load_model(path).experts is not None:
        sections["execution"] |= _expert_load(given)
    found = {} if path is None or reading.chosen_model is not None else {"model": path.stem}
    return {**found, **sections, **offload_of(given)}


FORCED = ("debug.moe_force_load_balance", "training.debug_moe_force_load_balance")
"""Switch that has the router balance the experts, by two releases (torchtitan, config/job_config.py)."""


def _expert_load(given: Arguments) -> dict[str, str]:
    """The load that the router leaves where it is not forced to balance, with a note."""
    forced = [given.values.get(name) not in OFF and given.switch(name) for name in FORCED]
    if any(forced):
        return {}
    given.notes.append(
        f"execution.expert_load: {NATURAL}, since {FORCED[0]} is not given; --set execution.expert_load={BALANCED}"
    )
    return {"expert_load": NATURAL}


KEYS = key_lists("torchtitan")
TOOLS = (
    Tool(
        name="torchtitan",
        marks=(
            "model.flavor",
            "training.local_batch_size",
            "parallelism.tensor_parallel_degree",
            "parallelism.data_parallel_shard_degree",
            "training.seq_len model.name",
            "activation_checkpoint.mode",
        ),
        read=read_torchtitan,
        arguments_file="job.config_file",
        writes="torchtitan",
        keys=KEYS,
    ),
)
