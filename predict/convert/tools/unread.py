"""Tools whose files would be taken for another's, and that are refused by their own name."""

from predict.convert.tool import Reading, Sections, Tool


def _nothing(reading: Reading) -> Sections:
    reading.given.passed_over(*reading.given.values)
    return {}


TOOLS = (
    Tool(
        name="OpenRLHF",
        programs=r"^openrlhf\.",
        unread="write the run as an RL config (docs/how-to/rl-step.md)",
        read=_nothing,
    ),
    Tool(
        name="NeMo 1",
        marks=("trainer.devices model.tensor_model_parallel_size model.pipeline_model_parallel_size",),
        unread="give the Megatron-LM arguments or the Megatron-Bridge overrides of the run",
        read=_nothing,
    ),
)
