"""The batch, the cluster and the precision, turned."""

from __future__ import annotations

from typing import Any

from tests.predict.step.knobs.knob import Knob, all_work, bubble, exposed

BATCH_KNOBS = [
    Knob(key="batch__global", before=16, after=32, grows=True, base={}),
    # larger products, and fewer microbatches that add to the gradients
    Knob(key="batch__micro", before=1, after=4, grows=False, base={}),
    Knob(key="batch__micro", before=1, after=4, grows=True, metric=bubble, base={"plan__pp": 4}),
    Knob(key="batch__seq_len", before=4096, after=8192, grows=True, metric=exposed("attention"), base={}),
    Knob(
        key="batch__lengths",
        before="constant:512",
        after="constant:2048",
        grows=True,
        base={"batch__padding": "sorted"},
    ),
    Knob(key="batch__padding", before="max", after="sorted", grows=False, base={"batch__lengths": "uniform:256..4096"}),
]
_TWO_NODES: dict[str, Any] = {"plan__dp": 16, "execution__overlap_gradients": False}
CLUSTER_KNOBS = [
    Knob(key="cluster__hardware", before="h100-sxm", after="a100-80gb", grows=True, base={}),
    Knob(
        key="cluster__intra_node_gb_per_s", before=450, after=45, grows=True, metric=exposed("tp"), base={"plan__tp": 8}
    ),
    Knob(
        key="cluster__intra_node_latency_us",
        before=5,
        after=500,
        grows=True,
        metric=exposed("tp"),
        base={"plan__tp": 8},
    ),
    Knob(
        key="cluster__node_size",
        before=4,
        after=8,
        grows=False,
        metric=exposed("tp"),
        base={"cluster__hardware": "a100-80gb", "plan__tp": 2, "plan__dp": 2},
    ),
    Knob(
        key="cluster__inter_node_gb_per_s",
        before=50,
        after=5,
        grows=True,
        metric=exposed("dp_exposed"),
        base=_TWO_NODES,
    ),
    Knob(
        key="cluster__inter_node_latency_us",
        before=10,
        after=90_000,
        grows=True,
        metric=exposed("dp_exposed"),
        base=_TWO_NODES,
    ),
]
PRECISION_KNOBS = [
    Knob(key="precision", before="bf16", after="fp8", grows=False, metric=all_work, base={}),
    Knob(key="precision", before="bf16", after="tf32", grows=True, metric=all_work, base={}),
    Knob(key="precision", before="tf32", after="fp32", grows=True, metric=all_work, base={}),
]
