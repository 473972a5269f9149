"""Images of a run's sequences: how many, how large, and what of the vision tower that reads them is trained."""

from dataclasses import dataclass
from typing import Annotated

from sampling.files.schema import Key, one_of

ALL, PROJECTOR, NONE = "all", "projector", "none"


@dataclass(frozen=True, kw_only=True, slots=True)
class Vision:
    """The images of each sequence, which the model's vision tower turns into some of its tokens."""

    images: Annotated[int, Key(minimum=0, maximum=100_000)] = 0
    """Images, or tiles of them, of a sequence, or of a row of packed ones; 0 trains the text alone, and no vision tower is held or run."""
    image_tokens: Annotated[int, Key(minimum=0, maximum=10_000_000)] = 0
    """Tokens of the sequence that one image becomes, which count in `batch.seq_len`; 0 for the model's own where all of its images have
    one size. An image of 1,120 by 1,120 pixels is 1,600 of them in Qwen2.5-VL, whose tokens are 28 pixels wide."""
    trained: Annotated[str, one_of(ALL, PROJECTOR, NONE)] = ALL
    """What is trained beside the text: the tower and its projectors (all), the projectors alone (projector), or nothing, so that both
    run forward alone (none)."""
