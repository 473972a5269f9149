"""Whether a profile was sampled again after its models were fitted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sampling.store.profiles import MANIFEST, read_manifest


def sessions_since(facts: Mapping[str, Any], samples: Path) -> int:
    """Sampling sessions that a bank with these facts has not learnt from; 0 where the samples are not kept beside it.

    Raises SamplesError for a damaged manifest.
    """
    if not (samples / MANIFEST).is_file():
        return 0
    learnt = facts["provenance"]["sessions"]
    return sum(session not in learnt for session in read_manifest(samples).sessions)
