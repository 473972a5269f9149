"""Llamas whose shapes no row has, predicted, then trained by transformers: `PYTHONPATH=. python tests/bench/unsampled_llamas.py PROFILE`.

Five Llamas of the transformers library, each predicted from the rows of a profile of this machine before any is trained, in three rounds of
turns. About six minutes of a quiet machine; a profile with rows of `configs/runs/this-machine` has the operators, not these widths.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import replace

from predict import one_batch
from predict.reports.text import show
from predict.reports.validation_here import validation_text
from predict.step.prediction import Prediction
from predict.validation.here import ValidatedRun, against_real_steps, notes_on
from sampling.files.places import CONFIGS

CONFIG = CONFIGS / "runs" / "transformers" / "library-llama.yml"
ROUNDS = 3


NAMES = [
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
]
UNSAMPLED = (
    ((512, 1376, 4, 8, 8, 4096), 160),
    ((256, 640, 10, 4, 2, 8000), 192),
    ((320, 864, 5, 5, 5, 12000), 128),
    ((384, 768, 6, 6, 3, 6000), 256),
)
"""The sizes of each Llama, by NAMES, and its tokens a sequence."""


def predicted(sizes: Sequence[int], seq_len: int, profile: str) -> Prediction:
    model = {"model_type": "llama", **dict(zip(NAMES, sizes, strict=True))}
    settings = [f"model={json.dumps(model)}", f"batch.seq_len={seq_len}", f"cluster.profile={profile}"]
    found = one_batch(CONFIG, settings)
    return replace(found, run=replace(found.run, name=f"llama of width {sizes[0]}"))


def main(profile: str) -> None:
    own = one_batch(CONFIG, [f"cluster.profile={profile}"])
    predictions = [own, *(predicted(*shape, profile) for shape in UNSAMPLED)]
    runs = [ValidatedRun(config=CONFIG, implementation="transformers")] * len(predictions)
    found = against_real_steps(runs, predictions, rounds=ROUNDS, report=lambda line: print(line, file=sys.stderr))
    show(validation_text(found.rows, notes_on(predictions)))


if __name__ == "__main__":
    main(*sys.argv[1:])
