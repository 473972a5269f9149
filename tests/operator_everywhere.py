"""One operator in every room of the project that this runs in, by its name: what each makes of it, printed as JSON.

python -m tests.operator_everywhere NAME
"""

import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from predict.prices.open import SpeedOfLight
from predict.prices.price_list import PriceList
from predict.step.breakdown import calls_by_heading
from regressors.bank import artifact
from regressors.bank.bank import Bank
from regressors.dataset.training_data import training_data
from regressors.features.digests import hardware_digest
from regressors.fitting.fit import fit_operator
from sampling.call import Call, Counted, Request, make_call, registry
from sampling.choosing.shapes import calls_of, draw_models
from sampling.hardware.cluster import Cluster, load_cluster
from sampling.store.sample import Sample
from sampling.timing.time_calls import time_requests
from sampling.timing.timer import TimerSettings
from sampling.torch_work.collectives.process_groups import LoneRank
from tests.made_rows import small_ranges

QUICK = TimerSettings(warmup_repeats=1, least_repeats=2, most_repeats=3, seconds=0.0, attempts=1, most_batches=1)


def drawn(name: str, count: int) -> list[Call]:
    """The calls of the operator that a session draws."""
    calls = [call for model in draw_models(small_ranges(), count) for call in calls_of(model, 1, with_operators=True)]
    return list(dict.fromkeys(call for call in calls if name == call.NAME))


def timed(call: Call) -> list[Sample]:
    """The call's rows, timed on this CPU."""
    rows: list[Sample] = []
    time_requests(
        [Request(call=call, phases=call.PHASES)],
        device=torch.device("cpu"),
        cluster=load_cluster(hardware="cpu", nodes=1, gpus_per_node=1, profile="test", cores=1),
        ranks=LoneRank(),
        session=0,
        deadline_s=time.monotonic() + 60,
        settings=QUICK,
        keep=rows.append,
        say=lambda text: None,
    )
    return rows


def fitted(calls: list[Call], row: Sample, cluster: Cluster, directory: Path) -> Bank:
    """A bank that has learnt a GPU on which the operator takes 5 µs and 1.5 times what its bytes do."""
    samples = []
    for call in calls:
        time_us = 5.0 + 1.5 * sum(call.terms("forward", cluster).values())
        times = {"time_us": time_us, "low_us": 0.99 * time_us, "high_us": 1.01 * time_us}
        samples.append((replace(row, call=call, phase="forward", threads=0, quarantine="", **times), cluster))
    models = [fit_operator(data)[0] for data in training_data(samples)]
    hardware = {"0": hardware_digest(cluster)}
    artifact.save(directory, models, {"hardware": hardware, "architecture": cluster.gpu.architecture})
    return Bank.load(directory)


def main(name: str) -> dict[str, Any]:
    calls = drawn(name, 24)
    rows = timed(calls[0])
    cluster = load_cluster(hardware="h100-sxm", nodes=1, gpus_per_node=1, profile="test")
    analytic = PriceList([SpeedOfLight()], cluster, profile_error=None)
    counted = [Counted(call=calls[0], phase="forward", count=2)]
    with tempfile.TemporaryDirectory() as directory:
        bank = fitted(calls, rows[0], cluster, Path(directory))
        learnt = PriceList([bank, SpeedOfLight()], cluster, profile_error=None)
        (priced,) = learnt.priced(counted)
    return {
        "registered": name in registry(),
        "survives_its_fields": make_call(name, calls[0].fields()) == calls[0],
        "timed_us": {row.phase: row.time_us for row in rows},
        "expected_us": 2 * (5.0 + 1.5 * sum(calls[0].terms("forward", cluster).values())),
        "learnt": {"source": priced.time.source, "us": priced.total_us},
        "analytic": [one.time.source for one in analytic.priced(counted)],
        "ledger_us": calls_by_heading(counted, analytic),
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
