"""Model FLOPs of forward and backward by convention: the same run has a different MFU in each, so a figure names its own.

Every function takes the keys of a Hugging Face `config.json` and the lengths of a batch's sequences, and returns the FLOPs of one
forward and backward pass over that batch. A model that a convention does not know is a ConfigError, never 0.

| function | attention | embedding look-up | recurrence | recomputation |
|---|---|---|---|---|
| `palm` | every pair of tokens, the later ones too | counted | left out | left out |
| `megatron` | half of the pairs | left out | counted | left out |
| `verl` | half of the pairs | counted | counted | left out |
| `exact` | each token with itself and the earlier ones | left out | counted | left out |
| `hfu` | as `exact` | left out | counted | counted |
"""

from __future__ import annotations

from predict.ledger.conventions.exact import exact, hfu
from predict.ledger.conventions.megatron import megatron
from predict.ledger.conventions.palm import palm
from predict.ledger.conventions.verl import verl

__all__ = ["exact", "hfu", "megatron", "palm", "verl"]
