"""The rule by which a plan is chosen where nobody has written one, in words, and its figures."""

from __future__ import annotations

RULE = (
    "the smallest tp · pp that fits in memory; tp inside a node, with sequence parallelism; experts over as many ranks of a node as "
    "they divide among, over more nodes only where that does not fit; the rest data-parallel with ZeRO-1; 1F1B; microbatches of one "
    "sequence; full recomputation only where nothing fits without it"
)
TOKENS_PER_STEP = 4 * 2**20
"""The global batch of Llama 2 (arXiv 2307.09288, table 1: 4M tokens), in whole sequences per replica."""
LONGEST_SEQUENCE = 8192
"""The sequences of Llama 3's pre-training (arXiv 2407.21783, section 3.2), or as many positions as the model has, if fewer."""
MOST_GPUS = 2**17
"""GPUs up to which a number is sought that would do."""
