"""Settings of a whole job: what a user knows of a cluster's failures, saves and energy, as `KEY=VALUE` texts or a mapping."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from predict.ledger.job_energy import PUE
from sampling.errors import UserError
from sampling.files.faults import Fault
from sampling.files.schema import Key, build, one_of

GPU_HOURS_A_FAILURE = 50_000.0
"""GPU-hours between unexpected interruptions: 419 in 54 days of 16,384 H100 (Llama team, arXiv 2407.21783, table 5)."""
FAILURE_FACTOR = 3.7
"""Factor at 90 % by which that figure differs among published jobs: OPT-175B's 992 A100 had some 105 failures in two months (arXiv
2205.01068, section 2.5), one in 13,600 GPU-hours."""
NODE_SHARE = 0.69
"""Share of the 419 interruptions of that table that are of a node's own parts: 289 of GPUs and their memory, network cards, disks, power
supplies, chassis, boards, processors and memory."""
SYNC, ASYNC, IN_MEMORY = "sync", "async", "memory"
WAIT, SHRINK = "wait", "shrink"


@dataclass(frozen=True, kw_only=True, slots=True)
class JobSettings:
    """A cluster's failures and saves, and a job's evaluations. Rates and times of 0 leave a part out."""

    gpu_hours_a_failure: Annotated[float, Key(minimum=0, maximum=1e12)] = GPU_HOURS_A_FAILURE
    """GPU-hours between failures that stop the job, of GPUs, hosts, network and software; 0 for GPUs that never fail."""
    failure_factor: Annotated[float, Key(minimum=1, maximum=100)] = FAILURE_FACTOR
    """Factor, at 90 %, by which the rate of failures may be off either way; 1 where gpu_hours_a_failure is given and this is not."""
    node_hours_a_failure: Annotated[float, Key(minimum=0, maximum=1e12)] = 0.0
    """Node-hours between further failures, of hosts; 0 where gpu_hours_a_failure counts them."""
    switch_hours_a_failure: Annotated[float, Key(minimum=0, maximum=1e12)] = 0.0
    """Node-hours between further failures, of switches and cables; 0 where gpu_hours_a_failure counts them."""
    spot_hours_a_loss: Annotated[float, Key(minimum=0, maximum=1e12)] = 0.0
    """Node-hours between losses of a node that is rented on a spot market; 0 for reserved nodes."""
    detect_min: Annotated[float, Key(minimum=0, maximum=1e5)] = 5.0
    """Minutes from a failure until it is noticed (MegaScale, arXiv 2402.15627, section 6.3: under 10 with diagnosis)."""
    restart_min: Annotated[float, Key(minimum=0, maximum=1e5)] = 10.0
    """Minutes from there until the state is being loaded: nodes replaced, processes started (the same: it catches up within 15)."""
    compile_min: Annotated[float, Key(minimum=0, maximum=1e5)] = 0.0
    """Minutes of compilation and warm-up whenever the job starts, the first time too."""
    storage_gb_per_s: Annotated[float, Key(minimum=0, maximum=1e9)] = 0.0
    """GB/s at which all ranks together write and read a checkpoint; 0 for 2 a node (Llama team, section 3.3.1: 2 TB/s for some 1,000 to
    2,000 nodes)."""
    save: Annotated[str, one_of(SYNC, ASYNC, IN_MEMORY)] = ASYNC
    """sync: steps wait until a checkpoint is written; async: until it is in the host's memory, at a PCIe link's rate a GPU; memory: so too,
    and it is kept in the memory of another host, from which it is loaded (Gemini, SOSP 2023)."""
    save_min: Annotated[float, Key(minimum=0, maximum=1e6)] = 0.0
    """Minutes of steps between saves; 0 for the best."""
    evaluate_h: Annotated[float, Key(minimum=0, maximum=1e6)] = 0.0
    """Hours of steps between evaluations; 0 for none."""
    evaluation_min: Annotated[float, Key(minimum=0, maximum=1e5)] = 0.0
    """Minutes of one evaluation."""
    planned_h: Annotated[float, Key(minimum=0, maximum=1e6)] = 0.0
    """Hours of steps between planned stops, which restart and load and lose no work; 0 for none."""
    spares: Annotated[int, Key(minimum=0, maximum=10**6)] = 0
    """Spare nodes, which are paid for."""
    repair_h: Annotated[float, Key(minimum=0, maximum=1e5)] = 0.0
    """Mean hours until a broken node is back; 0 where the cluster gives another at once."""
    node_share: Annotated[float, Key(minimum=0, maximum=1)] = NODE_SHARE
    """Share of the failures that break a node (Llama team, table 5: 289 of 419)."""
    short: Annotated[str, one_of(WAIT, SHRINK)] = WAIT
    """When more nodes are broken than there are spares: wait for a repair, or shrink to fewer replicas, which share the same batch."""
    slow_node_h: Annotated[float, Key(minimum=0, maximum=1e12)] = 0.0
    """Node-hours until a node becomes slow, for which all wait; 0 for never."""
    slow_share: Annotated[float, Key(minimum=0, maximum=10)] = 0.1
    """The share by which a step is longer with it (MegaScale, section 6.3: machines that take some 10 % longer)."""
    slow_found_h: Annotated[float, Key(minimum=0, maximum=1e5)] = 1.0
    """Hours until a slow node is found, and the job restarts without it."""
    host_w: Annotated[float | None, Key(minimum=0, maximum=1e5)] = None
    """W a GPU that hosts draw beside the boards; default: half of the board's limit (an HGX H100 node: arXiv 2412.08602)."""
    network_w: Annotated[float | None, Key(minimum=0, maximum=1e5)] = None
    """W a GPU of switches; default: 5 % of the board's limit."""
    pue: Annotated[float, Key(minimum=1, maximum=5)] = PUE
    """Power of the whole building over that of its computers; 1 for the computers alone."""
    kg_per_kwh: Annotated[float, Key(minimum=0, maximum=5)] = 0.0
    """kg of CO2e per kWh of the grid, for the emissions; 0 where it is not known."""


def job_settings(given: Sequence[str] | Mapping[str, Any]) -> JobSettings:
    """The settings of `KEY=VALUE` texts, or of a mapping; UserError with a line for each that is wrong. A rate of failures that is given
    counts as known, unless it is said how well."""
    values, faults = (dict(given), []) if isinstance(given, Mapping) else texts_as_values(given)
    if "gpu_hours_a_failure" in values:
        values.setdefault("failure_factor", 1.0)
    return built(JobSettings, values, faults, option="--with")


def texts_as_values(texts: Sequence[str]) -> tuple[dict[str, Any], list[Fault]]:
    """The values of `KEY=VALUE` texts, numbers where they are some, and a fault for each text without one."""
    values: dict[str, Any] = {}
    faults: list[Fault] = []
    for text in texts:
        name, equals, value = text.partition("=")
        if equals:
            values[name.strip()] = _number_or_word(value.strip())
        else:
            faults.append(Fault(path=text, problem="has no value; write KEY=VALUE"))
    return values, faults


def _number_or_word(text: str) -> int | float | str:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


T = TypeVar("T")


def built(declared: type[T], values: Mapping[str, Any], faults: Sequence[Fault], *, option: str) -> T:
    """A dataclass from the values of an option; UserError with a line for each fault, those before first."""
    made, wrong = build(declared, values)
    if faults or made is None:
        raise UserError("\n".join(f"{option}: {fault.path}: {fault.problem}" for fault in (*faults, *wrong)))
    return made
